"""Prices of single kernels, one by one or a table at a time, with what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from moesim.base.errors import SpecError
from moesim.calibrate.families import FAMILIES
from moesim.calibrate.measurements import Rows, gpu_names
from moesim.calibrate.score import Score, score
from moesim.cost.attention import attention_parts
from moesim.cost.certainty import UNCALIBRATED
from moesim.cost.from_spec import build_gpu, build_residuals
from moesim.cost.gemm import gemm_parts
from moesim.cost.grouped import grouped_parts
from moesim.cost.machine import Gpu, Residuals
from moesim.cost.memory_bound import traffic_time
from moesim.cost.regimes import quantities, regime
from moesim.spec import library
from moesim.studies.nearest import MeasuredPoint, nearest
from moesim.workload.ops import AttentionCore, Gemm, Traffic

CATEGORIES = {"gemm": "gemm", "grouped-gemm": "grouped_gemm", "attention": "attention", "memory": "memory_bound"}


@dataclass(frozen=True)
class KernelPrice:
    """Price of one kernel.

    ``bound`` names what takes longest; ``efficiency`` is the share of that resource's datasheet rate; ``evidence`` says
    whether measurements cover it; ``nearest`` are measured kernels beside it.
    """

    gpu: str
    time_s: float
    low_s: float
    high_s: float
    flop: float
    num_bytes: float
    bound: str
    efficiency: float
    evidence: str
    parts: Mapping[str, float] = field(default_factory=dict)
    nearest: tuple[MeasuredPoint, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the unit in each key."""
        rates = {
            "flop_per_s": self.flop / self.time_s if self.flop else None,
            "bytes_per_s": self.num_bytes / self.time_s,
        }
        return {
            "gpu": self.gpu,
            "time_s": self.time_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            **rates,
            "bound": self.bound,
            "efficiency": self.efficiency,
            "evidence": self.evidence,
            **{f"{name}_s": value for name, value in self.parts.items()},
            "nearest": [dict(vars(point)) for point in self.nearest],
        }


def kernel_price(family: str, work: Gemm | AttentionCore | Traffic, gpu_name: str) -> KernelPrice:
    """Price of one kernel on one GPU, with its interval."""
    spec = library.get("gpus", gpu_name)
    gpu = build_gpu(spec)
    if isinstance(work, Gemm) and work.rate not in gpu.rates:
        raise SpecError.single(
            "--dtype", "", f"{spec.name} has no rate for '{work.rate}'", f"known: {', '.join(gpu.rates)}"
        )
    time, parts = _time(family, work, gpu)
    known = build_residuals(spec.name).get(family)
    name = str(regime(work, CATEGORIES[family], gpu))
    low, high = (known or UNCALIBRATED).bounds(name)
    peak = gpu.memory_bandwidth
    bound = max(parts, key=lambda part: parts[part])
    flop, moved = float(work.flop), float(work.hbm_bytes)
    if bound == "compute":
        key = {"bf16": "bf16", "fp16": "fp16"}.get(getattr(work, "rate", "bf16"), "fp8")
        key = "fp4" if getattr(work, "rate", "") == "nvfp4" else key
        efficiency = flop / time / spec.peak_flop_rate[key].value
    else:
        efficiency = moved / time / float(peak)
    evidence = _evidence(known, quantities(work))
    points = nearest(family, work, spec.name)
    return KernelPrice(
        spec.name, time, time * low, time * high, flop, moved, bound, efficiency, evidence, parts, points
    )


def _time(family: str, work: Gemm | AttentionCore | Traffic, gpu: Gpu) -> tuple[float, dict[str, float]]:
    match work:
        case Gemm():
            product = (grouped_parts if family == "grouped-gemm" else gemm_parts)(work, gpu)
            found = {"compute": product.compute, "memory": product.memory, "fixed": product.fixed}
            time = product.time
        case AttentionCore():
            kernel = attention_parts(work, gpu)
            found = {"compute": kernel.compute, "memory": kernel.memory, "fixed": kernel.fixed}
            time = kernel.time
        case Traffic():
            slower = gpu.kernels.quantize_efficiency if work.cast else 1.0
            time = traffic_time(work.hbm_bytes / slower, gpu)
            fixed = gpu.kernels.memory_fixed
            found = {"memory": time - fixed, "fixed": fixed}
    return float(time), {name: float(value) for name, value in found.items()}


def _evidence(known: Residuals | None, values: Mapping[str, Any]) -> Any:
    """Return what stands behind prices: one word each."""
    if known is None:
        return "assumed"
    outside: Any = False
    for name, value in values.items():
        if name in known.covered:
            low, high = known.covered[name]
            outside = outside | (np.asarray(value) < low) | (np.asarray(value) > high)
    inside = "calibrated" if known.stretch == 1.0 else "derived"
    told = np.where(outside, "extrapolated", inside)
    return str(told) if told.ndim == 0 else told


@dataclass(frozen=True)
class TablePrices:
    """Prices of the rows of a table against their times, and what was refused.

    ``rows``: the columns of the table, ``line`` in the file, ``gpu_name``, ``time_s``, ``predicted_time_s``, ``low_s``,
    ``high_s``, ``evidence`` and ``error``.
    """

    rows: pd.DataFrame
    refused: dict[str, int]
    score: Score

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``rows`` and ``summary``."""
        rows = self.rows.astype(object).where(self.rows.notna(), None).to_dict(orient="records")
        told = {name: getattr(self.score, name) for name in ("count", "median", "p90", "bias", "coverage")}
        return {"rows": rows, "summary": told | {"refused": self.refused}}


def table_prices(family: str, path: Path, gpu: str | None = None) -> TablePrices:
    """Price every row of a CSV on its own GPU.

    Parameters
    ----------
    family
        One of :data:`moesim.calibrate.families.FAMILIES`.
    path
        Table with columns as in gemm.csv, attention.csv or memory_kernels.csv.
    gpu
        GPU of the rows where the table has no such column; else rows of other GPUs are refused.
    """
    kind = FAMILIES[family]
    rows = kind.from_csv(path, None)
    if "gpu" in rows.frame:
        rows.frame = rows.frame.assign(gpu_name=gpu_names(rows.frame["gpu"]))
        rows.keep(rows.frame["gpu_name"] != "", "GPU is not known")
        if gpu is not None:
            rows.keep(rows.frame["gpu_name"] == library.find("gpus", gpu), f"not measured on {gpu}")
    elif gpu is None:
        raise SpecError.single(str(path), "gpu", "is missing", "add the column, or give --gpu")
    else:
        rows.frame = rows.frame.assign(gpu_name=library.find("gpus", gpu))
    parts = [
        _priced(family, part.reset_index(drop=True), str(name), rows) for name, part in rows.frame.groupby("gpu_name")
    ]
    if not sum(map(len, parts)):
        reasons = "; ".join(f"{count:,}: {reason}" for reason, count in sorted(rows.dropped.items()))
        raise SpecError.single(str(path), "", "has no row that can be priced", reasons or "it has no rows")
    frame = pd.concat(parts, ignore_index=True).sort_values("line").reset_index(drop=True)
    arrays = (frame[name].to_numpy(dtype=float) for name in ("predicted_time_s", "time_s", "low_s", "high_s"))
    found = score(*arrays)
    return TablePrices(_as_given(path, frame), rows.dropped, found)


PRICED = ("gpu_name", "time_s", "predicted_time_s", "low_s", "high_s", "evidence", "error")


def _as_given(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of the file as they stand there, with the prices of the rows behind them."""
    given = pd.read_csv(path, na_values=["N/A", "n/a", "-"], low_memory=False).iloc[frame["line"].to_numpy() - 2]
    given = given.drop(columns=[name for name in ("line", *PRICED) if name in given]).reset_index(drop=True)
    return pd.concat([frame[["line"]], given, frame[list(PRICED)]], axis=1)


def _priced(family: str, part: pd.DataFrame, name: str, rows: Rows) -> pd.DataFrame:
    kind, gpu, known = FAMILIES[family], build_gpu(library.get("gpus", name)), build_residuals(name).get(family)
    predicted = kind.predict(part, gpu, {})
    good = np.isfinite(predicted)
    if not good.all():
        reason = "GPU has no rate for the format"
        rows.dropped[reason] = rows.dropped.get(reason, 0) + int((~good).sum())
        part, predicted = part[good].reset_index(drop=True), predicted[good]
    regimes = kind.regimes(part, gpu)
    bounds = {one: (known or UNCALIBRATED).bounds(one) for one in set(regimes.tolist())}
    low, high = (predicted * np.array([bounds[one][end] for one in regimes]) for end in (0, 1))
    values = {column: part[column].to_numpy(dtype=float) for column in kind.covered if column in part}
    return part.assign(
        predicted_time_s=predicted,
        low_s=low,
        high_s=high,
        evidence=_evidence(known, values),
        error=predicted / part["time_s"].to_numpy(dtype=float) - 1,
    )
