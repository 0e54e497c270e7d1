"""Axes of the two meshes against groups that are written out rank by rank."""

from itertools import product

import numpy as np
import pytest

from moesim.cost.machine import Group
from moesim.problem import Problem
from moesim.workload.mesh import AXES, Mesh

WORLD = 64
MESHES = [
    Mesh(WORLD, tp, cp, pp, etp, ep, span)
    for tp, cp, pp, etp, ep, span in product((1, 2, 4), (1, 2), (1, 2, 4), (1, 2), (1, 4, 8, 16), (None, 8))
    if tp * cp * pp <= WORLD and etp * ep * pp <= WORLD
]
ATTENTION, EXPERTS = ("tp", "cp", "dp", "pp"), ("etp", "ep", "edp", "pp")
SHARDED = {"dense": "dp-cp", "routed": "edp"}
"""Replicas over which each kind of parameter may be split."""


def written_out(mesh: Mesh, axis: str) -> list[list[int]]:
    """Ranks of each group of an axis, from the order of the axes alone: innermost first."""
    kind, _, part = axis.partition("-")
    if kind in SHARDED:
        replicas = written_out(mesh, SHARDED[kind])
        shard = int(mesh.size(f"{kind}-shard"))
        if part == "shard":
            return [group[start : start + shard] for group in replicas for start in range(0, len(group), shard)]
        return [group[place::shard] for group in replicas for place in range(shard)]
    axes = ATTENTION if axis in ATTENTION or axis == "dp-cp" else EXPERTS
    sizes = [int(mesh.size(name)) for name in axes]
    grid = np.arange(WORLD).reshape(sizes[::-1])
    moved = [axes[::-1].index(name) for name in (("dp", "cp") if axis == "dp-cp" else (axis,))]
    grid = np.moveaxis(grid, moved, range(-len(moved), 0))
    return grid.reshape(-1, int(np.prod(grid.shape[-len(moved) :]))).tolist()


@pytest.mark.parametrize("axis", AXES)
def test_groups_cover_all_ranks_at_the_stride_of_their_axis(axis):
    for mesh in MESHES:
        groups = written_out(mesh, axis)
        assert sorted(rank for group in groups for rank in group) == list(range(WORLD))
        assert {len(group) for group in groups} == {mesh.size(axis)}
        for group in groups:
            assert set(np.diff(group).tolist()) <= {mesh.stride(axis)}


def test_state_is_split_over_all_replicas_or_over_those_of_a_span():
    for mesh in MESHES:
        for kind, replicas in SHARDED.items():
            shard = mesh.size(f"{kind}-shard")
            assert shard * mesh.size(f"{kind}-replica") == mesh.size(replicas)
            inside = 8 // mesh.stride(replicas) if mesh.shard_span else mesh.size(replicas)
            assert shard == min(max(inside, 1), mesh.size(replicas))


@pytest.mark.parametrize("axis", AXES)
def test_the_ranks_of_a_group_in_one_node(qwen: Problem, axis):
    machine, node = qwen.machine, int(qwen.machine.gpus_per_node)
    for mesh in MESHES:
        placed = {
            (len(set(nodes.tolist())), int(np.bincount(nodes).max()))
            for nodes in (np.array(group) // node for group in written_out(mesh, axis))
        }
        group = machine.group(mesh, axis)
        assert placed == {(group.nodes, group.per_node)}, mesh


def test_nodes_of_a_group():
    assert Group(8.0, 8.0).nodes == 1
    assert Group(32.0, 8.0).nodes == 4
    assert Group(16.0, 1.0).nodes == 16


def test_replicas_of_the_two_meshes():
    mesh = Mesh(256, 2, 1, 8, 1, 32)
    assert (mesh.dp, mesh.edp) == (16, 1)
    mesh = Mesh(256, 2, 2, 4, 2, 8)
    assert (mesh.dp, mesh.edp, mesh.size("dp-cp")) == (16, 4, 32)
