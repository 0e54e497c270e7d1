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
    per_node = np.clip(shared_domain(size, machine), 1.0, size)
    return Group(size, per_node, machine.reach(size, mesh.stride(axis), per_node))


def shared_domain(size: Numeric, machine: Machine) -> Numeric:
    r"""Expected members of a group in the NVLink domain of one of them. [-]

    .. math:: 1 + (s - 1) \frac{g - 1}{G - 1}

    for a group of s of the G GPUs of a job in domains of g.
    """
    domain = np.minimum(machine.nvlink_domain, machine.num_gpus)
    return 1 + (size - 1) * (domain - 1) / max(machine.num_gpus - 1, 1)
