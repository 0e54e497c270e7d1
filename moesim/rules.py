"""The rules of a strategy, of what is impossible or not modelled; what a framework refuses stands in its software spec.

Each rule is written once: `moesim.constraints` asks it for batch masks and for messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from moesim.base.numeric import Boolean, Numeric
from moesim.cost.transports import transports
from moesim.spec.software import SoftwareSpec
from moesim.timeline.schedule import Schedule
from moesim.timeline.schedules import FILE_SUFFIX, find_schedule, schedules
from moesim.workload.mesh import Mesh
from moesim.workload.model import Model, Moe
from moesim.workload.precision import recipes
from moesim.workload.recompute import whole_layers
from moesim.workload.sharding import SHARDINGS
from moesim.workload.strategy import COUNTS, Strategy


@dataclass(frozen=True)
class Candidate:
    """A strategy beside the problem it is meant for.

    ``rates`` are the kinds of GEMM that the GPU runs, ``nvlink_domain`` GPUs that share an NVLink switch, ``protocol`` what
    the network between them speaks.
    """

    strategy: Strategy
    model: Model
    software: SoftwareSpec
    num_gpus: int
    sequence_length: int
    global_batch: int
    rates: frozenset[str] = frozenset({"bf16", "fp16"})
    nvlink_domain: Numeric = 8.0
    protocol: str = "infiniband"

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
    def schedule(self) -> Schedule | None:
        """The pipeline schedule; None where there is none of that name."""
        name = self.strategy.schedule
        return find_schedule(name) if name in schedules or name.endswith(FILE_SUFFIX) else None

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
            "num_gpus": self.num_gpus,
            "num_micro_batches": _whole(self.num_micro_batches),
            "dp": _whole(self.mesh.dp),
            "edp": _whole(self.mesh.edp),
            "recompute_full": whole_layers(recompute),
            "recompute_moe": "moe" in recompute,
            "schedule_file": self.strategy.schedule.endswith(FILE_SUFFIX),
        }


@dataclass(frozen=True)
class Rule:
    """One constraint.

    ``fields`` are the fields it speaks of, the one to blame first. ``holds`` is a mask where degrees are arrays;
    ``message`` speaks of one strategy. ``legal`` lists the values of a field that satisfy this rule, by trying them;
    where there are none, or the field is no degree, ``otherwise`` says what to do. A rule means nothing while one of
    those that it ``needs`` is broken.
    """

    name: str
    fields: tuple[str, ...]
    holds: Callable[[Candidate], Boolean]
    message: Callable[[Candidate], str]
    otherwise: Callable[[Candidate], str] = lambda candidate: ""
    needs: tuple[str, ...] = ()

    def legal(self, candidate: Candidate) -> tuple[str, str]:
        """The field to change, and the values of it that satisfy the rule, the others unchanged."""
        values = np.arange(1, candidate.num_gpus + 1, dtype=float)
        for field in self.fields:
            if field in COUNTS:
                tried = replace(candidate, strategy=candidate.strategy.replace(**{field: values}))
                legal = values[np.broadcast_to(self.holds(tried), values.shape)]
                if len(legal):
                    listed = ", ".join(f"{value:.0f}" for value in legal[:12])
                    return field, f"{field} in {listed}{', ...' if len(legal) > 12 else ''}"
        return self.fields[-1], self.otherwise(candidate)


def divides(whole: Numeric, part: Numeric) -> Boolean:
    """Return whether a part goes into a whole without a rest."""
    return np.equal(np.mod(whole, part), 0)


def _whole(value: Numeric) -> Numeric:
    """A whole scalar as an int, so that messages say 4 and not 4.0."""
    return int(value) if np.ndim(value) == 0 and value == int(value) else value


def shown(value: Numeric) -> str:
    """A number as messages say it."""
    return f"{float(value):g}"


def _attention_ranks(c: Candidate) -> Numeric:
    return c.strategy.tp * c.strategy.cp * c.strategy.pp


def _expert_ranks(c: Candidate) -> Numeric:
    return c.strategy.etp * c.strategy.ep * c.strategy.pp


MOST_TASKS = 4_000_000
"""Forwards of one step that are still drawn: a larger step graph would not fit in a workstation's memory."""

RULES = (
    Rule(
        "pipeline-ranks",
        ("pp",),
        lambda c: divides(c.num_gpus, c.strategy.pp),
        lambda c: f"pp = {shown(c.strategy.pp)} does not divide {c.num_gpus} GPUs",
    ),
    Rule(
        "ranks",
        ("tp", "cp", "pp"),
        lambda c: divides(c.num_gpus, _attention_ranks(c)),
        lambda c: (
            f"tp*cp*pp = {shown(_attention_ranks(c))} does not divide {c.num_gpus} GPUs: a stage has "
            f"{shown(c.num_gpus / c.strategy.pp)} ranks for tp*cp = {shown(c.strategy.tp * c.strategy.cp)}"
        ),
        needs=("pipeline-ranks",),
    ),
    Rule(
        "expert-ranks",
        ("ep", "etp", "pp"),
        lambda c: divides(c.num_gpus, _expert_ranks(c)),
        lambda c: (
            f"etp*ep*pp = {shown(_expert_ranks(c))} does not divide {c.num_gpus} GPUs: a stage has "
            f"{shown(c.num_gpus / c.strategy.pp)} ranks for ep*etp = {shown(c.strategy.ep * c.strategy.etp)}"
        ),
        needs=("pipeline-ranks",),
    ),
    Rule(
        "experts",
        ("ep",),
        lambda c: divides(c.moe.num_experts, c.strategy.ep) if c.moe else np.equal(c.strategy.ep, 1),
        lambda c: (
            f"ep = {shown(c.strategy.ep)} does not divide {c.moe.num_experts} experts"
            if c.moe
            else f"ep = {shown(c.strategy.ep)} in a model without experts"
        ),
    ),
    Rule(
        "expert-width",
        ("etp",),
        lambda c: divides(c.moe.ffn_size, c.strategy.etp) if c.moe else np.equal(c.strategy.etp, 1),
        lambda c: (
            f"etp = {shown(c.strategy.etp)} does not divide the expert width {c.moe.ffn_size}"
            if c.moe
            else f"etp = {shown(c.strategy.etp)} in a model without experts"
        ),
    ),
    Rule(
        "heads",
        ("tp",),
        lambda c: divides(c.model.layers[-1].attention.num_heads, c.strategy.tp),
        lambda c: (
            f"tp = {shown(c.strategy.tp)} does not divide {c.model.layers[-1].attention.num_heads} attention heads"
        ),
    ),
    Rule(
        "sequence",
        ("tp", "cp"),
        lambda c: divides(c.sequence_length, c.strategy.tp * c.strategy.cp),
        lambda c: f"tp*cp = {shown(c.strategy.tp * c.strategy.cp)} does not divide sequences of {c.sequence_length}",
    ),
    Rule(
        "batch",
        ("micro_batch", "global_batch"),
        lambda c: divides(c.global_batch, c.mesh.dp * c.strategy.micro_batch),
        lambda c: (
            f"a global batch of {c.global_batch} does not divide by dp*micro_batch = {shown(c.mesh.dp)}*"
            f"{shown(c.strategy.micro_batch)}"
        ),
        lambda c: f"global_batch a multiple of {shown(c.mesh.dp * c.strategy.micro_batch)}",
        needs=("pipeline-ranks", "ranks"),
    ),
    Rule(
        "step-size",
        ("micro_batch",),
        lambda c: np.less_equal(c.num_micro_batches * c.strategy.pp * c.strategy.vpp, MOST_TASKS),
        lambda c: (
            f"{shown(c.num_micro_batches)} micro-batches on {shown(c.strategy.pp * c.strategy.vpp)} stages are more than "
            f"{MOST_TASKS:,} tasks to draw"
        ),
        lambda c: "a larger micro_batch, or a smaller global_batch",
        needs=("pipeline-ranks", "ranks", "batch"),
    ),
    Rule(
        "experts-without-sequence-parallelism",
        ("sequence_parallel",),
        lambda c: np.logical_or(c.strategy.sequence_parallel or c.moe is None, np.equal(c.strategy.tp, 1)),
        lambda c: (
            f"tp = {shown(c.strategy.tp)} without sequence parallelism routes every token {shown(c.strategy.tp)} times in "
            "an MoE model"
        ),
        lambda c: "sequence_parallel: true",
    ),
    Rule(
        "overlap-tp-without-sequence-parallelism",
        ("overlap_tp",),
        lambda c: not c.strategy.overlap_tp or c.strategy.sequence_parallel,
        lambda c: "overlap_tp splits the all-gather and reduce-scatter of sequence parallelism",
        lambda c: "overlap_tp: false, or sequence_parallel: true",
    ),
    Rule(
        "overlap-shared-expert",
        ("overlap_shared_expert",),
        lambda c: (
            not c.strategy.overlap_shared_expert or bool(c.moe and c.moe.shared_size and not c.strategy.overlap_ep)
        ),
        lambda c: "overlap_shared_expert needs shared experts, and overlap_ep already uses the time of the exchange",
        lambda c: "overlap_shared_expert: false",
    ),
    Rule(
        "capacity",
        ("capacity_factor",),
        lambda c: c.strategy.routing != "capacity" or c.strategy.capacity_factor is not None,
        lambda c: "routing 'capacity' pads every expert to its capacity and needs a capacity_factor",
        lambda c: "capacity_factor: 1.0 or more, or another routing",
    ),
    Rule(
        "capacity-factor",
        ("capacity_factor",),
        lambda c: c.strategy.capacity_factor is None or c.strategy.capacity_factor > 0,
        lambda c: f"capacity_factor = {shown(c.strategy.capacity_factor or 0)} leaves the experts no rows",
        lambda c: "capacity_factor: more than 0",
    ),
    Rule(
        "imbalance",
        ("rank_imbalance",),
        lambda c: np.greater_equal(c.strategy.rank_imbalance, 1.0),
        lambda c: f"rank_imbalance = {shown(c.strategy.rank_imbalance)}: the hottest rank over the mean is at least 1",
        lambda c: "rank_imbalance: 1.0 or more",
    ),
    Rule(
        "reshard",
        ("reshard_after_forward",),
        lambda c: c.strategy.reshard_after_forward or SHARDINGS[c.strategy.dp_sharding].weights,
        lambda c: f"dp_sharding {c.strategy.dp_sharding} keeps whole weights; there is nothing to keep unsharded",
        lambda c: "reshard_after_forward: true, or dp_sharding: fsdp",
    ),
    Rule(
        "precision-of-the-gpu",
        ("precision",),
        lambda c: recipes.get(c.strategy.precision).rate in c.rates,
        lambda c: f"this GPU has no rate for precision {c.strategy.precision}",
        lambda c: "precision in " + ", ".join(e.name for e in recipes.entries() if e.item.rate in c.rates),
    ),
    Rule(
        "fp8-params",
        ("fp8_params",),
        lambda c: not c.strategy.fp8_params or recipes.get(c.strategy.precision).casts,
        lambda c: f"fp8_params with precision {c.strategy.precision}, which casts nothing",
        lambda c: "fp8_params: false, or an FP8 precision",
    ),
    Rule(
        "overlap-ep-recompute",
        ("recompute",),
        lambda c: (
            not c.strategy.overlap_ep or not (whole_layers(c.strategy.recompute) or "moe" in c.strategy.recompute)
        ),
        lambda c: (
            "overlap_ep interleaves forward and backward layer by layer; recomputing a whole layer or its experts "
            "inside it is not modelled"
        ),
        lambda c: "recompute without whole layers and moe, or overlap_ep: false",
    ),
    Rule(
        "overlap-ep-pairs",
        ("overlap_ep", "schedule"),
        lambda c: not c.strategy.overlap_ep or c.schedule is None or c.schedule.pairs,
        lambda c: (
            f"schedule {c.strategy.schedule} has no pairs of a forward and a backward that overlap_ep could merge"
        ),
        lambda c: "overlap_ep: false, or a schedule with pairs",
    ),
    Rule(
        "copies-of-parameters",
        ("dp_sharding", "schedule"),
        lambda c: (
            c.schedule is None or c.schedule.pipelines == 1 or not SHARDINGS[c.strategy.dp_sharding].per_micro_batch
        ),
        lambda c: (
            f"schedule {c.strategy.schedule} keeps two copies of the parameters; summing their gradients after every "
            f"micro-batch (dp_sharding {c.strategy.dp_sharding}) is not modelled"
        ),
        lambda c: "dp_sharding: ddp or zero1",
    ),
    Rule(
        "cuda-graph-alone",
        ("cuda_graph",),
        lambda c: "+" not in c.strategy.cuda_graph or not {"none", "full"} & set(c.strategy.cuda_graph.split("+")),
        lambda c: f"cuda_graph {c.strategy.cuda_graph}: 'none' and 'full' stand alone",
        lambda c: "cuda_graph: none, full, or parts of a layer joined by +",
    ),
    Rule(
        "cuda-graph-scopes",
        ("cuda_graph",),
        lambda c: (
            not (
                ({"moe", "moe-router"} & set(c.strategy.cuda_graph.split("+")) and c.moe is None)
                or ("mlp" in c.strategy.cuda_graph.split("+") and all(layer.moe for layer in c.model.layers))
            )
        ),
        lambda c: f"cuda_graph {c.strategy.cuda_graph} names a part that no layer of {c.model.name} has",
        lambda c: "cuda_graph with parts of its layers: attn, " + ("moe-router, moe" if c.moe else "mlp"),
    ),
    Rule(
        "cuda-graph-syncs",
        ("cuda_graph", "transport"),
        lambda c: (
            c.moe is None
            or not {"moe", "full"} & set(c.strategy.cuda_graph.split("+"))
            or c.strategy.transport not in transports
            or transports.get(c.strategy.transport).host_syncs == 0
            or c.strategy.sync_free
        ),
        lambda c: f"a CUDA graph cannot hold the host's wait for row counts that transport {c.strategy.transport} has",
        lambda c: (
            "cuda_graph without moe and full, or transport in "
            + ", ".join(entry.name for entry in transports.entries() if entry.item.host_syncs == 0)
        ),
    ),
    Rule(
        "recompute-full-alone",
        ("recompute",),
        lambda c: len(c.strategy.recompute) < 2 or not whole_layers(c.strategy.recompute),
        lambda c: f"recompute of whole layers already repeats the rest of {', '.join(c.strategy.recompute)}",
        lambda c: "full alone or sqrt alone, or modules without them",
    ),
    Rule(
        "param-gather-unsharded",
        ("overlap_param_gather",),
        lambda c: not c.strategy.overlap_param_gather or c.strategy.dp_sharding in ("zero1", "zero2"),
        lambda c: f"dp_sharding {c.strategy.dp_sharding} gathers no parameters after the optimizer",
        lambda c: "overlap_param_gather: false, or dp_sharding: zero1",
    ),
)
