"""What every registered expert transport keeps to."""

from collections.abc import Iterator
from dataclasses import astuple, fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moesim.cost.from_spec import transport_constants
from moesim.cost.machine import Group, Links, Machine
from moesim.cost.transports import distinct_groups, leg_time, reached_domains, reached_ranks, transports
from moesim.cost.transports.deduplicated import Deduplicated, leg_seconds
from moesim.problem import Problem
from moesim.spec import library
from moesim.workload.ops import ExpertLeg

NAMES = transports.names()
each_transport = pytest.mark.parametrize("name", NAMES)
GROUPS = [Group(1.0, 1.0), Group(2.0, 2.0), Group(8.0, 8.0), Group(8.0, 4.0), Group(16.0, 8.0), Group(64.0, 8.0)]
TOKENS = np.array([1.0, 64.0, 1000.0, 2048.0, 8192.0, 65_536.0])


@pytest.fixture(scope="module")
def machine(qwen: Problem) -> Machine:
    return qwen.machine


def leg(tokens=2048.0, direction="dispatch", counts=False, top_k=8, num_experts=128, hidden=4096):
    return ExpertLeg(direction, tokens, top_k, num_experts, 2 * hidden, counts)


def legs() -> Iterator[ExpertLeg]:
    for direction, counts in (("dispatch", True), ("dispatch", False), ("combine", False)):
        for top_k, num_experts in ((8, 128), (1, 64), (64, 64)):
            yield leg(TOKENS, direction, counts, top_k, num_experts)


@each_transport
def test_it_says_what_it_is_and_has_its_constants_in_a_spec(machine, name):
    entry = next(entry for entry in transports.entries() if entry.name == name)
    assert entry.summary
    assert entry.source
    assert name in library.names("transports")
    told = {key for key in library.get("transports", name).constants if not key.startswith("reference_")}
    assert machine.transports[name].keys() == told  # those of the links they were fitted on have done their work


@each_transport
def test_a_group_of_one_moves_nothing(machine, name):
    for one in legs():
        assert (leg_time(transports.get(name), one, GROUPS[0], machine) == 0).all()
        assert np.all(transports.get(name).buffer_bytes(one, GROUPS[0], machine, 2.0) == 0)
    mixed = Group(np.array([1.0, 8.0]), np.array([1.0, 8.0]))
    times = np.asarray(leg_time(transports.get(name), leg(), mixed, machine))
    assert times[0] == 0
    assert times[1] > 0


@each_transport
def test_what_it_declares_is_in_range(machine, name):
    transport = transports.get(name)
    assert transport.host_syncs >= 0
    for one in legs():
        for group in GROUPS:
            assert np.all((transport.sm_share(group, machine) >= 0) & (transport.sm_share(group, machine) <= 1))
            assert np.all(transport.buffer_bytes(one, group, machine, 2.0) >= 0)
            passes = transport.passes(one, group)
            assert all(np.all(np.asarray(copies) >= 0) for copies in astuple(passes)[:4])
            assert passes.host_syncs == transport.host_syncs


@each_transport
def test_more_layers_in_flight_never_hold_less(machine, name):
    for one in legs():
        for group in GROUPS:
            buffers = [np.asarray(transports.get(name).buffer_bytes(one, group, machine, n)) for n in (1.0, 2.0, 9.0)]
            assert (buffers[0] <= buffers[1]).all()
            assert (buffers[1] <= buffers[2]).all()


@each_transport
def test_more_tokens_are_never_faster(machine, name):
    for one in legs():
        for group in GROUPS[1:]:
            times = np.asarray(leg_time(transports.get(name), one, group, machine))
            assert np.isfinite(times).all()
            assert (times > 0).all()
            assert (times[1:] >= times[:-1]).all()


@each_transport
def test_wider_rows_and_more_routes_are_never_faster(machine, name):
    for direction in ("dispatch", "combine"):
        for group in GROUPS:
            base, wider, more = (
                leg_time(transports.get(name), leg(TOKENS, direction, **more), group, machine)
                for more in ({"top_k": 4}, {"top_k": 4, "hidden": 8192}, {"top_k": 8})
            )
            assert (wider >= base).all()
            assert (more >= base).all()


@each_transport
def test_counting_the_rows_first_takes_no_less(machine, name):
    for group in GROUPS:
        unknown, known = (
            leg_time(transports.get(name), leg(TOKENS, counts=counts), group, machine) for counts in (True, False)
        )
        assert (unknown >= known).all()


def changed(machine: Machine, name: str, factor) -> Iterator[tuple[str, Machine]]:
    """Machines with one constant of the links or of the transport multiplied, by the constant's name."""
    for field in fields(Links):
        if field.name in ("fits", "nccl", "nvls"):
            continue
        value = getattr(machine.links, field.name) * factor
        yield field.name, replace(machine, links=replace(machine.links, **{field.name: value}))
    own = machine.transports[name]
    for key, value in own.items():
        yield key, replace(machine, transports={name: {**own, key: value * factor}})


@each_transport
def test_more_bandwidth_is_never_slower_and_more_latency_never_faster(machine, name):
    for constant, other in changed(machine, name, 1.5):
        for one in legs():
            for group in GROUPS:
                was, now = (leg_time(transports.get(name), one, group, each) for each in (machine, other))
                if constant.endswith(("bandwidth", "efficiency")):
                    assert (now <= was).all(), constant
                elif "_base" in constant or "latency" in constant or "per_" in constant:
                    assert (now >= was).all(), constant


@each_transport
def test_every_constant_may_be_an_array(machine, name):
    factors = np.array([1.0, 1.2, 0.8])
    together = dict(changed(machine, name, factors))
    alone = [dict(changed(machine, name, factor)) for factor in factors]
    for constant, machines in together.items():
        for group in (GROUPS[2], GROUPS[4]):
            times = np.broadcast_to(leg_time(transports.get(name), leg(), group, machines), 3)
            single = [float(leg_time(transports.get(name), leg(), group, one[constant])) for one in alone]
            assert times == pytest.approx(single, rel=1e-13), constant


@each_transport
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_the_scalar_time_is_the_entry_of_the_array(machine, name, data):
    groups = data.draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=6))
    tokens = data.draw(st.lists(st.integers(1, 100_000), min_size=len(groups), max_size=len(groups)))
    direction = data.draw(st.sampled_from(("dispatch", "combine")))
    transport = transports.get(name)
    stacked = Group(np.array([group.size for group in groups]), np.array([group.per_node for group in groups]))
    many = leg(np.array(tokens, dtype=float), direction)
    together = np.asarray(leg_time(transport, many, stacked, machine))
    buffers = np.broadcast_to(transport.buffer_bytes(many, stacked, machine, 2.0), len(groups))
    passes = [np.broadcast_to(copies, len(groups)) for copies in astuple(transport.passes(many, stacked))[:4]]
    for index, (group, count) in enumerate(zip(groups, tokens, strict=True)):
        one = leg(float(count), direction)
        assert leg_time(transport, one, group, machine) == pytest.approx(together[index], rel=1e-13)
        assert transport.buffer_bytes(one, group, machine, 2.0) == buffers[index]
        single = astuple(transport.passes(one, group))[:4]
        assert [float(copies) for copies in single] == pytest.approx([copies[index] for copies in passes], rel=1e-13)


@pytest.mark.parametrize(
    ("groups", "top_k", "num_experts", "expected"),
    [
        (1, 8, 128, 1.0),
        (128, 8, 128, 8.0),  # an expert a group: every route hits another
        (8, 8, 256, 5.294652),  # DeepSeek-V3 in one node
        (2, 2, 8, 2 * (1 - (4 * 3) / (8 * 7))),
        (4, 1, 64, 1.0),
    ],
)
def test_distinct_groups_of_a_token(groups, top_k, num_experts, expected):
    assert distinct_groups(float(groups), top_k, num_experts) == pytest.approx(expected, rel=1e-6)


def test_distinct_groups_of_many_experts_tend_to_the_power_form():
    assert distinct_groups(8.0, 8, 8_000_000) == pytest.approx(8 * (1 - (7 / 8) ** 8), rel=1e-4)


def test_distinct_groups_against_a_draw():
    generator = np.random.default_rng(1)
    hits = [len(set((generator.permutation(64)[:6] // 8).tolist())) for _ in range(4000)]
    assert distinct_groups(8.0, 6, 64) == pytest.approx(np.mean(hits), rel=0.01)


def test_deepep_sends_a_token_to_a_node_once_where_nccl_sends_every_route(machine):
    many_routes = leg(8192.0, top_k=16)
    across = Group(16.0, 8.0)
    deepep, nccl = (
        leg_time(transports.get(name), many_routes, across, machine) for name in ("deepep", "nccl-alltoall")
    )
    assert nccl > 2 * deepep


GROUPED = ExpertLeg("dispatch", 1.0, 8, 256, 1.0, groups=8, token_groups=4)


@pytest.mark.parametrize(("ranks", "per_node"), [(8, 8), (16, 8), (32, 8), (64, 8), (128, 8), (64, 64)])
def test_experts_of_a_few_groups_lie_on_fewer_parts(ranks, per_node):
    """DeepSeek-V3: 8 of the 128 experts in 4 of 8 groups; against draws."""
    draw = np.random.default_rng(0)
    ends: dict[str, list[int]] = {"ranks": [], "nodes": []}
    for _ in range(4000):
        groups = draw.choice(8, 4, replace=False)
        open_to = np.concatenate([np.arange(32) + 32 * one for one in groups])
        chosen = draw.choice(open_to, 8, replace=False) // (256 // ranks)
        ends["ranks"].append(len(set(chosen.tolist())))
        ends["nodes"].append(len(set((chosen // per_node).tolist())))
    group = Group(float(ranks), float(per_node))
    assert float(reached_ranks(GROUPED, group)) == pytest.approx(np.mean(ends["ranks"]), rel=0.03)
    assert float(reached_domains(GROUPED, group)) == pytest.approx(np.mean(ends["nodes"]), rel=0.03)


def test_a_limit_by_hand_comes_before_the_groups_of_the_model():
    group = Group(64.0, 8.0)
    free = replace(GROUPED, groups=1, token_groups=1)
    for limit in (2, 8):
        assert reached_domains(replace(GROUPED, node_limit=limit), group) == reached_domains(
            replace(free, node_limit=limit), group
        )
    assert reached_domains(GROUPED, group) == pytest.approx(float(reached_domains(replace(free, node_limit=4), group)))


def on_node(name: str, node: str, **gpu_changes) -> dict[str, float]:
    """Constants of a transport on the links of a node, with numbers of its GPU changed."""
    spec = library.get("nodes", node)
    gpu = library.get("gpus", spec.gpu)
    changes = {key: getattr(gpu, key).model_copy(update={"value": value}) for key, value in gpu_changes.items()}
    nic = library.get("nics", spec.nic)
    return transport_constants(library.get("transports", name), gpu.model_copy(update=changes), spec, nic)


DEDUPLICATED = [name for name in NAMES if isinstance(transports.get(name), Deduplicated)]


@pytest.mark.parametrize("node", library.names("nodes"))
@pytest.mark.parametrize("name", DEDUPLICATED)
def test_no_exchange_is_faster_than_the_payload_of_the_wires(name, node):
    spec = library.get("nodes", node)
    wires, domain = spec.links.wire_bandwidth, float(spec.nvlink_domain)
    constants = on_node(name, node)
    if domain == 1:
        return
    for one in legs():
        for group in (Group(domain, domain), Group(2 * domain, domain)):
            bytes_out = one.tokens * one.row_bytes * reached_ranks(one, group) * (1 - 1 / domain)
            assert (leg_seconds(one, group, constants) >= bytes_out / wires).all()


@pytest.mark.parametrize("node", ["hgx-h800", "hgx-h100", "h800-pcie"])
@pytest.mark.parametrize("name", DEDUPLICATED)
def test_more_nvlink_is_never_slower(name, node):
    raw = library.get("gpus", library.get("nodes", node).gpu).nvlink_bandwidth.value
    domain = float(library.get("nodes", node).nvlink_domain)
    group = Group(domain, domain)
    faster = [on_node(name, node, nvlink_bandwidth=raw * share) for share in (0.5, 0.8, 1.0, 1.1, 1.5, 4.0)]
    for one in legs():
        times = [leg_seconds(one, group, constants) for constants in faster]
        assert all((more <= less).all() for less, more in pairwise(times))
        assert domain == 1 or (times[2] < times[0]).any()
