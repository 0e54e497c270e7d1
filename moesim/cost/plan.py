"""A plan: a strategy resolved against a model and a machine, ready to be priced."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives.channels import NET, NODE
from moesim.cost.collectives.elementwise import pick
from moesim.cost.contention import Contention
from moesim.cost.expert_gemms import expert_gemms
from moesim.cost.machine import Group, Machine
from moesim.cost.once import Once
from moesim.cost.slow import Slow
from moesim.cost.transports import Transport, transports
from moesim.cost.uncertainty import PriceErrors
from moesim.timeline.schedule import Schedule
from moesim.timeline.schedules import find_schedule
from moesim.workload.adapters import adapters, parse_adapter
from moesim.workload.adapting import Adapting
from moesim.workload.compression import Compression, compressions, parse_compression
from moesim.workload.documents import Documents
from moesim.workload.loads import Cut, Skew, skew
from moesim.workload.mesh import Mesh
from moesim.workload.model import Model
from moesim.workload.ops import ExpertLeg, Message, Work
from moesim.workload.optimizers import Optimizer, optimizers
from moesim.workload.precision import Recipe, recipes
from moesim.workload.recompute import RecomputePolicy, parse, policies
from moesim.workload.routed import expert_leg
from moesim.workload.routing import has_law
from moesim.workload.setting import ExpertProducts, Setting
from moesim.workload.sharding import SHARDINGS, RankParams, Replicas, Sharding, StateTypes, stage_params
from moesim.workload.stages import Stage
from moesim.workload.strategy import DTYPE_BYTES, Strategy

T = TypeVar("T")


@dataclass(frozen=True)
class Plan(Once):
    """One run (or a batch of runs that share pipeline shape and methods), with all names resolved.

    ``shape`` is the shape of the columns: degrees and machine constants may be arrays of it. ``errors``: columns in
    which prices are raised by their standard error; None in a batch that wants no interval. ``documents``: lengths of
    those that are packed into a sequence, where attention stays inside them. ``slow``: pipeline ranks that a fault slows
    down.
    """

    model: Model
    machine: Machine
    strategy: Strategy
    stages: tuple[Stage, ...]
    sequence_length: int
    num_micro_batches: int
    extra_warmup: int = 0
    shape: tuple[int, ...] = ()
    errors: PriceErrors | None = None
    slow: Slow | None = None
    documents: Documents | None = None

    @cached_property
    def prices(self) -> Once:
        """Layers and prices of operations; plans on the same GPU, links and software may share them."""
        return Once()

    def share(self, prices: Once) -> None:
        """Keep layers and prices where other plans on the same GPU, links and software find them."""
        vars(self)["prices"] = prices

    @cached_property
    def mesh(self) -> Mesh:
        """Parallel degrees and derived sizes."""
        strategy = self.strategy
        span = self.machine.nvlink_domain if self.sharding.inside_node else None
        return Mesh(self.machine.num_gpus, strategy.tp, strategy.cp, strategy.pp, strategy.etp, strategy.ep, span)

    @cached_property
    def setting(self) -> Setting:
        """How a layer is run on one rank."""
        strategy = self.strategy
        bare = Setting(
            sequences=strategy.micro_batch,
            sequence_length=self.sequence_length,
            mesh=self.mesh,
            recipe=self.recipe,
            sequence_parallel=strategy.sequence_parallel or not np.any(np.asarray(strategy.tp) > 1),
            cp_kind=strategy.cp_kind,
            overlap_tp=strategy.overlap_tp,
            overlap_shared_expert=strategy.overlap_shared_expert,
            routed_load=self.routed_load,
            documents=self.documents,
            step_tokens=strategy.micro_batch * self.num_micro_batches * self.sequence_length,
            fusion=self.machine.runtime.fusion,
            skew=self.skew,
            replicated=strategy.replicated_experts,
            node_limit=strategy.node_limit,
            products=self._products,
            fusions=strategy.fusions,
        )
        if self.model.moe is None:
            return bare
        leg = expert_leg(self.model.moe, self.model.hidden, bare)
        passes = self.transport.passes(leg, self.expert_group)
        return replace(bare, passes=replace(passes, host_syncs=0) if strategy.sync_free else passes)

    @property
    def routed_load(self) -> Numeric:
        """Rows that the slowest rank executes over the mean. [-]

        A routing with a law says it of every rank; routing ``capacity`` drops above the capacity and pads up to it; otherwise a capacity only cuts the hottest rank.
        """
        strategy = self.strategy
        if self.skew is not None:
            return self.skew.load
        if strategy.capacity_factor is None:
            return strategy.rank_imbalance
        if strategy.routing == "capacity":
            return strategy.capacity_factor
        return np.minimum(strategy.rank_imbalance, strategy.capacity_factor)

    @property
    def _products(self) -> ExpertProducts:
        """How the products of the experts are made, and how large their buffers are."""
        strategy = self.strategy
        kind, capacity = expert_gemms.get(strategy.expert_gemm), strategy.capacity_factor
        low = strategy.dispatch_precision == "recipe"
        slack = np.maximum(capacity / self.routed_load, 1.0) if strategy.sync_free and capacity is not None else 1.0
        return ExpertProducts(
            kind=strategy.expert_gemm,
            kernel_each=kind.kernel_each,
            host_counts=kind.host_counts or self._counts_for_library,
            padding=capacity if kind.padded else None,
            slack=slack,
            low_dispatch=low,
            low_legs=low and getattr(self.transport, "casts_every_leg", False),
            fused_forward=strategy.expert_kernel != "separate",
            fused_backward=strategy.expert_kernel == "fused",
            waves=strategy.expert_waves,
            delay_wgrad=strategy.delay_wgrad,
        )

    @property
    def _counts_for_library(self) -> bool:
        """Whether a library that multiplies expert by expert asks the host how many rows each has."""
        captured = self.captures("moe") or self.captures("full") or self.strategy.sync_free
        return self.machine.runtime.fusion.product_each_expert and not captured

    @cached_property
    def skew(self) -> Skew | None:
        """What the slowest rank gets where the routing says how popular each expert is."""
        strategy = self.strategy
        if self.model.moe is None or not has_law(strategy.routing):
            return None
        cut = Cut(strategy.capacity_factor, strategy.capacity_per == "expert", strategy.replicated_experts)
        return skew(strategy.routing, self.model.moe.num_experts, strategy.ep, cut)

    def group(self, axis: str) -> Group:
        """Ranks of the communicator of an axis."""
        return self.once("group", axis, lambda: self.machine.group(self.mesh, axis))

    @property
    def expert_group(self) -> Group:
        """Ranks over which the experts are spread."""
        return self.group("ep")

    @property
    def replica_group(self) -> Group:
        """Ranks that share the dense state of a stage."""
        return self.group("dense-shard")

    @property
    def stage_ring(self) -> Group:
        """Ranks at the same place of all pipeline stages."""
        return self.group("pp")

    def raised(self, work: Work, category: str, name: str) -> Numeric:
        """Factor on the price of an operation in the columns that raise its family; 1 where none do. [-]"""
        if self.errors is None:
            return 1.0
        axis = work.axis if isinstance(work, Message) else "ep" if isinstance(work, ExpertLeg) else None
        return self.errors.raised(work, category, name, None if axis is None else self.group(axis))

    @property
    def half(self) -> "Plan":
        """The same with half of the micro-batch, as two overlapped halves run it."""
        halves = self.strategy.replace(micro_batch=self.strategy.micro_batch / 2)
        return replace(self, strategy=halves, num_micro_batches=2 * self.num_micro_batches)

    def contention(self, kind: str) -> Contention:
        """What kernels and exchange of a forward (F), a backward or a merged pair (OV) lose to each other."""
        strategy, exchanging = self.strategy, self.mesh.ep > 1
        told = self.machine.transports.get(strategy.transport, {})
        share, gathers = self.transport.sm_share(self.group("ep"), self.machine) * exchanging, self.gather_share(kind)
        slower = told.get("exchange_slowdown", 0.0) * exchanging
        if strategy.two_batch_overlap:
            names = ("grouped_gemm", "gemm", "attention")
            measured = {name: told.get(f"two_batch_{name}_slowdown", share) * exchanging for name in names}
            slower = told.get("two_batch_exchange_slowdown", told.get("exchange_slowdown", 0.0)) * exchanging
            return Contention(share, slower, gathers, measured)
        if kind == "OV":
            return Contention(share, slower, gathers)
        if strategy.overlap_shared_expert:
            return Contention(share, slower, gathers, own=True)
        beside = 1 - 1 / strategy.expert_waves  # the first dispatch and the last combine run alone
        if strategy.delay_wgrad and kind != "F":
            beside = max(beside, 0.5)  # one of two legs
        return Contention(share * beside, slower * beside, gathers)

    def gather_share(self, kind: str) -> Numeric:
        """Share of the SMs that a collective over the replicas takes from the kernels beside it. [-]

        A block each for the channels of the communicator, of which there are fewer across nodes.
        Copy engines gather without SMs; they do not add, which is one of the two collectives of a backward.
        """
        links = self.machine.links
        fewer = pick(self.group("dp").nodes > 1, NET / NODE, 1.0)
        share = links.collective_sms * fewer / self.machine.gpu.num_sms
        return share * (0.0 if kind == "F" else 0.5) if links.nccl.copy_engine else share

    @property
    def leg(self) -> ExpertLeg | None:
        """The dispatch of the routed layers (all alike); None in a dense model."""
        moe = self.model.moe
        return expert_leg(moe, self.model.hidden, self.setting, forward=True) if moe else None

    @cached_property
    def recipe(self) -> Recipe:
        """Precision recipe, by its name."""
        return recipes.get(self.strategy.precision)

    @cached_property
    def optimizer(self) -> Optimizer:
        """Optimizer, by its name."""
        return optimizers.get(self.strategy.optimizer)

    @cached_property
    def transport(self) -> Transport:
        """Expert transport, by its name."""
        return transports.get(self.strategy.transport)

    @cached_property
    def schedule(self) -> Schedule:
        """Pipeline schedule, by its name or its file."""
        return find_schedule(self.strategy.schedule)

    @cached_property
    def stage_rank(self) -> tuple[int, ...]:
        """Pipeline rank of each stage."""
        return self.schedule.stage_rank(self.strategy.pp, self.strategy.vpp)

    @cached_property
    def recompute(self) -> tuple[RecomputePolicy, ...]:
        """Recompute policies, by their names."""
        return tuple(policies.get(parse(name)[0]) for name in self.strategy.recompute)

    def in_bf16(self, layer: int) -> bool:
        """Whether a layer keeps BF16 GEMMs because it is at an end of the model."""
        ends = self.machine.runtime.bf16_layers
        return self.recipe.casts and not ends <= layer < len(self.model.layers) - ends

    def recomputed_layers(self, stage: Stage) -> int:
        """Layers of a stage, from its first, that the recompute policies apply to."""
        counts = [count for name in self.strategy.recompute if (count := parse(name)[1]) is not None]
        return min([stage.num_layers, *counts])

    def captures(self, scope: str) -> bool:
        """Whether operations of a scope are replayed from a CUDA graph; ``full`` captures the ends of the model too."""
        chosen = self.strategy.cuda_graph.split("+")
        return "full" in chosen or scope in chosen

    def segment(self, stage: Stage) -> int:
        """Layers of a stage that one kept input stands for, ceil(sqrt(n)) of the n recomputed ones; else 1."""
        segmented = any(policy.segments for policy in self.recompute)
        return math.isqrt(max(self.recomputed_layers(stage) - 1, 0)) + 1 if segmented else 1

    @cached_property
    def sharding(self) -> Sharding:
        """What is split over the replicas."""
        sharding = SHARDINGS[self.strategy.dp_sharding]
        if self.machine.runtime.local_accumulation and self.num_micro_batches > 1:
            return replace(sharding, gradients=False)
        return sharding

    @property
    def reduction(self) -> str:
        """Collective that reduces gradients over the replicas."""
        scattered = self.sharding.optimizer and not self.machine.runtime.whole_reduction
        return "reduce-scatter" if scattered else "all-reduce"

    @cached_property
    def replicas(self) -> Replicas:
        """Ranks over which dense and routed state is split."""
        copies = self.schedule.pipelines
        return Replicas(copies * self.mesh.size("dense-shard"), copies * self.mesh.size("routed-shard"))

    def copies_of(self, group: Group) -> Group:
        """The replicas of a group on all pipelines that run through the ranks; the others sit on other nodes."""
        return Group(self.schedule.pipelines * group.size, group.per_node)

    @cached_property
    def state_types(self) -> StateTypes:
        """Bytes of a value of each kind of training state."""
        strategy, recipe = self.strategy, self.recipe
        param = float(DTYPE_BYTES[strategy.param_dtype])
        main = 4.0 if param < 4 and strategy.main_param_dtype == "fp32" else 0.0
        if main and self.machine.runtime.main_param_remainders and not (strategy.fp8_params and recipe.casts):
            main -= param
        if strategy.fp8_params and recipe.casts:
            param = compute = recipe.operand_bytes
            copies = recipe.weight_copies_bytes / 2
        else:
            compute, copies = 2.0, recipe.weight_copies_bytes
        grad, moment = (DTYPE_BYTES[name] for name in (strategy.grad_dtype, strategy.optimizer_state_dtype))
        kept = self.optimizer
        return StateTypes(param, grad, moment, main, copies, compute, kept.matrix_moments, kept.plain_moments)

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """For each stage the first one of the same composition."""
        first: dict[tuple[object, ...], int] = {}
        return tuple(first.setdefault(composition(self, stage), index) for index, stage in enumerate(self.stages))

    def of_stages(self, made: Callable[[Stage], T]) -> tuple[T, ...]:
        """What is `made` of each stage; those that are alike share it."""
        found = {index: made(self.stages[index]) for index in sorted(set(self.alike))}
        return tuple(found[index] for index in self.alike)

    @cached_property
    def params(self) -> tuple[RankParams, ...]:
        """Parameters of each stage on one of its ranks."""
        return self.of_stages(lambda stage: stage_params(self.model, stage, self.mesh, self.sequence_length))

    @property
    def compression(self) -> tuple[Compression | None, int]:
        """How gradients travel, by its name, and the rank of its factors; None where they travel as they are."""
        name, rank = parse_compression(self.strategy.grad_compression)
        return (None if name == "none" else compressions.get(name)), rank or 0

    @cached_property
    def adapting(self) -> Adapting | None:
        """Adapter of the run; None where every weight is trained."""
        name, rank = parse_adapter(self.strategy.adapter)
        return None if rank is None else Adapting(adapters.get(name), rank, self.strategy.adapter_targets)

    @cached_property
    def flop_per_token(self) -> float:
        """Model FLOPs of one token, without weight gradients of frozen weights. [FLOP]"""
        columns = self.documents.columns if self.documents else None
        whole = self.model.flop_per_token(self.sequence_length, columns=columns)
        return whole if self.adapting is None else self.adapting.flop_per_token(self.model, whole)

    @cached_property
    def trained(self) -> tuple[RankParams, ...]:
        """Parameters of each stage on one of its ranks that are trained; the others are frozen."""
        adapting = self.adapting
        if adapting is None:
            return self.params
        return self.of_stages(lambda stage: adapting.stage_params(self.model, stage, self.mesh))

    def gathered_bytes(self, params: RankParams, trained: RankParams) -> RankParams:
        """What a gathering of split weights brings back, of each kind. [B]"""
        value, adapting = self.state_types.compute, self.adapting
        if adapting is None:
            return params.weighted(value, value)
        frozen = adapting.adapter.frozen_bytes
        return params.weighted(value if frozen is None else frozen, value) + trained.weighted(value, value)

    def frozen_bytes(self, params: RankParams) -> Numeric:
        """Weights on one rank that are not trained. [B]"""
        adapting, types = self.adapting, self.state_types
        if adapting is None:
            return 0.0
        quantised, value = adapting.adapter.frozen_bytes, types.param + types.copies
        held = params.weighted(value if quantised is None else quantised, value)
        return held.share(self.replicas.dense, self.replicas.routed) if self.sharding.weights else held.total

    def boundary_crosses_nodes(self, stage: int) -> Numeric:
        """1.0 where stage and the next one sit on ranks of different NVLink domains, else 0.0."""
        return np.asarray(self._domains[stage] != self._domains[stage + 1], dtype=float)

    @cached_property
    def _domains(self) -> tuple[Numeric, ...]:
        """NVLink domain in which each stage begins. [-]"""
        placed = self.machine.placed
        stride = self.mesh.stride("pp") if placed is None else placed.stage_stride
        return tuple(np.floor(rank * stride / self.machine.nvlink_domain) for rank in self.stage_rank)


def composition(plan: Plan, stage: Stage) -> tuple[object, ...]:
    """What makes two stages alike: their layers, how many recompute, and which ends of the model they hold."""
    layers = tuple((plan.model.layers[index], plan.in_bf16(index)) for index in stage.layers)
    return (layers, plan.recomputed_layers(stage), stage.embedding, stage.loss, stage.mtp)
