"""A NIC that expert rows, gradients and activations share."""

import numpy as np
import pytest

from moesim.cost.blocks import chunk_blocks, price_blocks
from moesim.cost.machine import Group
from moesim.cost.pipeline import boundary_time, step_times
from moesim.cost.replication import gradient_reduction_time
from moesim.cost.sharing import beside, chunk_nic_time, leg_nic_time, message_nic_time


@pytest.fixture(scope="module")
def links(small):
    return small.machine.links


def plan_of(small, **changes):
    return small.plan(small.strategy.replace(**changes))


@pytest.mark.parametrize(
    ("collective", "group", "nic_bytes"),
    [
        ("all-gather", Group(32.0, 8.0), 31 / 32 / 8),
        ("all-reduce", Group(32.0, 8.0), 2 * 31 / 32 / 8),
        ("all-to-all", Group(32.0, 8.0), 24 / 32),
        ("send-recv", Group(2.0, 1.0), 1),
        ("all-gather", Group(8.0, 8.0), 0),
        ("all-to-all", Group(1.0, 1.0), 0),
    ],
)
def test_active_bytes_of_a_message(links, collective, group, nic_bytes):
    found = message_nic_time(collective, 1e9, group, links)
    assert found == pytest.approx(1e9 * nic_bytes / links.nic_bandwidth)


def test_a_token_that_crosses_once_keeps_the_nic_less_busy(small, links):
    leg, group = plan_of(small).leg, Group(32.0, 8.0)
    once, each = (leg_nic_time(leg, group, links, way) for way in (True, False))
    assert 0 < once < each
    assert each == pytest.approx(leg.busy_tokens * leg.row_bytes * leg.top_k * 0.75 / links.nic_bandwidth)
    assert leg_nic_time(leg, Group(8.0, 8.0), links, True) == 0


def test_two_that_are_active_get_half_each():
    assert beside(1.0, 0.0, 4.0) == 1
    assert beside(1.0, 2.0, 4.0) == pytest.approx(4 / 3)
    assert beside(1.0, 4.0, 4.0) == beside(1.0, 9.0, 4.0) == 2
    assert beside(1.0, np.array([0.0, 2.0]), np.array([0.0, 4.0])).tolist() == pytest.approx([2.0, 4 / 3])


def test_gradients_hide_behind_what_the_experts_leave_of_the_nic(small):
    slow = small.with_changes({"nic.bandwidth": "50 Gb/s", "global_batch": 64})
    plan = plan_of(slow, pp=1, schedule="none", ep=32, tp=1, overlap_grad_reduce=True)
    blocks = price_blocks(plan)
    times = step_times(plan, blocks)
    row = {kind: times.durations[number] for (kind, _), number in times.graph.rows.items()}
    whole, layers = float(gradient_reduction_time(plan, plan.params[0])), 10  # eight, embedding and loss
    backward = [block.backward for block in reversed(chunk_blocks(plan, plan.stages[0], blocks))]
    busy = float(chunk_nic_time(plan, backward, {}))
    assert 0.1 * row["BW"] < busy < row["BW"]
    shared = whole - (row["BW"] - busy) * (1 - 1 / layers)
    left = max(whole / layers, shared)
    assert row["reduce"] == pytest.approx(left + plan.gather_share("BW") * (whole - left), rel=1e-9)
    assert shared > whole / layers


def test_sends_wait_for_the_experts_on_the_nic(small):
    shape = {"pp": 2, "vpp": 2, "schedule": "interleaved-1f1b", "overlap_p2p": True}
    inside, across = (plan_of(small, **shape, ep=ep) for ep in (8, 32))
    delays = [step_times(plan, price_blocks(plan)).delays[1] for plan in (inside, across)]
    assert delays[0] == pytest.approx(float(boundary_time(inside, 0)))
    alone = float(boundary_time(across, 0))
    assert 1.02 * alone < delays[1] <= 2 * alone
