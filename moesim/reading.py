"""Reading an answer off a priced run: where the time went, what binds, how strong the evidence is, what fits."""

from __future__ import annotations

from typing import Any

from moesim.base.errors import Violation
from moesim.base.units import format_quantity
from moesim.cost.machine import Machine
from moesim.cost.memory import RankMemory
from moesim.cost.perturb import STEP, constants
from moesim.cost.pipeline import StepTimes
from moesim.cost.plan import Plan
from moesim.result import BREAKDOWN, GRADES, Constant, MemoryEstimate
from moesim.timeline.run import Run
from moesim.timeline.walk import last_rank, walk_rank
from moesim.workload.strategy import Strategy

MATTERS = 0.02
"""Elasticity from which a constant decides the evidence grade of an answer."""

GRADE_OF_KIND = {
    "measured": "calibrated",  # a constant fitted on measurements; only a replayed row is itself measured
    "datasheet": "datasheet",
    "paper": "datasheet",
    "derived": "datasheet",
    "assumed": "assumed",
}


def breakdown(times: StepTimes, run: Run) -> dict[str, float]:
    """Seconds of the step by category, along the rank that finishes last. They add up to the step.

    The walk stays on that rank: what it does counts in its category, what it waits for from other ranks is the
    bubble, or ``pp`` as far as the data was already on its way, or ``dp`` where its own data-parallel communication
    holds it up.
    """
    seconds = dict.fromkeys(BREAKDOWN, 0.0)
    for segment in walk_rank(times.graph, run, last_rank(times.graph, run)):
        if segment.kind == "idle":
            seconds["bubble"] += segment.seconds
        elif segment.kind == "transfer":
            seconds["pp"] += segment.seconds
        elif segment.kind == "nic":
            seconds["dp"] += segment.seconds
        else:
            parts = times.categories(segment.row) if segment.row is not None else {}
            for name, value in parts.items():
                seconds[name if name in seconds else "other"] += value
    return seconds


def elasticities(machine: Machine, paths: list[str], moved: list[float], step_time: float) -> tuple[Constant, ...]:
    """Constants of the machine with their elasticity on the step, the strongest first."""
    values = constants(machine, "")
    for name, items in machine.transports.items():
        values |= {f"transports.{name}.{key}": float(value) for key, value in items.items()}
    found = []
    for path, time in zip(paths, moved, strict=True):
        sourced = _provenance(machine, path)
        kind, source = (sourced.kind, sourced.source or sourced.note or "") if sourced else ("assumed", "")
        found.append(Constant(path, values[path], (time / step_time - 1) / STEP, kind, source))
    return tuple(sorted(found, key=lambda constant: -abs(constant.elasticity)))


SPEC_PATHS = {
    "links.nvlink_bandwidth": "node.links.nvlink_usable_bandwidth",
    "links.nic_bandwidth": "nic.bandwidth",
    "links.nic_latency": "fabric.latency",
    "host.launch": "software.host.framework_per_kernel",
    "host.sync": "software.host.device_sync",
}
"""Where a constant of the machine stands in the specs, if not under the same name."""


def _provenance(machine: Machine, path: str) -> Any:
    name = path.rsplit(".", 1)[-1]
    candidates = (
        SPEC_PATHS.get(path, ""),
        path.replace("gpu.rates.", "gpu.peak_flop_rate."),
        path,
        f"node.links.{name}",
        f"fabric.{name.removeprefix('nic_')}",
        path.replace("transports.", "transports.", 1).replace(f".{name}", f".constants.{name}"),
    )
    return next((machine.provenance[key] for key in candidates if key in machine.provenance), None)


def weakest_grade(needs: tuple[Constant, ...]) -> str:
    """Grade of the weakest constant whose elasticity reaches :data:`MATTERS`."""
    grades = [GRADE_OF_KIND[constant.kind] for constant in needs if abs(constant.elasticity) >= MATTERS]
    return max(grades, key=GRADES.index, default="calibrated")


def strongest_need(seconds: dict[str, float], plan: Plan) -> dict[str, Any]:
    """The resource on which the walked rank spends most of the step, and its share."""
    totals: dict[str, float] = {}
    for category, value in seconds.items():
        resource = _resource(category, plan)
        totals[resource] = totals.get(resource, 0.0) + value
    resource = max(totals, key=lambda name: totals[name])
    return {"resource": resource, "share": totals[resource] / sum(totals.values())}


def _resource(category: str, plan: Plan) -> str:
    axes = {"ep": "ep", "tp": "tp", "cp": "cp", "dp": "dp-cp"}
    if category in axes:
        return "nic" if plan.machine.group(plan.mesh, axes[category]).nodes > 1 else "nvlink"
    if category == "pp":
        crossing = any(plan.boundary_crosses_nodes(stage) for stage in range(len(plan.stages) - 1))
        return "nic" if crossing else "nvlink"
    known = {"gemm": "tensor-cores", "grouped_gemm": "tensor-cores", "attention": "tensor-cores"}
    known |= {"memory_bound": "hbm", "optimizer": "hbm", "host": "host", "bubble": "pipeline"}
    return known.get(category, "other")


def memory_answer(memory: tuple[RankMemory, ...], machine: Machine) -> MemoryEstimate:
    """Peak over the pipeline ranks, each with its classes."""
    stages = tuple(
        {f"{name}_bytes": float(value) for name, value in rank.classes.items()} | {"peak_bytes": float(rank.peak)}
        for rank in memory
    )
    peak = max(range(len(memory)), key=lambda rank: stages[rank]["peak_bytes"])
    return MemoryEstimate(
        peak_bytes=float(memory[peak].peak),
        allocated_peak_bytes=max(float(rank.allocated) for rank in memory),
        reserved_peak_bytes=max(float(rank.reserved) for rank in memory),
        peak_stage=peak,
        peak_phase=memory[peak].peak_phase,
        capacity_bytes=float(machine.gpu.memory_capacity),
        stages=stages,
    )


def out_of_memory(memory: MemoryEstimate, machine: Machine) -> tuple[Violation, ...]:
    """A violation that names the stage, the amount and the largest class, where the peak exceeds the capacity."""
    if memory.peak_bytes <= memory.capacity_bytes:
        return ()
    stage = memory.stages[memory.peak_stage]
    classes = {name: value for name, value in stage.items() if name != "peak_bytes"}
    largest = max(classes, key=lambda name: classes[name])
    message = (
        f"pipeline rank {memory.peak_stage} needs {format_quantity(memory.peak_bytes, 'bytes')} of "
        f"{format_quantity(memory.capacity_bytes, 'bytes')} on {machine.gpu.name}; the most are "
        f"{largest.removesuffix('_bytes')}, {format_quantity(classes[largest], 'bytes')}"
    )
    legal = (
        f"a peak of at most {format_quantity(memory.capacity_bytes, 'bytes')}: more pp, tp, ep or GPUs, a smaller "
        "micro_batch, recompute, or dp_sharding fsdp"
    )
    return (Violation("memory", message, legal),)


def plain_strategy(strategy: Strategy) -> dict[str, Any]:
    """The strategy as plain values."""
    plain = {name: getattr(strategy, name) for name in Strategy.__dataclass_fields__}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
