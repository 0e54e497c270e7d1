"""The search on the command line."""

import csv

import pytest

ARGUMENTS = ("--vary", "tp=1,2", "--vary", "ep=auto", "--vary", "recompute=none,[layernorm, moe_act]", "--top", "3")


def test_the_best_plans_as_json(moesim, small_file):
    answer = moesim("search", str(small_file), *ARGUMENTS, "--json").json
    assert answer["plans_total"] == 24
    assert answer["axes"]["ep"] == [1, 2, 4, 8, 16, 32]
    assert answer["axes"]["recompute"] == [[], ["layernorm", "moe_act"]]
    assert answer["plans_legal"] + sum(answer["refused"].values()) == answer["plans_total"]
    steps = [one["step_time_s"] for one in answer["top"]]
    assert steps == sorted(steps)
    assert len(steps) == 3
    best = answer["top"][0]
    assert best["low_s"] <= best["step_time_s"] <= best["high_s"]
    assert best["binding"]["resource"]
    told = moesim("estimate", str(small_file), "--json", *settings(best["varied"])).json
    assert told["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-9)
    assert told["memory"]["peak_bytes"] == pytest.approx(best["peak_bytes"], rel=1e-9)


def settings(varied):
    """The varied fields as options of an estimate."""
    for name, value in varied.items():
        yield "--set"
        yield f"{name}=[{', '.join(value)}]" if isinstance(value, list) else f"{name}={value}"


def test_a_table_and_a_file(moesim, small_file, tmp_path):
    shown = moesim("search", str(small_file), *ARGUMENTS).out
    assert "24 plans" in shown
    assert "slower by" in shown
    moesim("search", str(small_file), *ARGUMENTS, "-o", str(tmp_path / "best.csv"))
    with (tmp_path / "best.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert float(rows[0]["step_time_s"]) <= float(rows[1]["step_time_s"])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--vary", "tpp=1"), "a search varies fields of the strategy"),
        (("--vary", "global_batch=128"), "a search varies fields of the strategy"),
        (("--vary", "schedule=1f1c"), "no pipeline schedule '1f1c'"),
        (("--vary", "tp=x"), "tp"),
        (("--objective", "money"), "no objective"),
        (("--pareto", "step,cost"), "'cost' is no objective"),
        (("--pareto", "step"), "is not several objectives"),
        (("--top", "0"), "--top"),
        (("-o", "best.xml"), "no answer of the kind"),
    ],
)
def test_bad_input_is_one_line(moesim, small_file, options, what):
    (line,) = moesim("search", str(small_file), *options).lines
    assert what in line


def test_the_fewest_nodes_on_which_a_job_fits(moesim, small_file):
    options = ("min-gpus", str(small_file), "--nodes", "8,1,2", "--vary", "tp=1,2", "--vary", "pp=1,2,4")
    heavy = ("--set", "cluster.node=hgx-h100", "--set", "model=qwen3-30b-a3b", "--set", "ep=8")
    answer = moesim(*options, *heavy, "--json").json
    tried = answer["tried"]
    assert [one["nodes"] for one in tried] == sorted(one["nodes"] for one in tried)
    assert all(not one["plans_fitting"] for one in tried[:-1])
    assert answer["nodes"] == tried[-1]["nodes"]
    assert tried[-1]["plans_fitting"] > 0
    assert str(answer["nodes"]) in moesim(*options, *heavy).out
