"""The scenarios of the published question: models, batches, groups and clusters of the report's range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from moesim.matrix.situation import Situation
from moesim.problem import Problem, from_names
from moesim.workload.model import Attention, Layer, Model, Moe
from moesim.workload.strategy import Strategy

GRID: Mapping[str, tuple[Any, ...]] = {
    "node": ("hgx-b300", "gb300-nvl72"),
    "hidden": (1536, 2048, 4096, 8192),
    "num_experts": (32, 64, 128, 256),
    "top_k": (2, 4, 8),
    "expert_width": (0.25, 0.5, 1.0),
    "num_layers": (16, 32),
    "pp": (1, 4, 8),
    "micro_batches": (1, 2, 4),
    "replicas": (32, 64),
}
"""What is drawn for a situation: ``expert_width`` over the hidden width, ``micro_batches`` over the pipeline ranks,
``replicas`` of a stage."""
COLUMNS: Mapping[str, tuple[int, ...]] = {"ep": (8, 32), "micro_batch": (2, 4, 8)}
"""Scenarios of each situation: every pair of these degrees that is legal there and leaves a rank two experts."""
SEQUENCE = 4096
SKEW = "zipf:0.5"
"""Popularity of the experts where some are hotter than others."""
BASE: Mapping[str, Any] = {
    "dp_sharding": "ddp",
    "transport": "nvshmem-rowwise",
    "layout": "first-stages-larger",
    "cp_kind": "ulysses",
    "overlap_shared_expert": True,
    "capacity_factor": None,
}
"""What a method is not asked for: plain replicas, rows in symmetric memory, shared experts beside the dispatch."""
SOFTWARE = "olmo-core"
TEMPLATE = "olmo3moe-medium-64e"
VOCABULARY = 100352


@dataclass(frozen=True)
class Ensemble:
    """How many situations are drawn, of alike and of unlike experts, and from which seed."""

    even: int = 12
    skewed: int = 4
    seed: int = 0


def situations(ensemble: Ensemble) -> list[Situation]:
    """Situations of an ensemble; each value of the grid is drawn as often as any other."""
    generator = np.random.default_rng(ensemble.seed)
    count = ensemble.even + ensemble.skewed
    drawn = {name: _spread(values, count, generator) for name, values in GRID.items()}
    problems = {node: from_names(TEMPLATE, f"{node}:1", SOFTWARE) for node in GRID["node"]}
    found = []
    for index in range(count):
        values = {name: several[index] for name, several in drawn.items()}
        found.append(_situation(index, values, problems[values["node"]], index >= ensemble.even))
    return found


def _spread(values: Sequence[Any], count: int, generator: np.random.Generator) -> list[Any]:
    """So many draws, in random order, each value as often as any other."""
    whole = [values[index % len(values)] for index in range(count)]
    return [whole[index] for index in generator.permutation(count)]


def _situation(index: int, values: Mapping[str, Any], problem: Problem, skewed: bool) -> Situation:
    pp, replicas = values["pp"], values["replicas"]
    machine = replace(problem.machine, num_gpus=pp * replicas)
    degrees = [
        (float(ep), float(size))
        for ep in COLUMNS["ep"]
        for size in COLUMNS["micro_batch"]
        if ep <= min(replicas, values["num_experts"] // 2)
    ]
    ep, size = (np.array(column) for column in zip(*degrees, strict=True))
    strategy = Strategy(
        **BASE,
        pp=pp,
        schedule="1f1b" if pp > 1 else "none",
        ep=ep,
        micro_batch=size,
        routing=SKEW if skewed else "balanced",
    )
    name = (
        f"{index}: {values['num_layers']} layers of {values['hidden']}, {values['num_experts']} experts, top {values['top_k']}, "
        f"{machine.num_gpus} GPUs of {values['node']}, pp {pp}"
    )
    changed = replace(problem, model=_model(values), machine=machine, sequence_length=SEQUENCE)
    return Situation(
        name, changed, strategy, values["micro_batches"] * pp if pp > 1 else 8 * values["micro_batches"], skewed
    )


def _model(values: Mapping[str, Any]) -> Model:
    """A model of the report's kind: grouped-query attention, gated experts, one shared expert."""
    hidden = values["hidden"]
    heads = max(16, hidden // 128)
    attention = Attention(heads, max(4, heads // 4), 128, qk_norm=True)
    width = int(hidden * values["expert_width"])
    experts = Moe(values["num_experts"], values["top_k"], width, True, width)
    layer = Layer(attention, experts, 4)
    return Model("drawn", hidden, VOCABULARY, (layer,) * values["num_layers"])
