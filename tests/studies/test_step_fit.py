"""Fits to runs of a table: which rows count, what a factor does to a step, what the overlay says of it."""

import csv
from pathlib import Path

import numpy as np
import pytest

from moesim.calibrate.overlay import overlay_text
from moesim.evaluator import evaluate
from moesim.problem import load
from moesim.spec import steps
from moesim.spec.calibration import CalibrationSpec
from moesim.spec.load import load_specs
from moesim.spec.validation import validate
from moesim.spec.yaml_file import read_document
from moesim.studies.step_factors import at_factors, judged, step_times_at
from moesim.studies.step_fields import field_variance
from moesim.studies.step_fit import fit_runs, is_better, measured_runs
from moesim.studies.validate import row_of

TABLE = Path(__file__).with_name("runs.csv")
HOST = "host.framework_per_kernel"


@pytest.fixture(scope="module")
def problem():
    return load("qwen3-235b-h100x256")


def test_steps_at_points_are_those_of_problems_at_these_points(problem):
    points = [{}, {HOST: 2.0}, {"sustained.tensor": 0.8, "runtime.launches_per_moe_layer": 1.5}]
    together = step_times_at(problem, points)
    alone = [evaluate(one, [one.strategy]).step_time_s[0] for one in (at_factors(problem, point) for point in points)]
    assert together == pytest.approx(np.array(alone))
    assert len(set(np.round(together, 6))) == 3


def test_a_factor_stands_beside_the_source(problem):
    source = load_specs(problem.scenario).software
    changed = at_factors(problem, {HOST: 2.0}).software
    laid = steps.factors_of(one, source.name) if (one := steps.shipped()) else {}
    plain = source.host.framework_per_kernel.value / laid.get(HOST, 1.0)
    assert changed.host.framework_per_kernel.value == pytest.approx(2 * plain)


def test_what_is_set_by_hand_is_not_moved(problem):
    fixed = problem.with_changes({f"software.{HOST}": "7 us"})
    assert at_factors(fixed, {HOST: 3.0}).software.host.framework_per_kernel.value == 7e-6


def test_a_field_that_changes_nothing_has_no_variance(problem):
    assert field_variance(problem, {"overlap_grad_reduce": [problem.strategy.overlap_grad_reduce]}) == 0
    assert field_variance(problem, {"rank_imbalance": [1, 1.5]}) > 0
    assert field_variance(problem, {"schedule": ["gpipe"]}) == 0  # not legal in this framework


def test_rows_of_the_report_are_never_fitted(tmp_path):
    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    rows = [row | {"stack": "olmo-core"} if row["stack"] == "torchtitan" else row for row in rows]
    write(tmp_path / "table.csv", rows)
    runs, dropped = measured_runs(tmp_path / "table.csv")
    assert all(one.run.row["stack"] != "olmo-core" for one in runs)
    assert dropped["olmo-core: kept to check"] == sum(row["stack"] == "olmo-core" for row in rows)
    assert len(runs) + sum(dropped.values()) == len(rows)


MODELS = ("llama3-8b", "qwen3-8b", "llama2-7b", "qwen2.5-7b")
BATCHES = (64, 128, 256)


@pytest.fixture(scope="module")
def overlay(tmp_path_factory):
    """Overlay of made-up runs: four models with short sequences whose host takes three times what the source says."""
    folder = tmp_path_factory.mktemp("fit")
    same = {"gpu": "h100-sxm-80gb", "num_gpus": "8", "seq_len": "512", "micro_batch": "1", "precision": "bf16"}
    same |= {"stack": "megatron-core", "stack_version": "main"}
    rows = [
        {"run_id": f"{model}-{batch}", "model": model, "global_batch": str(batch), "step_time_s": "1"} | same
        for model in MODELS
        for batch in BATCHES
    ]
    for row in rows:
        row["step_time_s"] = f"{step_times_at(problem_of(row, folder), [{HOST: 3.0}])[0]:.6g}"
    table, path = folder / "made_up.csv", folder / "own.yaml"
    write(table, rows)
    path.write_text(overlay_text(fit_runs(table)))
    return table, path


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def problem_of(row, folder):
    write(folder / "one.csv", [row])
    (found,), dropped = measured_runs(folder / "one.csv")
    assert not dropped
    return found.run.problem


def test_a_fit_finds_the_host_and_says_what_it_saw(overlay):
    _, path = overlay
    one = validate(CalibrationSpec, read_document(path))
    steps.check(one)
    assert float(one.constants[f"megatron-core.{HOST}"]) > 1.6  # launches per layer share what is missing
    assert one.rows == {"read": 12, "used": 12, "groups": 4}
    assert len(one.folds) == 4
    assert one.scores["megatron-core, cross-validated"].median < one.scores["megatron-core, as sourced"].median
    assert sorted(run for fold in one.folds.values() for run in fold.runs) == sorted(
        f"{model}-{batch}" for model in MODELS for batch in BATCHES
    )


def test_a_run_is_judged_by_a_fit_that_has_not_seen_it(overlay):
    table, path = overlay
    with table.open() as file:
        row = next(csv.DictReader(file))
    seen = row_of(row, {"calibrations": str(path)})
    new = row_of(row | {"run_id": "another"}, {"calibrations": str(path)})
    assert seen.predicted_step_time_s != new.predicted_step_time_s
    one = validate(CalibrationSpec, read_document(path))
    fold = next(fold for fold in one.folds.values() if row["run_id"] in fold.runs)
    problem = problem_of(row, table.parent).with_changes({"calibrations": str(path)})
    factors = {name.removeprefix("megatron-core."): value for name, value in fold.constants.items()}
    assert seen.predicted_step_time_s == pytest.approx(step_times_at(problem, [factors])[0])
    assert judged(problem, "another") is problem


@pytest.mark.parametrize(
    ("after", "better"),
    [([0.1, -0.1, 0.1], True), ([0.2, -0.2, 0.2], True), ([0.25, -0.25, 0.3], False), ([0.1, 0.1, 0.9], False)],
)
def test_factors_are_kept_where_groups_that_they_have_not_seen_lose_less(after, better):
    assert is_better(np.array(after), np.array([0.2, -0.2, 0.3]), np.array(["a", "b", "c"])) is better


def test_runs_of_one_group_count_as_less_than_as_many_groups():
    before, after = np.array([0.3, 0.3, 0.3, 0.3, 0.1, 0.1]), np.array([0.2, 0.2, 0.2, 0.2, 0.25, 0.25])
    assert is_better(after, before, np.array(list("abcdef")))
    assert not is_better(after, before, np.array(list("aaaabc")))
