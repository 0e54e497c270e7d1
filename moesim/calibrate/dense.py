"""Dense GEMM: rows of the package and of CSV files, and the constants that they decide."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from moesim.calibrate.family import Family, Floats, Stage, csv_or_package
from moesim.calibrate.fit import Parameter
from moesim.calibrate.measurements import Rows, gpu_names, numbers, read_csv, started, with_times
from moesim.calibrate.tables import package_table, source_key
from moesim.cost.from_spec import EFFICIENCIES
from moesim.cost.gemm import gemm_time
from moesim.cost.machine import Gpu
from moesim.cost.regimes import gemm_regime
from moesim.spec.hardware import GpuSpec
from moesim.workload.ops import Gemm

OPERAND_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8-rowwise": 1.0,
    "fp8-blockwise": 1.0,
    "mxfp8": 33 / 32,
    "nvfp4": 9 / 16,
}
"""Bytes of an operand value with its scales, by key of the rate."""
PACKAGE_RATES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8-blockwise"}
LEAST = 64
"""Rows, columns and depth below which a GEMM is a matrix-vector product, which this form does not fit."""
WITH_CASTS = ("fp8", "fp8-blockwise")
"""Formats whose published rows often hold the cast of the left operand."""
MOSTLY_CAST = 0.3
"""Share of a row that the GEMM itself must be."""


def read(source: str, gpu: str) -> Rows:
    """GEMM timings of one GPU from the package or a CSV."""
    path, framework = csv_or_package(source)
    rows = _from_package(gpu, framework) if path is None else from_csv(path, gpu)
    return rows.keep((rows.frame[["m", "n", "k"]] >= LEAST).all(axis=1), f"m, n or k below {LEAST}")


def _from_package(gpu: str, framework: str) -> Rows:
    table, version = package_table(gpu, "gemm", "gemm_perf", framework)
    rows = Rows(table, source_key(), version, len(table))
    rows.keep(table["gemm_dtype"].isin(PACKAGE_RATES), "format is not modelled")
    rows.frame = rows.frame.assign(
        rate=rows.frame["gemm_dtype"].map(PACKAGE_RATES),
        cast_s=0.0,
        **{name: rows.frame[name].astype(float) for name in "mnk"},
    )
    _checked(rows)
    rows.keep(~rows.frame.duplicated(["rate", "m", "n", "k"]), "same shape again")
    rows.frame = _without_casts(rows.frame, gpu, framework)
    return rows.keep(
        rows.frame["time_s"] > MOSTLY_CAST * (rows.frame["time_s"] + rows.frame["cast_s"]),
        "FP8 row is mostly the cast of its left operand",
    )


def _without_casts(frame: pd.DataFrame, gpu: str, framework: str) -> pd.DataFrame:
    """Take the cast of the left operand, as the same package measured it, off rows of FP8 with one scale a tensor."""
    narrow = frame["rate"] == "fp8"
    if not narrow.any():
        return frame
    cast = pd.Series(0.0, index=frame.index)
    for name in ("computescale_perf", "scale_matrix_perf"):
        table, _ = package_table(gpu, "quantize", name, framework)
        times = table.drop_duplicates(["m", "k"]).set_index(["m", "k"])["time_s"]
        found = times.reindex(pd.MultiIndex.from_frame(frame[["m", "k"]].astype(int))).to_numpy()
        cast += np.where(narrow, found, 0.0)
    return frame.assign(cast_s=cast, time_s=frame["time_s"] - cast)


def from_csv(path: Path, gpu: str | None) -> Rows:
    """Rows of a CSV with columns as in docs/kernel_tables.md; those of other GPUs are dropped where `gpu` is given."""
    frame = numbers(read_csv(path, ("m", "n", "k")), ("m", "n", "k", "time_us", "tflops", "groups", "cast_us"))
    tells_time = bool({"time_us", "tflops"} & set(frame))
    groups = frame["groups"].fillna(1.0) if "groups" in frame else pd.Series(1.0, frame.index)
    frame = frame.assign(time_s=times(frame, 2 * frame["m"] * frame["n"] * frame["k"] * groups), cast_s=0.0)
    if "cast_us" in frame:
        cast = frame["cast_us"].fillna(0.0) * 1e-6
        frame = frame.assign(cast_s=cast, time_s=frame["time_s"] - cast)
    frame = frame.assign(rate=rate_names(frame["dtype"]) if "dtype" in frame else "bf16", alone=groups == 1)
    unsure = frame["rate"].isin(WITH_CASTS) & ("cast_us" not in frame)
    rows = started(frame.assign(unlike=np.where(unsure, "the row may hold the cast of its left operand", "")), path)
    rows.keep(rows.frame["rate"] != "", "format is not modelled")
    if "kind" in rows.frame:
        rows.keep(rows.frame["kind"].fillna("dense") == "dense", "not a dense GEMM")
    rows.keep(rows.frame["alone"], "not a dense GEMM")
    if "gpu" in rows.frame and gpu is not None:
        rows.keep(gpu_names(rows.frame["gpu"]) == gpu, f"not measured on {gpu}")
    return with_times(rows, ("m", "n", "k"), tells_time)


def times(frame: pd.DataFrame, flop: pd.Series[float]) -> pd.Series[float]:
    """Times of rows [s]: as written, or by the rate that stands there instead; NaN where there is neither."""
    found = frame["time_us"] * 1e-6 if "time_us" in frame else pd.Series(np.nan, frame.index)
    return found.fillna(flop / frame["tflops"] / 1e12) if "tflops" in frame else found


def rate_names(formats: pd.Series[str]) -> pd.Series[str]:
    """Keys of the rates for the formats that tables write; empty where none fits, or where the field is."""

    def name(text: str) -> str:
        text = text.lower()
        if "mxfp8" in text:
            return "mxfp8"
        if "nvfp4" in text:
            return "nvfp4"
        if "fp8" in text:
            if "row" in text:
                return "fp8-rowwise"
            return "fp8-blockwise" if "128" in text or "block" in text else "fp8"
        return next(
            (key for word, key in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")) if word in text), ""
        )

    return formats.fillna("").map(name)


def _checked(rows: Rows) -> Rows:
    return with_times(rows, ("m", "n", "k"), True)


def least_times(frame: pd.DataFrame, spec: GpuSpec) -> Floats:
    """Times at the dense rate of the datasheet: nothing is faster. [s]"""
    flop = (2 * frame["m"] * frame["n"] * frame["k"] * frame.get("groups", 1.0)).to_numpy(dtype=float)
    return flop / peaks(frame["rate"], spec)


def peaks(rates: pd.Series[str], spec: GpuSpec) -> Floats:
    """Rate of the datasheet for each kind of operand; infinite where it has none. [FLOP/s]"""
    known = {name: spec.peak_flop_rate.get(EFFICIENCIES[name][0] if name in EFFICIENCIES else name) for name in rates}
    return np.array([one.value if (one := known[name]) else np.inf for name in rates], dtype=float)


def works(frame: pd.DataFrame, rate: str) -> Gemm:
    """Rows of one format as a GEMM of arrays."""
    m, n, k = (frame[name].to_numpy(dtype=float) for name in "mnk")
    return Gemm(m, n, k, rate=rate, operand_bytes=OPERAND_BYTES[rate])


def predict(frame: pd.DataFrame, gpu: Gpu, extra: Mapping[str, float]) -> Floats:
    """Times of rows. [s] FP8 with scales by block holds the cast of the left operand, which `extra` prices."""
    times = np.empty(len(frame))
    for rate in frame["rate"].unique():
        chosen = (frame["rate"] == rate).to_numpy()
        if rate not in gpu.rates:
            times[chosen] = np.nan
            continue
        work = works(frame[chosen], rate)
        times[chosen] = gemm_time(work, gpu)
        if rate == "fp8-blockwise" and extra:
            cast = 3 * work.m * work.k / gpu.memory_bandwidth
            times[chosen] += extra["blockwise_cast_traffic"] * cast + extra["blockwise_cast_fixed"]
    return times


def regimes(frame: pd.DataFrame, gpu: Gpu) -> NDArray[Any]:
    """Regimes of rows."""
    named = np.empty(len(frame), dtype=object)
    for rate in frame["rate"].unique():
        chosen = (frame["rate"] == rate).to_numpy()
        named[chosen] = gemm_regime(works(frame[chosen], rate))
    return named


def _is(*rates: str) -> Any:
    return lambda frame: frame["rate"].isin(rates)


SIXTEEN_BIT = Stage(
    "16-bit",
    _is("bf16", "fp16"),
    (
        Parameter("gemm_efficiency", 0.83, 0.3, 0.97),
        Parameter("gemm_memory_efficiency", 0.82, 0.3, 1.0),
        Parameter("gemm_fixed", 2.5e-6, 3e-7, 2e-5, dimension="time"),
        Parameter("gemm_prologue", 140, 10, 1000),
        Parameter("gemm_power_slope", 0.06, 0.002, 0.4),
        Parameter("gemm_norm", 3.1, 1.5, 12),
        Parameter("gemm_wave_smoothing", 0.75, 0.001, 1),
        Parameter("gemm_power_onset", 3.5e11, 1e10, 1e13, dimension="flop"),
        Parameter("gemm_split_fixed", 2.9e-6, 1e-8, 1e-5, dimension="time"),
        Parameter("gemm_reduction", 2.3, 0.05, 10),
        Parameter("gemm_input_l2", 0.75, 0.05, 4),
        Parameter("gemm_input_speedup", 2.0, 1, 20),
        Parameter("gemm_output_l2", 0.4, 0.05, 4),
        Parameter("gemm_output_speedup", 1.3, 1, 20),
        Parameter("gemm_small_tile_penalty", 1.25, 0.7, 4),
        Parameter("gemm_half_tile_penalty", 1.02, 0.7, 4),
        Parameter("gemm_square_tile_penalty", 1.01, 0.7, 4),
        Parameter("gemm_idle_gain", 0.4, 0.001, 0.6),
        Parameter("gemm_power_depth", 0.3, 0.001, 5),
    ),
)
FP8 = Stage(
    "fp8",
    _is("fp8"),
    (
        Parameter("fp8_efficiency", 0.74, 0.2, 0.97),
        Parameter("gemm_narrow_fixed", 3.7e-6, 3e-7, 2e-5, dimension="time"),
        Parameter("gemm_narrow_prologue", 1.0, 0.2, 5),
    ),
)
BLOCKWISE = Stage(
    "fp8-blockwise",
    _is("fp8-blockwise"),
    (Parameter("fp8_blockwise_efficiency", 0.69, 0.2, 0.97),),
    (
        Parameter("blockwise_cast_traffic", 1.5, 0.1, 10),
        Parameter("blockwise_cast_fixed", 2e-6, 1e-8, 2e-5, dimension="time"),
    ),
)
DENSE = Family(
    "gemm",
    read,
    from_csv,
    predict,
    regimes,
    (SIXTEEN_BIT, FP8, BLOCKWISE),
    split=("m", "n", "k"),
    keys=("rate", "m", "n", "k"),
    covered=("m", "n", "k"),
    least=least_times,
    shared=_is("bf16", "fp16"),
)
