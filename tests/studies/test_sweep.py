"""A grid of estimates: ranking, differences that add up, curves."""

import math

import pytest

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.studies.knees import curve, number
from moesim.studies.sweep import OBJECTIVES, sweep


@pytest.fixture(scope="module")
def grid(small):
    return sweep(small, {"ep": [4, 8, 3], "micro_batch": ["1", "2", "64"], "gpu.memory_capacity": ["80 GB", "3 GB"]})


def test_every_combination_is_there_once(grid):
    cases = {tuple(row.case.values()) for row in grid.rows}
    assert len(cases) == len(grid.rows) == grid.total == 18


def test_rows_are_estimates(small, grid):
    for row in grid.rows:
        if row.answer is not None:
            assert row.answer.step_time_s == estimate(small.with_changes(row.case)).step_time_s


def test_what_fits_comes_first_and_the_best_of_it_before_all(grid):
    states = [row.state for row in grid.rows]
    assert states == sorted(states, key=("fits", "does not fit", "refused").index)
    assert len(set(states)) == 3
    rates = [row.answer.tokens_per_s_per_gpu for row in grid.rows if row.fits]
    assert rates == sorted(rates, reverse=True)


def test_what_a_row_takes_longer_adds_up(grid):
    best = grid.best.answer.step_time_s
    assert set(grid.loses_by(grid.best).values()) == {0.0}
    for row in grid.rows:
        if row.answer is not None:
            assert sum(grid.loses_by(row).values()) == pytest.approx(row.answer.step_time_s - best, abs=1e-9)


def test_twice_the_work_in_twice_the_time_is_as_good(small):
    found = sweep(small, {"sequence_length": [1024, 2048]})
    for row in found.rows:
        tokens = row.answer.tokens_per_s_per_gpu
        slower = found.best.answer.step_time_s * (found.best.answer.tokens_per_s_per_gpu / tokens - 1)
        assert sum(found.loses_by(row).values()) == pytest.approx(slower, abs=1e-9)


def test_each_loser_has_a_reason(grid):
    assert grid.reason(grid.best) == ""
    for row in grid.rows[1:]:
        told = grid.reason(row)
        assert told
        if row.state == "does not fit":
            assert "3 GB" in row.case["gpu.memory_capacity"]
            assert "the most are" in told
        if row.state == "refused":
            assert set(row.rules) <= {"expert-ranks", "experts", "batch"}
            assert row.rules


def test_the_optimum_of_an_axis_is_that_of_the_grid(grid):
    for one in grid.curves:
        best = next(row for row in grid.rows if row.fits and row.case[one.name] == one.optimum)
        assert best.answer.tokens_per_s_per_gpu == grid.best.answer.tokens_per_s_per_gpu
        assert min(one.costs) == OBJECTIVES["throughput"](grid.best.answer)
    refused = next(one for one in grid.curves if one.name == "ep")
    assert (refused.values, math.isinf(refused.costs[0])) == ((3, 4, 8), True)


def test_auto_is_every_value_of_a_field(small):
    found = sweep(small, {"micro_batch": "auto"}, "memory")
    assert found.axes["micro_batch"] == (1, 2, 4, 8)
    assert found.best.case["micro_batch"] == 1
    assert found.curves[0].optimum == 1


def test_a_fault_is_an_axis(small):
    found = sweep(small, {"fault": ["degrade:nvlink=1", "degrade:nvlink=0.5"]})
    assert [row.case["fault"] for row in found.rows] == ["degrade:nvlink=1", "degrade:nvlink=0.5"]
    assert found.rows[0].answer.step_time_s == pytest.approx(estimate(small).step_time_s)


def test_stopping_keeps_what_is_there(small):
    def stop(done, _total):
        if done == 2:
            raise KeyboardInterrupt

    found = sweep(small, {"micro_batch": [1, 2, 4]}, progress=stop)
    assert (len(found.rows), found.to_dict()["complete"]) == (2, False)


@pytest.mark.parametrize(
    ("vary", "objective", "line"),
    [
        ({}, "step", "--vary: nothing is varied"),
        ({"ep": []}, "step", "--vary ep: has no values"),
        ({"ep": "8"}, "step", "--vary ep: '8' is no list of values"),
        ({"ep": [8], "strategy.ep": [4]}, "step", "--vary strategy.ep: is given twice"),
        ({"gpu.power": "auto"}, "step", "--vary gpu.power: auto has no list of its values"),
        ({"ep": [8]}, "stp", "--by: 'stp' is no objective"),
        ({"ep": list(range(200)), "tp": list(range(200))}, "step", "--vary: 40,000 combinations"),
    ],
)
def test_bad_input_is_one_line(small, vary, objective, line):
    with pytest.raises(SpecError) as error:
        sweep(small, vary, objective)
    (issue,) = error.value.issues
    assert str(issue).startswith(line)


def test_where_nothing_is_legal_each_problem_is_told_once(small):
    with pytest.raises(SpecError) as error:
        sweep(small, {"ep": [3], "micro_batch": [1, 2]})
    told = [str(issue) for issue in error.value.issues]
    assert len(told) == len(set(told))
    assert all(line.startswith("--vary ep") for line in told)


@pytest.mark.parametrize(
    ("costs", "optimum", "plateau", "knees"),
    [
        ([4.0, 2.0, 1.04, 1.0], 8, (4, 8), (4,)),
        ([1.0, 1.04, 2.0, 4.0], 1, (1, 2), (2,)),
        ([2.0, 1.0, 1.01, 2.0], 2, (2, 4), (2, 4)),
        ([1.0, 1.0, 1.0, 1.0], 1, (1, 2, 4, 8), ()),
        ([math.inf, 2.0, 1.0, math.inf], 4, (4,), (4,)),
        ([math.inf, 1.0, 1.04, math.inf], 2, (2, 4), ()),
        ([1.01, 1.2, 1.0, 1.1], 4, (4,), (4,)),
        ([math.inf] * 4, None, (), ()),
    ],
)
def test_knees(costs, optimum, plateau, knees):
    order = [2, 0, 3, 1]  # given in any order
    found = curve("x", [(1, 2, 4, 8)[i] for i in order], [costs[i] for i in order], [{}] * 4)
    assert (found.optimum, found.plateau, found.knees) == (optimum, plateau, knees)
    assert found.values == (1, 2, 4, 8)


def test_values_without_an_order_have_no_knee():
    found = curve("schedule", ["a", "b", "c"], [2.0, 1.0, 1.01], [{}] * 3)
    assert (found.optimum, found.plateau, found.knees) == ("b", ("b", "c"), ())
    assert number("interleaved-1f1b") is None


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ({"ep": [8, "x"]}, "--vary ep: must be a valid integer, not 'x'"),
        ({"ep": [8, {}]}, "--vary ep: {} is no value"),
        ({"eq": [8]}, "did you mean"),
        ({"schedule": ["1f1b", "1f1bb"]}, "no pipeline schedule '1f1bb'"),
        ({"gpu.memory_bandwidth": ["3 TB/s", "3 apples"]}, "'3 apples' is not a bandwidth"),
        ({"fault": ["none", "nix:3"]}, "--fault nix:3: no kind of fault 'nix'"),
        ({"fault": ["none", "nic:node3"]}, "--fault nic:node3: 'node3' is no target of nic"),
        ({"fault": ["none", "slow:node0=2"]}, "'2' is not a share"),
    ],
)
def test_a_value_without_meaning_is_refused_beside_good_ones(small, vary, words):
    with pytest.raises(SpecError) as error:
        sweep(small, vary)
    assert words in str(error.value)


def test_what_is_illegal_beside_the_others_is_a_row(small):
    found = sweep(small, {"ep": [4, 3], "fault": ["none", "rail:99"]})
    assert [row.state for row in found.rows].count("refused") == 3


def test_a_list_of_names_is_one_value(small):
    found = sweep(small, {"recompute": [["full"], [], ["full"]]})
    assert {row.case["recompute"] for row in found.rows} == {("full",), ()}
