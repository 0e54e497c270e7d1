"""Checkpoints of a job: bytes, time of a save, how often, and the goodput that failures leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moesim.base.errors import SpecError, did_you_mean
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.spec import library
from moesim.studies.goodput import (
    availability_interval,
    daly_interval,
    goodput,
    job_mtbf,
    wasted_shares,
    young_interval,
)

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

    ``write_bandwidth``: of all writers together, in place of the storage's. ``writers``: nodes that write; all of them
    where it is None. ``timeout_s``: of the watchdog that waits for the slowest rank. ``node_mttf_s``: of what is not
    counted with the GPUs.
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


@dataclass(frozen=True)
class CheckpointAnswer:
    """Times in s, sizes in B.

    ``save_time_s`` at full bandwidth, ``slow_save_time_s`` at the least share that real saves were seen to reach;
    ``blocking_s`` is how long the job stands still; ``host_bytes`` what an asynchronous save keeps in the memory of a node.
    ``intervals_s`` count computing time between saves. ``step_time_s`` is None where the strategy is not legal.
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
    assumed: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain = dict(vars(self))
        plain["write_bandwidth_bytes_per_s"] = plain.pop("write_bandwidth")
        plain["checkpoint_bytes"] = plain.pop("num_bytes")
        return plain | {"assumed": list(self.assumed)}


def checkpoint(problem: Problem, plan: Plan) -> CheckpointAnswer:
    """Answer for one job.

    Raises
    ------
    SpecError
        For an unknown storage or contents, more writers than nodes, and an interval that is shorter than a save.
    """
    if plan.contents not in CONTENTS:
        fix = did_you_mean(plan.contents, CONTENTS)
        raise SpecError.single("--contents", "", f"no contents '{plan.contents}'", fix)
    tier = library.get("storage", plan.storage)
    machine = problem.machine
    nodes = machine.num_gpus // machine.gpus_per_node or 1
    writers = plan.writers or nodes
    if writers > machine.num_gpus:
        raise SpecError.single("--writers", "", f"{writers} writers on {machine.num_gpus} GPUs", "one a GPU at most")
    per_param = CONTENTS[plan.contents][0]
    params = problem.model.stored_params
    num_bytes = params * per_param
    used = min(writers, nodes)  # ranks of a node share what it writes
    rates = [tier.write_bandwidth.value * used, tier.read_bandwidth.value * nodes]
    if tier.aggregate_bandwidth:
        rates = [min(rate, tier.aggregate_bandwidth.value) for rate in rates]
    write, read = (plan.write_bandwidth or rates[0]), (plan.write_bandwidth or rates[1])
    save = tier.open_time.value + num_bytes / write
    slow = tier.open_time.value + num_bytes / write / tier.reached.value
    shard = num_bytes / machine.num_gpus
    copied = shard / library.get("gpus", machine.gpu.name).pcie_bandwidth.value
    blocking, late = (copied, save) if plan.asynchronous else (save, 0.0)
    parts = [(float(machine.num_gpus), plan.gpu_mttf_s)]
    parts += [(float(nodes), plan.node_mttf_s)] if plan.node_mttf_s else []
    mtbf = float(job_mtbf(parts))
    load = tier.open_time.value + num_bytes / read
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
        raise SpecError.single("--mtbf-gpu", "", told, "no checkpoint helps a job that fails faster than it restarts")
    if step and interval < step:
        raise SpecError.single(
            "--interval", "", f"{interval:.3g} s is less than a step of {step:.3g} s", "a step or more"
        )
    assumed = [name for name, one in tier.provenance().items() if one.kind == "assumed"]
    return CheckpointAnswer(
        name=problem.name,
        params=params,
        bytes_per_param=per_param,
        num_bytes=num_bytes,
        shard_bytes=shard,
        writers=writers,
        write_bandwidth=write,
        save_time_s=save,
        slow_save_time_s=slow,
        blocking_s=blocking,
        host_bytes=shard * machine.gpus_per_node if plan.asynchronous else 0.0,
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
        trips_watchdog=watchdog(save, slow, plan.timeout_s),
        assumed=tuple(f"storage.{name}" for name in assumed if not (plan.write_bandwidth and "bandwidth" in name)),
    )


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
    """Whether ranks that wait for a save run into a timeout: no, where saves are slow, or yes."""
    if timeout is None:
        return None
    return "yes" if save > timeout else "where saves are slow" if slow > timeout else "no"
