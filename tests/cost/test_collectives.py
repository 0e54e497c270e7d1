"""Collectives on links with round numbers, worked out by hand."""

import math
from dataclasses import replace

import pytest

from moesim.cost.collectives import choice, chosen_algorithm, collective_time
from moesim.cost.machine import Group, Links, Nccl

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
    nic_p2p_latency=12 * US,
    nic_alltoall_base_latency=20 * US,
    nic_alltoall_latency_per_node=3 * US,
    nic_alltoall_efficiency=0.8,
    nic_alltoall_half_bytes=8e6,
)
NODE, NODES, RAIL = Group(8.0, 8.0), Group(32.0, 8.0), Group(4.0, 1.0)
SIZE = 100e6


def told(algorithm: str, protocol: str = "simple", **switches) -> Links:
    """Links on which NCCL may take one algorithm in one protocol."""
    return replace(LINKS, nccl=Nccl(algorithms=(algorithm,), protocols=(protocol,), **switches))


def joined(first: float, second: float, power: float = 4.0) -> float:
    """Two rates that limit each other."""
    return float((first**-power + second**-power) ** (-1 / power))


RING = joined(100, 8 * 10 * 0.5) * GB  # NVLink, and eight NICs at half of 10 GB/s
INSIDE = 12 * US + 7 / 8 * 1000 * US + 20 * US  # 5 us and 7 hops of 1 us, 7/8 at 100 GB/s, 2 us x sqrt(100)
TREE = (8.4 + 2 * (7 * 4 + 2 * 14)) * US + 2 * SIZE / (0.92 * RING * (0.8 + 0.1 * math.log2(SIZE / 2**26)))
ACROSS = (8 + 28 * 3.4 + 3 * 14) * US  # of 31 hops 3 cross to another node


@pytest.mark.parametrize(
    ("collective", "group", "links", "seconds"),
    [
        ("all-gather", NODE, told("ring"), INSIDE),
        ("reduce-scatter", NODE, told("ring"), INSIDE),
        # twice around; the start is counted for 14 hops
        ("all-reduce", NODE, told("ring"), (5 + 14) * US + 2 * (7 / 8 * 1000 + 20) * US),
        # LL: 141 of 360 of what Simple has, 6.6 us and 7 hops of 0.6 us; LL128: 92 %, 14 us and 7 hops of 1.9 us
        ("all-gather", NODE, told("ring", "ll"), (6.6 + 7 * 0.6) * US + 7 / 8 * 1000 * US * 360 / 141),
        ("all-gather", NODE, told("ring", "ll128"), (14 + 7 * 1.9) * US + 7 / 8 * 1000 * US / 0.92),
        # in the switch: 2 x 7/8 of the buffer at a bus bandwidth of 200 GB/s
        ("all-reduce", NODE, told("nvls"), 20 * US + 7 / 8 * 1000 * US),
        # over four nodes
        ("all-gather", NODES, told("ring"), ACROSS + 31 / 32 * SIZE / RING),
        ("all-reduce", NODES, told("ring"), 1.4 * (8 + 56 * 3.4 + 6 * 14) * US + 2 * 31 / 32 * SIZE / RING),
        # the tree: 8.4 us, seven hops inside and two across, each twice; 92 % of the rings, 0.8 of it at 64 MiB, 0.9 at 128
        ("all-reduce", NODES, told("tree"), TREE),
        # NVLSTree: 25 us, 2 x 2 hops; the NICs of the node are slower than the switch
        ("all-reduce", NODES, told("nvlstree"), (25 + 4 * 20.9) * US + 2 * 31 / 32 * SIZE / (40 * GB)),
        # one rank in each of four nodes: one NIC, 8 us and three hops of 14 us; PAT: log2 hops, 2.8 us a rank, 75 %
        ("all-gather", RAIL, told("ring"), 50 * US + 3 / 4 * SIZE / (5 * GB)),
        ("all-gather", RAIL, told("pat"), (8 + 2 * 14 / 3.5 + 2.8 * 4) * US + SIZE / (0.75 * 5 * GB)),
        # all-to-all in a node: 7/8 at 70 GB/s, and the ramp
        ("all-to-all", NODE, LINKS, 4 * US + 7 / 8 * 100e6 / 70e9 + 60 * US),
        # over four nodes: 24 of 32 parts leave, each GPU through its own NIC at 8 GB/s of 10; 3 us for every eight ranks
        ("all-to-all", NODES, LINKS, (20 + 4 * 3) * US + 3 / 4 * (SIZE + 8e6) / 8e9),
        ("send-recv", Group(2.0, 2.0), LINKS, 3 * US + SIZE / 80e9),
        # uncorrected, a message across nodes has the NIC of its GPU
        ("send-recv", Group(2.0, 1.0), LINKS, 12 * US + SIZE / (10 * GB)),
    ],
)
def test_by_hand(collective, group, links, seconds):
    assert collective_time(collective, SIZE, group, links) == pytest.approx(seconds, rel=1e-9)


def test_the_fastest_way_is_taken():
    """What is left on may be slower, never faster; the two protocols of small messages win with small ones."""
    for collective, group in (("all-gather", NODE), ("all-reduce", NODES), ("all-gather", RAIL)):
        for size in (1e3, 1e6, 1e9):
            ways = [
                float(collective_time(collective, size, group, told(algorithm, protocol)))
                for algorithm in ("ring", "tree", "nvlstree", "pat", "nvls")
                for protocol in ("ll", "ll128", "simple")
            ]
            assert collective_time(collective, size, group, LINKS) <= min(ways) * (1 + 1e-12)
    assert [choice("all-gather", size, NODE, LINKS).protocol for size in (1e3, 1e9)] == ["ll", "simple"]


def test_a_message_across_nodes_takes_a_share_of_its_nic():
    """A pair of nodes has a share of its own; both are carried to another NIC by its rate."""
    fits = {"send-recv-pairwise-simple-net-bandwidth": 0.5, "send-recv-pairwise-simple-two-bandwidth": 0.9}
    for links in (replace(LINKS, fits=fits), replace(LINKS, fits=fits, nic_bandwidth=2 * LINKS.nic_bandwidth)):
        for nodes, share in ((10.0, 0.5), (2.0, 0.9)):
            for gpus in (1.0, 8.0):
                found = collective_time("send-recv", 2.0**34, Group(nodes * gpus, gpus), links)
                assert found == pytest.approx(2.0**34 / (share * links.nic_bandwidth), rel=1e-3)


def test_the_switch_adds_for_whole_nodes_only():
    assert chosen_algorithm("all-reduce", SIZE, NODE, LINKS) == "nvls-all-reduce"
    assert chosen_algorithm("all-reduce", SIZE, Group(4.0, 4.0), LINKS) == "ring-all-reduce"
    assert chosen_algorithm("all-reduce", SIZE, NODES, replace(LINKS, nvls=False)) != "nvlstree-all-reduce"


def test_corrections_scale_start_and_transfer():
    fits = {f"all-gather-ring-simple-node-{term}": value for term, value in (("latency", 2.0), ("bandwidth", 0.5))}
    fitted = replace(told("ring"), fits=fits)
    assert collective_time("all-gather", SIZE, NODE, fitted) == pytest.approx(24 * US + 2 * 7 / 8 * 1000 * US + 20 * US)
    assert collective_time("reduce-scatter", SIZE, NODE, fitted) == pytest.approx(INSIDE)
    across = collective_time("all-gather", SIZE, NODES, fitted)
    assert across == pytest.approx(collective_time("all-gather", SIZE, NODES, told("ring")))
