"""What one dispatch or combine of the expert exchange should take, and whether a measurement of it is healthy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError, did_you_mean
from moesim.base.units import parse_quantity
from moesim.cost.certainty import evidence, leg_regime, quantiles
from moesim.cost.from_spec import leg_residuals
from moesim.cost.machine import Group
from moesim.cost.transports import leg_time, reached_domains, reached_ranks, transports
from moesim.problem import from_names
from moesim.spec.load import load_specs
from moesim.spec.overrides import sms_paths
from moesim.studies.collective_health import NOTES, SICK
from moesim.studies.collectives import setting
from moesim.studies.step_factors import at_factors
from moesim.traces.exchange_table import FP8_SCALES
from moesim.workload.ops import ExpertLeg

DIRECTIONS = ("dispatch", "combine")
ROW_BYTES = {"bf16": 2.0, "fp8": 1.0 + FP8_SCALES}
"""Bytes of a value in a row, scales of blocks included. [B]"""
ANY_MODEL = "deepseek-v3-no-mtp"
"""A model for the scenario that the machine comes from; no price here depends on it."""


@dataclass(frozen=True)
class Exchanged:
    """Expected time of one leg on a group of ranks. [s, B, B/s]

    ``logical_bytes`` are those that DeepEP counts: copies of a token's row to every domain that it reaches (``RDMA``) or,
    inside one domain, to every rank (``NVLink``), its own included. ``num_sms`` of the GPU's ``gpu_sms`` are taken while it runs.
    """

    direction: str
    transport: str
    group: Group
    leg: ExpertLeg
    time: float
    low: float
    high: float
    evidence: str
    why: tuple[str, ...]
    num_sms: float
    gpu_sms: float

    @property
    def wire(self) -> str:
        """What the logical bytes cross."""
        return "RDMA" if self.group.nodes > 1 else "NVLink"

    @property
    def logical_bytes(self) -> float:
        """Bytes as DeepEP counts them. [B]"""
        reached = reached_domains if self.group.nodes > 1 else reached_ranks
        return float(self.leg.tokens * self.leg.row_bytes * reached(self.leg, self.group))

    @property
    def bandwidth(self) -> float:
        """Logical bytes over time. [B/s]"""
        return self.logical_bytes / self.time

    def to_dict(self) -> dict[str, Any]:
        """As plain values, units in the keys."""
        return {
            "direction": self.direction,
            "transport": self.transport,
            "ranks": float(self.group.size),
            "domains": float(self.group.nodes),
            "tokens": self.leg.tokens,
            "row_bytes": self.leg.row_bytes,
            "time_s": self.time,
            "low_s": self.low,
            "high_s": self.high,
            "logical_bytes": self.logical_bytes,
            "bandwidth_bytes_per_s": self.bandwidth,
            "bandwidth_kind": f"{self.wire}, logical",
            "num_sms": self.num_sms,
            "sms_left_share": 1 - self.num_sms / self.gpu_sms,
            "evidence": self.evidence,
            "evidence_reasons": list(self.why),
        }


@dataclass(frozen=True)
class Rows:
    """What travels: tokens of a rank, the width of a row and its format, and how routes may spread.

    ``node_limit``: NVLink domains that a token may reach; None where its routes are free.
    """

    tokens: int = 4096
    hidden: int = 7168
    top_k: int = 8
    num_experts: int = 256
    precision: str = "bf16"
    node_limit: int | None = None


def exchanged(
    direction: str, transport: str, cluster: str, rows: Rows, num_sms: int | None = None, own: Sequence[Path] = ()
) -> Exchanged:
    """Price one leg, alone on its network, without the exchange of row counts.

    Raises
    ------
    SpecError
        For an unknown direction, transport, precision or cluster, and for experts that do not divide over the ranks.
    """
    for option, value, names in (
        ("DIRECTION", direction, DIRECTIONS),
        ("--transport", transport, transports.names()),
        ("--precision", rows.precision, tuple(ROW_BYTES)),
    ):
        if value not in names:
            raise SpecError.single(option, "", f"'{value}' is not known", did_you_mean(value, names))
    where = setting(cluster, own=own)
    group, ranks = where.group, int(where.group.size)
    if rows.num_experts % ranks:
        raise SpecError.single("--experts", "", f"{rows.num_experts} experts do not divide over {ranks} ranks")
    if not 0 < rows.top_k <= rows.num_experts:
        raise SpecError.single("--top-k", "", f"{rows.top_k} of {rows.num_experts} experts")
    changes: dict[str, Any] = {"calibrations": ",".join(map(str, own))} if own else {}
    if num_sms is not None:
        changes |= _sms(transport, num_sms)
    problem = from_names(ANY_MODEL, cluster)
    problem = at_factors(problem.with_changes(changes, "--num-sms") if changes else problem, {})
    machine, item = problem.machine, transports.get(transport)
    leg = ExpertLeg(
        direction,
        rows.tokens,
        rows.top_k,
        rows.num_experts,
        rows.hidden * ROW_BYTES[rows.precision],
        node_limit=rows.node_limit if group.nodes > 1 else None,
    )
    time = float(leg_time(item, leg, group, machine))
    specs = load_specs(problem.scenario)
    known = leg_residuals(specs.transport(transport), specs.gpu, specs.node, specs.nic).get(f"transport-{transport}")
    regime, quantities = str(leg_regime(direction, group)), {"tokens": leg.tokens, "nodes": float(group.nodes)}
    low, high, _ = quantiles(known, regime, quantities)
    grade, why = evidence(known, regime, quantities)
    sms = float(item.sm_share(group, machine) * machine.gpu.num_sms)
    return Exchanged(
        direction,
        transport,
        group,
        leg,
        time,
        time * math.exp(-high),
        time * math.exp(-low),
        grade,
        why,
        sms,
        float(machine.gpu.num_sms),
    )


def _sms(transport: str, num_sms: int) -> dict[str, Any]:
    paths = sms_paths(transport)
    if not paths:
        raise SpecError.single("--num-sms", "", f"transport {transport} has no such number", "leave it out")
    return dict.fromkeys(paths, str(num_sms))


def verdict(expected: Exchanged, measured: str) -> dict[str, Any]:
    """Whether a measurement, a time or a rate as DeepEP prints it, is that of a healthy run."""
    time = _measured_time(expected, measured)
    called = "healthy"
    if time > expected.time / SICK:
        called = "sick" if time > expected.high else "cannot tell"
    elif time < expected.low * SICK:
        called = "impossible"
    note = NOTES.get(called, "slower than a healthy run: bind each GPU to its NIC, look for flows that collide")
    return {
        "measured_s": time,
        "measured_bandwidth_bytes_per_s": expected.logical_bytes / time,
        "share_of_expected": expected.time / time,
        "verdict": called,
        "note": note,
    }


def _measured_time(expected: Exchanged, text: str) -> float:
    for dimension in ("bandwidth", "time"):
        try:
            value = parse_quantity(text, dimension)
        except ValueError:
            continue
        if value > 0:
            return expected.logical_bytes / value if dimension == "bandwidth" else value
        break
    raise SpecError.single("--measured", "", f"'{text}' is no rate and no time", "write 30.8GB/s or 6881us")
