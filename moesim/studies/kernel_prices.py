"""Prices of single kernels, one by one or a table at a time, with what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from moesim.base.errors import SpecError
from moesim.calibrate.believable import impossible
from moesim.calibrate.experts import SHARES, uneven_word
from moesim.calibrate.families import FAMILIES
from moesim.calibrate.measurements import Rows, gpu_names, read_csv
from moesim.calibrate.score import Score, score
from moesim.cost.attention import attention_parts
from moesim.cost.from_spec import EFFICIENCIES, build_gpu, build_residuals
from moesim.cost.gemm import gemm_parts
from moesim.cost.grouped import Skewed, grouped_parts
from moesim.cost.kernel_certainty import kernel_certainty
from moesim.cost.machine import Gpu
from moesim.cost.memory_bound import traffic_time
from moesim.cost.regimes import quantities, regime
from moesim.spec import library
from moesim.spec.calibration import KERNEL_FAMILIES, CalibrationSpec
from moesim.spec.hardware import GpuSpec
from moesim.spec.validation import validate
from moesim.studies.nearest import MeasuredPoint, nearest
from moesim.workload.ops import AttentionCore, Gemm, Traffic

CATEGORIES = {"gemm": "gemm", "grouped-gemm": "grouped_gemm", "attention": "attention", "memory": "memory_bound"}


@dataclass(frozen=True)
class KernelPrice:
    """Price of one kernel.

    ``bound`` names what takes longest; ``efficiency`` is the share of that resource's datasheet rate; ``evidence`` is
    the grade of the price and ``why`` what lowers it; ``nearest`` are measured kernels beside it.
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
    why: tuple[str, ...] = ()
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
            "why": list(self.why),
            **{f"{name}_s": value for name, value in self.parts.items()},
            "nearest": [dict(vars(point)) for point in self.nearest],
        }


@dataclass(frozen=True)
class Asked:
    """A kernel, and what tells it from those that were measured.

    ``unlike``: in words. ``skewed``, ``skew_ranks``: groups of unequal sizes, of the hottest of so many ranks.
    ``form``: ``grouped``, or its alternatives ``loop`` (a kernel for each group) and ``padded`` (groups of
    ``capacity`` rows in one batch). ``own``: the user's calibrations.
    """

    family: str
    work: Gemm | AttentionCore | Traffic
    gpu: str
    unlike: tuple[str, ...] = ()
    skewed: Skewed | None = None
    skew_ranks: int = 1
    form: str = "grouped"
    capacity: int = 0
    own: tuple[CalibrationSpec, ...] = ()


def kernel_price(asked: Asked) -> KernelPrice:
    """Price of one kernel on one GPU, with its interval."""
    family, work = asked.family, asked.work
    spec = gpu_with(asked.gpu, asked.own)
    gpu = build_gpu(spec)
    if isinstance(work, Gemm) and work.rate not in gpu.rates:
        raise SpecError.single(
            "--dtype", "", f"{spec.name} has no rate for '{work.rate}'", f"known: {', '.join(gpu.rates)}"
        )
    time, parts = _time(asked, gpu)
    single = replace(work, groups=1) if isinstance(work, Gemm) and asked.form == "loop" else work
    prices_of = "gemm" if asked.form in ("loop", "padded") else family
    known = build_residuals(spec.name, asked.own).get(prices_of)
    name = str(regime(single, CATEGORIES[prices_of], gpu))
    if asked.skewed is not None and asked.form == "grouped":
        name += uneven_word(asked.skew_ranks)
    sure = kernel_certainty(known, name, quantities(single), asked.unlike)
    ends = (time * float(sure.low), time * float(sure.high))
    bound = max(parts, key=lambda part: parts[part])
    flop, moved = float(work.flop), float(work.hbm_bytes)
    efficiency = moved / time / float(gpu.memory_bandwidth)
    if bound == "compute":
        rate = getattr(work, "rate", "bf16")
        efficiency = flop / time / spec.peak_flop_rate[EFFICIENCIES[rate][0] if rate in EFFICIENCIES else rate].value
    points = () if asked.unlike or asked.form != "grouped" else nearest(family, work, spec.name)
    (evidence,) = sure.grades
    return KernelPrice(spec.name, time, *ends, flop, moved, bound, efficiency, evidence, sure.why, parts, points)


def gpu_with(name: str, own: tuple[CalibrationSpec, ...]) -> GpuSpec:
    """Return a GPU with the user's own calibrations; each must be one of its kernels."""
    found = library.find("gpus", name)
    for one in own:
        if one.family not in KERNEL_FAMILIES:
            raise SpecError.single("--calibrations", "", f"'{one.name}' is a calibration of {one.family}")
        if library.find("gpus", one.gpu) != found:
            what = f"'{one.name}' is a calibration of {one.gpu}, not of {found}"
            raise SpecError.single("--calibrations", "", what, f"name --gpu {one.gpu}")
    families = [one.family for one in own]
    if len(set(families)) < len(families):
        raise SpecError.single("--calibrations", "", "two files are of one family", "name one of each")
    return validate(GpuSpec, library.calibrated(library.document("gpus", found), own))


def least_time(asked: Asked) -> float:
    """Time at the datasheet rate of the GPU: nothing is faster. [s]"""
    spec, work = library.get("gpus", asked.gpu), asked.work
    match work:
        case Gemm():
            frame = pd.DataFrame({"m": [work.m], "n": [work.n], "k": [work.k], "groups": [work.groups]})
            frame = frame.assign(rate=work.rate, fused=False)
        case AttentionCore():
            rate = spec.peak_flop_rate["bf16"].value
            return float(work.flop) / rate
        case Traffic():
            frame = pd.DataFrame({"bytes": [work.hbm_bytes]})
    return float(FAMILIES[asked.family].least(frame, spec)[0])


def _time(asked: Asked, gpu: Gpu) -> tuple[float, dict[str, float]]:
    work = asked.work
    match work:
        case Gemm():
            return _product_time(asked, work, gpu)
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


def _product_time(asked: Asked, work: Gemm, gpu: Gpu) -> tuple[float, dict[str, float]]:
    repeats: Any = 1
    if asked.family == "gemm":
        product = gemm_parts(work, gpu)
    elif asked.form == "loop":
        product, repeats = gemm_parts(replace(work, groups=1), gpu), work.groups
    elif asked.form == "padded":
        product = gemm_parts(replace(work, m=max(asked.capacity, float(work.m))), gpu)
    else:
        product = grouped_parts(work, gpu if asked.skewed is None else _slower_for_skew(asked, gpu), asked.skewed)
    parts = {"compute": product.compute, "memory": product.memory, "fixed": product.fixed}
    return float(repeats * product.time), {name: float(repeats * value) for name, value in parts.items()}


def _slower_for_skew(asked: Asked, gpu: Gpu) -> Gpu:
    """GPU at the rate that groups of unequal sizes reach of that of equal ones, as measured on fused experts."""
    used = {one.family: one for one in asked.own}.get("grouped-gemm")
    shipped = used or library.calibrations_like(library.find("gpus", asked.gpu)).get("grouped-gemm")
    penalty = shipped.values("extra").get("uneven_penalty", 1.0) if shipped else 1.0
    shares = {name: getattr(gpu.kernels, name) / penalty for name in SHARES}
    return replace(gpu, kernels=replace(gpu.kernels, **shares))


@dataclass(frozen=True)
class TablePrices:
    """Prices of the rows of a table against their times, and what was refused.

    ``rows``: the columns of the table, ``line`` in the file, ``gpu_name``, ``time_s``, ``predicted_time_s``, ``low_s``,
    ``high_s``, ``evidence`` and ``error``.
    """

    rows: pd.DataFrame
    refused: dict[str, int]
    score: Score
    priced: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``rows`` and ``summary``."""
        rows = self.rows.astype(object).where(self.rows.notna(), None).to_dict(orient="records")
        names = ("median", "p90", "bias", "coverage") if self.score.count else ()
        told = {name: getattr(self.score, name) for name in names}
        return {
            "rows": rows,
            "summary": {"count": self.priced, "timed": self.score.count, **told, "refused": self.refused},
        }


def table_prices(family: str, path: Path, gpu: str | None = None, own: tuple[CalibrationSpec, ...] = ()) -> TablePrices:
    """Price every row of a CSV on its own GPU.

    Parameters
    ----------
    family
        One of :data:`moesim.calibrate.families.FAMILIES`.
    path
        Table with columns as in gemm.csv, attention.csv or memory_kernels.csv.
    gpu
        GPU of the rows where the table has no such column; else rows of other GPUs are refused.
    own
        The user's calibrations.
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
        _priced(family, part.reset_index(drop=True), str(name), rows, own)
        for name, part in rows.frame.groupby("gpu_name")
    ]
    if not sum(map(len, parts)):
        reasons = "; ".join(f"{count:,}: {reason}" for reason, count in sorted(rows.dropped.items()))
        raise SpecError.single(str(path), "", "has no row that can be priced", reasons or "it has no rows")
    frame = pd.concat(parts, ignore_index=True).sort_values("line").reset_index(drop=True)
    timed = frame[frame["time_s"].notna()]
    arrays = (timed[name].to_numpy(dtype=float) for name in ("predicted_time_s", "time_s", "low_s", "high_s"))
    return TablePrices(_as_given(path, frame), rows.dropped, score(*arrays), len(frame))


PRICED = ("gpu_name", "time_s", "predicted_time_s", "low_s", "high_s", "evidence", "error")


def _as_given(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of the file as they stand there, with the prices of the rows behind them.

    A column of the file that has the name of one of ours keeps its values as ``given_...``.
    """
    given = read_csv(path, ()).set_index("line").loc[frame["line"]].reset_index(drop=True)
    columns = {name: _numbers(given[name]) for name in given}
    ours = ("line", *PRICED)
    renamed = {f"given_{name}" if name in ours else name: values for name, values in columns.items()}
    return pd.concat([frame[["line"]], pd.DataFrame(renamed), frame[list(PRICED)]], axis=1)


def _numbers(values: pd.Series[Any]) -> pd.Series[Any]:
    """Values as numbers, where all of them are."""
    found = pd.to_numeric(values, errors="coerce")
    return found if (found.notna() | values.isna()).all() else values


def _priced(
    family: str, part: pd.DataFrame, name: str, rows: Rows, own: tuple[CalibrationSpec, ...] = ()
) -> pd.DataFrame:
    kind, spec, known = FAMILIES[family], gpu_with(name, own), build_residuals(name, own).get(family)
    gpu, left = build_gpu(spec), Rows(part, "", "", len(part), rows.dropped)
    impossible(kind, left, spec)
    predicted = kind.predict(left.frame, gpu, {})
    left.keep(np.isfinite(predicted), "GPU has no rate for the format")
    part, predicted = left.frame, predicted[np.isfinite(predicted)]
    names = kind.regimes(part, gpu).astype(str)
    doubts = part["unlike"].to_numpy(dtype=str) if "unlike" in part else np.full(len(part), "")
    covered = {column: part[column].to_numpy(dtype=float) for column in kind.covered if column in part}
    low, high, grades = np.empty(len(part)), np.empty(len(part)), np.full(len(part), "", dtype=object)
    for regime_name, doubt in sorted(set(zip(names.tolist(), doubts.tolist(), strict=True))):
        here = (names == regime_name) & (doubts == doubt)
        inside = {column: values[here] for column, values in covered.items()}
        sure = kernel_certainty(known, regime_name, inside, (doubt,) if doubt else ())
        low[here], high[here] = predicted[here] * sure.low, predicted[here] * sure.high
        grades[here] = sure.grades if len(sure.grades) == here.sum() else sure.grades * int(here.sum())
    times = part["time_s"].to_numpy(dtype=float)
    return part.assign(predicted_time_s=predicted, low_s=low, high_s=high, evidence=grades, error=predicted / times - 1)
