"""Constants of DeepEP-like transports from measured dispatch and combine times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from moesim.base.errors import SpecError
from moesim.calibrate.fit import Fit, Parameter, fitted
from moesim.calibrate.overlay import Overlay
from moesim.calibrate.score import Score, Spread, interval, score, spreads
from moesim.cost.machine import Group
from moesim.cost.transports.deduplicated import leg_seconds
from moesim.spec import library
from moesim.spec.spellings import node_of
from moesim.traces.aiconfigurator_nccl import PACKAGE, newest, tables
from moesim.traces.exchange_table import FP8_SCALES
from moesim.workload.ops import ExpertLeg

Floats = NDArray[np.floating[Any]]
GPUS_PER_NODE = 8


def read_deepep(gpu: str, across: bool) -> pd.DataFrame:
    """Rows of the DeepEP tables of a GPU: inside one node from the newest release, across nodes from the one that has them.

    Columns: direction, nodes, ranks, per_node, hidden, top_k, num_experts, tokens, num_sms, row_bytes, time_s.
    """
    paths = tables(gpu, "sglang/*/wideep_deepep_normal_perf.parquet")
    frames = [pd.read_parquet(path) for path in (paths if across else [newest(paths)])]
    table = pd.concat(frames, ignore_index=True)
    table = table[table.node_num > 1] if across else table[table.node_num == 1]
    parts = []
    for direction in ("dispatch", "combine"):
        hidden = table.hidden_size.to_numpy(dtype=float)
        parts.append(
            pd.DataFrame(
                {
                    "direction": direction,
                    "nodes": table.node_num.to_numpy(dtype=float),
                    "ranks": table.node_num.to_numpy(dtype=float) * GPUS_PER_NODE,
                    "per_node": float(GPUS_PER_NODE),
                    "hidden": hidden,
                    "top_k": table.num_topk.to_numpy(dtype=int),
                    "num_experts": table.num_experts.to_numpy(dtype=int),
                    "tokens": table.num_token.to_numpy(dtype=float),
                    "num_sms": table[f"{direction}_sms"].to_numpy(dtype=float),
                    "row_bytes": hidden * (1 + FP8_SCALES) if direction == "dispatch" else 2 * hidden,
                    "time_s": table[f"{direction}_transmit_us"].to_numpy(dtype=float) * 1e-6,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


@dataclass(frozen=True)
class Legs:
    """Rows of one direction, split by what a formula takes as plain numbers."""

    rows: pd.DataFrame

    def seconds(self, constants: Mapping[str, float]) -> Floats:
        """Times of the rows. [s]"""
        found = np.empty(len(self.rows))
        for key, part in self.rows.groupby(["direction", "top_k", "num_experts"], sort=False):
            direction, top_k, num_experts = str(key[0]), int(str(key[1])), int(str(key[2]))
            leg = ExpertLeg(direction, part.tokens.to_numpy(), top_k, num_experts, part.row_bytes.to_numpy())
            group = Group(part.ranks.to_numpy(), part.per_node.to_numpy())
            values: dict[str, Any] = {
                **constants,
                "num_sms": part.num_sms.to_numpy(),
                "inter_num_sms": part.num_sms.to_numpy(),
            }
            found[self.rows.index.get_indexer(part.index)] = leg_seconds(leg, group, values)
        return found


def usual_node(gpu: str) -> str:
    """Name of the node that a GPU usually comes in."""
    node = node_of(gpu)
    if node is None:
        raise SpecError.single("--gpu", "", f"no node of {gpu} is known")
    return node


def wire_bandwidth(gpu: str) -> float:
    """Payload that the NVLinks of a GPU carry at most: no fit finds more. [B/s]"""
    return library.get("nodes", usual_node(gpu)).links.wire_bandwidth


def parameters(direction: str, across: bool, constants: Mapping[str, float], wires: float) -> list[Parameter]:
    """Constants of one direction, inside a node or across nodes, with what the spec has as prior.

    Parameters
    ----------
    wires
        Bound of the NVLink rate. [B/s]
    """
    name = f"{'inter' if across else 'intra'}_{direction}"
    terms = (
        ("base", "time", 0.5),
        ("sm_bandwidth", "bandwidth", 0.5),
        ("rdma_bandwidth" if across else "nvlink_bandwidth", "bandwidth", 0.3),
        ("per_sqrt_token" if across else "per_token", "time", 1.0),
        ("per_node" if across else "token_bytes", "time" if across else "bytes", 1.0),
        ("sm_power", "", 0.3),
        ("token_bandwidth", "bandwidth", 1.0),
        ("per_row_byte", "time", 1.0),
        *(() if across else (("per_sqrt_token", "time", 1.0), ("per_copy", "time", 1.0))),
        ("norm", "", 0.5),
    )
    usual = {"token_bytes": 500.0, "sm_power": 1.0, "norm": 4.0, "token_bandwidth": 8e9, "per_row_byte": 1e-9}
    usual |= {} if across else {"per_sqrt_token": 5e-7, "per_copy": 1e-6}
    found = []
    for term, dimension, spread in terms:
        start = constants.get(f"{name}_{term}", usual.get(term))
        if start is not None and not (across and term in ("token_bandwidth", "per_row_byte")):
            high = wires if term == "nvlink_bandwidth" else start * 30
            found.append(Parameter(f"{name}_{term}", min(start, high), start / 30, high, spread, dimension))
    return found


def fit_leg(rows: pd.DataFrame, across: bool, constants: Mapping[str, float], wires: float, *, starts: int = 2) -> Fit:
    """Constants of one direction from its rows; across nodes, those inside a node stay as they are."""
    legs = Legs(rows.reset_index(drop=True))
    direction = str(rows.direction.iloc[0])
    return fitted(
        lambda values: legs.seconds({**constants, **values}),
        rows.time_s.to_numpy(),
        parameters(direction, across, constants, wires),
        what=f"{direction} of DeepEP",
        noise=0.05,
        starts=starts,
        max_evaluations=60,
    )


def fold_errors(
    rows: pd.DataFrame, by: Sequence[str], across: bool, constants: Mapping[str, float], wires: float
) -> tuple[pd.DataFrame, Floats]:
    """Predictions of rows by fits that saw no row of their group."""
    parts, found = [], []
    for _, part in rows.groupby(list(by)):
        rest = rows.drop(part.index)
        for direction, held in part.groupby("direction"):
            fit = fit_leg(rest[rest.direction == direction], across, constants, wires, starts=1)
            parts.append(held)
            found.append(Legs(held.reset_index(drop=True)).seconds({**constants, **fit.values}))
    return pd.concat(parts), np.concatenate(found)


MEASURED = "deepep"
"""The transport of the tables."""
CONGESTED = 8
"""Nodes from which the table of H100 is congested: a property of that fabric, not of the transport."""


def transport_overlay(transport: str, gpu: str) -> Overlay:
    """Constants of a transport from the tables of a GPU, with the errors on groups that no fit saw."""
    if library.find("transports", transport) != MEASURED:
        raise SpecError.single("--transport", "", f"the tables hold no rows of {transport}", f"they are of {MEASURED}")
    constants = {name: one.value for name, one in library.uncalibrated_transport(transport).constants.items()}
    wires = wire_bandwidth(gpu)
    inside, between = read_deepep(gpu, False), read_deepep(gpu, True)
    congested = int((between.nodes >= CONGESTED).sum())
    between = between[between.nodes < CONGESTED].reset_index(drop=True)
    values: dict[str, tuple[float, str]] = {}
    residuals: dict[str, Spread] = {}
    scores: dict[str, Score] = {}
    for rows, across, by in ((inside, False, ("hidden", "top_k")), (between, True, ("num_sms",))):
        for direction in ("dispatch", "combine"):
            part = rows[rows.direction == direction]
            dimensions = {one.name: one.dimension for one in parameters(direction, across, constants, wires)}
            fit = fit_leg(part, across, constants | {name: value for name, (value, _) in values.items()}, wires)
            values |= {name: (value, dimensions[name]) for name, value in fit.values.items()}
        inner = {name: value for name, (value, _) in values.items() if across and name.startswith("intra")}
        held, times = fold_errors(rows, by, across, constants | inner, wires)
        measured = held.time_s.to_numpy()
        where = "inter" if across else "intra"
        regimes = np.array([f"{where}-{direction}" for direction in held.direction])
        known = spreads(np.log(times / measured), regimes)
        low, high = interval(times, regimes, known)
        residuals |= {name: one for name, one in known.items() if name != "all"}
        scores[f"{where}, held out by {', '.join(by)}"] = score(times, measured, low, high)
    used = len(inside) + len(between)
    return Overlay(
        name=f"{transport}-transport",
        gpu=transport,
        family="transport",
        source="aiconfigurator-tables",
        version="SGLang 0.5.12 in a node, 0.5.6.post2 across nodes",
        command=f"moesim calibrate transport --transport {transport} --gpu {gpu} --from {PACKAGE}",
        constants=values,
        rows={"read": used + congested, "used": used},
        dropped={f"{CONGESTED} nodes: congested": congested},
        covered={
            "tokens": (float(inside.tokens.min()), float(inside.tokens.max())),
            "hidden": (float(inside.hidden.min()), float(inside.hidden.max())),
            "num_sms": (float(inside.num_sms.min()), float(inside.num_sms.max())),
            "nodes": (1.0, float(between.nodes.max())),
        },
        residuals=residuals,
        scores=scores,
        summary=f"dispatch and combine of {transport} on {gpu}, fitted to measurements",
    )
