"""The rules of the methods around the routed experts."""

from __future__ import annotations

import numpy as np

from moesim.base.numeric import Boolean, Numeric
from moesim.cost.expert_gemms import ExpertGemm, expert_gemms
from moesim.cost.transports import profiled, transports
from moesim.rules import Candidate, Rule, shown
from moesim.workload.precision import recipes
from moesim.workload.recompute import parse as parse_policy
from moesim.workload.routing import has_law, parse, problem, routings


def _domains(c: Candidate) -> Numeric:
    """NVLink domains that an expert group spans. [-]"""
    per_domain = np.clip(np.floor(c.nvlink_domain / c.strategy.etp), 1, c.strategy.ep)
    return np.ceil(c.strategy.ep / per_domain)


def _experts_in_reach(c: Candidate) -> Boolean:
    limit = c.strategy.node_limit
    if limit is None or c.moe is None:
        return True
    domains = _domains(c)
    return np.greater_equal(c.moe.num_experts * np.minimum(limit, domains) / domains, c.moe.top_k)


def _argument(c: Candidate) -> str:
    """What is wrong with the argument of the routing; empty where nothing is, or where there are no experts."""
    return problem(c.strategy.routing, c.moe.num_experts) if c.moe else ""


ROUTING = (
    Rule(
        "routing-argument",
        ("routing",),
        lambda c: not _argument(c),
        lambda c: f"routing {parse(c.strategy.routing)[0]}: {_argument(c)}",
        lambda c: routings.get(parse(c.strategy.routing)[0]).argument or f"routing: {parse(c.strategy.routing)[0]}",
    ),
    Rule(
        "routing-of-experts",
        ("routing",),
        lambda c: c.moe is not None or not has_law(c.strategy.routing),
        lambda c: f"routing {c.strategy.routing} in a model without experts",
        lambda c: "routing: balanced",
    ),
    Rule(
        "routing-or-imbalance",
        ("rank_imbalance", "routing"),
        lambda c: np.logical_or(not has_law(c.strategy.routing), np.equal(c.strategy.rank_imbalance, 1.0)),
        lambda c: (
            f"routing {parse(c.strategy.routing)[0]} already says what the hottest rank gets; rank_imbalance = "
            f"{shown(c.strategy.rank_imbalance)} says it again"
        ),
        lambda c: "rank_imbalance: 1, or routing: natural",
    ),
    Rule(
        "capacity-per-expert",
        ("capacity_per",),
        lambda c: (
            c.strategy.capacity_per == "rank"
            or (c.strategy.capacity_factor is not None and has_law(c.strategy.routing))
        ),
        lambda c: (
            "capacity_per expert cuts each expert at its own capacity, and needs a capacity_factor and a routing that "
            "says how popular each expert is"
        ),
        lambda c: "capacity_per: rank, or a capacity_factor with routing zipf:s, power-law:a or histogram",
    ),
    Rule(
        "replicated-experts",
        ("replicated_experts",),
        lambda c: np.logical_or(
            c.strategy.replicated_experts == 0,
            np.logical_and(
                bool(c.moe and c.strategy.replicated_experts < c.moe.num_experts and has_law(c.strategy.routing)),
                np.greater(c.strategy.ep, 1),
            ),
        ),
        lambda c: (
            f"replicated_experts = {c.strategy.replicated_experts} copies the hottest experts to all ranks of an expert "
            f"group: it needs ep above 1, fewer copies than experts ({c.moe.num_experts if c.moe else 0}), and a routing "
            "that says which experts are hot"
        ),
        lambda c: "replicated_experts: 0, or routing zipf:s, power-law:a or histogram",
    ),
    Rule(
        "node-limit",
        ("node_limit",),
        lambda c: c.strategy.node_limit is None or (c.moe is not None and c.strategy.node_limit >= 1),
        lambda c: f"node_limit = {c.strategy.node_limit} limits the nodes that the routes of a token reach",
        lambda c: "node_limit: 1 or more, in a model with experts",
    ),
    Rule(
        "experts-within-the-node-limit",
        ("node_limit",),
        _experts_in_reach,
        lambda c: (
            f"node_limit = {c.strategy.node_limit} of {shown(_domains(c))} nodes leaves fewer experts than the "
            f"{c.moe.top_k if c.moe else 0} that a token picks"
        ),
        lambda c: "a larger node_limit, or none",
        needs=("node-limit",),
    ),
)

FUSED = ("fused-forward", "fused")


def _inside_domain(c: Candidate) -> Boolean:
    return np.less_equal(_domains(c), 1)


def _transport_has(c: Candidate, what: str) -> bool:
    return bool(getattr(transports.get(c.strategy.transport), what, False))


def _transports_with(what: str) -> str:
    return ", ".join(entry.name for entry in transports.entries() if getattr(entry.item, what, False))


def _kind(c: Candidate) -> ExpertGemm:
    return expert_gemms.get(c.strategy.expert_gemm)


PRODUCTS = (
    Rule(
        "methods-of-experts",
        ("expert_gemm",),
        lambda c: (
            c.moe is not None
            or (
                c.strategy.expert_gemm == "grouped"
                and c.strategy.expert_kernel == "separate"
                and c.strategy.dispatch_precision == "bf16"
                and not c.strategy.sync_free
            )
        ),
        lambda c: f"{c.model.name} has no experts whose products or exchange could be made otherwise",
        lambda c: "expert_gemm: grouped, expert_kernel: separate, dispatch_precision: bf16, sync_free: false",
    ),
    Rule(
        "padded-needs-capacity",
        ("capacity_factor", "expert_gemm"),
        lambda c: (
            not _kind(c).padded
            or (
                c.strategy.capacity_factor is not None
                and c.strategy.capacity_factor >= 1
                and (not has_law(c.strategy.routing) or c.strategy.capacity_per == "expert")
            )
        ),
        lambda c: (
            f"expert_gemm {c.strategy.expert_gemm} fills every expert up to its capacity: it needs a capacity_factor of 1 "
            "or more, and where some experts are hotter, one that cuts each of them"
        ),
        lambda c: "capacity_factor: 1.25 with capacity_per: expert, or expert_gemm: grouped",
    ),
    Rule(
        "padded-hot-rank",
        ("capacity_factor", "expert_gemm"),
        lambda c: np.logical_or(
            not _kind(c).padded or c.strategy.capacity_factor is None or c.strategy.routing == "capacity",
            np.less_equal(c.strategy.rank_imbalance, c.strategy.capacity_factor or 1.0),
        ),
        lambda c: (
            f"expert_gemm {c.strategy.expert_gemm} has {shown(c.strategy.capacity_factor or 0)} times the mean of slots, and "
            f"the hottest rank {shown(c.strategy.rank_imbalance)} times the mean of rows"
        ),
        lambda c: "a capacity_factor of at least rank_imbalance",
        needs=("padded-needs-capacity",),
    ),
    Rule(
        "sync-free-capacity",
        ("capacity_factor", "sync_free"),
        lambda c: not c.strategy.sync_free or c.strategy.capacity_factor is not None,
        lambda c: "sync_free sizes its buffers by a capacity, as the host never learns the row counts",
        lambda c: "a capacity_factor, or sync_free: false",
    ),
    Rule(
        "sync-free-syncs",
        ("sync_free", "transport"),
        lambda c: not c.strategy.sync_free or transports.get(c.strategy.transport).host_syncs > 0,
        lambda c: f"transport {c.strategy.transport} has no host wait that sync_free could remove",
        lambda c: "sync_free: false",
    ),
    Rule(
        "host-counts",
        ("expert_gemm", "sync_free", "cuda_graph"),
        lambda c: (
            not _kind(c).host_counts
            or not (c.strategy.sync_free or {"moe", "full"} & set(c.strategy.cuda_graph.split("+")))
        ),
        lambda c: (
            f"expert_gemm {c.strategy.expert_gemm} launches what the host has counted; neither sync_free nor a CUDA graph "
            "of the experts can hold that wait"
        ),
        lambda c: "expert_gemm: grouped",
    ),
    Rule(
        "dispatch-precision",
        ("dispatch_precision", "precision"),
        lambda c: c.strategy.dispatch_precision == "bf16" or recipes.get(c.strategy.precision).casts,
        lambda c: f"dispatch_precision recipe with precision {c.strategy.precision}, which casts nothing",
        lambda c: "dispatch_precision: bf16, or an FP8 precision",
    ),
    Rule(
        "dispatch-scales",
        ("dispatch_precision", "transport"),
        lambda c: c.strategy.dispatch_precision == "bf16" or _transport_has(c, "carries_scales"),
        lambda c: f"transport {c.strategy.transport} carries no scales beside the rows",
        lambda c: f"dispatch_precision: bf16, or transport in {_transports_with('carries_scales')}",
    ),
    Rule(
        "fused-experts-memory",
        ("expert_kernel", "transport"),
        lambda c: c.strategy.expert_kernel not in FUSED or _transport_has(c, "symmetric_memory"),
        lambda c: (
            f"expert_kernel {c.strategy.expert_kernel} writes into buffers of other ranks; transport "
            f"{c.strategy.transport} has no symmetric memory"
        ),
        lambda c: f"expert_kernel: separate, or transport in {_transports_with('symmetric_memory')}",
    ),
    Rule(
        "fused-experts-domain",
        ("ep", "expert_kernel"),
        lambda c: np.logical_or(
            c.strategy.expert_kernel not in FUSED, np.logical_and(_inside_domain(c), np.greater(c.strategy.ep, 1))
        ),
        lambda c: (
            f"expert_kernel {c.strategy.expert_kernel} exchanges over NVLink only: ep = {shown(c.strategy.ep)} of "
            f"{shown(c.nvlink_domain)} GPUs in a domain"
        ),
        lambda c: "expert_kernel: separate",
    ),
    Rule(
        "fused-experts-precision",
        ("precision", "expert_kernel"),
        lambda c: c.strategy.expert_kernel not in FUSED or recipes.get(c.strategy.precision).casts,
        lambda c: (
            f"expert_kernel {c.strategy.expert_kernel} multiplies FP8 or FP4 operands, not {c.strategy.precision}"
        ),
        lambda c: "precision: mxfp8 or another FP8 recipe, or expert_kernel: separate",
    ),
    Rule(
        "fused-experts-alone",
        ("expert_kernel",),
        lambda c: np.logical_or(
            c.strategy.expert_kernel not in FUSED,
            np.logical_and(
                c.strategy.expert_gemm == "grouped"
                and "moe_act" not in {parse_policy(name)[0] for name in c.strategy.recompute},
                np.equal(c.strategy.etp, 1),
            ),
        ),
        lambda c: (
            f"expert_kernel {c.strategy.expert_kernel} holds exchange, products and activation: nothing runs between them"
        ),
        lambda c: "expert_kernel: separate; or etp 1, expert_gemm grouped, no recompute of moe_act",
    ),
)

EXCHANGES = (
    Rule(
        "transport-network",
        ("ep", "transport"),
        lambda c: np.logical_or(
            c.moe is None or profiled(transports.get(c.strategy.transport), c.protocol), _inside_domain(c)
        ),
        lambda c: (
            f"no profile of transport {c.strategy.transport} for this fabric: it was measured over "
            f"{' and '.join(_networks(c))}, and ep = {shown(c.strategy.ep)} leaves the NVLink domain over {c.protocol}"
        ),
        lambda c: (
            f"transport in {', '.join(one.name for one in transports.entries() if profiled(one.item, c.protocol))}"
        ),
    ),
    Rule(
        "transport-ranks",
        ("ep", "transport"),
        lambda c: np.logical_or(
            c.moe is None or _most_ranks(c) is None,
            np.logical_or(np.less_equal(c.strategy.ep, _most_ranks(c) or 0), _inside_domain(c)),
        ),
        lambda c: (
            f"transport {c.strategy.transport} has been seen to work with {_most_ranks(c)} ranks at most, not with "
            f"ep = {shown(c.strategy.ep)}"
        ),
        lambda c: "another transport, or a smaller ep",
    ),
)


def _networks(c: Candidate) -> tuple[str, ...]:
    return tuple(getattr(transports.get(c.strategy.transport), "networks", None) or ())


def _most_ranks(c: Candidate) -> int | None:
    most: int | None = getattr(transports.get(c.strategy.transport), "max_ranks", None)
    return most


EXPERT_RULES = (*ROUTING, *PRODUCTS, *EXCHANGES)
