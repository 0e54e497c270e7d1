"""Seconds for one operation: one price per shape of work."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.attention import attention_time
from moesim.cost.collectives import collective_time
from moesim.cost.expert_gemms import expert_gemms
from moesim.cost.fused_experts import fused_experts_time
from moesim.cost.gemm import gemm_time
from moesim.cost.machine import Machine
from moesim.cost.memory_bound import traffic_time
from moesim.cost.transports import Transport, leg_time
from moesim.workload.mesh import Mesh
from moesim.workload.ops import AttentionCore, ExpertLeg, FusedExperts, Gemm, Message, Op, Traffic


def op_time(op: Op, mesh: Mesh, machine: Machine, transport: Transport) -> Numeric:
    """Time of an operation on its lane, alone on the machine. [s]"""
    match op.work:
        case Gemm():
            price = expert_gemms.get(op.work.kind).time if op.category == "grouped_gemm" else gemm_time
            return price(op.work, machine.gpu)
        case FusedExperts():
            return fused_experts_time(op.work, machine.group(mesh, "ep"), machine, transport)
        case AttentionCore():
            return attention_time(op.work, machine.gpu)
        case Traffic():
            slower = machine.gpu.kernels.quantize_efficiency if op.work.cast else 1.0
            return op.work.slowdown * traffic_time(op.work.hbm_bytes / slower, machine.gpu)
        case Message():
            group = machine.group(mesh, op.work.axis)
            return collective_time(op.work.collective, op.work.size, group, machine.links)
        case ExpertLeg():
            return leg_time(transport, op.work, machine.group(mesh, "ep"), machine)


def launches(op: Op, mesh: Mesh) -> Numeric:
    """Kernels that the host launches for an operation; a collective of one rank, or of nothing, has none. [-]"""
    match op.work:
        case Message():
            return op.kernels * ((mesh.size(op.work.axis) > 1) & (np.asarray(op.work.size) > 0))
        case ExpertLeg():
            return op.kernels * (mesh.ep > 1)
        case _:
            return op.kernels


def launch_time(op: Op, mesh: Mesh, machine: Machine, captured: bool = False) -> Numeric:
    """Time that the host spends on launching an operation, which a CUDA graph may have captured. [s]"""
    return launches(op, mesh) * (machine.host.graph if captured else machine.host.launch)


def calls_time(op: Op, machine: Machine, captured: bool = False) -> Numeric:
    """Time that the host spends on the further launches inside an operation. [s]"""
    return op.calls * (machine.host.graph if captured else machine.host.call)
