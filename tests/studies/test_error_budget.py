"""Where errors come from: parts by what they are of, in quadrature, beside what was found."""

from pathlib import Path

import numpy as np
import pytest

from moesim.estimator import estimate
from moesim.intervals import FIELD, MODEL_FORM
from moesim.problem import load
from moesim.report.error_budget import budget_columns, budget_figure, sensitivity_columns
from moesim.studies.error_budget import GROUPS, Budget, budget_table, group_of, row_budget
from moesim.studies.validate import Row

SENSITIVITY = {"kernels": 0.6, "messages": 0.2, "host": 0.1, "overlap": 0.1, "skew": 0.3}


def row(error, family="f", **errors):
    known = Budget(dict.fromkeys(GROUPS, 0.0) | errors, SENSITIVITY)
    return Row("x", "estimated", family=family, time_error=error, budget=known)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("grouped-gemm", "kernels"),
        ("gpu.kernels.gemm_power_slope", "power"),
        ("transport-deepep", "messages"),
        ("transports.hybridep.inter_combine_rdma_bandwidth", "messages"),
        ("collectives-net", "messages"),
        ("software.host.framework_per_kernel", "host"),
        (f"{FIELD}overlap_tp", "unknown fields"),
        (f"{FIELD}rank_imbalance", "skew"),
        (MODEL_FORM, None),
    ],
)
def test_every_contribution_has_its_group(name, group):
    assert group_of(name) == group


def test_errors_add_in_quadrature_and_the_rest_is_not_explained():
    (found,) = budget_table([row(np.expm1(0.2), kernels=0.03, host=0.04), row(np.expm1(-0.2), kernels=0.03, host=0.04)])
    assert found["expected"] == pytest.approx(0.05)
    assert found["found"] == pytest.approx(0.2)
    assert found["left"] == pytest.approx((0.2**2 - 0.05**2) ** 0.5)


def test_nothing_is_left_where_more_was_expected_than_found():
    (found,) = budget_table([row(0.01, kernels=0.1)])
    assert found["left"] == 0.0


def test_families_stand_apart_and_rows_without_a_figure_do_not_count():
    found = budget_table([row(0.1), row(0.1, "other"), row(None, "other")])
    assert [(one["family"], one["rows"]) for one in found] == [("f", 1), ("other", 1)]


def test_the_budget_of_a_step():
    problem = load("qwen3-235b-h100x256").with_changes({"rank_imbalance": "1"})
    found = row_budget(problem, estimate(problem))
    assert set(found.errors) == set(GROUPS)
    assert found.errors["kernels"] > 0
    assert found.sensitivity["kernels"] + found.sensitivity["messages"] + found.sensitivity["host"] == pytest.approx(1)
    assert found.sensitivity["overlap"] > 0  # gradients are reduced beside the backward
    assert found.errors["skew"] == 0  # a balanced load is what its recipe forces
    assert found.sensitivity["skew"] > 0


def test_tables_and_figure(tmp_path: Path):
    known = budget_table([row(0.2, kernels=0.1), row(0.1, "other", host=0.2)])
    head, cells = budget_columns(known)
    assert len(head) == len(cells[0]) == len(GROUPS) + 5
    assert cells[0][2] == "10.0 %"
    assert sensitivity_columns(known)[1][0] == ["f", "0.60", "0.20", "0.10", "0.10", "0.30"]
    path = tmp_path / "budget.svg"
    budget_figure(known, path)
    assert path.read_text().startswith("<?xml")
