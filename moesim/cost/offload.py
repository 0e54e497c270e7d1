"""Activations, experts and optimizer state in the memory of the host: what moves over its link, and what is not hidden.

Activations of a chunk leave beside its forward and come back beside its backward, on streams of their own: the chunk
takes as long as the slower of computing and copying. Copies share PCIe with nothing else here; where a NIC sits behind
the same switch, they would. Weights of experts come twice, for the forward and for the backward, a layer ahead; their
gradients stay. Of the optimizer, gradients go down when they are reduced, the host updates, and the
weights come back beside the update.

References
----------
zero-offload; olmo-core-report, section 15.1
"""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.blocks import Blocks
from moesim.cost.kept import kept, stage_bytes
from moesim.cost.machine import Gpu
from moesim.cost.plan import Plan
from moesim.cost.update import held_params, owned_params
from moesim.workload.layers import saved_bytes
from moesim.workload.sharding import RankParams


def offload_ratio(num_bytes: Numeric, seconds: Numeric, bandwidth: Numeric) -> Numeric:
    r"""Bandwidth that hides a copy beside a computation over the one at hand. [-]

    .. math:: \rho = (A / t) / B

    All of A can be hidden where rho is at most 1; else a share of 1 / rho.

    Parameters
    ----------
    num_bytes, seconds, bandwidth
        Bytes to copy, A [B]; the computation beside, t [s]; the link, B [B/s].

    References
    ----------
    olmo-core-report, section 15.1
    """
    return num_bytes / seconds / bandwidth


def pcie_time(num_bytes: Numeric, gpu: Gpu, both_ways: bool = False) -> Numeric:
    """Time of a copy between pinned host memory and the GPU; `both_ways`: another runs against it. [s]"""
    constants = gpu.kernels
    share = constants.pcie_efficiency * (constants.pcie_duplex_efficiency if both_ways else 1.0)
    return num_bytes / (gpu.pcie_bandwidth * share)


def offloads(plan: Plan) -> bool:
    """Whether the chunks of a plan copy anything between the host and the GPU."""
    return bool(plan.strategy.activation_offload or plan.strategy.expert_offload)


def offloaded_bytes(plan: Plan, blocks: Blocks) -> tuple[Numeric, ...]:
    """What each chunk copies for one micro-batch, each way: activations, logits left out, and weights of experts. [B]"""
    share = plan.strategy.activation_offload
    copied = (share * activations for activations, _ in stage_bytes(plan, blocks, kept))
    return tuple(one + expert_bytes(plan, params) for one, params in zip(copied, plan.params, strict=True))


def expert_bytes(plan: Plan, params: RankParams) -> Numeric:
    """Weights of experts that are on the host, of so many parameters of a rank. [B]"""
    return plan.strategy.expert_offload * plan.gathered_bytes(params, params).routed


def stall(plan: Plan, num_bytes: Numeric, computing: Numeric, both_ways: bool = False) -> Numeric:
    """What of a copy is left when the computation beside it is done. [s]"""
    return np.maximum(pcie_time(num_bytes, plan.machine.gpu, both_ways) - computing, 0.0)


def staging_bytes(plan: Plan, blocks: Blocks) -> Numeric:
    """Two layers' activations and experts on the way, one that is copied and one that is made or used. [B]"""
    layers = [expert_bytes(plan, priced.params) for priced in blocks.values()]
    experts: Numeric = np.max(np.broadcast_arrays(*layers), axis=0)
    return 2.0 * (plan.strategy.activation_offload * largest_layer(blocks) + experts)


def largest_layer(blocks: Blocks) -> Numeric:
    """Activations that one micro-batch leaves in a layer, of the layer that keeps most. [B]"""
    largest: Numeric = 0.0
    for name, priced in blocks.items():
        if not isinstance(name, str):
            largest = np.maximum(largest, saved_bytes(priced.block))
    return largest


def optimizer_parts(plan: Plan, rank: int) -> dict[str, Numeric]:
    """Seconds by category of the share of the optimizer step that the host does; they add up to it. [s]

    The GPUs of a node share the host's rate. Weights come back beside the update, so that only what is longer counts.
    """
    machine = plan.machine
    update = _host_values(plan, rank) * machine.gpus_per_node / machine.host.update_rate
    down, back = (pcie_time(size, machine.gpu) for size in optimizer_copies(plan, rank))
    return {"optimizer": update, "pcie": down + np.maximum(back - update, 0.0)}


def optimizer_copies(plan: Plan, rank: int) -> tuple[Numeric, Numeric]:
    """What a GPU of a pipeline rank copies for the update on the host: gradients down, weights back. [B]"""
    values = _host_values(plan, rank)
    return plan.state_types.grad * values, plan.state_types.param * values


def _host_values(plan: Plan, rank: int) -> Numeric:
    return plan.strategy.optimizer_offload * owned_params(plan, held_params(plan, rank))
