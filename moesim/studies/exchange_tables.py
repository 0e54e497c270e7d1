"""Tables of measured dispatches and combines, priced at once, with the errors where they carry a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from moesim.cost.certainty import evidence, leg_regime, quantiles
from moesim.cost.from_spec import leg_residuals, transport_constants
from moesim.cost.machine import Group, Residuals
from moesim.cost.transports.deduplicated import leg_seconds
from moesim.spec import library
from moesim.spec.hardware import GpuSpec, NicSpec, NodeSpec
from moesim.spec.spellings import gpu_of, node_of
from moesim.studies.collective_tables import summary
from moesim.traces.collective_table import csv_rows, number
from moesim.workload.ops import ExpertLeg

EXCHANGE_COLUMNS = ("gpu", "op", "tokens_per_rank", "hidden", "topk", "num_experts")
FP8_SCALES = 4 / 128


def priced_exchanges(path: Path) -> dict[str, Any]:
    """Rows of dispatches and combines with their prices and errors, and a summary."""
    refused: Counter[str] = Counter()
    rows = []
    for line in csv_rows(path, EXCHANGE_COLUMNS):
        found = _exchange(line)
        if isinstance(found, str):
            refused[found] += 1
        else:
            rows.append(found)
    return {"rows": rows, "summary": summary(rows, refused)}


def _exchange(line: dict[str, str]) -> dict[str, Any] | str:
    transport = _transport(f"{line.get('library', '')} {line.get('mode', '')}".lower())
    if transport is None:
        return "transport is not priced"
    if line["op"] not in ("dispatch", "combine"):
        return f"operation '{line['op']}' is not priced"
    gpu = gpu_of(line["gpu"])
    node = node_of(gpu, line.get("nic", "")) if gpu else None
    if node is None:
        return "unknown GPU"
    values = {
        name: number(line.get(name)) for name in ("num_ranks", "tokens_per_rank", "hidden", "topk", "num_experts")
    }
    if values["num_ranks"] is None:
        values["num_ranks"] = _ranks(line, node)
    lacking = [name for name, value in values.items() if not value or value <= 0]
    if lacking:
        return f"no {lacking[0]}"
    ranks, tokens, hidden, top_k, experts = (float(value or 0) for value in values.values())
    constants = dict(_constants(transport, node))
    sms = number(line.get("num_sms"))
    if sms:
        constants |= {"num_sms": sms, "inter_num_sms": sms}
    row_bytes = hidden * (1 + FP8_SCALES) if "fp8" in _dtype(line) else 2 * hidden
    domain = library.get("nodes", node).nvlink_domain
    leg = ExpertLeg(line["op"], tokens, int(top_k), int(experts), row_bytes)
    group = Group(ranks, min(ranks, float(domain)))
    time = float(leg_seconds(leg, group, constants))
    known, quantities = _residuals(transport, node), {"tokens": tokens, "nodes": float(group.nodes)}
    regime = str(leg_regime(leg.direction, group))
    low, high, _ = quantiles(known, regime, quantities)
    measured = number(line.get("time_us"))
    found: dict[str, Any] = dict(line) | {
        "predicted_time_s": time,
        "low_s": time * math.exp(-high),
        "high_s": time * math.exp(-low),
        "evidence": evidence(known, regime, quantities)[0],
        "error": None,
    }
    if measured:
        found["error"] = time / (measured * 1e-6) - 1
        found["inside"] = bool(found["low_s"] <= measured * 1e-6 <= found["high_s"])
    return found


def _ranks(line: dict[str, str], node: str) -> float | None:
    """Ranks of a row that tells its nodes only: all GPUs of each."""
    nodes = number(line.get("num_nodes"))
    return nodes * (number(line.get("gpus_per_node")) or library.get("nodes", node).gpus_per_node) if nodes else None


def _dtype(line: dict[str, str]) -> str:
    """Format of the rows; where it is not told, FP8 for a dispatch and BF16 for a combine, as DeepEP has them."""
    return (line.get("dtype") or ("fp8" if line["op"] == "dispatch" else "bf16")).lower()


def _transport(words: str) -> str | None:
    if "low-latency" in words or "low_latency" in words or " ll" in words:
        return None
    if "hybrid" in words:
        return "hybridep"
    if "deepep v2" in words:
        return "deepep-v2"
    return "deepep" if "deepep" in words or "deep_ep" in words else None


@lru_cache(maxsize=64)
def _constants(transport: str, node: str) -> Mapping[str, float]:
    return transport_constants(library.get("transports", transport), *_hardware(node))


@lru_cache(maxsize=64)
def _residuals(transport: str, node: str) -> Residuals | None:
    return leg_residuals(library.get("transports", transport), *_hardware(node)).get(f"transport-{transport}")


def _hardware(node: str) -> tuple[GpuSpec, NodeSpec, NicSpec]:
    spec = library.get("nodes", node)
    return library.get("gpus", spec.gpu), spec, library.get("nics", spec.nic)
