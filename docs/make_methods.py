"""Write docs/methods.md: every method of a strategy, where it comes from, and which terms of an estimate it touches.

``python docs/make_methods.py`` asks for an estimate with each method and without, on a small pipeline of an MoE model;
what a term does stands there as it comes out, and the test of the page asks again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from refresh import table

import moesim
from moesim.base.registry import Registry
from moesim.cost.expert_gemms import expert_gemms
from moesim.cost.transports import transports
from moesim.timeline.schedules import schedules
from moesim.workload.adapters import adapters
from moesim.workload.compression import compressions
from moesim.workload.fusions import fusions
from moesim.workload.optimizers import optimizers
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies
from moesim.workload.routing import routings

PAGE = Path(__file__).resolve().parent / "methods.md"
SIZE = 1e-6
"""Relative change from which on a term counts as touched."""
BASE = {
    "overlap_shared_expert": False,
    "pp": 2,
    "ep": 8,
    "micro_batch": 2,
    "schedule": "1f1b",
    "dp_sharding": "zero1",
    "transport": "nccl-alltoall",
    "capacity_factor": None,
}

Case = tuple[dict[str, Any], dict[str, Any]]
"""What stands beside a method in both runs, and the method."""

ZIPF = {"routing": "zipf:0.8"}
MXFP8 = {"precision": "mxfp8", "fp8_params": True}
FLAT = {"pp": 1, "schedule": "none"}

CHOICES: dict[str, tuple[str, str, Case]] = {
    "tp": ("tensor parallelism with sequence parallelism", "megatron-lm", ({}, {"tp": 2, "sequence_parallel": True})),
    "cp": ("context parallelism, ring", "megatron-lm", ({"cp_kind": "ring"}, {"cp": 2})),
    "cp_kind": (
        "context parallelism, Ulysses against ring",
        "olmo-core-report",
        ({"cp": 2, "cp_kind": "ring"}, {"cp_kind": "ulysses"}),
    ),
    "pp": ("pipeline parallelism", "narayanan2021", (FLAT, {"pp": 2, "schedule": "1f1b"})),
    "ep": ("expert parallelism", "moe-parallel-folding", ({"ep": 1}, {"ep": 8})),
    "etp": ("expert tensor parallelism", "moe-parallel-folding", ({"ep": 4}, {"etp": 2})),
    "dp_sharding": ("FSDP against a sharded optimizer", "torchtitan", ({}, {"dp_sharding": "fsdp"})),
    "reshard_after_forward": (
        "weights freed behind each block",
        "torchtitan",
        ({"dp_sharding": "fsdp", "reshard_after_forward": False}, {"reshard_after_forward": True}),
    ),
    "fp8_params": (
        "weights kept in the recipe's format",
        "transformer-engine",
        ({"precision": "mxfp8"}, {"fp8_params": True}),
    ),
    "overlap_grad_reduce": (
        "gradients reduced beside the backward",
        "megatron-lm",
        ({}, {"overlap_grad_reduce": True}),
    ),
    "overlap_param_gather": (
        "weights gathered beside the forward",
        "megatron-lm",
        ({"overlap_grad_reduce": True}, {"overlap_param_gather": True}),
    ),
    "overlap_tp": (
        "tensor-parallel messages beside their product",
        "transformer-engine",
        ({"tp": 2, "sequence_parallel": True}, {"overlap_tp": True}),
    ),
    "overlap_ep": (
        "exchange of one micro-batch beside the other pass of another",
        "megatron-lm",
        ({}, {"overlap_ep": True}),
    ),
    "overlap_shared_expert": (
        "shared experts beside the exchange",
        "megatron-lm",
        ({}, {"overlap_shared_expert": True}),
    ),
    "overlap_p2p": (
        "boundaries beside the next chunk",
        "megatron-lm",
        ({"vpp": 2, "schedule": "interleaved-1f1b"}, {"overlap_p2p": True}),
    ),
    "cuda_graph": ("kernels of a part replayed as a graph", "megatron-lm", ({}, {"cuda_graph": "attn"})),
    "rank_imbalance": ("a hotter rank, given", "megatron-core-moe-paper", ({}, {"rank_imbalance": 1.3})),
    "capacity_factor": ("rows of a rank capped", "olmo-core-report", (ZIPF, {"capacity_factor": 1.0})),
    "capacity_per": (
        "a budget of each expert instead of each rank",
        "olmo-core-report",
        (ZIPF | {"capacity_factor": 1.0}, {"capacity_per": "expert"}),
    ),
    "replicated_experts": ("copies of hot experts on every rank", "fastermoe-2022", (ZIPF, {"replicated_experts": 2})),
    "node_limit": (
        "routes of a token in few nodes",
        "deepseek-v3-report",
        ({"ep": 16, "pp": 1, "schedule": "none", "transport": "deepep-v2"}, {"node_limit": 1}),
    ),
    "expert_kernel": (
        "dispatch, experts and combine in one persistent kernel",
        "deepgemm",
        (MXFP8 | {"transport": "nvshmem-rowwise", "capacity_factor": 1.25}, {"expert_kernel": "fused"}),
    ),
    "sync_free": ("row counts stay on the GPU", "olmo-core-report", ({"capacity_factor": 1.25}, {"sync_free": True})),
    "dispatch_precision": (
        "rows leave in the recipe's format",
        "olmo-core-report",
        (MXFP8 | {"transport": "nvshmem-rowwise"}, {"dispatch_precision": "recipe"}),
    ),
    "two_batch_overlap": (
        "two halves of a micro-batch side by side",
        "olmo-core-report",
        (FLAT, {"two_batch_overlap": True}),
    ),
    "expert_waves": ("rows in waves, one exchanged while another is multiplied", "deepgemm", ({}, {"expert_waves": 2})),
    "delay_wgrad": ("weight gradients beside the last exchange", "megatron-lm", ({}, {"delay_wgrad": True})),
    "adapter_targets": (
        "adapters beside every matrix instead of those of attention",
        "hu2021-lora",
        ({"adapter": "lora:16"}, {"adapter_targets": "linear"}),
    ),
    "activation_offload": (
        "activations in the memory of the host",
        "olmo-core-report",
        ({}, {"activation_offload": 0.5}),
    ),
    "expert_offload": (
        "weights of experts in the memory of the host",
        "megatron-lm-6491",
        ({}, {"expert_offload": 1.0}),
    ),
    "optimizer_offload": ("optimizer in the memory of the host", "zero-offload", ({}, {"optimizer_offload": 0.5})),
    "grad_bucket_bytes": (
        "gradients reduced bucket by bucket",
        "pytorch-ddp-hooks",
        ({"dp_sharding": "ddp"}, {"grad_bucket_bytes": 2.5e7}),
    ),
    "stale_gradients": (
        "gradients of the step before",
        "vogels2019-powersgd",
        ({"dp_sharding": "ddp"}, {"stale_gradients": True}),
    ),
}
"""Methods that are no names in a registry: what they are, their source, and a run with and without."""

REGISTRIES: dict[str, tuple[Registry[Any], dict[str, Any]]] = {
    "schedule": (schedules, {"vpp": 2}),
    "transport": (transports, {}),
    "recompute": (policies, {}),
    "precision": (recipes, {}),
    "expert_gemm": (expert_gemms, {"capacity_factor": 1.25}),
    "fusions": (fusions, MXFP8),
    "routing": (routings, {}),
    "optimizer": (optimizers, {}),
    "adapter": (adapters, {}),
    "grad_compression": (compressions, {"dp_sharding": "ddp"}),
}
"""Fields whose values are registered, and what they need beside them."""
ARGUMENTS = {
    "zipf": "zipf:0.8",
    "power-law": "power-law:1.2",
    "histogram": "histogram:" + ",".join(["1"] * 16 + ["3"] * 16),
    "powersgd": "powersgd:4",
}
ARGUMENTS |= {name: f"{name}:16" for name in adapters.names()}


def problem() -> moesim.Problem:
    """Eight layers with 32 experts on two nodes, with a framework that refuses nothing."""
    found = moesim.from_names("olmo-8l-32e", "hgx-b300:2", "olmo-core")
    found = found.with_changes({"sequence_length": 8192, "global_batch": 256} | {"micro_batch": 2, "ep": 8})
    return replace(found, software=found.software.model_copy(update={"rules": ()}))


def terms(asked: moesim.Problem, changes: dict[str, Any]) -> dict[str, float] | str:
    """Terms of an estimate, or the rule that refuses it."""
    strategy = asked.strategy.replace(**BASE | changes)
    broken = asked.check(strategy)
    if broken:
        return broken[0].violation.rule
    answer = moesim.estimate(asked, strategy)
    memory = answer.memory.stages[0]
    found = {f"{name} time": value for name, value in answer.breakdown_s.items()}
    found |= {f"{name.removesuffix('_bytes')} memory": value for name, value in memory.items() if name != "peak_bytes"}
    found["host memory"] = answer.memory.host_bytes_per_node
    found["dropped rows"] = (answer.routing or {}).get("dropped_share") or 0.0
    return {name.replace("_", " "): value for name, value in found.items()}


def touched(asked: moesim.Problem, beside: dict[str, Any], method: dict[str, Any]) -> str:
    """Terms that a method makes larger (+) or smaller (-)."""
    before, after = terms(asked, beside), terms(asked, beside | method)
    if isinstance(before, str) or isinstance(after, str):
        return f"refused here: {after if isinstance(after, str) else before}"
    total = sum(value for name, value in before.items() if name.endswith("time"))
    found = []
    for name in after:
        difference = after[name] - before.get(name, 0.0)
        scale = total if name.endswith("time") else max(abs(before.get(name, 0.0)), 1.0)
        if abs(difference) > SIZE * scale and name != "slack memory":
            found.append(f"{name} {'+' if difference > 0 else '-'}")
    return ", ".join(found) or "nothing here"


def choice_rows() -> list[list[str]]:
    """Methods that are fields."""
    asked = problem()
    return [[f"`{name}`", what, source, touched(asked, *case)] for name, (what, source, case) in CHOICES.items()]


def _beside(field: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a registered name is compared with, and what it needs."""
    beside = dict(REGISTRIES[field][1])
    if field == "schedule":
        chunks = 1 if name in ("1f1b", "gpipe", "zb-h1", "zb-h2", "dualpipe", "none") else 2
        return {}, {"schedule": name, "vpp": chunks} | (FLAT if name == "none" else {}) | {"micro_batch": 1}
    value: Any = ARGUMENTS.get(name, name)
    if field in ("recompute", "fusions"):
        value = (value,)
    needs = {"capacity_factor": 1.25} if name == "capacity" else {}
    return beside | needs, {field: value}


def registered_tables() -> str:
    """A table for each field with a registry."""
    asked, parts = problem(), []
    for field, (registry, _) in REGISTRIES.items():
        rows = []
        for entry in registry.entries():
            beside, method = _beside(field, entry.name)
            if field == "schedule":
                beside = {"micro_batch": 1}
            rows.append([f"`{entry.name}`", entry.summary, entry.source, touched(asked, beside, method)])
        parts.append(f"### `{field}`\n\n" + table(["name", "", "source", "touches"], rows, left=4))
    return "\n\n".join(parts)


def page() -> str:
    """The page."""
    fields, names = choice_rows(), registered_tables()
    return f"""# Methods

Every choice of a strategy, its source, and the terms of an estimate that it touches: larger (+) or smaller (-) than without it.
Written by `docs/make_methods.py` from estimates of `olmo-8l-32e` on two nodes of B300 (PP 2, EP 8, 1F1B, sharded optimizer, NCCL
all-to-all, BF16) with and without the method, and with what it needs in both; memory is that of the first rank. Another model or
machine may touch more. `moesim specs KIND` lists the names, `moesim check` says what does not go together.

## Fields

{table(["field", "", "source", "touches"], fields, left=4)}

## Names

{names}
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
