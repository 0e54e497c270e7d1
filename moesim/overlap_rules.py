"""The rules of overlaps of the expert exchange, and of joined kernels."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np

from moesim.base.numeric import Boolean
from moesim.cost.machine import Group
from moesim.cost.transports import transports
from moesim.rules import Candidate, Rule, shown
from moesim.workload.fusions import fusions
from moesim.workload.ops import ExpertLeg
from moesim.workload.precision import recipes
from moesim.workload.recompute import whole_layers
from moesim.workload.setting import LayoutPasses
from moesim.workload.sharding import SHARDINGS
from moesim.workload.strategy import Strategy


def _exchange(c: Candidate) -> Boolean:
    """Where there is an exchange to overlap with."""
    return np.logical_and(c.moe is not None, np.greater(c.strategy.ep, 1))


def _uses(strategy: Strategy) -> list[str]:
    """Overlaps that use the time of the exchange, by their fields."""
    found = [name for name in ("overlap_ep", "overlap_shared_expert", "two_batch_overlap") if getattr(strategy, name)]
    found += ["expert_waves"] if strategy.expert_waves > 1 else []
    return found + (["expert_kernel"] if strategy.expert_kernel != "separate" else [])


def _delayed(strategy: Strategy) -> set[str]:
    """Overlaps of a strategy that leave no exchange for delayed weight gradients."""
    return set(_uses(strategy)) & {"two_batch_overlap", "expert_kernel"}


OVERLAPS = (
    Rule(
        "overlap-of-an-exchange",
        ("ep", "expert_waves", "two_batch_overlap", "delay_wgrad"),
        lambda c: np.logical_or(
            not (c.strategy.expert_waves > 1 or c.strategy.two_batch_overlap or c.strategy.delay_wgrad), _exchange(c)
        ),
        lambda c: "expert_waves, two_batch_overlap and delay_wgrad use the time of an expert exchange, and ep is 1",
        lambda c: "ep above 1, or expert_waves: 1, two_batch_overlap: false, delay_wgrad: false",
    ),
    Rule(
        "one-use-of-the-exchange",
        ("two_batch_overlap", "expert_waves", "overlap_ep"),
        lambda c: len(_uses(c.strategy)) < 2,
        lambda c: f"{' and '.join(_uses(c.strategy))} each use the time of the exchange",
        lambda c: "one of them",
    ),
    Rule(
        "whole-waves",
        ("expert_waves",),
        lambda c: c.strategy.expert_waves >= 1,
        lambda c: f"expert_waves = {c.strategy.expert_waves} cuts the rows into parts",
        lambda c: "expert_waves: 1 or more",
    ),
    Rule(
        "two-halves",
        ("micro_batch", "two_batch_overlap"),
        lambda c: np.logical_or(not c.strategy.two_batch_overlap, np.equal(np.mod(c.strategy.micro_batch, 2), 0)),
        lambda c: f"two_batch_overlap halves a micro-batch of {shown(c.strategy.micro_batch)} sequences",
        lambda c: "an even micro_batch",
    ),
    Rule(
        "two-batches-recompute",
        ("recompute", "two_batch_overlap"),
        lambda c: (
            not c.strategy.two_batch_overlap
            or not (whole_layers(c.strategy.recompute) or "moe" in c.strategy.recompute)
        ),
        lambda c: (
            "two_batch_overlap keeps the rows of both halves where they are; recomputing their exchange needs them"
        ),
        lambda c: "recompute without whole layers and moe, or two_batch_overlap: false",
    ),
    Rule(
        "two-batches-sharding",
        ("dp_sharding", "two_batch_overlap"),
        lambda c: not c.strategy.two_batch_overlap or not SHARDINGS[c.strategy.dp_sharding].per_micro_batch,
        lambda c: (
            f"dp_sharding {c.strategy.dp_sharding} reduces gradients after every micro-batch; halves that share one "
            "reduction are not modelled"
        ),
        lambda c: "dp_sharding: ddp or zero1",
    ),
    Rule(
        "delayed-wgrad",
        ("delay_wgrad", "schedule"),
        lambda c: not c.strategy.delay_wgrad or not (_delayed(c.strategy) or (c.schedule and c.schedule.splits)),
        lambda c: (
            f"delay_wgrad puts weight gradients beside the last exchange of a layer; "
            f"{' and '.join(sorted(_delayed(c.strategy))) or f'schedule {c.strategy.schedule}'} already moves them or uses it"
        ),
        lambda c: "delay_wgrad: false",
    ),
)


def _idle_fusions(c: Candidate) -> list[str]:
    """Fusions with nothing to join."""
    only_fused = c.strategy.expert_kernel == "fused" and all(layer.moe for layer in c.model.layers)
    casts = recipes.get(c.strategy.precision).casts and not (only_fused and c.moe and not c.moe.shared_size)
    passes = c.moe is not None and any(astuple(_passes(c))[:4]) and c.strategy.expert_kernel == "separate"
    found = []
    for name in c.strategy.fusions:
        fusion = fusions.get(name)
        missing = (fusion.needs_experts and c.moe is None, fusion.needs_casts and not casts)
        if any(missing) or (fusion.needs_passes and not passes):
            found.append(name)
    return found


def _passes(c: Candidate) -> LayoutPasses:
    """Layout passes of the transport, for two ranks of one domain."""
    moe = c.moe
    experts, top_k = (moe.num_experts, moe.top_k) if moe else (2, 1)
    leg = ExpertLeg("dispatch", 1.0, top_k, experts, 1.0)
    return transports.get(c.strategy.transport).passes(leg, Group(2.0, 2.0))


FUSIONS = (
    Rule(
        "fusions-once",
        ("fusions",),
        lambda c: len(set(c.strategy.fusions)) == len(c.strategy.fusions),
        lambda c: f"fusions {', '.join(c.strategy.fusions)} name one twice",
        lambda c: "fusions: " + ", ".join(dict.fromkeys(c.strategy.fusions)),
    ),
    Rule(
        "fusions-of-something",
        ("fusions", "precision", "transport"),
        lambda c: not _idle_fusions(c),
        lambda c: (
            f"fusions {', '.join(_idle_fusions(c))}: there is nothing to join in {c.model.name} with precision "
            f"{c.strategy.precision} and transport {c.strategy.transport}"
        ),
        lambda c: "fusions without " + ", ".join(_idle_fusions(c)),
    ),
)

OVERLAP_RULES = (*OVERLAPS, *FUSIONS)
