"""Experts that stand in the memory of the host and come layer by layer: does the link hide behind the layer that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError
from moesim.cost.blocks import PricedBlock, chunk_blocks, plan_blocks
from moesim.cost.offload import pcie_time
from moesim.cost.plan import Plan
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.workload.strategy import DTYPE_BYTES


@dataclass(frozen=True)
class Copied:
    """Experts of a rank over one link.

    ``rate`` of the link, each way [B/s]. ``copy_s``: weights of one layer's experts on a rank; ``forward_s`` and
    ``backward_s``: the layer that runs meanwhile; what is longer of the copy is exposed. ``break_even_rows``: rows of an
    expert in a micro-batch from which its products alone take as long as its copy in the forward; ``rows``: what it has.
    ``added_s`` to the step of the rank with most such layers, at most; ``freed_bytes`` of it.
    """

    rate: float
    copy_s: float
    forward_s: float
    backward_s: float
    exposed_forward_s: float
    exposed_backward_s: float
    rows: float
    break_even_rows: float
    added_s: float
    freed_bytes: float

    @property
    def hidden(self) -> bool:
        """Whether nothing of the copies is exposed."""
        return self.exposed_forward_s == self.exposed_backward_s == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain = dict(vars(self)) | {"hidden": self.hidden}
        plain["rate_bytes_per_s"] = plain.pop("rate")
        return plain


@dataclass(frozen=True)
class ExpertOffload:
    """A job, and its experts over each link."""

    answer: Estimate
    links: tuple[Copied, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        return {"step_time_s": self.answer.step_time_s, "links": [one.to_dict() for one in self.links]}


def expert_offload(problem: Problem, rates: Sequence[float] = ()) -> ExpertOffload:
    """Say whether the experts of a job could come from the host.

    While a layer runs, the weights of the next one's experts come; in the backward they come again, and their gradients
    leave the other way. Two layers' experts stand on the GPU at a time.

    Parameters
    ----------
    problem
        The job.
    rates
        Bandwidths of the link to the host, as reached, each way; left out, that of the GPU's PCIe. [B/s]

    Raises
    ------
    SpecError
        Where the model has no experts, or the strategy is not legal.
    """
    if problem.model.moe is None:
        raise SpecError.single("--offload", "", f"{problem.model.name} has no experts", "name a model that has")
    plan = problem.plan()
    wanted = list(rates) or [1e9 / float(pcie_time(1e9, plan.machine.gpu))]
    return ExpertOffload(estimate(problem), tuple(_copied(plan, rate) for rate in wanted))


def _copied(plan: Plan, rate: float) -> Copied:
    strategy, moe = plan.strategy, plan.model.moe
    assert moe is not None
    layers = _routed(plan)
    most = max(layers.values(), key=len)
    weights = max(float(block.params.routed) for block in most) * DTYPE_BYTES[strategy.param_dtype]
    gradients = weights * DTYPE_BYTES[strategy.grad_dtype] / DTYPE_BYTES[strategy.param_dtype]
    copy, back = weights / rate, max(weights, gradients) / rate
    forward, backward = (min(_seconds(block, way) for block in most) for way in ("forward", "backward"))
    late = max(copy - forward, 0.0), max(back - backward, 0.0)
    products = sum(
        float(one.seconds) for one in most[0].forward if one.op.category == "grouped_gemm"
    )  # of all experts of a rank, as their copy is
    rows = float(plan.setting.local_tokens * strategy.ep * strategy.etp) * moe.top_k / moe.num_experts
    added = sum(late) * len(most) * plan.num_micro_batches
    return Copied(
        rate=rate,
        copy_s=copy,
        forward_s=forward,
        backward_s=backward,
        exposed_forward_s=late[0],
        exposed_backward_s=late[1],
        rows=rows,
        break_even_rows=rows * copy / products,
        added_s=added,
        freed_bytes=weights * max(len(most) - 2, 0),
    )


def _routed(plan: Plan) -> dict[int, list[PricedBlock]]:
    """Layers with experts of each pipeline rank that has any."""
    blocks = plan_blocks(plan)
    owners = plan.schedule.stage_rank(plan.strategy.pp, plan.strategy.vpp)
    found: dict[int, list[PricedBlock]] = {}
    for stage, owner in zip(plan.stages, owners, strict=True):
        for block in chunk_blocks(plan, stage, blocks):
            if float(block.params.routed):
                found.setdefault(int(owner), []).append(block)
    return found


def _seconds(block: PricedBlock, way: str) -> float:
    """Time of a layer: its operations after one another, or the host that launches them. [s]"""
    ops = block.forward if way == "forward" else block.backward
    return max(sum(float(one.seconds) for one in ops), sum(float(one.launch) for one in ops))
