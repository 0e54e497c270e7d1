"""Runs beside estimates: errors, order of layouts, floor, refusals."""

from pathlib import Path

import pytest

from moesim.base.errors import SpecError
from moesim.studies.run_table import Refused, read_runs
from moesim.studies.validate import Row, family_of, grouped, kendall, refusals, shipped_table, summary, validated, worst

TABLE = Path(__file__).with_name("runs.csv")


def row(predicted, measured, **changes):
    values = {"run_id": "x", "status": "estimated", "family": "f", "layout_group": "g"} | changes
    error = predicted / measured - 1
    return Row(**values, predicted_step_time_s=predicted, measured_step_time_s=measured, time_error=error)


@pytest.fixture(scope="module")
def rows():
    return list(validated(TABLE))


def test_every_row_of_a_table_comes_out(rows):
    printed = TABLE.read_text().splitlines()[1:]
    assert [one.run_id for one in rows] == [line.partition(",")[0] for line in printed]
    estimated = [one for one in rows if one.status == "estimated"]
    assert len(estimated) + sum(refusals(rows).values()) == len(rows)
    for one in estimated:
        assert one.low_s <= one.predicted_step_time_s <= one.high_s
        assert one.family
        assert one.blame


def test_two_processes_say_the_same(rows):
    assert list(validated(TABLE, jobs=2)) == rows


def test_errors_are_signed_and_shares_of_rows():
    found = summary([row(1.05, 1.0), row(0.7, 1.0), row(1.0, 1.0)])
    assert found["time"] == {
        "count": 3,
        "median": pytest.approx(0.05),
        "p90": pytest.approx(0.25),
        "bias": pytest.approx(0.0),
        "within_10": pytest.approx(2 / 3),
        "within_20": pytest.approx(2 / 3),
    }


def test_memory_counts_once_a_configuration():
    rows = [row(1, 1, configuration="a", memory_error=error) for error in (0.1, 0.1, 0.1)]
    rows.append(row(1, 1, configuration="b", memory_error=0.3))
    memory = summary(rows)["memory"]
    assert memory["count"] == 2
    assert memory["median"] == pytest.approx(0.2)


def test_a_row_in_its_interval_is_covered():
    inside, outside = row(1, 1.05, low_s=0.9, high_s=1.1), row(1, 1.2, low_s=0.9, high_s=1.1)
    assert summary([inside, outside])["coverage"] == 0.5


def test_the_floor_gives_every_row_the_median_mfu():
    rows = [row(1, 1, measured_mfu=mfu) for mfu in (0.2, 0.4, 0.5)]
    assert summary(rows)["floor"] == pytest.approx(0.25)


def test_the_order_of_layouts():
    assert kendall([row(1, 1), row(2, 2), row(3, 3), row(4, 4)]) == 1
    assert kendall([row(4, 1), row(3, 2), row(2, 3), row(1, 4)]) == -1
    assert kendall([row(2, 1), row(1, 2), row(3, 3), row(4, 4)]) == pytest.approx(4 / 6)
    assert kendall([row(5, 1), row(1, 1.001), row(2, 2)]) == pytest.approx(0)  # the first two are a tie


def test_memory_of_one_configuration_counts_once():
    same = [row(1, 1, memory_error=0.1, predicted_peak_bytes=11.0, measured_peak_bytes=10.0) for _ in range(3)]
    assert summary(same)["memory"]["count"] == 1


def test_groups_and_the_whole():
    groups = grouped([row(1, 1), row(1, 2, family="other")], ["family"])
    assert [group["family"] for group in groups] == ["f", "other", "all"]
    with pytest.raises(SpecError, match="no column 'famly'; did you mean 'family'"):
        grouped([], ["famly"])


def test_the_worst_row_is_the_one_with_the_largest_ratio():
    assert [one.run_id for one in worst([row(1.6, 1, run_id="slow"), row(0.5, 1, run_id="fast")], 1)] == ["fast"]


def test_the_shipped_table_is_of_runs_with_sources():
    """570 rows; each names its source, and all but a few can be expressed."""
    import csv

    with shipped_table().open(encoding="utf-8") as file:
        printed = list(csv.DictReader(file))
    assert len(printed) == 570
    assert all(one["source"] for one in printed)
    assert len({one["run_id"] for one in printed}) == len(printed)


def test_families():
    names = {run.run_id: family_of(run) for run in read_runs(TABLE) if not isinstance(run, Refused)}
    assert names["MCP-004"] == "MoE, H100, balanced"
    assert names["MBSK-001"] == "MoE, H100, natural or not printed"
    assert names["SC21-011"] == "dense, H100 and A100"
    assert names["VTM-001"] == "vtrain"
    assert names["MB26.08-002"] == "MoE, Blackwell"


def test_what_else_a_row_serves_as_is_marked():
    """Every scenario that is a row, and both rows of every pair."""
    import csv

    from moesim.spec import library
    from moesim.studies.ablation_table import shipped_pairs

    with shipped_table().open(encoding="utf-8") as file:
        also = {one["run_id"]: one["also"].split() for one in csv.DictReader(file)}
    scenarios = {name for name in library.names("runs") if name.upper() in also}
    assert scenarios
    assert all(f"scenario:{name}" in also[name.upper()] for name in scenarios)
    with shipped_pairs().open(encoding="utf-8") as file:
        pairs = list(csv.DictReader(file))
    named = [(pair["pair_id"], pair[end]) for pair in pairs for end in ("without", "with") if pair[end] in also]
    assert named
    assert all(f"pair:{pair}" in also[run] for pair, run in named)
