"""The rules of the methods around the routed experts."""

from __future__ import annotations

import numpy as np

from moesim.base.numeric import Boolean, Numeric
from moesim.rules import Candidate, Rule, shown
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

EXPERT_RULES = ROUTING
