"""Random strategies over every name and flag there is, and what must hold of each answer."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import chain
from typing import Any

from moesim.constraints import CHOICES
from moesim.cost.expert_gemms import expert_gemms
from moesim.cost.transports import transports
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.timeline.schedules import schedules
from moesim.workload.adapters import adapters
from moesim.workload.compression import compressions
from moesim.workload.fusions import fusions
from moesim.workload.optimizers import optimizers
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies
from moesim.workload.strategy import FIELDS, FLAGS, OFF, Strategy

TOLERANCE = 1e-9
"""How far sums may be off, relative. [-]"""
CHANGES = (2, 4, 8)
"""Fields of the scenario's strategy that a draw changes on average, one of these; more together are rarely legal. [-]"""


def pools() -> dict[str, list[Any]]:
    """Values to draw from, for each field of a strategy."""
    powers = [1, 2, 4, 8, 16, 32]
    found: dict[str, list[Any]] = {name: [False, True] for name in FLAGS}
    found |= {name: list(values) for name, values in CHOICES.items()}
    found |= dict.fromkeys(("tp", "cp", "pp", "ep", "etp"), powers)
    found |= {
        "vpp": [1, 1, 2, 4],
        "micro_batch": [1, 2, 4],
        "schedule": schedules.names(),
        "layout": ["even", "count-embedding-and-loss", "first-stages-larger"],
        "transport": transports.names(),
        "recompute": [(), *((name,) for name in policies.names()), ("full:1",), ("moe_act", "layernorm")],
        "precision": recipes.names(),
        "cuda_graph": ["none", "attn", "moe", "moe-router", "attn+moe-router", "mlp", "full"],
        "routing": [
            "balanced",
            "random",
            "natural",
            "capacity",
            "zipf:0.5",
            "zipf:1.3",
            "power-law:1.1",
            "histogram:1,2",
        ],
        "rank_imbalance": [1.0, 1.0, 1.25, 3.0],
        "capacity_factor": [None, None, 0.8, 1.0, 1.25, 4.0],
        "expert_gemm": expert_gemms.names(),
        "replicated_experts": [0, 1, 4],
        "node_limit": [None, 1, 2, 4],
        "expert_waves": [1, 2, 5],
        "optimizer": optimizers.names(),
        "adapter": ["none", *(f"{name}:16" for name in adapters.names()), "lora"],
        "activation_offload": [0.0, 0.5, 1.0],
        "expert_offload": [0.0, 0.5, 1.0],
        "optimizer_offload": [0.0, 0.5, 1.0],
        "grad_bucket_bytes": [None, 2.5e7],
        "grad_compression": ["none", *compressions.names(), "powersgd:4"],
        "fusions": [(), *((name,) for name in fusions.names()), tuple(fusions.names())],
    }
    return found


COMPANIONS: dict[str, dict[str, list[Any]]] = {
    "sync_free": {"capacity_factor": [1.0, 1.25], "transport": ["nccl-alltoall", "deepep", "nccl-hierarchical"]},
    "expert_kernel": {"precision": ["mxfp8", "fp8-blockwise"], "transport": ["nvshmem-rowwise"]},
    "replicated_experts": {"routing": ["zipf:0.8", "power-law:1.2"], "rank_imbalance": [1.0]},
    "capacity_per": {"routing": ["zipf:0.8"], "rank_imbalance": [1.0], "capacity_factor": [1.0, 1.5]},
    "dispatch_precision": {"precision": ["mxfp8", "fp8-current"], "transport": ["deepep", "nvshmem-rowwise"]},
    "vpp": {"pp": [2, 4], "schedule": ["interleaved-1f1b"], "overlap_p2p": [True]},
    "fp8_params": {"precision": ["fp8-current", "fp8-blockwise"]},
    "expert_gemm": {"capacity_factor": [1.0, 1.25]},
    "grad_compression": {"dp_sharding": ["ddp"], "overlap_param_gather": [False], "grad_dtype": ["fp32"]},
    "two_batch_overlap": {"micro_batch": [2, 4], "overlap_ep": [False], "dp_sharding": ["ddp", "zero1"]},
}
"""What a choice often needs beside it, so that enough of the draws with it are legal."""


def draw(problem: Problem, pick: random.Random, choices: dict[str, list[Any]] | None = None) -> Strategy:
    """A strategy near the scenario's own: a few fields, any of them, drawn anew."""
    choices = choices or pools()
    share = pick.choice(CHANGES) / len(FIELDS)
    changed = {name: pick.choice(choices[name]) for name in FIELDS if name in choices and pick.random() < share}
    for name in [name for name, value in changed.items() if name in COMPANIONS and value != OFF[name]]:
        if pick.random() < 0.8:
            changed |= {field: pick.choice(values) for field, values in COMPANIONS[name].items()}
    if changed.get("pp", problem.strategy.pp) > 1 and "schedule" not in changed:
        changed["schedule"] = pick.choice(choices["schedule"])
    if changed.get("pp") == 1:
        changed |= {"schedule": "none", "vpp": 1}
    return problem.strategy.replace(**changed)


@dataclass(frozen=True)
class Outcome:
    """What came of one strategy: names of the rules that refused it, or what is wrong with its answer."""

    refused: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def outcome(problem: Problem, strategy: Strategy) -> Outcome:
    """Ask for an estimate, and look at it."""
    broken = problem.check(strategy)
    if broken:
        nameless = [one.violation.message for one in broken if not one.violation.rule or not one.violation.message]
        return Outcome(tuple(one.violation.rule for one in broken), tuple(nameless))
    return Outcome(wrong=tuple(faults(estimate(problem, strategy))))


def faults(answer: Estimate) -> list[str]:
    """What does not hold of an answer; empty where all does."""
    found = []
    numbers = {"step_time_s": answer.step_time_s, "low_s": answer.low_s, "high_s": answer.high_s, "mfu": answer.mfu}
    numbers |= answer.breakdown_s | {f"exposed {name}": value for name, value in answer.exposed_s.items()}
    stages = answer.memory.stages
    numbers |= {f"{name} of {rank}": value for rank, stage in enumerate(stages) for name, value in stage.items()}
    numbers |= {"host_bytes_per_node": answer.memory.host_bytes_per_node, "bubble_fraction": answer.bubble_fraction}
    routing = {name: value for name, value in (answer.routing or {}).items() if value is not None}
    numbers |= routing
    found += [f"{name} = {value}" for name, value in numbers.items() if not math.isfinite(value)]
    found += [f"{name} = {value} is negative" for name, value in numbers.items() if value < -TOLERANCE]
    if routing and not (routing["hottest_rank_load"] > 0 and routing.get("dropped_share", 0.0) < 1):
        found.append("no rank has rows, or all are dropped")
    if not answer.step_time_s > 0:
        found.append("a step takes no time")
    if not _equal(sum(answer.breakdown_s.values()), answer.step_time_s):
        found.append("the breakdown does not add up to the step")
    if not answer.low_s <= answer.step_time_s * (1 + TOLERANCE) <= answer.high_s * (1 + 2 * TOLERANCE):
        found.append("the step is outside of its interval")
    for rank, stage in enumerate(stages):
        parts = sum(value for name, value in stage.items() if name != "peak_bytes")
        if not _equal(parts, stage["peak_bytes"]):
            found.append(f"memory of rank {rank} does not add up")
    if not _equal(max(stage["peak_bytes"] for stage in stages), answer.memory.peak_bytes):
        found.append("the peak is not that of the largest rank")
    if any(value > answer.step_time_s * (1 + TOLERANCE) for value in answer.exposed_s.values()):
        found.append("a class is exposed for longer than the step")
    if answer.feasible != (answer.memory.peak_bytes <= answer.memory.capacity_bytes):
        found.append("what does not fit is called feasible, or the other way round")
    return found


def used(strategies: list[Strategy]) -> set[str]:
    """Fields that leave their off setting in at least one of some strategies."""
    return set(chain.from_iterable([name for name in FIELDS if getattr(one, name) != OFF[name]] for one in strategies))


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=TOLERANCE)
