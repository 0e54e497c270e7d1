"""Reading an answer off a priced run: where the time went, what binds, how strong the evidence is, what fits."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from moesim.base.errors import Violation
from moesim.base.units import format_quantity
from moesim.cost.machine import Machine
from moesim.cost.memory import RankMemory
from moesim.cost.perturb import STEP, constants
from moesim.cost.pipeline import StepTimes
from moesim.cost.plan import Plan
from moesim.result import BREAKDOWN, EXTRA, Constant, MemoryEstimate
from moesim.spec.methods import METHODS
from moesim.spec.overrides import SET_BY_OPTION
from moesim.timeline.run import Run
from moesim.timeline.walk import last_rank, walk_rank
from moesim.workload.strategy import OFF, Strategy

GRADE_OF_KIND = {
    "measured": "calibrated",  # a constant fitted on measurements; only a replayed row is itself measured
    "datasheet": "datasheet",
    "paper": "datasheet",
    "derived": "datasheet",
    "assumed": "assumed",
}


def breakdown(times: StepTimes, run: Run, rank: int | None = None) -> dict[str, float]:
    """Seconds of the step by category, along one rank, the last to finish unless told. They add up to the step.

    The walk stays on that rank: what it does counts in its category, what it waits for from other ranks is the
    bubble, or ``pp`` as far as the data was already on its way, or ``dp`` where its own data-parallel communication
    holds it up.
    """
    seconds = dict.fromkeys(BREAKDOWN, 0.0)
    known = {*BREAKDOWN, *EXTRA}
    parts: dict[int, list[tuple[str, float]]] = {}
    for segment in walk_rank(times.graph, run, last_rank(times.graph, run) if rank is None else rank):
        if segment.kind == "idle":
            seconds["bubble"] += segment.seconds
        elif segment.kind == "transfer":
            seconds["pp"] += segment.seconds
        elif segment.kind == "nic":
            seconds["dp"] += segment.seconds
        elif segment.row is not None:
            if segment.row not in parts:
                found = times.categories(segment.row)
                parts[segment.row] = [(name if name in known else "other", value) for name, value in found.items()]
            for key, value in parts[segment.row]:
                seconds[key] = seconds.get(key, 0.0) + value
    return seconds


def elasticities(machine: Machine, paths: list[str], moved: list[float], step_time: float) -> tuple[Constant, ...]:
    """Constants of the machine with their elasticity on the step, the strongest first."""
    values = constants(machine, "")
    for name, items in machine.transports.items():
        values |= {f"transports.{name}.{key}": float(value) for key, value in items.items()}
    found = []
    for path, time in zip(paths, moved, strict=True):
        key = _spec_path(machine, path)
        sourced = machine.provenance.get(key)
        kind, source = (sourced.kind, sourced.source or sourced.note or "") if sourced else ("assumed", "")
        setting, elasticity = key.replace(".constants.", "."), (time / step_time - 1) / STEP
        by_hand = sourced is not None and (sourced.note or "").startswith(SET_BY_OPTION)
        found.append(Constant(path, setting, values[path], elasticity, kind, source, by_hand))
    return tuple(sorted(found, key=lambda constant: -abs(constant.elasticity)))


SPEC_PATHS = {
    "gpu.rates.fp8-rowwise": "gpu.peak_flop_rate.fp8",
    "gpu.rates.fp8-blockwise": "gpu.peak_flop_rate.fp8",
    "gpu.rates.mxfp8": "gpu.peak_flop_rate.fp8",
    "gpu.rates.mxfp8-wgrad": "gpu.peak_flop_rate.fp8",
    "gpu.rates.nvfp4": "gpu.peak_flop_rate.fp4",
    "gpu.power.limit": "gpu.power",
    "gpu.power.idle": "gpu.energy.idle_power",
    "links.nvlink_bandwidth": "node.links.nvlink_usable_bandwidth",
    "links.nic_bandwidth": "nic.bandwidth",
    "links.nic_latency": "fabric.latency",
    "host.launch": "software.host.framework_per_kernel",
    "host.sync": "software.host.device_sync",
    "host.graph": "software.host.graph_launch",
    "host.call": "software.host.library_call",
    "host.chunk": "software.host.chunk",
    "host.update_rate": "software.host.update_rate",
}
"""Where a constant of the machine stands in the specs, if not under the same name."""


def _spec_path(machine: Machine, path: str) -> str:
    """Path of a constant in the specs, which ``--set`` takes; empty where it is made of several."""
    name = path.rsplit(".", 1)[-1]
    candidates = (
        SPEC_PATHS.get(path, ""),
        path.replace("gpu.rates.", "gpu.peak_flop_rate."),
        path.replace("gpu.power.", "gpu.energy."),
        path,
        f"node.{path}",
        path.replace("links.fits.", "fabric.fits."),
        f"node.links.{name}",
        f"fabric.{name.removeprefix('nic_')}",
        path.replace(f".{name}", f".constants.{name}"),
    )
    return next((key for key in candidates if key in machine.provenance), "")


RESOURCES = (
    ("tensor-cores", ("gpu.rates.",)),
    ("hbm", ("gpu.memory_bandwidth",)),
    ("power", ("gpu.power.limit",)),
    ("nic", ("links.nic_bandwidth", "rdma_bandwidth", "message_rate")),
    ("nvlink", ("links.nvlink_bandwidth", "links.nvls_bandwidth", "links.p2p_bandwidth", "links.alltoall_bandwidth")),
    ("nvlink", ("_nvlink_bandwidth",)),
    ("transport-sms", ("_sm_bandwidth", "block_bandwidth", ".shared_bandwidth")),
    ("pcie", ("gpu.pcie_bandwidth",)),
    ("cpu", ("host.update_rate",)),
    ("host", ("host.launch", "host.sync", "host.graph", "host.call", "host.chunk")),
)
"""What stands behind a constant, by the beginning or the end of its path; efficiencies and latencies stand for none."""


def resource_shares(needs: tuple[Constant, ...]) -> dict[str, float]:
    """Share of the step that scales with each resource, the largest first. [-]

    The share is the elasticity: a resource of 0.4 that becomes 1 % faster makes the step 0.4 % shorter. Idle time in the
    pipeline counts with what makes the other ranks busy.
    """
    totals = {name: 0.0 for name, _ in RESOURCES}
    for constant in needs:
        name = _resource(constant.path)
        if name:
            totals[name] += abs(constant.elasticity)
    return dict(sorted(totals.items(), key=lambda one: -one[1]))


def strongest_need(needs: tuple[Constant, ...]) -> dict[str, Any]:
    """The resource that the step depends on most, and the share of the step that scales with it."""
    resource, share = next(iter(resource_shares(needs).items()))
    return {"resource": resource, "share": share}


@lru_cache(maxsize=4096)
def _resource(path: str) -> str | None:
    for name, words in RESOURCES:
        if any(path.startswith(word) or path.endswith(word) for word in words):
            return name
    return None


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
        host_bytes_per_node=max(float(rank.host) for rank in memory) * machine.gpus_per_node,
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


def routing_answer(plan: Plan) -> dict[str, float | None] | None:
    """Load of the hottest rank and share of all rows that is dropped; None in a dense model."""
    strategy = plan.strategy
    if plan.model.moe is None:
        return None
    dropped: float | None = 0.0
    if plan.skew is not None:
        dropped = float(plan.skew.dropped)
    elif strategy.capacity_factor is not None and strategy.capacity_factor < strategy.rank_imbalance:
        even = strategy.rank_imbalance == 1 and strategy.routing != "capacity"
        dropped = 1 - strategy.capacity_factor if even else None  # what the other ranks have is not said
    return {"hottest_rank_load": float(plan.routed_load), "dropped_share": dropped}


def plain_strategy(strategy: Strategy) -> dict[str, Any]:
    """The strategy as plain values, without the methods that are off."""
    names = [
        name for name in Strategy.__dataclass_fields__ if name not in METHODS or getattr(strategy, name) != OFF[name]
    ]
    return plain_fields(strategy, names)


def plain_fields(strategy: Strategy, names: Iterable[str]) -> dict[str, Any]:
    """Some fields of a strategy as plain values, also of methods that are off."""
    values = {name: getattr(strategy, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
