"""Checkpoints of a job: bytes, time of a save, how often, and the goodput that failures leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moesim.base.checked import number, optional, whole
from moesim.base.display import Shown
from moesim.base.errors import SpecError, did_you_mean
from moesim.estimator import estimate
from moesim.problem import Named, Problem, as_problem
from moesim.spec import library
from moesim.studies.goodput import (
    availability_interval,
    daly_interval,
    goodput,
    job_mtbf,
    wasted_shares,
    young_interval,
)
from moesim.studies.saving import Saving, saving

CONTENTS: dict[str, tuple[float, str]] = {
    "fp32-adam": (12.0, "FP32 weights and both moments"),
    "fp32-adam-with-bf16": (14.0, "the same and the BF16 weights"),
    "bf16-moments": (8.0, "FP32 weights, moments in BF16"),
    "muon": (8.0, "FP32 weights and one moment"),
    "weights-fp32": (4.0, "FP32 weights alone, no way to go on training"),
    "weights-bf16": (2.0, "BF16 weights alone, no way to go on training"),
}
"""What is saved of a parameter: bytes, and in words."""
GPU_MTTF_S = 16384 * 54 * 86400 / 419
"""Mean time to a failure that stops the job, a GPU with its share of node and network: 419 on 16,384 GPUs in 54 days
(llama3-paper). [s]"""
RESTART_S = 600.0
"""Noticing, replacing and starting again, without reading the checkpoint. An assumption. [s]"""


@dataclass(frozen=True)
class Plan:
    """How a job saves and what breaks it. Times in s, bandwidths in B/s.

    ``write_bandwidth``: of all writers together, in place of the storage's. ``writers``: ranks that write equal parts;
    those that the layout makes where it is None. ``timeout_s``: of the watchdog that waits for the slowest rank. ``node_mttf_s``: of what is not
    counted with the GPUs. ``save``: who writes, one of :data:`moesim.studies.saving.SAVES`; ``writer_bandwidth``: of one
    writer, in place of that of all.
    """

    storage: str = "parallel-filesystem"
    contents: str = "fp32-adam"
    asynchronous: bool = False
    writers: int | None = None
    write_bandwidth: float | None = None
    interval_s: float | None = None
    gpu_mttf_s: float = GPU_MTTF_S
    node_mttf_s: float | None = None
    restart_s: float = RESTART_S
    timeout_s: float | None = None
    save: str = "sharded"
    writer_bandwidth: float | None = None


@dataclass(frozen=True)
class CheckpointAnswer(Shown):
    """Times in s, sizes in B.

    ``save_time_s`` at full bandwidth, ``slow_save_time_s`` at the least share that real saves were seen to reach;
    ``blocking_s`` is how long the job stands still; ``host_bytes`` what an asynchronous save keeps in the memory of a node.
    ``intervals_s`` count computing time between saves, ``goodputs`` are theirs. ``step_time_s`` is None where the strategy
    is not legal. ``saving``: who writes how much, and what bounds it. ``waits_s``: how long a rank may wait for a save
    where saves are slow, which a watchdog sees; ``bandwidth_for_timeout``: of all writers, with which even those end
    within its time [B/s]. ``overhead``: share of the time that saves take. [-]
    """

    name: str
    params: int
    bytes_per_param: float
    num_bytes: float
    shard_bytes: float
    writers: int
    write_bandwidth: float
    save_time_s: float
    slow_save_time_s: float
    blocking_s: float
    host_bytes: float
    load_time_s: float
    restart_s: float
    mtbf_s: float
    intervals_s: Mapping[str, float]
    interval_s: float
    step_time_s: float | None
    interval_steps: int | None
    wasted: Mapping[str, float]
    goodput: float
    survives_node_loss: bool
    timeout_s: float | None
    trips_watchdog: str | None
    saving: Saving
    goodputs: Mapping[str, float]
    overhead: float
    waits_s: float
    bandwidth_for_timeout: float | None
    assumed: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain = dict(vars(self))
        plain["write_bandwidth_bytes_per_s"] = plain.pop("write_bandwidth")
        plain["checkpoint_bytes"] = plain.pop("num_bytes")
        plain["saving"] = self.saving.to_dict()
        plain["bandwidth_for_timeout_bytes_per_s"] = plain.pop("bandwidth_for_timeout")
        return plain | {"assumed": list(self.assumed)}


def checkpoint(problem: Named, plan: Plan | None = None) -> CheckpointAnswer:
    """Answer for one job.

    Parameters
    ----------
    problem
        The job.
    plan
        How it saves and what breaks it; left out, :class:`Plan` as it stands.

    Raises
    ------
    SpecError
        For a time or bandwidth that is none, an unknown storage or contents, more writers than GPUs, and an interval that is shorter than a save.
    """
    problem, plan = as_problem(problem, "checkpoint"), plan or Plan()
    _checked(plan)
    if plan.contents not in CONTENTS:
        fix = did_you_mean(plan.contents, CONTENTS)
        raise SpecError.single("--contents", "", f"no contents '{plan.contents}'", fix)
    tier = library.get("storage", plan.storage)
    machine = problem.machine
    nodes = machine.num_gpus // machine.gpus_per_node or 1
    per_param = CONTENTS[plan.contents][0]
    params = problem.model.stored_params
    num_bytes = params * per_param
    written = saving(problem, tier, num_bytes, plan.save, plan.writers, _given_bandwidth(plan, machine.num_gpus))
    opening = tier.open_time.value
    save = opening + written.write_s
    slow = opening + written.write_s / tier.reached.value
    read = plan.write_bandwidth or tier.read_bandwidth.value * nodes
    if tier.aggregate_bandwidth and not plan.write_bandwidth:
        read = min(read, tier.aggregate_bandwidth.value)
    shard = num_bytes / machine.num_gpus
    gathered = plan.save == "gathered"
    before = written.copy_s if plan.asynchronous or gathered else 0.0  # otherwise the copy runs ahead of the writing
    blocking, late = (before, save) if plan.asynchronous else (before + save, 0.0)
    parts = [(float(machine.num_gpus), plan.gpu_mttf_s)]
    parts += [(float(nodes), plan.node_mttf_s)] if plan.node_mttf_s else []
    mtbf = float(job_mtbf(parts))
    load = opening + num_bytes / read
    restart = plan.restart_s + load
    found = {
        "young": float(young_interval(blocking, mtbf)),
        "daly": float(daly_interval(blocking, mtbf)),
        "availability": float(availability_interval(blocking, mtbf, restart)) - blocking,
    }
    interval = plan.interval_s or max(found["daly"], late)
    if interval < late:
        told = f"a save takes {late:.0f} s in the background, longer than the {interval:.0f} s between two"
        raise SpecError.single("--interval", "", told, f"{late:.0f} s or more")
    step = None if problem.check() else estimate(problem).step_time_s
    if mtbf <= restart + blocking:
        told = f"a failure every {mtbf:.3g} s, and {restart + blocking:.3g} s to save and to restart"
        slowest = "--save-bw" if plan.write_bandwidth else "--writer-bw" if plan.writer_bandwidth else "--mtbf-gpu"
        option = slowest if load + blocking > plan.restart_s else "--mtbf-gpu"
        raise SpecError.single(option, "", told, "no checkpoint helps a job that fails faster than it restarts")
    if step and interval < step:
        raise SpecError.single(
            "--interval", "", f"{interval:.3g} s is less than a step of {step:.3g} s", "a step or more"
        )
    waits = blocking + max(0.0, slow - interval) if plan.asynchronous else before + slow
    rates = {name: float(goodput(one, blocking, mtbf, restart, late)) for name, one in found.items() if one >= late}
    assumed = [name for name, one in tier.provenance().items() if one.kind == "assumed"]
    return CheckpointAnswer(
        name=problem.name,
        params=params,
        bytes_per_param=per_param,
        num_bytes=num_bytes,
        shard_bytes=shard,
        writers=written.writers,
        write_bandwidth=num_bytes / written.write_s,
        save_time_s=save,
        slow_save_time_s=slow,
        blocking_s=blocking,
        host_bytes=written.node_bytes if plan.asynchronous or gathered else 0.0,
        load_time_s=load,
        restart_s=restart,
        mtbf_s=mtbf,
        intervals_s=found,
        interval_s=interval,
        step_time_s=step,
        interval_steps=max(1, round(interval / step)) if step else None,
        wasted={name: float(value) for name, value in wasted_shares(interval, blocking, mtbf, restart, late).items()},
        goodput=float(goodput(interval, blocking, mtbf, restart, late)),
        survives_node_loss=tier.survives_node_loss,
        timeout_s=plan.timeout_s,
        trips_watchdog=watchdog(blocking, waits, plan.timeout_s),
        saving=written,
        goodputs=rates,
        overhead=blocking / (interval + blocking),
        waits_s=waits,
        bandwidth_for_timeout=_enough(plan, num_bytes, opening, tier.reached.value),
        assumed=tuple(f"storage.{name}" for name in assumed if not (plan.write_bandwidth and "bandwidth" in name)),
    )


def _checked(plan: Plan) -> None:
    """Refuse numbers of a plan that are none."""
    call = "checkpoint"
    number(call, "gpu_mttf_s", plan.gpu_mttf_s)
    number(call, "restart_s", plan.restart_s, zero=True)
    for name in ("write_bandwidth", "interval_s", "node_mttf_s", "timeout_s", "writer_bandwidth"):
        optional(call, name, getattr(plan, name))
    if plan.writers is not None:
        whole(call, "writers", plan.writers)


def _given_bandwidth(plan: Plan, gpus: int) -> float | None:
    """Bandwidth of all writers where a user says it. [B/s]"""
    if plan.writer_bandwidth is None:
        return plan.write_bandwidth
    if plan.write_bandwidth is not None:
        raise SpecError.single("--writer-bw", "", "and --save-bw say the same", "give one of them")
    if plan.save == "gathered":
        return plan.writer_bandwidth
    if plan.writers is None:
        raise SpecError.single(
            "--writer-bw", "", "is of one writer, and nobody says how many", f"--writers 1 to {gpus}"
        )
    return plan.writer_bandwidth * plan.writers


def _enough(plan: Plan, num_bytes: float, opening: float, reached: float) -> float | None:
    """Bandwidth with which a save at the least share of it ends within the time of the watchdog. [B/s]"""
    if plan.timeout_s is None or plan.asynchronous or plan.timeout_s <= opening:
        return None
    return num_bytes / reached / (plan.timeout_s - opening)


@dataclass(frozen=True)
class Shrunk:
    """A job that goes on with fewer nodes: its share of the throughput, and what its ranks read to reshard. [-, B]"""

    nodes: int
    throughput: float | None
    reshard_bytes_per_gpu: float
    refused: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        return dict(vars(self)) | {"refused": list(self.refused)}


def shrunk(problem: Problem, lost: int, contents: str) -> Shrunk:
    """Go on with some nodes fewer, same strategy and global batch, as a checkpoint of any layout allows.

    Raises
    ------
    SpecError
        Where fewer nodes are there than are lost.
    """
    nodes = problem.machine.num_gpus // problem.machine.gpus_per_node
    if lost >= nodes:
        raise SpecError.single("--lose", "", f"{lost} of {nodes} nodes", f"less than {nodes}")
    left = nodes - lost
    shard = problem.model.stored_params * CONTENTS[contents][0] / (left * problem.machine.gpus_per_node)
    smaller = problem.with_changes({"cluster.count": str(left)}, "--lose")
    broken = smaller.check()
    if broken:
        return Shrunk(left, None, shard, tuple(one.violation.message for one in broken))
    tokens = [one.tokens_per_s_per_gpu * at.machine.num_gpus for at in (problem, smaller) for one in (estimate(at),)]
    return Shrunk(left, tokens[1] / tokens[0], shard)


def watchdog(save: float, slow: float, timeout: float | None) -> str | None:
    """Whether ranks that wait for a save, or for one that is slow, run into a timeout: no, where saves are slow, or yes."""
    if timeout is None:
        return None
    return "yes" if save > timeout else "where saves are slow" if slow > timeout else "no"
