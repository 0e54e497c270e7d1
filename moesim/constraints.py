"""What a strategy must satisfy: each rule is written once and serves as batch mask and as message.

Only what is impossible, or not modelled, is refused here; what a framework refuses stands in its software spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from moesim.base.errors import Violation, did_you_mean
from moesim.base.numeric import Boolean, Numeric
from moesim.base.registry import Registry
from moesim.cost.transports import transports
from moesim.spec.software import SoftwareSpec
from moesim.timeline.schedules import schedules
from moesim.workload.mesh import Mesh
from moesim.workload.model import Model, Moe
from moesim.workload.precision import recipes
from moesim.workload.recompute import parse, policies
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
    "cuda_graph": ("none",),
    "routing": ("balanced", "random", "natural", "capacity"),
}
"""Values that are modelled, for the fields that have no registry."""


@dataclass(frozen=True)
class Candidate:
    """A strategy beside the problem it is meant for; ``rates`` are the kinds of GEMM that the GPU runs."""

    strategy: Strategy
    model: Model
    software: SoftwareSpec
    num_gpus: int
    sequence_length: int
    global_batch: int
    rates: frozenset[str] = frozenset({"bf16", "fp16"})

    @cached_property
    def mesh(self) -> Mesh:
        """Meshes that the strategy spans over the GPUs."""
        s = self.strategy
        return Mesh(self.num_gpus, s.tp, s.cp, s.pp, s.etp, s.ep)

    @property
    def num_micro_batches(self) -> Numeric:
        """Micro-batches of a pipeline in one step; fractional where the batch does not divide. [-]"""
        return self.global_batch / (self.mesh.dp * self.strategy.micro_batch)

    @property
    def moe(self) -> Moe | None:
        """The routed experts of the model."""
        return self.model.moe

    def values(self) -> dict[str, Any]:
        """Names that the rules of a software spec may use."""
        fields = {name: getattr(self.strategy, name) for name in Strategy.__dataclass_fields__}
        recompute = self.strategy.recompute
        attention = self.model.layers[-1].attention
        return fields | {
            "num_layers": len(self.model.layers),
            "num_heads": attention.num_heads,
            "num_kv_heads": attention.num_kv_heads,
            "num_experts": self.moe.num_experts if self.moe else 1,
            "hidden_size": self.model.hidden,
            "sequence_length": self.sequence_length,
            "global_batch": self.global_batch,
            "num_micro_batches": self.num_micro_batches,
            "dp": self.mesh.dp,
            "edp": self.mesh.edp,
            "recompute_full": any(parse(name)[0] == "full" for name in recompute),
            "recompute_moe": "moe" in recompute,
        }


@dataclass(frozen=True)
class Rule:
    """One constraint on one field.

    ``holds`` is a mask where degrees are arrays; ``message`` speaks of one strategy. ``legal`` lists the values of the
    field that satisfy this rule, by trying them, unless ``legal_text`` says it better.
    """

    name: str
    field: str
    holds: Callable[[Candidate], Boolean]
    message: Callable[[Candidate], str]
    legal_text: str = ""

    def legal(self, candidate: Candidate) -> str:
        """Values of the field that satisfy the rule, the others unchanged."""
        if self.legal_text:
            return self.legal_text
        values = np.arange(1, candidate.num_gpus + 1, dtype=float)
        tried = replace(candidate, strategy=candidate.strategy.replace(**{self.field: values}))
        legal = values[np.broadcast_to(self.holds(tried), values.shape)]
        listed = ", ".join(f"{value:.0f}" for value in legal[:12])
        return f"{self.field} in {listed}{', ...' if len(legal) > 12 else ''}" if len(legal) else ""


def _divides(whole: Numeric, part: Numeric) -> Boolean:
    return np.equal(np.mod(whole, part), 0)


def _n(value: Numeric) -> str:
    return f"{float(value):g}"


def _attention_ranks(c: Candidate) -> Numeric:
    return c.strategy.tp * c.strategy.cp * c.strategy.pp


def _expert_ranks(c: Candidate) -> Numeric:
    return c.strategy.etp * c.strategy.ep * c.strategy.pp


RULES = (
    Rule(
        "ranks",
        "tp",
        lambda c: _divides(c.num_gpus, _attention_ranks(c)),
        lambda c: f"tp*cp*pp = {_n(_attention_ranks(c))} does not divide {c.num_gpus} GPUs",
    ),
    Rule(
        "expert-ranks",
        "ep",
        lambda c: _divides(c.num_gpus, _expert_ranks(c)),
        lambda c: (
            f"etp*ep*pp = {_n(_expert_ranks(c))} does not divide {c.num_gpus} GPUs: a stage has "
            f"{_n(c.num_gpus / c.strategy.pp)} ranks for ep*etp = {_n(c.strategy.ep * c.strategy.etp)}"
        ),
    ),
    Rule(
        "experts",
        "ep",
        lambda c: _divides(c.moe.num_experts, c.strategy.ep) if c.moe else np.equal(c.strategy.ep, 1),
        lambda c: (
            f"ep = {_n(c.strategy.ep)} does not divide {c.moe.num_experts} experts"
            if c.moe
            else f"ep = {_n(c.strategy.ep)} in a model without experts"
        ),
    ),
    Rule(
        "expert-width",
        "etp",
        lambda c: _divides(c.moe.ffn_size, c.strategy.etp) if c.moe else np.equal(c.strategy.etp, 1),
        lambda c: (
            f"etp = {_n(c.strategy.etp)} does not divide the expert width {c.moe.ffn_size}"
            if c.moe
            else f"etp = {_n(c.strategy.etp)} in a model without experts"
        ),
    ),
    Rule(
        "heads",
        "tp",
        lambda c: _divides(c.model.layers[-1].attention.num_heads, c.strategy.tp),
        lambda c: f"tp = {_n(c.strategy.tp)} does not divide {c.model.layers[-1].attention.num_heads} attention heads",
    ),
    Rule(
        "sequence",
        "tp",
        lambda c: _divides(c.sequence_length, c.strategy.tp * c.strategy.cp),
        lambda c: f"tp*cp = {_n(c.strategy.tp * c.strategy.cp)} does not divide sequences of {c.sequence_length}",
    ),
    Rule(
        "batch",
        "micro_batch",
        lambda c: _divides(c.global_batch, c.mesh.dp * c.strategy.micro_batch),
        lambda c: (
            f"a global batch of {c.global_batch} does not divide by dp*micro_batch = {_n(c.mesh.dp)}*"
            f"{_n(c.strategy.micro_batch)}"
        ),
    ),
    Rule(
        "ulysses-heads",
        "cp",
        lambda c: np.logical_or(
            c.strategy.cp_kind != "ulysses",
            _divides(c.model.layers[-1].attention.num_heads, c.strategy.tp * c.strategy.cp),
        ),
        lambda c: (
            f"ulysses exchanges heads: tp*cp = {_n(c.strategy.tp * c.strategy.cp)} does not divide "
            f"{c.model.layers[-1].attention.num_heads} attention heads"
        ),
    ),
    Rule(
        "experts-without-sequence-parallelism",
        "sequence_parallel",
        lambda c: np.logical_or(c.strategy.sequence_parallel or c.moe is None, np.equal(c.strategy.tp, 1)),
        lambda c: (
            f"tp = {_n(c.strategy.tp)} without sequence parallelism routes every token {_n(c.strategy.tp)} times in "
            "an MoE model"
        ),
        "sequence_parallel: true",
    ),
    Rule(
        "overlap-tp-without-sequence-parallelism",
        "overlap_tp",
        lambda c: not c.strategy.overlap_tp or c.strategy.sequence_parallel,
        lambda c: "overlap_tp splits the all-gather and reduce-scatter of sequence parallelism",
        "overlap_tp: false, or sequence_parallel: true",
    ),
    Rule(
        "overlap-shared-expert",
        "overlap_shared_expert",
        lambda c: not c.strategy.overlap_shared_expert
        or bool(c.moe and c.moe.shared_size and not c.strategy.overlap_ep),
        lambda c: "overlap_shared_expert needs shared experts, and overlap_ep already uses the time of the exchange",
        "overlap_shared_expert: false",
    ),
    Rule(
        "capacity",
        "capacity_factor",
        lambda c: (c.strategy.routing == "capacity") == (c.strategy.capacity_factor is not None),
        lambda c: (
            f"routing '{c.strategy.routing}' with capacity_factor {c.strategy.capacity_factor}: one needs the other"
        ),
        "routing: capacity with capacity_factor: 1.0 or more, or neither",
    ),
    Rule(
        "imbalance",
        "rank_imbalance",
        lambda c: np.greater_equal(c.strategy.rank_imbalance, 1.0),
        lambda c: f"rank_imbalance = {_n(c.strategy.rank_imbalance)}: the hottest rank over the mean is at least 1",
        "rank_imbalance: 1.0 or more",
    ),
    Rule(
        "reshard",
        "reshard_after_forward",
        lambda c: c.strategy.reshard_after_forward or SHARDINGS[c.strategy.dp_sharding].weights,
        lambda c: f"dp_sharding {c.strategy.dp_sharding} keeps whole weights; there is nothing to keep unsharded",
        "reshard_after_forward: true, or dp_sharding: fsdp",
    ),
    Rule(
        "precision-of-the-gpu",
        "precision",
        lambda c: recipes.get(c.strategy.precision).rate in c.rates,
        lambda c: f"this GPU has no rate for precision {c.strategy.precision}",
        "a precision that the GPU's tensor cores know",
    ),
    Rule(
        "fp8-params",
        "fp8_params",
        lambda c: not c.strategy.fp8_params or recipes.get(c.strategy.precision).casts,
        lambda c: f"fp8_params with precision {c.strategy.precision}, which casts nothing",
        "fp8_params: false, or an FP8 precision",
    ),
    Rule(
        "overlap-ep-recompute",
        "recompute",
        lambda c: not (c.strategy.overlap_ep and {"full", "moe"} & {parse(name)[0] for name in c.strategy.recompute}),
        lambda c: (
            "overlap_ep interleaves forward and backward layer by layer; recomputing a whole layer or its experts "
            "inside it is not modelled"
        ),
        "recompute without full and moe, or overlap_ep: false",
    ),
    Rule(
        "recompute-full-alone",
        "recompute",
        lambda c: len(c.strategy.recompute) < 2 or "full" not in {parse(name)[0] for name in c.strategy.recompute},
        lambda c: f"recompute 'full' already repeats the rest of {', '.join(c.strategy.recompute)}",
        "full alone, or modules without full",
    ),
    Rule(
        "param-gather-unsharded",
        "overlap_param_gather",
        lambda c: not c.strategy.overlap_param_gather or c.strategy.dp_sharding in ("zero1", "zero2"),
        lambda c: f"dp_sharding {c.strategy.dp_sharding} gathers no parameters after the optimizer",
        "overlap_param_gather: false, or dp_sharding: zero1",
    ),
)


@dataclass(frozen=True)
class Broken:
    """A violation and the strategy field that it speaks of."""

    field: str
    violation: Violation


def legal_mask(candidate: Candidate) -> Boolean:
    """Which strategies of a batch satisfy every rule on degrees, of the core and of the software."""
    mask: Boolean = np.ones(candidate.strategy.shape, dtype=bool)
    for rule in RULES:
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
    found = [
        Broken(rule.field, Violation(rule.name, rule.message(candidate), rule.legal(candidate)))
        for rule in RULES
        if not rule.holds(candidate)
    ]
    if not found:  # what follows divides the batch and the layers
        strategy = candidate.strategy
        schedule = schedules.get(strategy.schedule)
        broken = schedule.constraints(strategy.pp, int(candidate.num_micro_batches), strategy.vpp)
        found.extend(Broken("schedule", violation) for violation in broken)
        placed = _placed(candidate)
        if isinstance(placed, Violation):
            found.append(Broken("layout", placed))
    values = candidate.values()
    for rule in candidate.software.rules:
        violation = rule.violation(values, candidate.software.name)
        if violation:
            fields = [name for name in Strategy.__dataclass_fields__ if name in rule.names]
            found.append(Broken(fields[0] if fields else "", violation))
    return found


def stages(candidate: Candidate) -> tuple[Stage, ...]:
    """Stages of a strategy that breaks no rule."""
    placed = _placed(candidate)
    if isinstance(placed, Violation):
        raise ValueError(str(placed))
    return placed


def _placed(candidate: Candidate) -> tuple[Stage, ...] | Violation:
    strategy, model = candidate.strategy, candidate.model
    return place_layers(len(model.layers), strategy.pp * strategy.vpp, strategy.layout, model.mtp_layers)


def _unknown_names(strategy: Strategy) -> Iterator[Broken]:
    registries: tuple[tuple[str, Registry[Any], tuple[str, ...]], ...] = (
        ("schedule", schedules, (strategy.schedule,)),
        ("transport", transports, (strategy.transport,)),
        ("recompute", policies, tuple(parse(name)[0] for name in strategy.recompute)),
        ("precision", recipes, (strategy.precision,)),
    )
    for field, registry, names in registries:
        for name in names:
            if name not in registry:
                yield _unknown(field, registry.kind, name, registry.names())
    for field, known in CHOICES.items():
        value = getattr(strategy, field)
        if value not in known:
            yield _unknown(field, field, value, list(known))


def _unknown(field: str, kind: str, name: str, known: list[str]) -> Broken:
    return Broken(field, Violation(f"known-{field}", f"no {kind} '{name}'", did_you_mean(name, known)))
