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
from moesim.studies.collective_tables import handed_through, summary
from moesim.traces.collective_table import csv_rows
from moesim.traces.exchange_table import EXCHANGE_COLUMNS, Exchange, exchange_of
from moesim.workload.ops import ExpertLeg


def priced_exchanges(path: Path) -> dict[str, Any]:
    """Rows of dispatches and combines with their prices and errors, and a summary."""
    refused: Counter[str] = Counter()
    rows = []
    for line in csv_rows(path, EXCHANGE_COLUMNS):
        found = exchange_of(line)
        if isinstance(found, str):
            refused[found] += 1
        else:
            rows.append(_priced(found))
    return {"rows": rows, "summary": summary(rows, refused)}


def _priced(row: Exchange) -> dict[str, Any]:
    constants = dict(_constants(row.transport, row.node))
    if row.num_sms:
        constants |= {"num_sms": row.num_sms, "inter_num_sms": row.num_sms}
    leg = ExpertLeg(row.direction, row.tokens, row.top_k, row.num_experts, row.row_bytes)
    group = Group(row.ranks, row.per_node)
    time = float(leg_seconds(leg, group, constants))
    known, quantities = _residuals(row.transport, row.node), {"tokens": row.tokens, "nodes": float(group.nodes)}
    regime = str(leg_regime(leg.direction, group))
    low, high, _ = quantiles(known, regime, quantities)
    found: dict[str, Any] = {
        "predicted_time_s": time,
        "low_s": time * math.exp(-high),
        "high_s": time * math.exp(-low),
        "evidence": evidence(known, regime, quantities)[0],
        "error": None,
    }
    found = handed_through(row.columns, (*found, "inside")) | found
    if row.time:
        found["error"] = time / row.time - 1
        found["inside"] = bool(found["low_s"] <= row.time <= found["high_s"])
    return found


@lru_cache(maxsize=64)
def _constants(transport: str, node: str) -> Mapping[str, float]:
    return transport_constants(library.get("transports", transport), *_hardware(node))


@lru_cache(maxsize=64)
def _residuals(transport: str, node: str) -> Residuals | None:
    return leg_residuals(library.get("transports", transport), *_hardware(node)).get(f"transport-{transport}")


def _hardware(node: str) -> tuple[GpuSpec, NodeSpec, NicSpec]:
    spec = library.get("nodes", node)
    return library.get("gpus", spec.gpu), spec, library.get("nics", spec.nic)
