"""Tables of measured collectives and expert exchanges, priced at once, with the errors where they carry a time."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from moesim.base.errors import SpecError
from moesim.cost.machine import Group
from moesim.cost.transports.deduplicated import leg_seconds
from moesim.problem import transport_constants
from moesim.spec import library
from moesim.spec.spellings import gpu_of, node_of
from moesim.studies.collective_health import is_sick
from moesim.studies.collectives import Setting, price, setting
from moesim.traces.collective_table import Measured, MeasuredTable, number, read_collective_csv
from moesim.workload.ops import ExpertLeg

EXCHANGE_COLUMNS = ("gpu", "num_ranks", "op", "tokens_per_rank", "hidden", "topk", "num_experts")
FP8_SCALES = 4 / 128
NETWORK_WORDS = (
    "ib ",
    "infiniband",
    "rdma",
    "roce",
    "slingshot",
    "efa",
    "ndr",
    "hdr",
    "connectx",
    "00g",
    "ethernet",
    "ipoib",
)
UNKNOWN_NETWORKS = ("tcpxo", "tcpx")
SPREAD = (0.75, 1.3)
"""Interval of an expert exchange as shares of its time, until the overlay of its transport says better. Assumed."""


def priced_table(path: Path) -> dict[str, Any]:
    """Rows and summary of a CSV of collectives, or of expert exchanges, by its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        header = next(csv.reader(file), [])
    if "tokens_per_rank" in header:
        return priced_exchanges(path)
    return priced_collectives(read_collective_csv(path))


def priced_collectives(table: MeasuredTable) -> dict[str, Any]:
    """Rows with their prices, errors and verdicts, and a summary."""
    refused = Counter(table.refused)
    rows = []
    for row in table.rows:
        where = _where(row)
        if isinstance(where, str):
            refused[where] += 1
            continue
        expected = price(row.collective, row.size, where, explain=False)
        found: dict[str, Any] = dict(row.columns) | {
            "predicted_time_s": expected.time,
            "low_s": expected.low,
            "high_s": expected.high,
            "algorithm": expected.algorithm,
            "protocol": expected.protocol,
            "evidence": expected.evidence,
            "error": None,
            "verdict": None,
        }
        if row.time is not None:
            sick = is_sick(expected, row.time, where)
            found["error"] = expected.time / row.time - 1
            found["verdict"] = "corrupt" if row.wrong else _judged(row, sick)
            found["inside"] = bool(expected.low <= row.time <= expected.high)
            found["slow"] = sick and _network_is_told(row)
        rows.append(found)
    return {"rows": rows, "summary": summary(rows, refused)}


def _where(row: Measured) -> Setting | str:
    gpu = gpu_of(row.gpu)
    if gpu is None:
        return "unknown GPU"
    unknown = next((word for word in UNKNOWN_NETWORKS if word in row.network.lower()), None)
    if unknown and row.nodes > 1:
        return f"network without a spec: {unknown}"
    node = node_of(gpu, row.network)
    if node is None:
        return f"no node of {gpu}"
    base = _setting(node)
    spec = library.get("nodes", node)
    per_node = row.per_node
    if spec.nvlink_domain > spec.gpus_per_node and row.nodes > 1:
        per_node = min(row.ranks, per_node * (spec.nvlink_domain // spec.gpus_per_node))
    return Setting(
        base.node,
        base.fabric,
        Group(row.ranks, per_node),
        base.links,
        base.residuals,
    )


def _judged(row: Measured, sick: bool) -> str:
    if not _network_is_told(row):
        return "not judged: the row does not name its network"
    return "sick" if sick else "healthy"


def _network_is_told(row: Measured) -> bool:
    return row.nodes == 1 or any(word in row.network.lower() for word in NETWORK_WORDS)


@lru_cache(maxsize=64)
def _setting(node: str) -> Setting:
    return setting(f"{node}:2")


def summary(rows: list[dict[str, Any]], refused: Mapping[str, int]) -> dict[str, Any]:
    """Count, errors, coverage of the intervals, and what was refused by reason."""
    errors = np.array([row["error"] for row in rows if row["error"] is not None])
    told: dict[str, Any] = {"count": len(rows), "with_time": len(errors)}
    if len(errors):
        told |= {
            "median": float(np.median(np.abs(errors))),
            "p90": float(np.quantile(np.abs(errors), 0.9)),
            "bias": float(np.median(errors)),
            "coverage": float(np.mean([row["inside"] for row in rows if row["error"] is not None])),
        }
    return told | {"refused": dict(sorted(refused.items()))}


def priced_exchanges(path: Path) -> dict[str, Any]:
    """Rows of dispatches and combines with their prices and errors, and a summary."""
    refused: Counter[str] = Counter()
    rows = []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lacking = [name for name in EXCHANGE_COLUMNS if name not in (reader.fieldnames or ())]
        if lacking:
            raise SpecError.single(str(path), "", f"no column {', '.join(lacking)}", "see ep_alltoall.csv")
        for line in reader:
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
    values = {name: number(line[name]) for name in ("num_ranks", "tokens_per_rank", "hidden", "topk", "num_experts")}
    lacking = [name for name, value in values.items() if not value]
    if lacking:
        return f"no {lacking[0]}"
    ranks, tokens, hidden, top_k, experts = (float(value or 0) for value in values.values())
    constants = dict(_constants(transport, node))
    sms = number(line.get("num_sms"))
    if sms:
        constants |= {"num_sms": sms, "inter_num_sms": sms}
    row_bytes = hidden * (1 + FP8_SCALES) if "fp8" in line.get("dtype", "").lower() else 2 * hidden
    domain = library.get("nodes", node).nvlink_domain
    leg = ExpertLeg(line["op"], tokens, int(top_k), int(experts), row_bytes)
    time = float(leg_seconds(leg, Group(ranks, min(ranks, float(domain))), constants))
    measured = number(line.get("time_us"))
    found: dict[str, Any] = dict(line) | {
        "predicted_time_s": time,
        "low_s": time * SPREAD[0],
        "high_s": time * SPREAD[1],
        "evidence": "calibrated",
        "error": None,
    }
    if measured:
        found["error"] = time / (measured * 1e-6) - 1
        found["inside"] = bool(found["low_s"] <= measured * 1e-6 <= found["high_s"])
    return found


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
    spec = library.get("nodes", node)
    specs = SimpleNamespace(
        gpu=library.get("gpus", spec.gpu),
        node=spec,
        nic=library.get("nics", spec.nic),
        software=SimpleNamespace(constants={}),
    )
    return transport_constants(library.get("transports", transport), specs)  # type: ignore[arg-type]
