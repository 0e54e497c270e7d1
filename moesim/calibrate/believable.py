"""Rows of a user's table that cannot be, and tables that mix up units: dropped with a count, or refused in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from moesim.base.errors import SpecError
from moesim.calibrate.measurements import Rows
from moesim.cost.from_spec import build_gpu
from moesim.spec.hardware import GpuSpec

if TYPE_CHECKING:
    from moesim.calibrate.family import Family

Floats = NDArray[np.floating[Any]]
FEWEST = 6
"""Rows that a stage must have."""
FEW_ROWS = 100
"""Rows below which none is held out."""
FASTER = 1.05
"""How much faster than the datasheet allows a row may be: clocks vary."""
APART = 3.0
"""Time over what the other rows make of it, from which one of a few rows is taken for an outlier."""
UNIT_APART = 10.0
"""Median of time over price from which a table is taken to be in other units or of another kind of machine."""
ABSURD = 0.5
"""Median error from which a fit to a few rows is refused. [-]"""


def believable(family: Family, rows: Rows, spec: GpuSpec) -> None:
    """Drop rows of a user's table that cannot be, and refuse the table where too little is left or units are mixed up."""
    impossible(family, rows, spec)
    rows.keep(~rows.frame.duplicated([*_shape_columns(family, rows.frame), "time_s"]), "the same row again")
    shapes = rows.frame[_shape_columns(family, rows.frame)].drop_duplicates()
    enough(rows, len(shapes))
    apart = np.log(family.predict(rows.frame, build_gpu(spec), _extra(family)) / rows.frame["time_s"].to_numpy())
    finite = np.isfinite(apart)
    rows.keep(finite, "GPU has no rate for the format")
    middle = float(np.median(apart[finite])) if finite.any() else 0.0
    if abs(middle) > np.log(UNIT_APART):
        word = "slower" if middle < 0 else "faster"
        what = f"times are {np.exp(abs(middle)):,.0f} times {word} than the price of this GPU"
        raise SpecError.single(rows.source, "", what, "check the unit of the times (time_us is microseconds)")
    if len(rows.frame) < FEW_ROWS:
        close = np.abs(apart[finite] - middle) <= np.log(APART)
        rows.keep(close, f"more than {APART:g} times off from what the other rows say")
    enough(rows, len(rows.frame))


def impossible(family: Family, rows: Rows, spec: GpuSpec) -> None:
    """Drop rows that are faster than the datasheet of the GPU allows."""
    if len(rows.frame):
        fast = rows.frame["time_s"].to_numpy(dtype=float) * FASTER < family.least(rows.frame, spec)
        rows.keep(~fast, "faster than the datasheet allows: check the units")


def _shape_columns(family: Family, frame: pd.DataFrame) -> list[str]:
    names = dict.fromkeys((*family.keys, "rate", "m", "n", "k", "groups", "backward"))
    return [name for name in names if name in frame]


def _extra(family: Family) -> dict[str, float]:
    return {one.name: one.prior for stage in family.stages for one in stage.extra}


def enough(rows: Rows, count: int) -> None:
    """Refuse a table with fewer than six rows or shapes that can be used."""
    if count < FEWEST:
        reasons = "".join(f"; {number:,}: {reason}" for reason, number in sorted(rows.dropped.items()))
        shapes = "" if count == len(rows.frame) else f" ({count} shapes)"
        what = f"only {len(rows.frame)} of {rows.read} rows{shapes} can be used{reasons}"
        raise SpecError.single(rows.source, "", what, f"give at least {FEWEST}")


def refuse_absurd(rows: Rows, predicted: Floats, frame: pd.DataFrame) -> None:
    """Refuse a fit that does not follow its own rows."""
    error = float(np.median(np.abs(predicted / frame["time_s"].to_numpy(dtype=float) - 1)))
    if error > ABSURD:
        what = f"the best fit is still {error:.0%} off (median of {len(frame)} rows)"
        raise SpecError.single(rows.source, "", what, "check the units, and that all rows are of this GPU and family")
