"""What every registered collective algorithm keeps to."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moesim.cost.collectives import COLLECTIVES, algorithms, chosen_algorithm, collective_time
from moesim.cost.machine import Group, Links
from moesim.problem import Problem

GROUPS = [
    Group(float(nodes * per_node), float(per_node)) for nodes, per_node in product((1, 2, 3, 8, 64), (1, 2, 4, 8))
]
SHARED = [group for group in GROUPS if group.size > 1]
SIZES = np.array([0.0, 1.0, 1e3, 3e4, 1e6, 1e7, 1e8, 1e9, 1e10])
PAIRS = [Group(2.0, 2.0), Group(2.0, 1.0)]
FASTER = [field.name for field in fields(Links) if field.name.endswith(("bandwidth", "efficiency"))]
SLOWER = [
    field.name for field in fields(Links) if field.name.endswith(("latency", "latency_per_node", "ramp", "half_bytes"))
]

each_algorithm = pytest.mark.parametrize("name", algorithms.names())
each_collective = pytest.mark.parametrize("collective", COLLECTIVES)


@pytest.fixture(scope="module")
def links(qwen: Problem) -> Links:
    return replace(qwen.machine.links, nvls=True)


def groups_of(collective):
    """Groups that the collective makes sense on; a send has two ranks."""
    return PAIRS if collective == "send-recv" else SHARED


@each_algorithm
def test_it_says_what_it_is_and_serves_a_known_collective(name):
    entry = next(entry for entry in algorithms.entries() if entry.name == name)
    assert entry.summary
    assert entry.source
    assert entry.item.collective in COLLECTIVES


@each_collective
def test_every_collective_works_on_every_group(links, collective):
    for group in groups_of(collective):
        times = np.asarray(collective_time(collective, SIZES, group, links))
        assert np.isfinite(times).all()
        assert (times[SIZES > 0] > 0).all()
        assert (times[SIZES == 0] == 0).all()  # nothing to say


@each_collective
def test_a_group_of_one_costs_nothing(links, collective):
    for size in SIZES:
        assert collective_time(collective, size, Group(1.0, 1.0), links) == 0
    mixed = Group(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    together = np.asarray(collective_time(collective, 1e6, mixed, links))
    assert together[0] == 0
    assert together[1] > 0


@each_algorithm
def test_a_larger_message_is_never_faster(links, name):
    algorithm = algorithms.get(name)
    for group in groups_of(algorithm.collective):
        times = np.broadcast_to(algorithm.time(SIZES, group, links), SIZES.shape)
        assert (times[1:] >= times[:-1]).all()


@each_algorithm
@pytest.mark.parametrize("constant", FASTER)
def test_more_bandwidth_is_never_slower(links, name, constant):
    algorithm = algorithms.get(name)
    better = replace(links, **{constant: getattr(links, constant) * 1.5})
    for group in groups_of(algorithm.collective):
        assert (algorithm.time(SIZES, group, better) <= algorithm.time(SIZES, group, links)).all()


@each_algorithm
@pytest.mark.parametrize("constant", SLOWER)
def test_more_latency_is_never_faster(links, name, constant):
    algorithm = algorithms.get(name)
    worse = replace(links, **{constant: getattr(links, constant) * 1.5})
    for group in groups_of(algorithm.collective):
        assert (algorithm.time(SIZES, group, worse) >= algorithm.time(SIZES, group, links)).all()


@pytest.mark.parametrize("group", SHARED, ids=lambda group: f"{group.size:.0f}x{group.per_node:.0f}")
def test_a_large_ring_all_reduce_is_a_reduce_scatter_and_an_all_gather(links, group):
    """By the wires; what the protocols add at the start differs, and so do corrections that were fitted apart."""
    unfitted = replace(links, fits={})
    scatter, gather, reduce = (
        algorithms.get(f"ring-{name}").time(1e12, group, unfitted)
        for name in ("reduce-scatter", "all-gather", "all-reduce")
    )
    assert reduce == pytest.approx(scatter + gather, rel=1e-3)


@pytest.mark.parametrize("group", SHARED, ids=lambda group: f"{group.size:.0f}x{group.per_node:.0f}")
def test_a_large_all_reduce_is_never_slower_than_its_two_halves(links, group):
    """Small ones may be: PAT starts faster than any all-reduce, and NCCL does not build one of two halves."""
    scatter, gather, reduce = (
        collective_time(name, 1e12, group, links) for name in ("reduce-scatter", "all-gather", "all-reduce")
    )
    assert reduce <= (scatter + gather) * 1.02


def test_every_constant_is_a_bandwidth_or_a_latency():
    others = {field.name for field in fields(Links)} - {*FASTER, *SLOWER}
    switches = {"nvls", "nccl"}
    # a size over which a pipeline fills, corrections, and what a collective costs the kernels beside it, not itself
    assert others == {*switches, "nvls_ramp_bytes", "fits", "collective_sms"}


@each_collective
def test_without_the_switch_nothing_is_faster(links, collective):
    without = replace(links, nvls=False)
    for group in groups_of(collective):
        slower, faster = (collective_time(collective, SIZES, group, one) for one in (without, links))
        assert (slower >= faster).all()
        assert np.isfinite(slower).all()


@each_algorithm
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_the_scalar_time_is_the_entry_of_the_array(links, name, data):
    algorithm = algorithms.get(name)
    groups = data.draw(st.lists(st.sampled_from(groups_of(algorithm.collective)), min_size=1, max_size=8))
    sizes = data.draw(st.lists(st.floats(0, 1e10), min_size=len(groups), max_size=len(groups)))
    stacked = Group(np.array([group.size for group in groups]), np.array([group.per_node for group in groups]))
    together = np.broadcast_to(algorithm.time(np.array(sizes), stacked, links), len(sizes))
    alone = [float(algorithm.time(size, group, links)) for size, group in zip(sizes, groups, strict=True)]
    assert together == pytest.approx(alone, rel=1e-13)


@each_algorithm
def test_constants_may_be_arrays(links, name):
    algorithm = algorithms.get(name)
    factors = np.array([1.0, 2.0, 0.5])
    for constant in (*FASTER, *SLOWER):
        changed = [replace(links, **{constant: getattr(links, constant) * factor}) for factor in (factors, *factors)]
        for group in groups_of(algorithm.collective):
            together, *alone = (algorithm.time(1e7, group, one) for one in changed)
            assert np.broadcast_to(together, 3) == pytest.approx([float(one) for one in alone], rel=1e-13)


@each_collective
def test_the_chosen_algorithm_is_the_fastest(links, collective):
    for group, size in product(groups_of(collective), SIZES[SIZES > 0]):
        chosen = algorithms.get(chosen_algorithm(collective, size, group, links))
        assert chosen.collective == collective
        assert chosen.time(size, group, links) == collective_time(collective, size, group, links)


@each_collective
def test_nothing_is_faster_than_the_wires(links, collective):
    """Each rank moves its part over NVLink (450 GB/s raw) or over the NICs of its node (50 GB/s raw each)."""
    for group in groups_of(collective):
        parts = 1.0 if collective == "send-recv" else (group.size - 1) / group.size
        inside = (group.per_node - 1) / group.size if collective == "all-to-all" else parts
        times = collective_time(collective, SIZES, group, links)
        assert (times >= inside * SIZES / 450e9).all()
        if group.nodes > 1:
            nics = 1.0 if collective in ("send-recv", "all-to-all") else group.per_node
            leaves = 1 - group.per_node / group.size if collective == "all-to-all" else parts
            assert (times >= leaves * SIZES / (nics * 50e9)).all()
