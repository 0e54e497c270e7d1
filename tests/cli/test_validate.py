"""``moesim validate``: table, JSON, files, bad input."""

from pathlib import Path

import pytest

from moesim.spec import library

RUNS = Path(__file__).parents[1] / "studies" / "runs.csv"
KEYS = [
    "run_id",
    "status",
    "reason",
    "predicted_step_time_s",
    "low_s",
    "high_s",
    "measured_step_time_s",
    "time_error",
    "predicted_peak_bytes",
    "measured_peak_bytes",
    "memory_error",
    "predicted_oom",
    "assumed",
    "blame",
]


@pytest.fixture
def few(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("\n".join(RUNS.read_text().splitlines()[:5]) + "\n")
    return path


def test_tables_and_files(moesim, few, tmp_path):
    plot, rows = tmp_path / "p.svg", tmp_path / "rows.csv"
    shown = moesim("validate", "--runs", few, "--plot", plot, "--csv", rows, "--jobs", 1)
    assert (shown.code, shown.err) == (0, "")
    for words in ("interval", "furthest off", "4 rows"):
        assert words in shown.out
    assert plot.read_text().startswith("<?xml")
    assert rows.read_text().count("\n") == 5


def test_the_json(moesim, few):
    found = moesim("validate", "--runs", few, "--group-by", "gpu,is_moe", "--jobs", 1, "--json").json
    assert set(KEYS) <= set(found["rows"][0])
    assert found["summary"][-1]["gpu"] == "all"
    assert sum(group["rows"] for group in found["summary"][:-1]) + sum(found["refused"].values()) == 4


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    head = "pair_id,group,method,without,with,metric,published_without,published_with,left_out"
    lines = [
        head,
        "a,recompute,full,MBSK-001,recompute=full,step_time,1,1.3,",
        "b,ep,ep 7,MBSK-001,ep=7,step_time,1,2,",
        "c,kernel,one,,,,,,kernel",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_pairs(moesim, pairs, tmp_path):
    rows = tmp_path / "rows.csv"
    shown = moesim("validate", "--pairs", "--runs", pairs, "--csv", rows, "--jobs", 1)
    assert (shown.code, shown.err) == (0, "")
    for words in ("right direction", "+30.0%", "refused", "3 rows, 1 estimated"):
        assert words in shown.out
    assert rows.read_text().count("\n") == 4
    found = moesim("validate", "--pairs", "--runs", pairs, "--group-by", "metric", "--jobs", 1, "--json").json
    assert [row["status"] for row in found["rows"]] == ["estimated", "refused", "left out"]
    assert found["rows"][0]["right"] is True
    assert found["summary"][-1]["metric"] == "all"
    assert sum(found["left_out"].values()) == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--pairs", "--plot", "p.svg"), "--plot: is for runs, not for pairs; leave out --plot or --pairs"),
        (("--pairs", "--group-by", "gpu"), "--group-by: no column 'gpu' of pairs"),
        (("--runs", "none.csv"), "--runs: there is no file 'none.csv'"),
        (("--group-by", "gpus"), "--group-by: no column 'gpus'; did you mean 'gpu'?"),
        (("--plot", "p.txt"), "--plot: 'p.txt' is no picture"),
        (("--plot", "nowhere/p.svg"), "--plot: there is no folder 'nowhere'"),
    ],
)
def test_bad_input(moesim, arguments, line, few):
    options = arguments if "--runs" in arguments else ("--runs", few, *arguments)
    assert any(line in one for one in moesim("validate", *options).lines)


def test_a_table_without_its_columns_or_rows(moesim, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("run_id,model\n")
    assert "columns global_batch, gpu, num_gpus, seq_len are missing" in moesim("validate", "--runs", path).lines[0]
    path.write_text("run_id,model,gpu,num_gpus,seq_len,global_batch\n")
    assert "holds no row" in moesim("validate", "--runs", path, "--jobs", 1).lines[0]


def test_targets_and_budget(moesim, few):
    found = moesim("validate", "--runs", few, "--jobs", 1, "--budget", "--json").json
    assert {"name", "target", "reached", "count", "met"} == set(found["targets"][0])
    assert sum(one["rows"] for one in found["budget"]) == sum(row["time_error"] is not None for row in found["rows"])
    timed = next(row for row in found["rows"] if row["time_error"] is not None)
    assert set(timed["budget"]["errors"]) == set(found["budget"][0]["errors"])
    shown = moesim("validate", "--runs", few, "--jobs", 1, "--budget").out
    for words in ("targets", "one standard error of a step", "under 10 s"):
        assert words in shown


def test_models_of_ones_own_and_numbers_set(moesim, few, tmp_path):
    plain = moesim("validate", "--runs", few, "--jobs", 1, "--json").json["rows"]
    models = tmp_path / "models"
    models.mkdir()
    name = plain[0]["model"]
    text = (library.folder("models") / f"{name}.yaml").read_text()
    (models / "mine.yaml").write_text(text.replace(f"name: {name}", "name: mine"))
    few.write_text(few.read_text().replace(f",{name},", ",mine,", 1))
    moved = moesim("validate", "--runs", few, "--models", models, "--jobs", 1, "--json").json["rows"]
    assert moved[0]["predicted_step_time_s"] == plain[0]["predicted_step_time_s"]
    slow = ("--set", "software.sustained.tensor=0.5")
    slower = moesim("validate", "--runs", few, "--models", models, *slow, "--jobs", 1, "--json").json["rows"]
    assert slower[0]["predicted_step_time_s"] > moved[0]["predicted_step_time_s"]


@pytest.mark.parametrize("verb", [("validate",), ("calibrate", "runs")])
def test_folders_and_tables_that_are_not_there(moesim, few, verb):
    assert moesim(*verb, "--runs", "none.csv").lines[0].startswith("--runs: there is no file 'none.csv'")
    missing = moesim(*verb, "--runs", few, "--models", "nowhere")
    assert (missing.code, missing.lines[0]) == (
        2,
        "--models: there is no folder 'nowhere'; name one with MODEL.yaml files",
    )


def test_a_table_without_steps_is_not_fitted(moesim, few):
    lines = few.read_text().splitlines()
    few.write_text(lines[0].replace("step_time_s", "time") + "\n" + "\n".join(lines[1:]) + "\n")
    assert "no row has a step time" in moesim("calibrate", "runs", "--runs", few, "--jobs", 1).lines[0]
