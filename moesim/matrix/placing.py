"""Ranks that lie anywhere: what a job has whose rank order was not chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Group, Machine, Placed
from moesim.workload.mesh import AXES, Mesh


def arbitrary_order(machine: Machine, mesh: Mesh) -> Machine:
    """The machine with communicators whose members were drawn from all GPUs of the job."""
    groups = {axis: _anywhere(mesh.size(axis), machine, axis, mesh) for axis in AXES}
    return replace(machine, placed=Placed(groups, np.float64(machine.nvlink_domain)))


def _anywhere(size: Numeric, machine: Machine, axis: str, mesh: Mesh) -> Group:
    per_node = shared_domain(size, machine)
    return Group(size, per_node, machine.reach(size, mesh.stride(axis), per_node))


def shared_domain(size: Numeric, machine: Machine) -> Numeric:
    r"""Members of a group in an NVLink domain of the job, the fewest of any, as everywhere in a placement. [-]

    .. math:: \max\left(1, \left\lfloor s g / G \right\rfloor\right)

    for a group of s of the G GPUs of a job in domains of g: even members that are dealt out as well as can be leave so
    many; the slowest domain sets the pace.
    """
    domain = np.minimum(machine.nvlink_domain, machine.num_gpus)
    return np.maximum(np.floor(size * domain / machine.num_gpus), 1.0)
