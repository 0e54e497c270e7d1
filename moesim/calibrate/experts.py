"""Grouped GEMM: rows of fused MoE operations, and the constants that they decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from moesim.calibrate.dense import OPERAND_BYTES, PACKAGE_RATES, rate_names, times
from moesim.calibrate.dense import least_times as dense_least
from moesim.calibrate.family import Family, Floats, Stage, csv_or_package
from moesim.calibrate.fit import Parameter
from moesim.calibrate.measurements import Rows, gpu_names, numbers, read_csv, started, with_times
from moesim.calibrate.routing import power_law_skew
from moesim.calibrate.tables import package_table, source_key
from moesim.cost.grouped import HEIGHTS, Skewed, grouped_gemm_time
from moesim.cost.machine import Gpu
from moesim.cost.regimes import grouped_regime
from moesim.spec.hardware import GpuSpec
from moesim.workload.ops import Gemm

FEWEST_TOKENS = 256
SLOWER = 1.3
"""Time over that of work that holds this one, from which a row is taken for a flaw of the measurement."""
RATE_GAIN = 1.15
"""Rate of a smaller shard over that of a row, from which the row is taken for a flaw."""
UNEVEN_SLOWER = 2.0
"""Time over that of the balanced row times the load of the hottest rank, from which a skewed row is taken for a flaw."""
SHARES = ("grouped_gemm_efficiency", "grouped_gemm_small_efficiency", "grouped_gemm_large_efficiency")
FEW_RANKS = 4
"""Ranks up to which the load of the hottest one scatters little from draw to draw."""
SHAPE = ["kernel_source", "rate", "hidden", "inter", "top_k", "experts", "distribution"]


def read(source: str, gpu: str) -> Rows:
    """Timings of fused MoE operations from the package, or of grouped GEMMs from a CSV."""
    path, framework = csv_or_package(source)
    return _from_package(gpu, framework) if path is None else from_csv(path, gpu)


def _from_package(gpu: str, framework: str) -> Rows:
    table, version = package_table(gpu, "moe", "moe_perf", framework)
    rows = Rows(table, source_key(), version, len(table))
    rows.keep(table["moe_dtype"].isin(["bfloat16", "fp8"]), "format is not modelled")
    table = rows.frame.rename(
        columns={"num_tokens": "tokens", "hidden_size": "hidden", "inter_size": "inter", "topk": "top_k"}
        | {"num_experts": "experts", "moe_tp_size": "tp", "moe_ep_size": "ep"}
    )
    rows.frame = table.assign(rate=table["moe_dtype"].map(PACKAGE_RATES))
    rows.keep(rows.frame["time_s"] > 0, "time is not positive")
    rows.keep(~rows.frame["kernel_source"].str.contains("nongated"), "no gate: another kernel")
    rows.frame = _shapes(rows.frame)
    flawed = _out_of_order(rows.frame, False) | _slower_than_more_tokens(rows.frame)
    skewed = _out_of_order(rows.frame, True) | _slower_than_balanced(rows.frame)
    few = np.asarray(rows.frame["tokens"] < FEWEST_TOKENS)
    rows.keep(~few, f"fewer than {FEWEST_TOKENS} tokens")
    rows.keep(~flawed[~few], "slower than a larger shard, more tokens, or the rate of a smaller shard")
    return rows.keep(~skewed[~few & ~flawed], "skewed, and slower than its load explains")


def _out_of_order(frame: pd.DataFrame, skewed: bool) -> NDArray[np.bool_]:
    """Rows that break the order of shards: TP and EP make the work of a rank smaller, never faster per FLOP.

    A row is flawed where a rank with more of the same work takes less time, or where one with less of it reaches a
    higher rate. Where a balanced row is flawed, the skewed ones of its configuration go with it.
    """
    slower, gain = (UNEVEN_SLOWER, UNEVEN_SLOWER) if skewed else (SLOWER, RATE_GAIN)
    keys = [*SHAPE, "tokens"] if skewed else [*SHAPE[:-1], "tokens"]
    flawed = []
    for key, part in frame[frame["uneven"] == skewed].groupby(keys, sort=True):
        grid = (
            part.pivot_table(index="ep", columns="tp", values="time_s", aggfunc="min").sort_index().sort_index(axis=1)
        )
        load = part.groupby("ep")["load"].first().sort_index().to_numpy()
        times = grid.to_numpy()
        least = np.fmin.accumulate(np.fmin.accumulate(times, axis=0), axis=1)
        rates = 1 / (times * np.outer(grid.index / load, grid.columns))
        most = np.fmax.accumulate(np.fmax.accumulate(rates[::-1, ::-1], axis=0), axis=1)[::-1, ::-1]
        bad = (times > slower * least) | (gain * rates < most)
        flawed += [(*key, ep, tp) for ep, line in zip(grid.index, bad, strict=True) for tp in grid.columns[line]]
    marked = pd.MultiIndex.from_frame(frame[[*keys, "ep", "tp"]])
    known = pd.MultiIndex.from_tuples(flawed, names=marked.names) if flawed else marked[:0]
    return np.asarray(marked.isin(known))


def _slower_than_more_tokens(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Rows slower than more tokens through the same experts."""
    ordered = frame.sort_values("tokens", ascending=False, kind="stable")
    best = ordered.groupby([*SHAPE, "tp", "ep"])["time_s"].cummin()
    return np.asarray(frame["time_s"] > SLOWER * best.reindex(frame.index))


def _slower_than_balanced(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Skewed rows slower than the balanced row of their configuration with as much work as their load is."""
    keys = ["rate", "hidden", "inter", "top_k", "experts", "tp", "ep", "tokens"]
    balanced = frame[~frame["uneven"]].drop_duplicates(keys).set_index(keys)["time_s"]
    even = balanced.reindex(pd.MultiIndex.from_frame(frame[keys])).to_numpy()
    return np.asarray(frame["uneven"] & ~(frame["time_s"] <= UNEVEN_SLOWER * frame["load"] * even))


def _shapes(frame: pd.DataFrame) -> pd.DataFrame:
    """Add what one rank does: groups, rows a group, and whether routing is uneven."""
    exponent = pd.to_numeric(frame["distribution"].str.extract(r"power_law_([0-9.]+)")[0], errors="coerce").fillna(0.0)
    keys = zip(exponent, frame["tokens"], frame["experts"], frame["top_k"], frame["ep"], strict=True)
    skews = [power_law_skew(a, int(t), int(e), int(k), int(r)) if a else None for a, t, e, k, r in keys]
    load = [one.load if one else 1.0 for one in skews]
    groups = frame["experts"] / frame["ep"]
    rows = frame["tokens"] * frame["top_k"] / frame["ep"] * load
    tiles = {tiles_column(high): [one.tiles[high] if one else np.nan for one in skews] for high in HEIGHTS}
    return frame.assign(
        groups=groups,
        m=rows / groups,
        uneven=exponent > 0,
        width=frame["inter"] / frame["tp"],
        wide=2 * frame["inter"] / frame["tp"],
        fused=True,
        load=load,
        active=[one.active if one else np.nan for one in skews],
        **tiles,
    ).reset_index(drop=True)


def tiles_column(high: int) -> str:
    """Column with the tiles along m of skewed rows, for one height of a tile."""
    return f"tiles_{high}"


FORWARD = ("grouped", "grouped-gemm", "grouped-contiguous", "grouped-contiguous fwd", "grouped-masked")
"""Kinds of rows that hold one product for each group, forward."""


def from_csv(path: Path, gpu: str | None) -> Rows:
    """Rows of a CSV with columns as in docs/kernel_tables.md; ``m`` is the rows of one group."""
    names = ("m", "n", "k", "groups")
    frame = numbers(read_csv(path, names), (*names, "time_us", "tflops"))
    tells_time = bool({"time_us", "tflops"} & set(frame))
    flop = 2 * frame["m"] * frame["n"] * frame["k"] * frame["groups"]
    frame = frame.assign(time_s=times(frame, flop), fused=False, uneven=False)
    frame = frame.assign(rate=rate_names(frame["dtype"]) if "dtype" in frame else "bf16")
    rows = started(frame, path)
    rows.keep(rows.frame["rate"] != "", "format is not modelled")
    if "kind" in rows.frame:
        kinds = rows.frame["kind"].fillna("").str.lower()
        rows.keep(kinds.str.contains("group"), "not a grouped GEMM")
        rows.keep(rows.frame["kind"].str.lower().isin(FORWARD), "not one product forward (dgrad, wgrad, or several)")
    if "notes" in rows.frame:
        several = rows.frame["notes"].fillna("").str.lower().str.contains("total rows")
        rows.keep(~several, "m is the rows of all groups, not of one")
    if "gpu" in rows.frame and gpu is not None:
        rows.keep(gpu_names(rows.frame["gpu"]) == gpu, f"not measured on {gpu}")
    return with_times(rows, names, tells_time)


def least_times(frame: pd.DataFrame, spec: GpuSpec) -> Floats:
    """Times of single kernels at the dense rate of the datasheet; 0 for fused ones. [s]"""
    if frame["fused"].any():
        return np.zeros(len(frame))
    return dense_least(frame, spec)


def predict(frame: pd.DataFrame, gpu: Gpu, extra: Mapping[str, float]) -> Floats:
    """Times of rows. [s]

    A fused operation is two grouped GEMMs, hidden to twice the width and back, with kernels that permute, activate and
    add up, which `extra` prices. The inputs of the tables draw less power than those of dense GEMMs (large fused operations
    beat the dense rate): the slowdown under the power limit is a share, fitted, of that of dense GEMMs.
    """
    times = np.empty(len(frame))
    for (rate, uneven, fused), part in frame.groupby(["rate", "uneven", "fused"], sort=True):
        chosen = frame.index.get_indexer(part.index)
        times[chosen] = _fused(part, gpu, str(rate), bool(uneven), extra) if fused else _single(part, gpu, str(rate))
    return times


def _single(part: pd.DataFrame, gpu: Gpu, rate: str) -> Floats:
    m, n, k, groups = (part[name].to_numpy(dtype=float) for name in ("m", "n", "k", "groups"))
    return np.asarray(grouped_gemm_time(Gemm(m, n, k, groups, rate=rate, operand_bytes=OPERAND_BYTES[rate]), gpu))


def _fused(part: pd.DataFrame, gpu: Gpu, rate: str, uneven: bool, extra: Mapping[str, float]) -> Floats:
    names = ("m", "groups", "hidden", "width", "tokens")
    m, groups, hidden, width, tokens = (part[name].to_numpy(dtype=float) for name in names)
    size = OPERAND_BYTES[rate]
    share = extra["fused_rate"] / (extra["uneven_penalty"] if uneven else 1.0)
    if rate != "bf16":
        share = share * extra.get("narrow_rate", 1.0)
    shares = dict.fromkeys(SHARES, share)
    prologue = share * gpu.kernels.grouped_gemm_prologue  # a higher rate does not shorten it
    kernels = replace(gpu.kernels, grouped_gemm_prologue=prologue, **shares)
    gpu = replace(gpu, kernels=kernels)
    skewed = None
    if uneven:
        tiles = {high: part[tiles_column(high)].to_numpy(dtype=float) for high in HEIGHTS}
        skewed = Skewed(part["active"].to_numpy(dtype=float), tiles)
    up = grouped_gemm_time(Gemm(m, 2 * width, hidden, groups, rate=rate, operand_bytes=size), gpu, skewed)
    down = grouped_gemm_time(Gemm(m, hidden, width, groups, rate=rate, operand_bytes=size), gpu, skewed)
    rows = m * groups
    moved = 2 * (np.minimum(tokens, rows) + 2 * rows + tokens) * hidden + 2 * 3 * rows * width
    beside = extra["fused_traffic"] * moved / gpu.memory_bandwidth + extra["fused_per_group"] * groups
    if rate != "bf16":
        beside = beside + extra.get("narrow_cast_traffic", 0.0) * 3 * rows * (hidden + width) / gpu.memory_bandwidth
    return np.asarray(extra["fused_fixed"] + up + down + beside)


def uneven_word(ranks: int) -> str:
    """What tells the regime of a skewed kernel on the hottest of so many ranks from that of a balanced one."""
    if ranks == 1:
        return " uneven"
    return f" hottest of 2-{FEW_RANKS}" if ranks <= FEW_RANKS else f" hottest of more than {FEW_RANKS}"


def regimes(frame: pd.DataFrame, gpu: Gpu) -> NDArray[Any]:
    """Regimes of rows: skewed ones apart, and among them those of a hottest rank, whose load nobody wrote down."""
    named = np.empty(len(frame), dtype=object)
    for rate in frame["rate"].unique():
        chosen = (frame["rate"] == rate).to_numpy()
        work = Gemm(frame["m"].to_numpy(dtype=float)[chosen], 1, 1, rate=rate, operand_bytes=OPERAND_BYTES[rate])
        named[chosen] = grouped_regime(work)
    uneven, ranks = frame["uneven"].to_numpy(dtype=bool), frame.get("ep", pd.Series(1, frame.index)).to_numpy()
    for chosen, word in (
        (uneven & (ranks == 1), uneven_word(1)),
        (uneven & (ranks > 1) & (ranks <= FEW_RANKS), uneven_word(FEW_RANKS)),
        (uneven & (ranks > FEW_RANKS), uneven_word(FEW_RANKS + 1)),
        (~uneven & frame["fused"].to_numpy(dtype=bool) & (frame["groups"].to_numpy() == 1), " one group"),
    ):
        named[chosen] += word
    return named


FORM = (
    Parameter("grouped_gemm_memory_efficiency", 0.9, 0.2, 1.0),
    Parameter("grouped_gemm_prologue", 100, 10, 1500),
    Parameter("grouped_gemm_norm", 2.0, 1.2, 12),
    Parameter("grouped_gemm_wave_smoothing", 0.2, 0.001, 1),
    Parameter("grouped_gemm_small_tile_penalty", 1.6, 1.0, 5),
    Parameter("grouped_gemm_half_tile_penalty", 1.2, 1.0, 4),
)
BALANCED = Stage(
    "balanced",
    lambda frame: (frame["rate"] == "bf16") & ~frame["uneven"] & frame["fused"],
    FORM,
    (
        Parameter("fused_rate", 1.0, 0.2, 2.0),
        Parameter("fused_fixed", 2e-5, 1e-6, 2e-4, dimension="time"),
        Parameter("fused_traffic", 1.3, 0.1, 10),
        Parameter("fused_per_group", 3e-8, 1e-9, 5e-6, dimension="time"),
    ),
)
UNEVEN = Stage(
    "skewed",
    lambda frame: (frame["rate"] == "bf16") & frame["uneven"],
    (),
    (Parameter("uneven_penalty", 1.05, 0.7, 2.0),),
)
NARROW = Stage(
    "fp8",
    lambda frame: (frame["rate"] == "fp8") & ~frame["uneven"] & frame["fused"],
    (),
    (Parameter("narrow_rate", 1.0, 0.2, 2.0), Parameter("narrow_cast_traffic", 1.0, 0.01, 10)),
)
OWN = Stage(
    "single kernels", lambda frame: ~frame["fused"], (Parameter("grouped_gemm_efficiency", 1.0, 0.2, 1.2), *FORM)
)
GROUPED = Family(
    "grouped-gemm",
    read,
    from_csv,
    predict,
    regimes,
    (BALANCED, UNEVEN, NARROW, OWN),
    split=("hidden", "inter", "experts", "top_k"),
    keys=("rate", "hidden", "inter", "experts", "top_k", "tokens", "tp", "ep", "distribution"),
    covered=("m", "groups", "n", "k"),
    spans={"n": ("wide", "hidden"), "k": ("hidden", "width")},
    least=least_times,
    same=dict.fromkeys(SHARES[1:], SHARES[0]),
)
