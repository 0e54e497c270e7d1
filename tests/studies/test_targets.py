"""The table of targets: each line says what is asked, what is reached on how many rows, and whether that meets it."""

import pytest

from moesim.studies.targets import Errors, Line, Ratio, ratios, targets
from moesim.studies.validate import Row


def row(run_id, measured, predicted, family="MoE, Blackwell", **changes):
    values = {"status": "estimated", "family": family, "layout_group": run_id, "global_batch": 64.0} | changes
    error = predicted / measured - 1
    return Row(run_id, **values, measured_step_time_s=measured, predicted_step_time_s=predicted, time_error=error)


def line(rows, name, **more):
    return next(one for one in targets(rows, **more) if one.name.startswith(name))


@pytest.mark.parametrize(("error", "met"), [(0.05, True), (0.12, False)])
def test_a_family_meets_its_median_or_not(error, met):
    found = line([row(f"r{index}", 1.0, 1 + error) for index in range(5)], "step: MoE on B200")
    assert (found.count, found.met) == (5, met)
    assert found.target == "median <= 10%, p90 <= 25%"
    assert f"median {error:.1%}" in found.reached


def test_the_bias_counts_on_both_sides():
    rows = [row(f"r{index}", 1.0, 0.95, family="MoE, H100, balanced") for index in range(4)]
    assert line(rows, "step: MoE on H100, routing").met is False
    assert line([row("r", 1.0, 1.02, family="MoE, H100, balanced")], "step: MoE on H100, routing").met is True


def test_groups_apart_are_shown_without_a_target():
    found = line([row("MBSK-001", 1.0, 0.5, family="MoE, H100, natural or not printed")], "step: MoE on H100, apart")
    assert (found.target, found.met, found.count) == ("", None, 1)


def test_lines_without_rows_are_left_out():
    assert {one.name for one in targets([row("x", 1.0, 1.0, family="vtrain")])} == {
        "step: dense, apart: vTrain",
        "runs that fitted, predicted not to",
        "rows of expressible models estimated",
    }


@pytest.mark.parametrize(
    ("measured", "predicted", "right"),
    [(1.265, 1.10, True), (1.265, 0.98, False), (1.01, 0.98, True), (1.01, 1.05, False)],
)
def test_a_ratio_needs_its_sign_or_to_stay_small(measured, predicted, right):
    pair = [row("OLMO-4G03", 2.0, 3.0, "olmo-core"), row("OLMO-4G04", 2.0 * measured, 3.0 * predicted, "olmo-core")]
    (found,) = ratios(pair)
    assert found.measured == pytest.approx(measured)
    assert found.predicted == pytest.approx(predicted)
    assert found.right is right
    assert line(pair, "Olmo-core ratios").met is right


def test_ratios_count_per_sequence():
    before, after = row("OLMO-P10", 8.0, 8.0, global_batch=4096.0), row("OLMO-P11", 6.0, 6.0, global_batch=3072.0)
    (found,) = ratios([before, after])
    assert found.ratio == Ratio("PP8 for PP4", "OLMO-P10", "OLMO-P11")
    assert found.measured == found.predicted == 1.0


def test_each_of_two_rows_must_come_close():
    rows = [row("KOR-001", 1.0, 0.97), row("KOR-002", 1.0, 0.9)]
    found = line(rows, "step: KOR")
    assert (found.reached, found.met) == ("-3.0%, -10.0%", False)
    assert line([row("KOR-001", 1.0, 0.97), row("KOR-002", 1.0, 1.04)], "step: KOR").met is True


def test_zero_of_2021_needs_order_and_factor():
    steps = (60.0, 90.0, 140.0)
    far = [row(f"SC21-{index}", step, step / 2) for index, step in enumerate(steps)]
    near = [row(f"SC21-{index}", step, step / 1.2) for index, step in enumerate(steps)]
    crossed = [row(f"SC21-{index}", step, 100.0 - index) for index, step in enumerate((99.0, 100.5, 102.0))]
    assert [line(rows, "step: ZeRO-3").met for rows in (far, near, crossed)] == [False, True, False]


def test_memory_is_scored_by_kind_and_once_a_configuration():
    kept = {"predicted_peak_bytes": 11.0, "measured_peak_bytes": 10.0, "memory_error": 0.1}
    rows = [row("a", 1, 1, memory_kind="reserved", **kept) for _ in range(3)]
    assert line(rows, "memory, reserved").count == 1
    assert line(rows, "memory, reserved").met is False


def test_runs_that_fitted_must_fit():
    rows = [
        row("a", 1, 1, predicted_oom=True, measured_oom=False),
        row("b", 1, 1, predicted_oom=True, measured_oom=True),
    ]
    found = line(rows, "runs that fitted")
    assert (found.reached, found.count, found.met) == ("1: a", 1, False)


def test_rows_of_models_that_nothing_prices_do_not_count_as_missed():
    refused = [Row("h", "refused", "not-modelled-yet: unsupported:hybrid"), Row("o", "refused", "not-printed: batch")]
    found = line([row("a", 1, 1), *refused], "rows of expressible")
    assert (found.count, found.reached, found.met) == (2, "50.0% (1 of 2)", False)


def test_the_time_is_a_line_where_it_was_taken():
    assert line([row("a", 1, 1)], "time", elapsed_s=3.0) == Line("time of all rows", "under 10 s", "3 s", 1, True)
    assert Errors("x", bool).median is None
