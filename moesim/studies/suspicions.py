"""What a run may do that its description does not say, each priced: which of it would make the measured step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError
from moesim.evaluator import step_columns
from moesim.problem import Problem
from moesim.studies.faults import PATH, with_changes

HOST = ("kernel_launch", "framework_per_kernel", "library_call", "device_sync", "chunk")
"""What the host takes for a kernel, a call, a synchronisation."""
LEAST = 0.1
"""Share of a gap below which a suspicion explains nothing of it. [-]"""


@dataclass(frozen=True)
class Suspicion:
    """Something that the run may do otherwise. ``step_time_s`` with it; ``explains``: share of the gap. [s, -]"""

    name: str
    changes: Mapping[str, str]
    step_time_s: float
    explains: float
    look: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        return dict(vars(self)) | {"changes": dict(self.changes)}


def suspicions(problem: Problem, predicted_s: float, measured_s: float) -> tuple[Suspicion, ...]:
    """What would move the step towards the measured one, what comes closest first; of one thing the closest amount.

    Parameters
    ----------
    problem
        What is said to have run.
    predicted_s, measured_s
        Its step, and the measured one. [s]
    """
    gap = measured_s - predicted_s
    found: dict[tuple[str, ...], Suspicion] = {}
    for name, changes, look in _candidates(problem):
        try:
            step = float(step_columns(with_changes(problem, changes, "--set").plan()).item())
        except SpecError:  # the job, or its software, cannot do that
            continue
        share = (step - predicted_s) / gap if gap else 0.0
        one, paths = Suspicion(name, changes, step, share, look), tuple(sorted(changes))
        if share >= LEAST and (paths not in found or _off(one, measured_s) < _off(found[paths], measured_s)):
            found[paths] = one
    return tuple(sorted(found.values(), key=lambda one: _off(one, measured_s)))


def _off(one: Suspicion, measured_s: float) -> float:
    return abs(math.log(one.step_time_s / measured_s))


def _candidates(problem: Problem) -> Iterator[tuple[str, dict[str, str], str]]:
    """Name, changes, and where to look."""
    own = problem.strategy
    yield from _methods(problem)
    for flag, what in OVERLAPS.items():
        state = "does not overlap" if getattr(own, flag) else "overlaps"
        yield f"{what} {state}", {flag: str(not getattr(own, flag)).lower()}, "trace one step: is it beside kernels?"
    for factor, word in (("x1.5", "1.5 times as slow"), ("x2", "twice as slow"), ("x3", "three times as slow")):
        changes = {f"software.host.{name}": factor for name in HOST}
        yield (
            f"the host is {word}",
            changes,
            "a CPU thread that is always busy, power saving, wrong NUMA node, profiler",
        )
    yield "the host is twice as fast", {f"software.host.{name}": "x0.5" for name in HOST}, "a newer CPU or framework"
    for share in (0.85, 0.7):
        changes = {f"gpu.peak_flop_rate.{name}": f"x{share}" for name in _rates(problem)}
        yield f"clocks at {share:.0%}", changes, "nvidia-smi -q -d CLOCK,PERFORMANCE: power or thermal limits"
    yield "one node at 70 % of its rate", {PATH: "slow:node0=0.7"}, "step times of each rank; dcgmi diag"
    for share in (0.5, 0.1):
        yield (
            f"the network at {share:.0%}",
            {"nic.bandwidth": f"x{share}"},
            "moesim collective ... --measured with nccl-tests; NCCL_DEBUG=INFO: NET/IB with GDRDMA, every NIC",
        )


OVERLAPS = {
    "overlap_ep": "the expert exchange",
    "overlap_grad_reduce": "the gradient reduction",
    "overlap_param_gather": "the parameter gather",
    "overlap_tp": "tensor-parallel communication",
    "overlap_p2p": "pipeline communication",
}
"""Flags of a strategy, and what they put beside kernels."""


def _methods(problem: Problem) -> Iterator[tuple[str, dict[str, str], str]]:
    own = problem.strategy
    if "full" not in own.recompute:
        yield "every layer is recomputed", {"recompute": "full"}, "recompute settings of the run; forward kernels twice"
    if own.recompute:
        yield "nothing is recomputed", {"recompute": "none"}, "recompute settings of the run"
    if own.cuda_graph != "none":
        yield "no CUDA graphs", {"cuda_graph": "none"}, "cudaGraphLaunch in a trace"
    if own.precision != "bf16":
        yield "products in BF16", {"precision": "bf16"}, "names of the GEMM kernels in a trace"
    if problem.model.moe is None:
        return
    if own.routing == "balanced" and own.rank_imbalance == 1:
        for load in ("1.3", "2.0"):
            told = f"the hottest rank gets {load} times the mean of rows"
            yield told, {"rank_imbalance": load}, "tokens per expert of a step; time of the grouped GEMM on each rank"
    if own.expert_gemm != "loop":
        yield "a GEMM for each expert", {"expert_gemm": "loop"}, "count the expert GEMMs of a layer in a trace"
    others = ("nccl-alltoall", "deepep") if own.ep > 1 else ()
    for name in others:
        if name != own.transport:
            yield f"the exchange runs over {name}", {"transport": name}, "names of dispatch and combine in a trace"


def _rates(problem: Problem) -> list[str]:
    start = "gpu.peak_flop_rate."
    return [path.removeprefix(start) for path in problem.machine.provenance if path.startswith(start)]
