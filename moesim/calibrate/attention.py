"""Attention: rows of the package and of CSV files, and the constants that they decide."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from moesim.base.errors import SpecError
from moesim.calibrate.dense import times
from moesim.calibrate.family import Family, Floats, Stage, csv_or_package
from moesim.calibrate.fit import Parameter
from moesim.calibrate.measurements import Rows, gpu_names, numbers, read_csv, started, with_times
from moesim.calibrate.tables import package_table, source_key
from moesim.cost.attention import attention_time
from moesim.cost.machine import Gpu
from moesim.cost.regimes import attention_regime
from moesim.spec.hardware import GpuSpec
from moesim.workload.ops import AttentionCore

SHORTEST = 256
SCORED_FROM = 512
LATENT = (192, 128)
"""Head dimensions of multi-head latent attention as the tables run it: queries and keys, values."""


def read(source: str, gpu: str) -> Rows:
    """Attention timings of one GPU from the package or a CSV."""
    path, framework = csv_or_package(source)
    return _from_package(gpu, framework) if path is None else from_csv(path, gpu)


def _from_package(gpu: str, framework: str) -> Rows:
    table, version = package_table(gpu, "attention", "context_attention_perf", framework)
    names = {"batch_size": "batch", "isl": "length", "num_heads": "heads", "num_key_value_heads": "kv_heads"}
    table = table.rename(columns=names)
    table = table.assign(query_dim=table["head_dim"], value_dim=table["head_dim"])
    try:
        latent, _ = package_table(gpu, "mla", "context_mla_perf", framework)
    except SpecError:  # not every framework has one
        latent = table[:0]
    else:
        latent = latent.rename(columns={**names, "mla_dtype": "attn_dtype"})
        latent = latent.assign(kv_heads=latent["heads"], query_dim=LATENT[0], value_dim=LATENT[1], window_size=0)
    joined = pd.concat([table, latent], ignore_index=True)
    rows = Rows(joined, source_key(), version, len(joined))
    rows.keep(rows.frame["attn_dtype"] == "bfloat16", "not computed in bf16")
    rows.keep(rows.frame["kv_cache_dtype"] == "bfloat16", "keys and values not kept in bf16")
    rows.keep(rows.frame["window_size"] == 0, "sliding window")
    rows.keep(rows.frame["step"] == 0, "continues a sequence")
    rows.frame = rows.frame.assign(causal=True, cached=True, backward=False)
    return _checked(rows)


def from_csv(path: Path, gpu: str | None) -> Rows:
    """Rows of a CSV with columns as in docs/kernel_tables.md."""
    needed = ("batch", "seq_q", "heads_q", "heads_kv", "head_dim_qk")
    frame = numbers(read_csv(path, needed), (*needed, "time_us", "seq_kv", "head_dim_v", "tflops"))
    tells_time = bool({"time_us", "tflops"} & set(frame))
    frame = frame.rename(
        columns={"seq_q": "length", "heads_q": "heads", "heads_kv": "kv_heads", "head_dim_qk": "query_dim"}
    )
    frame["value_dim"] = frame["head_dim_v"].fillna(frame["query_dim"]) if "head_dim_v" in frame else frame["query_dim"]
    passes = frame["pass"].fillna("") if "pass" in frame else pd.Series("fwd", frame.index)
    causal = frame["causal"].fillna("") if "causal" in frame else pd.Series("True", frame.index)
    pairs = frame["batch"] * frame["heads"] * frame["length"] ** 2 / 2 * (frame["query_dim"] + frame["value_dim"])
    flop = 2 * pairs * np.where(passes == "bwd", 2.5, 1.0)
    rows = started(frame.assign(time_s=times(frame, flop), cached=False, backward=passes == "bwd"), path)
    good = passes.isin(["fwd", "bwd"]).to_numpy() & (causal.astype(str).str.lower() == "true").to_numpy()
    rows.keep(good, "not a causal forward or backward pass, or it does not say")
    if "seq_kv" in rows.frame:
        rows.keep(rows.frame["seq_kv"].fillna(rows.frame["length"]) == rows.frame["length"], "keys without queries")
    if "dtype" in rows.frame:
        rows.keep(rows.frame["dtype"].fillna("").str.contains("16"), "not computed in bf16, or it does not say")
    if "gpu" in rows.frame and gpu is not None:
        rows.keep(gpu_names(rows.frame["gpu"]) == gpu, f"not measured on {gpu}")
    return _checked(rows, tells_time)


def _checked(rows: Rows, tells_time: bool = True) -> Rows:
    sizes = ["batch", "length", "heads", "kv_heads", "query_dim", "value_dim"]
    rows.frame = rows.frame.assign(**{name: rows.frame[name].astype(float) for name in sizes})
    with_times(rows, sizes, tells_time)
    rows.keep(rows.frame["heads"] % rows.frame["kv_heads"] == 0, "heads do not share those of keys and values evenly")
    return rows.keep(rows.frame["length"] >= SHORTEST, f"shorter than {SHORTEST} tokens")


def least_times(frame: pd.DataFrame, spec: GpuSpec) -> Floats:
    """Times of the products at the dense rate of the datasheet: nothing is faster. [s]"""
    pairs = frame["batch"] * frame["heads"] * frame["length"] ** 2 / 2
    flop = 2 * pairs * (frame["query_dim"] + frame["value_dim"]) * np.where(frame["backward"], 2.0, 1.0)
    return np.asarray(flop.to_numpy(dtype=float) / spec.peak_flop_rate["bf16"].value)


def works(part: pd.DataFrame) -> AttentionCore:
    """Rows of one head shape and direction as a kernel of arrays."""
    batch, length, heads, kv_heads = (
        part[name].to_numpy(dtype=float) for name in ("batch", "length", "heads", "kv_heads")
    )
    query_dim, value_dim = int(part["query_dim"].iloc[0]), int(part["value_dim"].iloc[0])
    backward = bool(part["backward"].iloc[0])
    return AttentionCore(batch, heads, kv_heads, length, length / 2, query_dim, value_dim, backward)


def predict(frame: pd.DataFrame, gpu: Gpu, extra: Mapping[str, float]) -> Floats:
    """Times of rows. [s] Those of the package also write the cache of keys and values, which `extra` prices."""
    times = np.empty(len(frame))
    for _, part in frame.groupby(["query_dim", "value_dim", "backward"], sort=True):
        chosen = frame.index.get_indexer(part.index)
        work = works(part)
        times[chosen] = attention_time(work, gpu)
        if extra and bool(part["cached"].all()):
            width = work.heads * work.query_dim + work.kv_heads * (work.query_dim + work.value_dim)
            moved = 4 * work.batch * work.queries * width / gpu.memory_bandwidth
            latent = work.query_dim != work.value_dim
            times[chosen] += extra["latent_cache_traffic" if latent else "cache_traffic"] * moved
    return times


def regimes(frame: pd.DataFrame, gpu: Gpu) -> NDArray[Any]:
    """Regimes of rows."""
    named = np.empty(len(frame), dtype=object)
    for _, part in frame.groupby(["query_dim", "value_dim", "backward"], sort=True):
        named[frame.index.get_indexer(part.index)] = attention_regime(works(part), gpu)
    return named


FORWARD = Stage(
    "forward",
    lambda frame: ~frame["backward"],
    (
        Parameter("attention_efficiency", 1.0, 0.1, 1.4),
        Parameter("attention_fixed", 8e-6, 1e-6, 1e-4, dimension="time"),
        Parameter("attention_prologue", 400, 10, 3000),
        Parameter("attention_softmax", 160, 1, 1000),
        Parameter("attention_norm", 1.2, 1, 20),
        Parameter("attention_power_slope", 0.05, 0.001, 0.3),
        Parameter("attention_wide_penalty", 1.1, 0.8, 3),
        Parameter("attention_latent_penalty", 1.0, 0.3, 3),
    ),
    (
        Parameter("cache_traffic", 1.0, 0.05, 10),
        Parameter("latent_cache_traffic", 0.3, 0.02, 10),
    ),
)
ATTENTION = Family(
    "attention",
    read,
    from_csv,
    predict,
    regimes,
    (FORWARD,),
    split=("heads", "kv_heads", "query_dim", "value_dim"),
    keys=("batch", "length", "heads", "kv_heads", "query_dim", "value_dim"),
    covered=("batch", "length", "heads", "query_dim"),
    scored=lambda frame: frame["length"] >= SCORED_FROM,
    least=least_times,
)
