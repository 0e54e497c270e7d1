"""Attention: rows of the package and of CSV files, and the constants that they decide."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from moesim.base.errors import SpecError
from moesim.calibrate.family import Family, Floats, Stage, csv_or_package
from moesim.calibrate.fit import Parameter
from moesim.calibrate.measurements import Rows, gpu_names, numbers, read_csv
from moesim.calibrate.tables import package_table, source_key
from moesim.cost.attention import attention_time
from moesim.cost.machine import Gpu
from moesim.cost.regimes import attention_regime
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
    """Rows of a CSV with columns as in attention.csv."""
    needed = ("batch", "seq_q", "heads_q", "heads_kv", "head_dim_qk", "time_us")
    columns = (*needed, "seq_kv", "head_dim_v", "tflops")
    frame = numbers(read_csv(path, needed), columns)
    frame = frame.rename(
        columns={"seq_q": "length", "heads_q": "heads", "heads_kv": "kv_heads", "head_dim_qk": "query_dim"}
    )
    frame["value_dim"] = frame["head_dim_v"].fillna(frame["query_dim"]) if "head_dim_v" in frame else frame["query_dim"]
    frame["time_s"] = frame["time_us"] * 1e-6
    passes = frame["pass"].fillna("fwd") if "pass" in frame else pd.Series("fwd", frame.index)
    causal = frame["causal"].fillna("True") if "causal" in frame else pd.Series("True", frame.index)
    rows = Rows(frame.assign(cached=False, backward=passes == "bwd"), path.name, "", len(frame))
    good = passes.isin(["fwd", "bwd"]).to_numpy() & (causal.astype(str).str.lower() == "true").to_numpy()
    rows.keep(good, "not a causal forward or backward pass")
    if "seq_kv" in rows.frame:
        rows.keep(rows.frame["seq_kv"].fillna(rows.frame["length"]) == rows.frame["length"], "keys without queries")
    if "dtype" in rows.frame:
        rows.keep(rows.frame["dtype"].fillna("bf16").str.contains("16"), "not computed in bf16")
    if "gpu" in rows.frame and gpu is not None:
        rows.keep(gpu_names(rows.frame["gpu"]) == gpu, f"not measured on {gpu}")
    return _checked(rows)


def _checked(rows: Rows) -> Rows:
    sizes = ["batch", "length", "heads", "kv_heads", "query_dim", "value_dim"]
    rows.frame = rows.frame.assign(**{name: rows.frame[name].astype(float) for name in sizes})
    rows.keep(rows.frame[[*sizes, "time_s"]].notna().all(axis=1), "no size or no time")
    rows.keep((rows.frame[[*sizes, "time_s"]] > 0).all(axis=1), "size or time is not positive")
    return rows.keep(rows.frame["length"] >= SHORTEST, f"shorter than {SHORTEST} tokens")


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
)
