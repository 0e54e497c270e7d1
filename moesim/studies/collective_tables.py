"""Tables of measured collectives, priced at once, with the errors where they carry a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from moesim.cost.machine import Group
from moesim.spec import library
from moesim.spec.spellings import gpu_of, node_of
from moesim.studies.collective_health import judged
from moesim.studies.collectives import Setting, nvlink_domain, price, setting
from moesim.traces.collective_table import Measured, MeasuredTable

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
UNNAMED = "not judged: the row does not name its network"
UNKNOWN_NETWORKS = ("tcpxo", "tcpx")


def priced_collectives(table: MeasuredTable, cluster: Setting | None = None) -> dict[str, Any]:
    """Rows with their prices, errors and verdicts, and a summary.

    Parameters
    ----------
    cluster
        Where the rows were measured, if that is told beside them; by default what each row says.
    """
    refused = Counter(table.refused)
    rows = []
    for row in table.rows:
        where = _where(row) if cluster is None else _on(row, cluster)
        if isinstance(where, str):
            refused[where] += 1
            continue
        expected = price(row.collective, row.size, where, explain=False)
        priced: dict[str, Any] = {
            "predicted_time_s": expected.time,
            "low_s": expected.low,
            "high_s": expected.high,
            "algorithm": expected.algorithm,
            "protocol": expected.protocol,
            "evidence": expected.evidence,
            "error": None,
            "verdict": None,
        }
        found = handed_through(_columns(row), (*priced, "inside", "slow")) | priced
        if row.time is not None:
            told = cluster is not None or _network_is_told(row)
            called = judged(expected, row.time, where)
            found["error"] = expected.time / row.time - 1
            found["verdict"] = "corrupt" if row.wrong else called if told else UNNAMED
            found["inside"] = bool(expected.low <= row.time <= expected.high)
            found["slow"] = called == "sick" and told
        rows.append(found)
    return {"rows": rows, "summary": summary(rows, refused)}


def handed_through(columns: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Columns of a row as they were read; those whose name the answer takes itself as ``input_...``."""
    return {f"input_{name}" if name in taken else name: value for name, value in columns.items()}


def _columns(row: Measured) -> dict[str, Any]:
    """What was read, as the file has it; a log has no columns of its own."""
    told: dict[str, Any] = {"gpu": row.gpu, "op": row.collective, "size_bytes": row.size, "nranks": row.ranks}
    told |= {"gpus_per_node": row.per_node, "time_us": None if row.time is None else row.time * 1e6}
    return told | dict(row.columns)


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
    return replace(base, group=group_of(row, node))


def _on(row: Measured, cluster: Setting) -> Setting | str:
    """Setting of a row on a cluster that is told; what speaks against it otherwise."""
    gpu = library.get("nodes", cluster.node).gpu
    if gpu_of(row.gpu) not in (gpu, None):
        return f"another GPU than that of {cluster.node}"
    group = group_of(row, cluster.node)
    if group.nodes > 1 and row.ranks > cluster.group.size:
        return "more ranks than the cluster has"
    return replace(cluster, group=group)


def group_of(row: Measured, node: str) -> Group:
    """Group of a row; a domain of NVLink may hold several of the nodes that the row counts."""
    spec = library.get("nodes", node)
    per_node = row.per_node
    if spec.nvlink_domain > spec.gpus_per_node and row.nodes > 1:
        domain = nvlink_domain(spec, int(row.ranks // per_node))
        per_node = min(row.ranks, per_node * (domain // spec.gpus_per_node))
    return Group(row.ranks, per_node)


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
    verdicts = Counter(str(row["verdict"]) for row in rows if row.get("verdict"))
    if verdicts:
        told["verdicts"] = dict(sorted(verdicts.items()))
    return told | {"refused": dict(sorted(refused.items()))}
