"""``moesim schedule``: the table, JSON, the picture, and what is refused."""

import csv
from pathlib import Path

import pytest

from moesim.estimator import estimate
from moesim.timeline.schedules import schedules

KEYS = {
    "basis",
    "name",
    "vpp",
    "layout",
    "refused",
    "not_offered",
    "micro_batches",
    "copies",
    "step_time_s",
    "skewed_step_time_s",
    "bubble_fraction",
    "fits",
    "ranks",
}


@pytest.fixture
def small_here(small_file, tmp_path, monkeypatch):
    """The small scenario, asked from another folder."""
    monkeypatch.chdir(tmp_path)
    return small_file


def test_the_table(moesim, small_here):
    shown = moesim("schedule", small_here, "--schedule", "1f1b,interleaved-1f1b:2,1f1b-v,dualpipe,none")
    assert (shown.code, shown.err) == (0, "")
    assert max(map(len, shown.out.splitlines())) <= 140
    lines = {line.split()[0]: line for line in shown.out.splitlines()}
    assert "4 3 2 1" in lines["1f1b"]
    assert "11 9 7 5" in lines["interleaved-1f1b"]
    assert "5 each" in lines["dualpipe"]
    assert lines["dualpipe"].split()[-1] == "2"  # copies of the parameters
    assert "refused" in lines["none"]
    assert "none: refused: schedule none has one pipeline rank, not pp=4 [none-pp]; legal: pp=1" in shown.out
    assert "1f1b-v, dualpipe: computed, though [megatron-core: schedules] refuses it" in shown.out


def test_all_schedules_without_the_option(moesim, small_here):
    answer = moesim("schedule", small_here, "--json").json
    assert [row["name"] for row in answer] == schedules.names()
    assert all(set(row) == KEYS for row in answer)
    for row in answer:
        if row["refused"]:
            assert row["step_time_s"] is None
            continue
        assert len(row["ranks"]) == 4
        assert row["skewed_step_time_s"] <= row["step_time_s"]
        assert 0 < row["bubble_fraction"] < 1
        assert set(row["ranks"][0]) == {"chunks", "busy_s", "activations_bytes", "weights_bytes", "peak_bytes"}


def test_the_numbers_are_those_of_an_estimate(moesim, small_here, small):
    (row,) = moesim("schedule", small_here, "--schedule", "interleaved-1f1b:2", "--json").json
    answer = estimate(small.with_changes({"schedule": "interleaved-1f1b", "vpp": 2}))
    assert row["step_time_s"] == answer.step_time_s
    assert row["bubble_fraction"] == answer.bubble_fraction
    assert [rank["peak_bytes"] for rank in row["ranks"]] == [rank["peak_bytes"] for rank in answer.memory.stages]
    assert [rank["busy_s"] for rank in row["ranks"]] == pytest.approx(list(answer.busy_s), rel=1e-12)
    assert row["not_offered"] == []


def test_what_the_framework_refuses_is_computed_and_said(moesim, small_here):
    (row,) = moesim("schedule", small_here, "--schedule", "zb-v", "--json").json
    assert row["refused"] == []
    assert [one["rule"] for one in row["not_offered"]] == ["megatron-core: schedules"]
    assert row["step_time_s"] > 0
    assert "no schedule 'zb-v'" in "".join(
        moesim("estimate", small_here, "--set", "schedule=zb-v", "--set", "vpp=2").lines
    )


def test_a_skewed_optimizer_takes_the_start_of_a_zero_bubble_away(moesim, small_here):
    """With a first stage as heavy as the last, the ends of the ranks are as skewed as their starts."""
    rows = moesim("schedule", small_here, "--set", "tp=1", "--schedule", "zb-h2,gpipe", "--json").json
    found = {row["name"]: row for row in rows}
    assert found["gpipe"]["skewed_step_time_s"] == pytest.approx(found["gpipe"]["step_time_s"])
    assert all(row["skewed_step_time_s"] >= max(rank["busy_s"] for rank in row["ranks"]) for row in rows)


def test_layers_are_placed_again_where_the_layout_does_not_fit(moesim, small_here):
    given = ("--set", "layout=[1, 2, 2, 3]")
    rows = moesim("schedule", small_here, *given, "--schedule", "1f1b,zb-v", "--json").json
    assert [row["layout"] for row in rows] == ["(1, 2, 2, 3)", "first-stages-larger"]
    shown = moesim("schedule", small_here, *given, "--schedule", "1f1b,zb-v").out
    assert "zb-v: layers placed first-stages-larger" in shown


def test_a_file_from_the_working_directory(moesim, small_here):
    with Path("mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["0F0", "0F1", "", "", "0B0", "", "0B1"], ["", "1F0", "1B0", "", "1F1", "1B1"]])
    changes = ("--set", "pp=2", "--set", "global_batch=32")
    rows = moesim("schedule", small_here, *changes, "--schedule", "mine.csv,1f1b", "--json").json
    assert rows[0]["step_time_s"] == rows[1]["step_time_s"]
    assert rows[0]["ranks"] == rows[1]["ranks"]
    (line,) = moesim("schedule", small_here, "--set", "pp=2", "--schedule", "mine.csv").lines
    assert "mine.csv has 2 micro-batches, not 8" in line


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_picture(moesim, small_here, suffix):
    target = Path(f"gantt.{suffix}")
    shown = moesim(
        "schedule",
        small_here,
        "--schedule",
        "interleaved-1f1b:2,dualpipe",
        "--set",
        "overlap_ep=true",
        "--plot",
        target,
    )
    assert shown.code == 0
    start = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix]
    assert target.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--schedule", "zbv"], "--schedule: no pipeline schedule 'zbv'; did you mean 'zb-v'?"),
        (["--schedule", "interleaved-1f1b:x"], "--schedule: 'x' is no number of chunks; write for example"),
        (["--schedule", "interleaved-1f1b:0"], "--schedule: '0' is no number of chunks; write for example"),
        (["--schedule", ","], "--schedule: names no schedule; write for example --schedule 1f1b,zb-v"),
        (["--schedule", "none"], "--schedule: none-pp: schedule none has one pipeline rank, not pp=4; legal: pp=1"),
        (["--schedule", "missing.csv"], "missing.csv: cannot be read: No such file or directory; name a CSV"),
        (
            ["--schedule", "1f1b", "--plot", "x.gif"],
            "--plot: 'x.gif' is no picture; end it in .svg, .png, .pdf",
        ),
        (["--schedule", "1f1b", "--plot", "no/x.svg"], "--plot: there is no folder 'no'; make it, or name another"),
    ],
)
def test_mistakes_are_one_line(moesim, small_here, arguments, line):
    (found,) = moesim("schedule", small_here, *arguments).lines
    assert found.startswith(line)


def test_a_bad_file_is_named_with_its_line(moesim, small_here):
    Path("bad.csv").write_text("0F0,0B0\n1F0,1Q0\n")
    (found,) = moesim("schedule", small_here, "--schedule", "bad.csv").lines
    assert found.startswith("bad.csv:2: cell 2 '1Q0' is no slot; cells such as 0F3")


def test_schedules_without_a_job(moesim):
    rows = moesim("schedule", "--times", "1,1,1", "--pp", 4, "--micro-batches", 16, "--json").json
    by_name = {row["name"]: row for row in rows}
    assert set(by_name) == set(schedules.names())
    assert by_name["1f1b"]["idle_over_work"] == pytest.approx(3 / 16)
    assert by_name["interleaved-1f1b"]["idle_over_work"] == pytest.approx(3 / 32)
    assert by_name["dualpipe"]["idle_over_work"] == pytest.approx(2 / 48)
    assert by_name["dualpipe"]["copies"] == 2
    assert by_name["gpipe"]["activations"] == pytest.approx(4)
    assert by_name["none"]["refused"][0]["rule"] == "none-pp"
    shown = moesim("schedule", "--times", "2,2,1", "--pp", 4, "--micro-batches", 16, "--schedule", "1f1b,none")
    assert "18.75%" in shown.out
    assert "one pipeline rank" in shown.out


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--times", "1,1", "--pp", 4, "--micro-batches", 8), "--times: '1,1' is not F,B,W above zero"),
        (("--times", "1,1,0", "--pp", 4, "--micro-batches", 8), "--times: '1,1,0' is not F,B,W above zero"),
        (("--times", "1,1,1", "--pp", 4), "--times: --times, --pp and --micro-batches go together"),
        (("zoo-002", "--pp", 4), "--times: --times, --pp and --micro-batches go together"),
        (
            ("--times", "1,1,1", "--pp", 4, "--micro-batches", 8, "--measured", "1s"),
            "--times: --times, --pp and --micro-batches go together",
        ),
        (("--times", "1,1,1", "--pp", 4, "--micro-batches", 8, "--schedule", "none"), "--schedule: "),
    ],
)
def test_bad_input_without_a_job(moesim, options, line):
    (found,) = moesim("schedule", *options).lines
    assert found.startswith(line)
