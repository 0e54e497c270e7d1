"""Measured collectives across nodes and racks: what is known of them comes out of the prices."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from moesim.cost.transports import leg_time
from moesim.estimator import estimate
from moesim.problem import load
from moesim.studies.collectives import price, setting
from moesim.studies.step_factors import at_factors

DOCS = Path(__file__).resolve().parents[2] / "docs"
LONG = 16 * 2.0**30
RACK = {"cluster.node": "gb200-nvl72", "cluster.count": "64", "transport": "hybridep"}
DEEP = {"pp": "4", "vpp": "1", "schedule": "1f1b"}


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(DOCS / "make_accuracy_fabrics.py"))


@pytest.fixture(scope="module")
def rows(script):
    return script["rows"]()


def test_the_page_is_not_stale(script):
    assert (DOCS / "accuracy_fabrics.md").read_text(encoding="utf-8") == script["page"]()


@pytest.mark.parametrize("per_node", [1, 2, 4, 8])
def test_ten_nodes_are_met_whatever_the_gpus_of_a_node(rows, per_node):
    """All but the messages of eight GPUs a node, whose 15 GB/s against 25-26 of fewer GPUs the source calls an anomaly."""
    mine = [row for row in rows if (row.cluster, row.per_node, row.setting) == ("hgx-h100:10", per_node, "")]
    assert len(mine) == (4 if per_node == 8 else 5)
    for row in mine:
        assert abs(row.error) < (0.16 if row.collective == "send-recv" else 0.07), row


def bus(collective, cluster, per_node=None):
    return price(collective, LONG, setting(cluster, per_node), explain=False).busbw / 1e9


def test_an_all_to_all_does_not_add_up_nics():
    rates = [bus("all-to-all", "hgx-h100:10", per_node) for per_node in (1, 2, 4, 8)]
    assert min(rates) > 44
    assert max(rates) < 51


@pytest.mark.parametrize("collective", ["all-gather", "reduce-scatter", "all-reduce"])
def test_rails_add_up_for_rings(collective):
    one, two, four, eight = (bus(collective, "hgx-h100:10", per_node) for per_node in (1, 2, 4, 8))
    assert [one, two, four] == pytest.approx([48.9, 98, 196], rel=0.04)
    assert 310 < eight < 391


@pytest.mark.parametrize(("node", "inside", "across"), [("hgx-b200", 600, (48, 90)), ("hgx-h100", 330, (48, 97))])
def test_leaving_the_domain_costs_an_all_to_all_most_of_its_rate(node, inside, across):
    assert bus("all-to-all", f"{node}:1") > inside
    assert across[0] < bus("all-to-all", f"{node}:2") < across[1]


def test_unfitted_rows_of_healthy_clusters(rows):
    """Without B200 nodes, which nothing is fitted on, and the network over 20 racks, which nobody tells."""
    others = ("hgx-b200:2", "gb200-nvl72:360")
    mine = [row for row in rows if not row.fitted and row.cluster not in others and "anomaly" not in row.setting]
    assert len(mine) == 8
    assert max(abs(row.error) for row in mine) < 0.12


def exchange(changes):
    problem = load("qwen3-235b-h100x256")
    problem = at_factors(problem.with_changes(changes) if changes else problem, {})
    plan = problem.plan()
    assert plan.leg is not None
    spent = float(leg_time(plan.transport, plan.leg, plan.expert_group, plan.machine))
    answer = estimate(problem)
    return spent, answer.exposed_s["ep"] / answer.step_time_s, plan


def test_experts_inside_and_across_the_nvlink_domain():
    (node, node_share, _), (four, four_share, plan), (eight, eight_share, _), (rack, rack_share, _) = (
        exchange(changes) for changes in ({"ep": "8"}, {}, {"ep": "64"} | DEEP, {"ep": "64"} | DEEP | RACK)
    )
    assert rack < 1.2 * node < four < eight
    assert max(rack_share, node_share) < four_share < eight_share
    assert node_share < 0.01
    assert rack_share < 0.02
    leg = plan.leg
    copies = 4 * (1 - np.prod([(96 - choice) / (128 - choice) for choice in range(8)])) * 3 / 4
    wire = leg.tokens * leg.row_bytes * copies / 48.5e9
    assert wire < four < 1.4 * wire
