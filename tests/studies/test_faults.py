"""A fault slows the pipeline ranks that it hits; the others wait in the schedule."""

import pytest

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.fabric.faults import KINDS
from moesim.problem import load
from moesim.studies.compare import comparison
from moesim.studies.faults import SHAPES, faulted, well_formed


@pytest.fixture(scope="module")
def problem():
    return load("qwen3-235b-h100x256")


@pytest.fixture(scope="module")
def healthy(problem):
    return estimate(problem)


def effects(found):
    return {effect.axis: effect for effect in found.effects}


def test_a_lost_nic_slows_the_groups_of_its_node(problem, healthy):
    found = faulted(problem, "nic:node3.rail5")
    rows = effects(found)
    assert found.stages == (0,)
    assert rows["tp"].suffering == 0
    assert (rows["ep"].suffering, rows["ep"].groups, rows["ep"].ranks[:2]) == (1, 8, (0, 1))
    assert 29 in rows["dense-shard"].ranks or 28 in rows["dense-shard"].ranks
    assert rows["ep"].after < rows["ep"].before
    step = estimate(found.problem)
    assert step.step_time_s > healthy.step_time_s
    assert sum(step.breakdown_s.values()) == pytest.approx(step.step_time_s)


@pytest.mark.parametrize("fault", ["switch:leaf5", "rail:5"])
def test_a_lost_leaf_is_a_lost_rail(problem, fault):
    found = faulted(problem, fault)
    assert found.stages == tuple(range(8))
    assert effects(found)["ep"].suffering == 8


def test_slow_links_halve_what_crosses_them(problem, healthy):
    rows = effects(faulted(problem, "degrade:leaf=0.5"))
    assert [rows[axis].before / rows[axis].after for axis in ("tp", "ep", "pp")] == pytest.approx([1, 2, 2])
    slow = estimate(problem.with_changes({"nic.bandwidth": "200 Gb/s"}))
    step = estimate(faulted(problem, "degrade:leaf=0.5").problem)
    assert step.exposed_s["pp"] > healthy.exposed_s["pp"]
    assert step.exposed_s["ep"] == pytest.approx(slow.exposed_s["ep"], rel=0.02)


def test_what_carries_nothing_may_fail(problem):
    found = faulted(problem, "degrade:spine=0.5")
    assert found.stages == ()
    assert found.problem.slow is None


def test_slow_nvlink_slows_what_stays_in_the_node(problem, healthy):
    step = estimate(faulted(problem, "degrade:nvlink=0.5").problem)
    assert step.breakdown_s["tp"] > 1.3 * healthy.breakdown_s["tp"]
    assert step.step_time_s > healthy.step_time_s


def test_a_slow_node_holds_up_its_stage_only(problem, healthy):
    one = estimate(faulted(problem, "slow:node3=0.8").problem)
    whole = estimate(problem.with_changes({"cluster.count": 32}))
    assert whole.step_time_s == healthy.step_time_s < one.step_time_s
    assert faulted(problem, "slow:node31=0.8").stages == (7,)
    assert estimate(faulted(problem, "slow:node3=1").problem).step_time_s == pytest.approx(healthy.step_time_s)
    halved = estimate(faulted(problem, "slow:node3=0.5").problem)
    assert one.step_time_s < halved.step_time_s < 2 * healthy.step_time_s


def test_the_batch_gives_the_same_and_knows_one_strategy(problem):
    broken = faulted(problem, "nic:node3.rail5").problem
    assert evaluate(broken, [problem.strategy]).step_time_s[0] == pytest.approx(estimate(broken).step_time_s)
    with pytest.raises(SpecError, match="change the strategy first"):
        broken.plan(problem.strategy.replace(ep=8))


def test_a_graph_of_every_link_has_a_limit(problem):
    large = problem.with_changes({"cluster.count": 1280, "global_batch": 81920})
    with pytest.raises(SpecError, match="10240 GPUs are too many; 4096 or fewer, or degrade:TIER=SHARE"):
        faulted(large, "nic:node3.rail5")
    assert faulted(large, "degrade:spine=0.5").stages == tuple(range(8))
    assert faulted(large, "slow:node1279=0.5").stages == (7,)


def test_faults_are_compared(problem, healthy):
    cases = [{"fault": "slow:node3=0.8"}, {"fault": "node:3"}, {"ep": "8", "fault": "nic:node3.rail5"}]
    base, slow, lost, changed = comparison({"run": problem}, cases).cases
    assert base.answer.step_time_s == healthy.step_time_s < slow.answer.step_time_s
    assert lost.refused == (
        "--fault node:3: the job stops: GPUs 24 to 31 are lost; run on what is left with --set cluster.count=31",
    )
    assert changed.answer.strategy["ep"] == 8


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nix:3", "no kind of fault 'nix'; did you mean 'nic'"),
        ("nic:node3.rail9", "no NIC 'node3.rail9'"),
        ("node:40", "no node '40'"),
        ("slow:node40=0.5", "no node 40; node0 to node31"),
        ("slow:node4=2", "'2' is not a share"),
        ("slow:4=0.2", "'4=0.2' is no target of slow; write for example slow:node3=0.8"),
        ("nic", "'' is no target of nic; write for example nic:node3.rail5"),
        ("rail:x", "'x' is no target of rail"),
        ("link:leaf0", "'leaf0' is no target of link"),
        ("degrade:spine", "'spine' is no target of degrade"),
        ("degrade:spine=nan", "'nan' is not a share"),
        ("degrade:spin=0.2", "no tier 'spin'; did you mean 'spine'"),
    ],
)
def test_bad_faults(problem, fault, message):
    with pytest.raises(SpecError) as error:
        faulted(problem, fault)
    assert len(error.value.issues) == 1
    assert message in str(error.value)


def test_each_kind_has_a_shape_and_an_example_that_is_one():
    assert set(SHAPES) == {*KINDS, "slow"}
    for _, example in SHAPES.values():
        well_formed(example)
