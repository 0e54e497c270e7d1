"""What brings rows into the order that the next step needs, and what is computed for nobody."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.case import AGAIN, Case, Terms
from moesim.workload.fusions.permute import PASSES
from moesim.workload.ops import FusedExperts, Gemm, Traffic

SOURCE = "olmo-core-report"
ELEMENTWISE = 10.0
"""FLOP of the gated activation for each value of the width: exponential, division, two products and their gradient."""
SCALE_SHARE = 1 / 32
"""Bytes of the scales over those of their values."""


def permutations(case: Case) -> Terms:
    """HBM bytes of passes that pack, sort and unpack rows, and that bring scales into the order of a kernel. [B]"""
    setting = case.plan.setting
    rows: Numeric = 0.0
    scales: Numeric = 0.0
    narrow = setting.recipe.operand_bytes / 2.0 if setting.products.low_dispatch else 1.0
    for priced, times in case.ops():
        name, work = priced.op.name, priced.op.work
        if not isinstance(work, Traffic):
            continue
        if name.startswith(PASSES):
            cast = narrow if name.removesuffix(AGAIN) in ("permute", "sort-by-expert") else 1.0
            rows = rows + times * cast * work.hbm_bytes
        elif work.cast and case.choices.scales == "swizzled":
            values = work.hbm_bytes / setting.recipe.cast_bytes
            scales = scales + 2 * times * values * SCALE_SHARE
    return {"rows": rows, "scales": scales}


def padding(case: Case) -> Terms:
    """FLOPs of the experts on rows that no token has, over those on rows of tokens. [-]

    Slots of a capacity that is filled up, and spare rows of buffers that kernels run over. Rows that align the segments
    of a grouped product lie inside of its last tiles, which the time of small products holds.
    """
    plan, choices = case.plan, case.choices
    slots: Numeric = 0.0
    useful: Numeric = 0.0
    share = real_share(case)
    for priced, times in case.ops():
        work = priced.op.work
        if isinstance(work, FusedExperts):
            useful = useful + times * work.flop
        if priced.op.category != "grouped_gemm" or not isinstance(work, Gemm) or priced.op.name.endswith(AGAIN):
            continue
        useful = useful + times * work.flop * share
        slots = slots + times * work.flop * (1 - share)
    found: Terms = {"slots of a capacity": slots}
    spare = _spare(case)
    if choices.tails == "multiplied":
        found["spare rows that are multiplied"] = useful * spare
    if choices.tails == "touched":
        hidden = plan.model.hidden
        found["spare rows that are touched"] = useful * spare * ELEMENTWISE / (6.0 * hidden)
    return {name: value / np.maximum(useful, 1.0) for name, value in found.items()}


def multiplied_rows(case: Case) -> Numeric:
    """Rows that products run over, over those at work, where they run over the spare rows of buffers too. [-]"""
    return 1.0 + _spare(case) if case.choices.tails == "multiplied" else 1.0


def real_share(case: Case) -> Numeric:
    """Rows of tokens among the rows that products run over. [-]"""
    products, setting = case.plan.setting.products, case.plan.setting
    if products.padding is None:
        return 1.0
    return np.minimum(1.0, setting.routed_load / np.maximum(products.padding, setting.routed_load))


def _spare(case: Case) -> Numeric:
    """Spare rows of the exchange's buffers over those at work. [-]"""
    plan = case.plan
    told = plan.machine.transports.get(plan.strategy.transport, {}).get("capacity_factor", 1.25)
    capacity = plan.strategy.capacity_factor or told
    load = plan.setting.exchanged_load
    return np.maximum(capacity / load - 1.0, 0.0) * case.exchanges


bottlenecks.add(
    "permutations",
    Bottleneck("Routing/layout permutations", "layout", "B", permutations, 12),
    summary="HBM bytes of passes that bring rows, or scales, into another order.",
    source=SOURCE,
)
bottlenecks.add(
    "padding",
    Bottleneck("Padding and wasted expert FLOPs", "layout", "-", padding, 13, routing="any"),
    summary="Expert FLOPs on rows that no token has, over those on rows of tokens.",
    source=SOURCE,
)
