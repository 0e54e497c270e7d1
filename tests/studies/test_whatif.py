"""Something changed or broken, beside the job as it stands."""

import pytest

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.studies.whatif import whatif


def test_nothing_changed_is_a_ratio_of_one(small):
    found = whatif(small, [{"gpu.memory_bandwidth": "x1"}]).to_dict()
    assert found["cases"][1]["step_ratio"] == pytest.approx(1, rel=1e-9)
    assert list(found["cases"][1]["breakdown_ratio"].values()) == pytest.approx(
        [1] * len(found["cases"][1]["breakdown_ratio"])
    )
    assert (found["together"], found["interaction_s"]) == (False, None)


def test_differences_add_up_and_all_at_once_is_the_last(small):
    changes = [{"micro_batch": "2"}, {"nic.bandwidth": "x0.5"}]
    found = whatif(small, changes)
    plain = found.to_dict()
    steps = [case["estimate"]["step_time_s"] for case in plain["cases"]]
    both = estimate(small.with_changes({"micro_batch": "2", "nic.bandwidth": "x0.5"})).step_time_s
    assert steps[3] == both
    assert plain["interaction_s"] == pytest.approx(steps[3] + steps[0] - steps[1] - steps[2])
    for case in plain["cases"]:
        assert sum(case["delta_breakdown_s"].values()) == pytest.approx(case["delta_s"], abs=1e-9)
        assert case["step_ratio"] == pytest.approx(case["estimate"]["step_time_s"] / steps[0])
    assert plain["cases"][2]["step_ratio"] >= 1  # half the network is never faster
    assert set(plain["cases"][0]["delta_exposed_s"].values()) == {0.0}
    slower = plain["cases"][2]["delta_exposed_s"]
    before, after = (plain["cases"][place]["estimate"]["exposed_s"] for place in (0, 2))
    assert slower == pytest.approx({name: after[name] - before[name] for name in before})


def test_two_values_of_one_thing_are_not_combined(small):
    found = whatif(small, [{"nic.bandwidth": "x0.5"}, {"nic.bandwidth": "x0.25"}])
    assert len(found.comparison.cases) == 3
    assert not found.together


def test_a_fault_says_which_groups_suffer(small):
    found = whatif(small, faults=["nic:node3.rail5"])
    effects = {one["axis"]: one for one in found.to_dict()["faults"]["nic:node3.rail5"]["groups_by_axis"]}
    assert found.to_dict()["cases"][1]["step_ratio"] >= 1
    assert effects["tp"]["groups_suffering"] == 0  # inside a node
    assert all(one["slowdown"] >= 1 for one in effects.values())
    assert any(0 < one["groups_suffering"] < one["groups"] for one in effects.values())


def test_offloading_is_slower_over_a_slower_link(small):
    job = small.with_changes({"activation_offload": "0.5"})
    found = whatif(job, [{"gpu.pcie_bandwidth": "x1"}, {"gpu.pcie_bandwidth": "x0.1"}]).to_dict()
    assert found["cases"][2]["step_ratio"] > found["cases"][1]["step_ratio"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("changes", "faults", "line"),
    [
        ([], [], "nothing changes"),
        ([{}], [], "nothing changes"),
        ([{"ep": "3"}], [], "--change ep: etp*ep*pp = 12 does not divide 64 GPUs"),
        ([], ["nic:node99.rail5"], "--fault nic:node99.rail5: "),
        ([], ["nick:node1"], "--fault nick:node1: no kind of fault 'nick'; did you mean 'nic'?"),
    ],
)
def test_bad_input(small, changes, faults, line):
    with pytest.raises(SpecError) as error:
        whatif(small, changes, faults)
    told = [str(issue) for issue in error.value.issues]
    assert told[0].startswith(line), told
    assert len(told) == len(set(told))
