"""Measured dispatches and combines of experts: one row a leg."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moesim.spec import library
from moesim.spec.spellings import gpu_of, node_of
from moesim.traces.collective_table import RAGGED, number

EXCHANGE_COLUMNS = ("gpu", "op", "tokens_per_rank", "hidden", "topk", "num_experts")
FP8_SCALES = 4 / 128
"""FP8 rows carry an FP32 scale for every 128 values. [B a value]"""


@dataclass(frozen=True)
class Exchange:
    """One leg of an expert exchange.

    Attributes
    ----------
    direction, transport
        ``dispatch`` or ``combine``; as the project names the transport.
    gpu, node
        Specs of the hardware.
    ranks, per_node
        Ranks of the group, and how many of them one NVLink domain holds.
    tokens, hidden, top_k, num_experts
        Tokens a rank, width of a row, experts a token, experts in all.
    row_bytes
        Of one token. [B]
    num_sms, time
        None where the row does not tell. [-, s]
    columns
        The row as it stands.
    """

    direction: str
    transport: str
    gpu: str
    node: str
    ranks: float
    per_node: float
    tokens: float
    hidden: float
    top_k: int
    num_experts: int
    row_bytes: float
    num_sms: float | None
    time: float | None
    columns: Mapping[str, str] = field(default_factory=dict)


def exchange_of(line: dict[str, str]) -> Exchange | str:
    """Return what a row of a CSV tells, or why it tells nothing."""
    if RAGGED in line:
        return RAGGED
    transport = _transport(f"{line.get('library', '')} {line.get('mode', '')}".lower())
    if transport is None:
        return "transport is not priced"
    if line["op"] not in ("dispatch", "combine"):
        return f"operation '{line['op']}' is not priced"
    gpu = gpu_of(line["gpu"])
    node = node_of(gpu, line.get("nic", "")) if gpu else None
    if gpu is None or node is None:
        return "unknown GPU"
    names = ("num_ranks", "tokens_per_rank", "hidden", "topk", "num_experts")
    values = {name: number(line.get(name)) for name in names}
    if values["num_ranks"] is None:
        values["num_ranks"] = _ranks(line, node)
    lacking = [name for name, value in values.items() if not value or value <= 0]
    if lacking:
        return f"no {lacking[0]}"
    broken = [name for name, value in values.items() if value != int(value or 0)]
    if broken:
        return f"{broken[0]} is not whole"
    ranks, tokens, hidden, top_k, experts = (float(value or 0) for value in values.values())
    time = number(line.get("time_us"))
    if time is not None and time <= 0:
        return "time is zero"
    return Exchange(
        line["op"],
        transport,
        gpu,
        node,
        ranks,
        min(ranks, float(library.get("nodes", node).nvlink_domain)),
        tokens,
        hidden,
        int(top_k),
        int(experts),
        hidden * (1 + FP8_SCALES) if "fp8" in _dtype(line) else 2 * hidden,
        number(line.get("num_sms")) or None,
        None if time is None else time * 1e-6,
        line,
    )


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
