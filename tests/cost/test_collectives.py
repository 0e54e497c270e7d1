"""Collectives on links with round numbers, worked out by hand."""

from dataclasses import replace

import pytest

from moesim.cost.collectives import chosen_algorithm, collective_time
from moesim.cost.machine import Group, Links

US, GB = 1e-6, 1e9
LINKS = Links(
    nvlink_bandwidth=100 * GB,
    nvlink_base_latency=5 * US,
    nvlink_latency=1 * US,
    nvlink_ramp=2 * US,
    nvls_bandwidth=200 * GB,
    nvls_latency=20 * US,
    nvls_ramp=0.0,
    nvls_ramp_bytes=1e6,
    p2p_bandwidth=80 * GB,
    p2p_latency=3 * US,
    alltoall_bandwidth=70 * GB,
    alltoall_latency=4 * US,
    alltoall_ramp=6 * US,
    nic_bandwidth=10 * GB,
    nic_latency=14 * US,
    nic_base_latency=8 * US,
    nic_ring_efficiency=0.5,
    nic_ring_node_latency=30 * US,
    nic_p2p_latency=12 * US,
    nic_alltoall_base_latency=20 * US,
    nic_alltoall_latency_per_node=3 * US,
    nic_alltoall_efficiency=0.8,
    nic_alltoall_half_bytes=8e6,
)
NODE, NODES, RAIL = Group(8.0, 8.0), Group(32.0, 8.0), Group(4.0, 1.0)
SIZE = 100e6


@pytest.mark.parametrize(
    ("collective", "group", "seconds"),
    [
        # in a node: 5 us and 7 hops of 1 us, 7/8 of the buffer at 100 GB/s, and the ramp: 2 us x sqrt(100)
        ("all-gather", NODE, 12 * US + 7 / 8 * 1000 * US + 20 * US),
        ("reduce-scatter", NODE, 12 * US + 7 / 8 * 1000 * US + 20 * US),
        # in the switch: 2 x 7/8 of the buffer at a bus bandwidth of 200 GB/s
        ("all-reduce", NODE, 20 * US + 7 / 8 * 1000 * US),
        # over four nodes: eight NICs at half of 10 GB/s; 30 us a node
        ("all-gather", NODES, 120 * US + 31 / 32 * 2500 * US),
        ("all-reduce", NODES, 2 * (120 * US + 31 / 32 * 2500 * US)),
        # one rank in each of four nodes: one NIC, 8 us and three hops of 14 us
        ("all-gather", RAIL, 50 * US + 3 / 4 * 20_000 * US),
        # all-to-all in a node: 7/8 at 70 GB/s, and the ramp
        ("all-to-all", NODE, 4 * US + 7 / 8 * 100e6 / 70e9 + 60 * US),
        # over four nodes: 24 of 32 parts leave, each GPU through its own NIC at 8 GB/s of 10
        ("all-to-all", NODES, (20 + 4 * 3) * US + 3 / 4 * (SIZE + 8e6) / 8e9),
        ("send-recv", Group(2.0, 2.0), 3 * US + SIZE / 80e9),
        ("send-recv", Group(2.0, 1.0), 12 * US + SIZE / 10e9),
    ],
)
def test_by_hand(collective, group, seconds):
    assert collective_time(collective, SIZE, group, LINKS) == pytest.approx(seconds, rel=1e-12)


def test_nvlink_sets_the_pace_where_the_nics_are_faster():
    fast = replace(LINKS, nic_bandwidth=100 * GB)
    assert collective_time("all-gather", SIZE, NODES, fast) == pytest.approx(120 * US + 31 / 32 * 1000 * US)


def test_the_switch_adds_for_whole_nodes_only():
    assert chosen_algorithm("all-reduce", SIZE, NODE, LINKS) == "nvls-all-reduce"
    assert chosen_algorithm("all-reduce", SIZE, Group(4.0, 4.0), LINKS) == "ring-all-reduce"
    assert chosen_algorithm("all-reduce", SIZE, NODES, LINKS) == "ring-all-reduce"
    assert chosen_algorithm("all-reduce", 1.0, NODE, LINKS) == "nvls-all-reduce"
