"""What the GPUs of a step are busy with, whatever the host or the pipeline makes them wait for."""

from __future__ import annotations

from moesim.cost.blocks import price_blocks
from moesim.cost.plan import Plan
from moesim.studies.roofline import step_calls

PRODUCTS = ("gemm", "grouped_gemm")
"""Categories of the matrix products of layers, which low precisions accelerate."""


def busy_by_category(plan: Plan) -> dict[str, float]:
    """Time of all kernels and messages of a step by category, each as if alone, over all pipeline ranks. [s]"""
    blocks = price_blocks(plan)
    found: dict[str, float] = {}
    for rank in range(int(plan.strategy.pp)):
        for call in step_calls(plan, blocks, rank):
            category = call.priced.op.category
            found[category] = found.get(category, 0.0) + float(call.priced.seconds) * call.count
    return found


def outside_products(plan: Plan) -> float:
    """Share of that time that is in no matrix product of a layer: what a low precision leaves as long as it was. [-]

    Waiting is left out: on the critical path of a step that its host bounds, hardly anything is a product.
    """
    busy = busy_by_category(plan)
    return 1 - sum(busy.get(name, 0.0) for name in PRODUCTS) / sum(busy.values())
