"""What every answer stands on: the step with its interval, how strong its evidence is, what binds, and one measured number."""

from __future__ import annotations

from typing import Any

from moesim.result import Estimate


def basis(answer: Estimate, measured_s: float | None = None, variant: str = "") -> dict[str, Any]:
    """Plain values of a step beside what was measured of it.

    Parameters
    ----------
    answer
        The step that an answer rests on.
    measured_s
        A measured step; without one, what the scenario says was measured. [s]
    variant
        How the job differs from its scenario, in words; empty where it does not.

    Returns
    -------
    dict
        ``job`` and ``variant``, ``step_time_s`` with ``low_s`` and ``high_s`` of its 90 % interval, ``evidence``, ``binding`` and its share, and
        ``measured``: the number, ``ratio`` of measured over predicted, and whether it lies ``inside``; None without one.
    """
    if measured_s is None and answer.measured is not None:
        measured_s = float(answer.measured["step_time_s"])
    beside = None
    if measured_s is not None:
        inside = answer.low_s <= measured_s <= answer.high_s
        beside = {"step_time_s": measured_s, "ratio": measured_s / answer.step_time_s, "inside": inside}
    return {
        "job": answer.name,
        "variant": variant,
        "step_time_s": answer.step_time_s,
        "low_s": answer.low_s,
        "high_s": answer.high_s,
        "evidence": answer.evidence,
        "binding": dict(answer.binding),
        "measured": beside,
    }
