"""Whether the link to the host hides what is kept there: by chunk, by step, and from how many tokens an expert on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from moesim.base.errors import SpecError, did_you_mean
from moesim.base.numeric import first
from moesim.base.units import parse_quantity
from moesim.cost.blocks import price_blocks
from moesim.cost.offload import expert_bytes, offloaded_bytes, optimizer_copies, optimizer_parts, pcie_time
from moesim.cost.pipeline import step_times
from moesim.cost.plan import Plan
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.studies.basis import basis
from moesim.workload.ops import Gemm

WHAT = {"experts": "expert_offload", "activations": "activation_offload", "optimizer": "optimizer_offload"}
"""What may be on the host, and the field that puts it there."""


@dataclass(frozen=True)
class Chunk:
    """One chunk of a stage and what is copied beside it. [B, s]"""

    stage: int
    kind: str
    copied_bytes: float
    computing_s: float
    copying_s: float

    @property
    def exposed_s(self) -> float:
        """What of the copy is left when the computation is done. [s]"""
        return max(self.copying_s - self.computing_s, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        hidden = 1 - self.exposed_s / self.copying_s if self.copying_s else 1.0
        return dict(vars(self)) | {"exposed_s": self.exposed_s, "hidden_share": hidden, "hidden": self.exposed_s == 0}


@dataclass(frozen=True)
class HostUpdate:
    """The update of the optimizer on the host, the mean of the pipeline ranks, a GPU.

    ``copied_bytes``: gradients down and weights back [B]. ``computing_s``: of the CPU, whatever the link;
    ``copying_s``: of both copies; ``exposed_s``: what of them is not beside the update. [s]
    """

    copied_bytes: float
    computing_s: float
    copying_s: float
    exposed_s: float


@dataclass(frozen=True)
class Linked:
    """The job with a share on the host over a link of one speed.

    ``chunks`` of each stage; ``update``: of the optimizer, None where it is not there; ``optimizer_s``: what that and its
    exposed copies take [s].
    ``tokens_per_expert`` of a micro-batch and ``break_even_tokens``: from how many on the products of an expert take as
    long as the copy of its weights, forward alone; None where no experts move. ``added_s`` to the step [s], ``freed_bytes``
    of the peak [B].
    """

    link: str
    bandwidth: float
    chunks: tuple[Chunk, ...]
    optimizer_s: float
    tokens_per_expert: float | None
    break_even_tokens: float | None
    added_s: float
    freed_bytes: float
    answer: Estimate
    update: HostUpdate | None = None

    def to_dict(self, measured_s: float | None = None) -> dict[str, Any]:
        """Plain values in SI units."""
        plain = {
            name: getattr(self, name)
            for name in Linked.__dataclass_fields__
            if name not in ("answer", "chunks", "update")
        }
        plain["bandwidth_bytes_per_s"] = plain.pop("bandwidth")
        exposed = max((one.exposed_s for one in self.chunks), default=0.0)
        told: dict[str, Any] = {"chunks": [one.to_dict() for one in self.chunks], "exposed_s_per_chunk": exposed}
        told["update"] = None if self.update is None else dict(vars(self.update))
        exposed += self.update.exposed_s if self.update else 0.0
        step = {"step_time_s": self.answer.step_time_s, "peak_bytes": self.answer.memory.peak_bytes}
        host = {"host_bytes_per_node": self.answer.memory.host_bytes_per_node, "fits": self.answer.feasible}
        return plain | told | {"hidden": not exposed} | step | host | {"basis": basis(self.answer, measured_s)}


@dataclass(frozen=True)
class Offloading:
    """A job as it stands, and with something on the host over links of several speeds."""

    what: str
    share: float
    base: Estimate
    links: tuple[Linked, ...]

    def to_dict(self, measured_s: float | None = None) -> dict[str, Any]:
        """Plain values in SI units."""
        return {
            "what": self.what,
            "share": self.share,
            "links": [one.to_dict(measured_s) for one in self.links],
            "basis": basis(self.base, measured_s),
        }


def offloading(problem: Problem, what: str = "experts", links: Sequence[str] = (), share: float = 1.0) -> Offloading:
    """Put a share of something on the host, over links of several speeds.

    Parameters
    ----------
    problem
        The job.
    what
        ``experts``, ``activations`` or ``optimizer``.
    links
        Raw rates to the host per direction, such as ``450 GB/s``; left out, that of the GPU.
    share
        Share that is on the host. [-]

    Raises
    ------
    SpecError
        Where nothing is called so, a rate is none, or the job cannot be estimated so.
    """
    if what not in WHAT:
        raise SpecError.single("--what", "", f"'{what}' cannot be offloaded", did_you_mean(what, WHAT))
    base = estimate(problem)
    wanted = list(links) or [f"{problem.machine.gpu.pcie_bandwidth / 1e9:g} GB/s"]
    return Offloading(what, share, base, tuple(_linked(problem, base, what, link, share) for link in wanted))


def _linked(problem: Problem, base: Estimate, what: str, link: str, share: float) -> Linked:
    try:
        bandwidth = parse_quantity(link, "bandwidth")
    except ValueError as error:
        raise SpecError.single("--h2d", "", str(error), "write for example 176GB/s") from None
    if bandwidth <= 0:
        raise SpecError.single("--h2d", "", f"'{link}' is no rate", "write for example 176GB/s")
    changed = problem.with_changes({WHAT[what]: share, "gpu.pcie_bandwidth": f"{bandwidth!r} B/s"}, "--h2d")
    answer, plan = estimate(changed), changed.plan()
    tokens, even = _break_even(plan) if what == "experts" else (None, None)
    update = _update(plan) if what == "optimizer" else None
    return Linked(
        link,
        bandwidth,
        () if what == "optimizer" else _chunks(changed, plan),
        update.computing_s + update.exposed_s if update else 0.0,
        tokens,
        even,
        answer.step_time_s - base.step_time_s,
        base.memory.peak_bytes - answer.memory.peak_bytes,
        answer,
        update,
    )


def _update(plan: Plan) -> HostUpdate:
    ranks = range(int(plan.strategy.pp))
    parts = [optimizer_parts(plan, rank) for rank in ranks]
    copied = mean(first(sum(optimizer_copies(plan, rank))) for rank in ranks)
    updating, exposed = (mean(first(one[name]) for one in parts) for name in ("optimizer", "pcie"))
    return HostUpdate(copied, updating, first(pcie_time(copied, plan.machine.gpu)), exposed)


def _chunks(problem: Problem, plan: Plan) -> tuple[Chunk, ...]:
    """Forward and backward of every stage, computing as they do without copies."""
    plain = problem.plan(plan.strategy.replace(expert_offload=0.0, activation_offload=0.0))
    times = step_times(plain, price_blocks(plain))
    moved = offloaded_bytes(plan, price_blocks(plan))
    found = []
    for (kind, where), row in times.graph.rows.items():
        if kind in ("F", "BW", "B") and isinstance(where, int):
            copied, computing = first(moved[where]), first(times.durations[row])
            found.append(Chunk(where, kind, copied, computing, first(pcie_time(copied, plan.machine.gpu))))
    return tuple(sorted(found, key=lambda one: (one.stage, one.kind != "F")))


def _break_even(plan: Plan) -> tuple[float, float]:
    """Tokens of an expert in a micro-batch, and those whose forward products last as long as the copy of its weights. [-]

    Products of few tokens do not get faster with fewer; the rate is that of the job at hand, so far below the job's own
    tokens the break-even is an upper bound.
    """
    moe = plan.model.moe
    assert moe is not None  # a rule asks for experts
    strategy = plan.strategy
    sequence = plan.sequence_length / (strategy.tp * strategy.cp if strategy.sequence_parallel else strategy.cp)
    tokens = float(strategy.micro_batch * sequence * moe.top_k * strategy.ep / moe.num_experts)
    routed = next(
        block for name, block in price_blocks(plan).items() if not isinstance(name, str) and first(block.params.routed)
    )
    products = sum(
        first(op.seconds) for op in routed.forward if isinstance(op.op.work, Gemm) and op.op.category == "grouped_gemm"
    )
    copying = first(pcie_time(expert_bytes(plan, routed.params), plan.machine.gpu))
    return tokens, tokens * copying / products if products else float("inf")
