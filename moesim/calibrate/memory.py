"""Memory-bound kernels: rows of casts from the package and of CSV files, and the constants that they decide."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from moesim.calibrate.family import Family, Floats, Stage, csv_or_package
from moesim.calibrate.fit import Parameter
from moesim.calibrate.measurements import Rows, gpu_names, numbers, one_of, read_csv, started, with_times
from moesim.calibrate.tables import package_table, source_key
from moesim.cost.machine import Gpu
from moesim.cost.memory_bound import traffic_time
from moesim.cost.regimes import traffic_regime
from moesim.spec.hardware import GpuSpec
from moesim.workload.ops import Traffic


def read(source: str, gpu: str) -> Rows:
    """Timings of memory-bound kernels of one GPU from the package or a CSV."""
    path, framework = csv_or_package(source)
    if path is None:
        return _from_package(gpu, framework)
    rows = from_csv(path, gpu)
    return rows.keep(rows.frame["plain"], "no plain kernel: it reduces, gathers, computes or looks for a scale")


def _from_package(gpu: str, framework: str) -> Rows:
    # a cast by a known scale moves its bytes as a copy does; one that looks for the scale first is slower
    table, version = package_table(gpu, "quantize", "scale_matrix_perf", framework)
    rows = Rows(table, source_key(), version, len(table))
    rows.keep(table["quant_dtype"] == "fp8", "format is not modelled")
    sizes = rows.frame[["m", "k"]].astype(float)
    rows.frame = rows.frame.assign(bytes=3 * sizes["m"] * sizes["k"], kernel="cast to FP8", cast=False, plain=True)
    rows.keep(rows.frame["time_s"] > 0, "time is not positive")
    return rows.keep(~rows.frame.duplicated(["m", "k"]), "same shape again")


PLAIN = r"copy|(?<!compute_)scale_matrix|^add\b|stream|memcpy"
"""Kernels that read and write every byte once, by the word that tables use."""
CASTS = r"cast|quant"


def from_csv(path: Path, gpu: str | None) -> Rows:
    """Rows of a CSV with columns as in docs/kernel_tables.md: ``bytes``, and ``time_us`` or ``gbs``."""
    frame = numbers(read_csv(path, ()), ("bytes", "time_us", "gbs"))
    one_of(path, frame, ("bytes", "time_us and gbs"), not {"time_us", "gbs"} <= set(frame))
    tells_time = bool({"time_us", "gbs"} & set(frame))
    missing = pd.Series(np.nan, frame.index)
    size, rate = frame.get("bytes", missing), frame.get("gbs", missing) * 1e9
    time = (frame.get("time_us", missing) * 1e-6).fillna(size / rate)
    kernels = frame["kernel"].fillna("other") if "kernel" in frame else pd.Series("copy", frame.index)
    frame = frame.assign(
        time_s=time,
        bytes=size.fillna((rate * time).round()),
        cast=kernels.str.contains(CASTS, case=False),
        plain=kernels.str.contains(PLAIN, case=False),
        kernel=kernels,
    )
    rows = started(frame, path)
    if "gpu" in rows.frame and gpu is not None:
        rows.keep(gpu_names(rows.frame["gpu"]) == gpu, f"not measured on {gpu}")
    return with_times(rows, ("bytes",), tells_time)


def predict(frame: pd.DataFrame, gpu: Gpu, extra: Mapping[str, float]) -> Floats:
    """Times of rows. [s]"""
    slower = np.where(frame["cast"], gpu.kernels.quantize_efficiency, 1.0)
    return np.asarray(traffic_time(frame["bytes"].to_numpy(dtype=float) / slower, gpu))


def regimes(frame: pd.DataFrame, gpu: Gpu) -> NDArray[Any]:
    """Regimes of rows; those of the package are all plain."""
    sizes = frame["bytes"].to_numpy(dtype=float)
    plain = frame.get("plain", pd.Series(True, frame.index)).to_numpy(dtype=bool)
    like, other = (traffic_regime(Traffic(sizes, plain=kind), gpu).astype(object) for kind in (True, False))
    return np.where(plain, like, other)


IN_CACHE = 12
"""How many times faster than the HBM the L2 may be at most. Assumed. [-]"""


def least_times(frame: pd.DataFrame, spec: GpuSpec) -> Floats:
    """Times at the bandwidth of the datasheet, or of the L2 where it may hold the bytes: nothing is faster. [s]"""
    sizes = frame["bytes"].to_numpy(dtype=float)
    faster = np.where(sizes < 4 * spec.l2_capacity.value, IN_CACHE, 1.0)
    return sizes / (faster * spec.memory_bandwidth.value)


def octave_weights(frame: pd.DataFrame) -> Floats:
    """Weights that make every doubling of the size count alike: the tables have few large rows. [-]"""
    octaves = np.floor(np.log2(frame["bytes"].to_numpy(dtype=float)))
    _, place, counts = np.unique(octaves, return_inverse=True, return_counts=True)
    weights = 1 / counts[place]
    return np.asarray(weights * len(frame) / weights.sum())


MEMORY = Family(
    "memory",
    read,
    from_csv,
    predict,
    regimes,
    (
        Stage(
            "",
            lambda frame: np.ones(len(frame), dtype=bool),
            (
                Parameter("memory_efficiency", 0.88, 0.3, 1.0),
                Parameter("memory_fixed", 2e-6, 1e-7, 2e-5, dimension="time"),
                Parameter("memory_l2", 0.5, 0.02, 4),
                Parameter("memory_l2_speedup", 1.5, 1, 20),
                Parameter("memory_opening", 2.0, 0.2, 20),
                Parameter("memory_opening_slowdown", 0.1, 0.001, 2, spread=1.0),
            ),
        ),
    ),
    split=("bytes",),
    keys=("bytes", "kernel"),
    covered=("bytes",),
    weights=octave_weights,
    least=least_times,
)
