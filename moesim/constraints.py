"""What a strategy breaks: the rules of the core, of its schedule and of its software, as batch mask and as messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from moesim.base.errors import Violation, did_you_mean
from moesim.base.numeric import Boolean
from moesim.base.registry import Registry
from moesim.cost.expert_gemms import expert_gemms
from moesim.cost.transports import transports
from moesim.expert_rules import EXPERT_RULES
from moesim.overlap_rules import OVERLAP_RULES
from moesim.rule_sources import RULE_SOURCES
from moesim.rules import RULES, Candidate
from moesim.rules_of_state import STATE_RULES
from moesim.sequence_rules import SEQUENCE_RULES
from moesim.timeline.schedules import FILE_SUFFIX, find_schedule, schedules
from moesim.workload.adapters import TARGETS, adapters, parse_adapter
from moesim.workload.compression import compressions, parse_compression
from moesim.workload.fusions import fusions
from moesim.workload.ops import SCOPES
from moesim.workload.optimizers import optimizers
from moesim.workload.precision import recipes
from moesim.workload.recompute import parse, policies
from moesim.workload.routing import parse as parse_routing
from moesim.workload.routing import routings
from moesim.workload.sharding import SHARDINGS
from moesim.workload.stages import Stage, place_layers
from moesim.workload.strategy import DTYPE_BYTES, Strategy

CHOICES = {
    "dp_sharding": tuple(SHARDINGS),
    "cp_kind": ("ring", "ulysses"),
    "param_dtype": tuple(DTYPE_BYTES),
    "main_param_dtype": ("fp32", "bf16"),
    "grad_dtype": tuple(DTYPE_BYTES),
    "optimizer_state_dtype": tuple(DTYPE_BYTES),
    "capacity_per": ("rank", "expert"),
    "expert_kernel": ("separate", "fused-forward", "fused"),
    "dispatch_precision": ("bf16", "recipe"),
    "adapter_targets": TARGETS,
}
"""Values that are modelled, for the fields that have no registry."""

ALL_RULES = (*RULES, *SEQUENCE_RULES, *EXPERT_RULES, *OVERLAP_RULES, *STATE_RULES)
"""Every rule of the core, in the order in which they are asked."""


@dataclass(frozen=True)
class Broken:
    """A violation and the fields that it speaks of, the one to blame first."""

    fields: tuple[str, ...]
    violation: Violation


def legal_mask(candidate: Candidate) -> Boolean:
    """Which strategies of a batch satisfy every rule on degrees, of the core and of the software."""
    if any(True for _ in _unknown_names(candidate.strategy)):
        return np.zeros(candidate.strategy.shape, dtype=bool)
    mask: Boolean = np.ones(candidate.strategy.shape, dtype=bool)
    for rule in ALL_RULES:
        mask = np.logical_and(mask, rule.holds(candidate))
    values = candidate.values()
    for framework_rule in candidate.software.rules:
        mask = np.logical_and(mask, framework_rule.holds(values))
    return mask


def violations(candidate: Candidate) -> list[Broken]:
    """Every rule that one strategy breaks. Unknown names are reported alone: the other rules need them."""
    unknown = list(_unknown_names(candidate.strategy))
    if unknown:
        return unknown
    found: list[Broken] = []
    broken: set[str] = set()
    for rule in ALL_RULES:
        if broken.isdisjoint(rule.needs) and not rule.holds(candidate):
            broken.add(rule.name)
            field, legal = rule.legal(candidate)
            fields = (field, *(other for other in rule.fields if other != field))
            found.append(
                Broken(fields, Violation(rule.name, rule.message(candidate), legal, RULE_SOURCES.get(rule.name, "")))
            )
    if not found:  # what follows divides the batch and the layers
        strategy = candidate.strategy
        schedule = find_schedule(strategy.schedule)
        refused = schedule.constraints(strategy.pp, int(candidate.num_micro_batches), strategy.vpp)
        found.extend(Broken(("schedule",), violation) for violation in refused)
        placed = _placed(candidate)
        if isinstance(placed, Violation):
            found.append(Broken(("layout",), placed))
    values = candidate.values()
    for framework_rule in candidate.software.rules:
        if any(not broken.isdisjoint(BEHIND[name]) for name in framework_rule.names if name in BEHIND):
            continue
        refusal = framework_rule.violation(values, candidate.software.name)
        if refusal:
            fields = tuple(name for name in Strategy.__dataclass_fields__ if name in framework_rule.names)
            found.append(Broken(fields, refusal))
    return found


BEHIND = {
    "dp": {"pipeline-ranks", "ranks"},
    "edp": {"pipeline-ranks", "expert-ranks"},
    "num_micro_batches": {"pipeline-ranks", "ranks", "batch"},
}
"""Core rules that must hold before a derived number is whole and a rule of a framework can speak of it."""


def stages(candidate: Candidate) -> tuple[Stage, ...]:
    """Stages of a strategy that breaks no rule; once for each pipeline that runs through the ranks."""
    placed = _placed(candidate)
    if isinstance(placed, Violation):
        raise ValueError(str(placed))
    return placed * find_schedule(candidate.strategy.schedule).pipelines


def _placed(candidate: Candidate) -> tuple[Stage, ...] | Violation:
    strategy, model = candidate.strategy, candidate.model
    return place_layers(len(model.layers), strategy.pp * strategy.vpp, strategy.layout, model.mtp_layers)


def _unknown_names(strategy: Strategy) -> Iterator[Broken]:
    registries: tuple[tuple[str, Registry[Any], tuple[str, ...]], ...] = (
        ("schedule", schedules, (strategy.schedule,)),
        ("transport", transports, (strategy.transport,)),
        ("recompute", policies, tuple(parse(name)[0] for name in strategy.recompute)),
        ("precision", recipes, (strategy.precision,)),
        ("expert_gemm", expert_gemms, (strategy.expert_gemm,)),
        ("fusions", fusions, strategy.fusions),
        ("routing", routings, (parse_routing(strategy.routing)[0],)),
        ("optimizer", optimizers, (strategy.optimizer,)),
        ("grad_compression", compressions, _chosen(parse_compression(strategy.grad_compression)[0])),
        ("adapter", adapters, _chosen(parse_adapter(strategy.adapter)[0])),
    )
    for field, registry, names in registries:
        for name in names:
            if name not in registry and not (registry is schedules and name.endswith(FILE_SUFFIX)):
                yield _unknown(field, registry.kind, name, registry.names())
    scopes = ["none", "full", *SCOPES]
    for scope in strategy.cuda_graph.split("+"):
        if scope not in scopes:
            yield _unknown("cuda_graph", "cuda_graph", scope, scopes)
    for field, known in CHOICES.items():
        value = getattr(strategy, field)
        if value not in known:
            yield _unknown(field, field, value, list(known))


def _chosen(name: str) -> tuple[str, ...]:
    return () if name == "none" else (name,)


def _unknown(field: str, kind: str, name: str, known: list[str]) -> Broken:
    return Broken((field,), Violation(f"known-{field}", f"no {kind} '{name}'", did_you_mean(name, known)))
