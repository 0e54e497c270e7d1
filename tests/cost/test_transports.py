"""Expert transports with round constants, worked out by hand."""

from dataclasses import replace

import pytest

import moesim
from moesim.cost.collectives import collective_time
from moesim.cost.machine import Group
from moesim.cost.memory_bound import traffic_time
from moesim.cost.transports import leg_time, transports
from moesim.workload.ops import ExpertLeg
from moesim.workload.setting import LayoutPasses

US = 1e-6
ROUND = {
    "num_sms": 10.0,
    "norm": 1.0,  # the terms simply add up
    "inter_dispatch_base": 10 * US,
    "inter_dispatch_per_node": 5 * US,
    "inter_dispatch_per_sqrt_token": 1 * US,
    "inter_dispatch_sm_bandwidth": 10e9,
    "inter_dispatch_rdma_bandwidth": 50e9,
    "inter_combine_base": 30 * US,
    "inter_combine_per_node": 6 * US,
    "inter_combine_per_sqrt_token": 2 * US,
    "inter_combine_sm_bandwidth": 8e9,
    "inter_combine_rdma_bandwidth": 40e9,
    "intra_dispatch_base": 20 * US,
    "intra_dispatch_per_token": 1 * US,
    "intra_dispatch_token_bytes": 1000.0,
    "intra_dispatch_sm_bandwidth": 20e9,
    "intra_dispatch_nvlink_bandwidth": 400e9,
    "intra_combine_base": 40 * US,
    "intra_combine_per_token": 2 * US,
    "intra_combine_sm_bandwidth": 25e9,
    "intra_combine_nvlink_bandwidth": 300e9,
    "notify_base": 19 * US,
    "notify_per_node": 7 * US,
    "nvlink_buffer": 100.0,
    "rdma_buffer": 1000.0,
}
NODE, NODES = Group(8.0, 8.0), Group(32.0, 8.0)
TOKENS, ROW = 400, 8000
PAYLOAD = TOKENS * ROW


@pytest.fixture
def rounded(machine):
    return replace(machine, transports={**machine.transports, "deepep": ROUND})


def leg(direction="dispatch", counts=False, top_k=1, num_experts=32):
    return ExpertLeg(direction, TOKENS, top_k, num_experts, ROW, counts)


@pytest.mark.parametrize(
    ("direction", "group", "seconds"),
    [
        # one route a token: one copy; the SMs spend time as on 1,000 bytes more, 7/8 of the row leave the GPU
        (
            "dispatch",
            NODE,
            20 * US + 40 * US + (PAYLOAD + TOKENS * 1000) / 200e9 + 7 / 8 * PAYLOAD / 400e9,
        ),
        ("combine", NODE, 40 * US + 80 * US + PAYLOAD / 250e9 + 7 / 8 * PAYLOAD / 300e9),
        # four nodes: 3/4 of the tokens cross, once; the copies fan out over NVLink
        (
            "dispatch",
            NODES,
            (10 + 20 + 20) * US + 3 / 4 * PAYLOAD / 50e9 + PAYLOAD / 100e9 + 7 / 8 * PAYLOAD / 400e9,
        ),
        ("combine", NODES, (30 + 24 + 40) * US + 3 / 4 * PAYLOAD / 40e9 + PAYLOAD / 80e9 + 7 / 8 * PAYLOAD / 300e9),
    ],
)
def test_deepep_with_one_route(rounded, direction, group, seconds):
    assert leg_time(transports.get("deepep"), leg(direction), group, rounded) == pytest.approx(seconds, rel=1e-12)


def test_deepep_sends_a_token_to_every_node_once_however_many_routes_end_there(rounded):
    """As many routes as experts: a token goes to all 32 GPUs, but crosses to three other nodes only."""
    everywhere = leg(top_k=32, num_experts=32)
    expected = 50 * US + 4 * 3 / 4 * PAYLOAD / 50e9 + 32 * PAYLOAD / 100e9 + 32 * 7 / 8 * PAYLOAD / 400e9
    assert leg_time(transports.get("deepep"), everywhere, NODES, rounded) == pytest.approx(expected, rel=1e-12)


def test_deepep_exchanges_the_counts_that_it_does_not_know(rounded):
    for group, notify in ((NODE, 26 * US), (NODES, 47 * US)):
        known, unknown = (
            leg_time(transports.get("deepep"), leg(counts=flag), group, rounded) for flag in (False, True)
        )
        assert unknown - known == pytest.approx(notify)


def test_the_terms_of_deepep_join_in_a_norm(rounded):
    joined = replace(rounded, transports={"deepep": {**ROUND, "norm": 4.0}})
    terms = [3 / 4 * PAYLOAD / 50e9, PAYLOAD / 100e9, 7 / 8 * PAYLOAD / 400e9]
    expected = 50 * US + sum(term**4 for term in terms) ** (1 / 4)
    assert leg_time(transports.get("deepep"), leg(), NODES, joined) == pytest.approx(expected, rel=1e-12)


def test_what_the_sms_of_deepep_do_adds_up_and_the_wires_run_beside_it(rounded):
    constants = {**ROUND, "norm": 4.0, "intra_combine_token_bandwidth": 8e9}
    joined = replace(rounded, transports={"deepep": constants})
    terms = [PAYLOAD / 250e9 + PAYLOAD / 80e9, 7 / 8 * PAYLOAD / 300e9]
    expected = 120 * US + sum(term**4 for term in terms) ** (1 / 4)
    assert leg_time(transports.get("deepep"), leg("combine"), NODE, joined) == pytest.approx(expected, rel=1e-12)


def test_deepep_buffers_and_sms(rounded):
    deepep = transports.get("deepep")
    assert [float(deepep.buffer_bytes(leg(), group, rounded, 1.0)) for group in (Group(1.0, 1.0), NODE, NODES)] == [
        0,
        100,
        1100,
    ]
    assert deepep.sm_share(NODE, rounded) == deepep.sm_share(NODES, rounded) == 10 / 132
    fewer = replace(rounded, transports={"deepep": {**ROUND, "inter_num_sms": 6.0}})
    assert [float(deepep.sm_share(group, fewer)) * 132 for group in (NODE, NODES)] == pytest.approx([10, 6])


def test_passes_of_deepep():
    # nothing before the wire; the receiver reads a copy for each GPU that a token hits and writes a row for each route
    passes = transports.get("deepep").passes(leg(top_k=32, num_experts=32), NODE)
    assert passes == LayoutPasses(0.0, 8 + 32, 8 + 32, 0.0, 1)


def test_nccl_sends_a_row_for_every_route(machine):
    size = TOKENS * 4 * ROW
    nccl = transports.get("nccl-alltoall")
    for group in (NODE, NODES):
        expected = collective_time("all-to-all", size, group, machine.links)
        assert leg_time(nccl, leg(top_k=4), group, machine) == expected


@pytest.mark.parametrize(
    ("group", "num_experts", "expected"),
    [
        # read the tokens, write a row for each route; with several experts a rank, read and write every row once more
        (NODE, 64, LayoutPasses(5.0, 8.0, 8.0, 5.0, 1)),
        (NODE, 8, LayoutPasses(5.0, 0.0, 0.0, 5.0, 1)),
        (Group(1.0, 1.0), 64, LayoutPasses(5.0, 0.0, 0.0, 5.0, 1)),
    ],
)
def test_passes_of_nccl(group, num_experts, expected):
    assert transports.get("nccl-alltoall").passes(leg(top_k=4, num_experts=num_experts), group) == expected


FAN_OUT = {
    "num_sms": 20.0,
    "inter_num_sms": 5.0,
    "norm": 1.0,
    "host_syncs": 0.0,
    "intra_dispatch_base": 10 * US,
    "intra_dispatch_sm_bandwidth": 20e9,
    "intra_dispatch_nvlink_bandwidth": 400e9,
    "inter_dispatch_base": 30 * US,
    "inter_dispatch_per_domain": 5 * US,
    "inter_dispatch_sm_bandwidth": 10e9,
    "inter_dispatch_rdma_bandwidth": 50e9,
    "buffer_copies": 2.0,
}


@pytest.mark.parametrize(("name", "sms"), [("hybridep", 20), ("deepep-v2", 5)])
def test_the_successors_of_deepep_by_hand(machine, name, sms):
    """Without per-token terms; V2 has fewer SMs at work across nodes than inside one."""
    constants = FAN_OUT if name == "deepep-v2" else {k: v for k, v in FAN_OUT.items() if k != "inter_num_sms"}
    changed = replace(machine, transports={name: constants})
    transport = transports.get(name)
    inside = 10 * US + PAYLOAD / (20 * 20e9) + 7 / 8 * PAYLOAD / 400e9
    assert leg_time(transport, leg(), NODE, changed) == pytest.approx(inside, rel=1e-12)
    across = 50 * US + 3 / 4 * PAYLOAD / 50e9 + PAYLOAD / (sms * 10e9) + 7 / 8 * PAYLOAD / 400e9
    assert leg_time(transport, leg(), NODES, changed) == pytest.approx(across, rel=1e-12)
    # two buffers of the rows that arrive: as many as leave
    assert transport.buffer_bytes(leg(), NODES, changed, 1.0) == pytest.approx(2 * PAYLOAD)
    assert transport.host_syncs == {"hybridep": 0, "deepep-v2": 1}[name]


def test_a_domain_of_72_gpus_is_one_domain(machine):
    changed = replace(machine, transports={"hybridep": {k: v for k, v in FAN_OUT.items() if k != "inter_num_sms"}})
    rack = leg_time(transports.get("hybridep"), leg(num_experts=64), Group(64.0, 64.0), changed)
    assert rack == pytest.approx(10 * US + PAYLOAD / 400e9 + 63 / 64 * PAYLOAD / 400e9, rel=1e-12)


def test_rowwise_by_hand(machine):
    constants = {
        "num_blocks": 20.0,
        "weighted_blocks": 10.0,
        "far_blocks": 5.0,
        "block_bandwidth": 8e9,
        "shared_bandwidth": 480e9,
        "route_map": 20 * US,
        "barrier": 10 * US,
        "message_rate": 1e6,
        "capacity_factor": 1.25,
        "shared_leases": 1.0,
        "gemm_slowdown": 0.25,
    }
    rowwise = transports.get("nvshmem-rowwise")
    changed = replace(machine, transports={"nvshmem-rowwise": constants})
    four = leg(top_k=4)
    # a row for every route, local or not: 20 blocks of 8 GB/s share 480, which leaves 120; only a dispatch that counts
    # builds the map, and weighted rows have 10 blocks: 80 of 480 leave 480/7
    every = 4 * PAYLOAD / 120e9
    assert leg_time(rowwise, four, NODE, changed) == pytest.approx(10 * US + every, rel=1e-12)
    counting = leg_time(rowwise, leg(top_k=4, counts=True), NODE, changed)
    assert counting == pytest.approx(30 * US + every, rel=1e-12)
    # rows that come back are summed, and weights get their gradient, by a kernel that passes over rows and tokens
    passed = traffic_time(5 * PAYLOAD, machine.gpu)
    weighted = 10 * US + 4 * PAYLOAD * 7 / 480e9 + passed
    assert leg_time(rowwise, replace(four, weighted=True), NODE, changed) == pytest.approx(weighted, rel=1e-12)
    back = leg_time(rowwise, leg("combine", top_k=4), NODE, changed)
    assert back == pytest.approx(10 * US + every + passed, rel=1e-12)
    narrow = replace(leg("combine", top_k=4), row_bytes=ROW / 2, return_bytes=ROW)
    passed = traffic_time(3 * PAYLOAD, machine.gpu)
    assert leg_time(rowwise, narrow, NODE, changed) == pytest.approx(10 * US + every / 2 + passed, rel=1e-12)
    # across nodes the NIC takes a million rows a second: 3/4 of 1,600 routes
    assert leg_time(rowwise, four, NODES, changed) == pytest.approx(10 * US + 1200 / 1e6, rel=1e-12)
    assert rowwise.passes(four, NODE) == LayoutPasses()
    assert rowwise.buffer_bytes(four, NODE, changed, 7.0) == 8 * 1.25 * 4 * PAYLOAD
    assert rowwise.buffer_bytes(four, Group(1.0, 1.0), changed, 7.0) == 0
    assert rowwise.sm_share(NODE, changed) == 0.2  # a kernel beside it gets 80 % and takes 25 % longer


def test_more_blocks_end_at_the_rate_of_the_links(machine):
    rowwise = transports.get("nvshmem-rowwise")
    blocks = {**machine.transports["nvshmem-rowwise"], "num_blocks": 1e6, "shared_bandwidth": 1e15}
    changed = replace(machine, transports={"nvshmem-rowwise": blocks})
    expected = blocks["barrier"] + 7 / 8 * PAYLOAD / machine.links.nvlink_bandwidth
    assert leg_time(rowwise, leg(), NODE, changed) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("blocks", "bandwidth"), [(4, 16.4e9), (16, 65e9), (32, 126e9), (64, 241e9), (128, 459e9), (256, 780e9)]
)
def test_blocks_of_the_rowwise_exchange_against_their_micro_benchmark(blocks, bandwidth):
    """OLMo-core, alltoall_results.txt: bandwidth by thread blocks on four B300 of a node."""
    told = moesim.from_names("olmo-8l-32e", "hgx-b300:1", "olmo-core").machine
    constants = {**told.transports["nvshmem-rowwise"], "num_blocks": blocks, "barrier": 0.0}
    changed = replace(told, transports={"nvshmem-rowwise": constants})
    size = TOKENS * ROW
    found = size / leg_time(transports.get("nvshmem-rowwise"), leg(), Group(4.0, 4.0), changed)
    assert found == pytest.approx(bandwidth, rel=0.03)


@pytest.mark.parametrize("name", transports.names())
def test_a_hot_rank_sends_its_tokens(machine, name):
    """The others wait for the rank with the most rows."""
    hot = replace(leg(), load=1.5)
    more = replace(leg(), tokens=1.5 * TOKENS)
    for group in (NODE, NODES):
        assert leg_time(transports.get(name), hot, group, machine) == leg_time(
            transports.get(name), more, group, machine
        )
