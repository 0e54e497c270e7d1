"""How often to save a checkpoint, and what failures cost: formulas in seconds, any of which may be an array."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from moesim.base.numeric import Numeric


def job_mtbf(parts: Iterable[tuple[Numeric, Numeric]]) -> Numeric:
    r"""Mean time between failures of a job that stops with any of its parts. [s]

    .. math:: M = 1 / \sum_i n_i / M_i

    Parameters
    ----------
    parts
        Number of each kind of part [-] and mean time to failure of one [s].
    """
    rate: Numeric = 0.0
    for count, mttf in parts:
        rate = rate + count / mttf
    return 1 / rate


def young_interval(save: Numeric, mtbf: Numeric) -> Numeric:
    r"""Time between checkpoints that wastes least to first order, :math:`\sqrt{2 \delta M}`. [s]

    Parameters
    ----------
    save
        How long a save stops the job, delta. [s]
    mtbf
        Mean time between failures, M. [s]

    References
    ----------
    young1974
    """
    return np.sqrt(2 * save * mtbf)


def daly_interval(save: Numeric, mtbf: Numeric) -> Numeric:
    r"""Time between checkpoints, to higher order. [s]

    .. math:: \sqrt{2 \delta M} \left(1 + \frac{1}{3} \sqrt{\frac{\delta}{2 M}} + \frac{\delta}{18 M}\right) - \delta,
              \qquad M \text{ where } \delta \ge 2 M

    References
    ----------
    daly2006, eq. (37)
    """
    share = save / (2 * mtbf)
    found = young_interval(save, mtbf) * (1 + np.sqrt(share) / 3 + share / 9) - save
    return np.where(share < 1, found, mtbf)


def availability_interval(save: Numeric, mtbf: Numeric, restart: Numeric) -> Numeric:
    r"""Time from save to save, the save included, at which the job computes most of the time. [s]

    .. math:: \tau = T_s + \sqrt{T_s^2 + 2 (T_f + T_r) T_s}

    It maximises :math:`(1 - T_s / \tau) / (T_f + T_r + \tau / 2)`: half an interval is lost with each failure.

    References
    ----------
    availability-2410.18124
    """
    return save + np.sqrt(save**2 + 2 * (mtbf + restart) * save)


def wasted_shares(
    interval: Numeric, save: Numeric, mtbf: Numeric, restart: Numeric, late: Numeric = 0.0
) -> dict[str, Numeric]:
    r"""Shares of the time that saving, repeating and restarting take, to first order. [-]

    .. math:: \frac{\delta}{\tau} + \frac{\tau / 2 + l}{M} + \frac{R}{M}

    Parameters
    ----------
    interval
        Computing time between saves, tau. [s]
    save, restart
        How long a save and a restart stop the job, delta and R. [s]
    mtbf
        Mean time between failures, M. [s]
    late
        How long after it begins a save can be restored from, l: the background part of an asynchronous one. [s]
    """
    return {"save": save / interval, "repeat": (interval / 2 + late) / mtbf, "restart": restart / mtbf}


def goodput(interval: Numeric, save: Numeric, mtbf: Numeric, restart: Numeric, late: Numeric = 0.0) -> Numeric:
    r"""Share of the time in which new work is done, failures at random. [-]

    .. math:: \frac{\tau}{M e^{(R + l) / M} \left(e^{(\tau + \delta) / M} - 1\right)}

    Parameters as in :func:`wasted_shares`; to first order one minus their sum.

    References
    ----------
    daly2006, eq. (20)
    """
    return interval / (mtbf * np.exp((restart + late) / mtbf) * np.expm1((interval + save) / mtbf))
