"""Measured kernels next to one that is priced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from moesim.calibrate.families import FAMILIES
from moesim.calibrate.points import COLUMNS, points
from moesim.cost.from_spec import build_gpu
from moesim.spec import library
from moesim.workload.ops import AttentionCore, Gemm, Traffic

FUSED = "both products of the experts, with the kernels around them"


@dataclass(frozen=True)
class MeasuredPoint:
    """A measured kernel.

    ``distance``: doublings between its sizes and those asked for, as a root of the sum of squares. [-] ``error``: price of
    this very kernel over its measured time, less one. ``what``: where the row holds more than the kernel.
    """

    gpu: str
    shape: dict[str, float | str]
    time_s: float
    predicted_time_s: float
    error: float
    distance: float
    source: str
    what: str = ""


def nearest(family: str, work: Gemm | AttentionCore | Traffic, gpu: str, count: int = 3) -> tuple[MeasuredPoint, ...]:
    """Nearest shipped measurements of the GPU, or of the one whose calibration it uses; none where nobody measured.

    Parameters
    ----------
    family, work, gpu
        What is priced, and the name of the GPU.
    count
        How many at most.
    """
    if (isinstance(work, AttentionCore) and work.backward) or (isinstance(work, Traffic) and not work.plain):
        return ()
    overlay = library.calibrations_like(gpu).get(family)
    if overlay is None:
        return ()
    frame, source = points(family)
    chosen = frame["gpu"] == overlay.gpu
    if isinstance(work, Gemm):
        chosen &= frame["rate"] == work.rate
    frame = frame[chosen].reset_index(drop=True)
    if frame.empty:
        return ()
    distance = np.sqrt(sum(step**2 for step in _steps(family, work, frame)))
    frame = frame.assign(distance=distance).nsmallest(count, "distance").reset_index(drop=True)
    predicted = FAMILIES[family].predict(frame, build_gpu(library.get("gpus", overlay.gpu)), overlay.values("extra"))
    what = FUSED if family == "grouped-gemm" else ""
    return tuple(
        MeasuredPoint(
            overlay.gpu,
            {name: row[name] for name in COLUMNS[family]},
            float(row["time_s"]),
            float(price),
            float(price / row["time_s"] - 1),
            float(row["distance"]),
            source,
            what,
        )
        for row, price in zip(frame.to_dict(orient="records"), predicted, strict=True)
    )


def _steps(family: str, work: Gemm | AttentionCore | Traffic, frame: pd.DataFrame) -> list[Any]:
    """Doublings between each size of the rows and that of the kernel."""

    def away(name: str, value: Any) -> Any:
        return np.log2(frame[name].to_numpy(dtype=float) / float(value))

    match work:
        case Gemm() if family == "grouped-gemm":
            up = away("hidden", work.k) ** 2 + (away("width", work.n) + 1) ** 2
            down = away("hidden", work.n) ** 2 + away("width", work.k) ** 2
            return [away("m", work.m), away("groups", work.groups), np.sqrt(np.minimum(up, down))]
        case Gemm():
            return [away("m", work.m), away("n", work.n), away("k", work.k)]
        case AttentionCore():
            sizes = {"batch": work.batch, "length": work.queries, "heads": work.heads, "kv_heads": work.kv_heads}
            return [away(name, value) for name, value in sizes.items()] + [
                away("query_dim", work.query_dim),
                away("value_dim", work.value_dim),
            ]
        case Traffic():
            return [away("bytes", work.hbm_bytes)]
