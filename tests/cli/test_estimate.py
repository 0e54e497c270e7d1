"""``moesim estimate``: what it prints, what it writes, the grammar of its options."""

import json

import pytest

from moesim.estimator import estimate
from moesim.report.estimate import seconds
from moesim.result import BREAKDOWN

MEMORY = [
    "peak_bytes",
    "allocated_peak_bytes",
    "reserved_peak_bytes",
    "peak_stage",
    "peak_phase",
    "capacity_bytes",
    "stages",
]


def test_the_table_for_people(moesim, scenario, qwen):
    answer = estimate(qwen)
    shown = moesim("estimate", scenario)
    assert (shown.code, shown.err) == (0, "")
    assert f"MFU {answer.mfu:.1%}" in shown.out
    assert "predicted" in shown.out
    for words in ("step time", "tokens/s per GPU", "dense GEMM", "expert exchange (EP)", "pipeline bubble", "fits:"):
        assert words in shown.out
    assert seconds(sum(answer.breakdown_s.values())) in shown.out
    assert "90 % interval" in shown.out
    assert "not errors of the model" in " ".join(shown.out.split())
    assert "layers placed by: count-embedding-and-loss" in shown.out
    assert "assumed: strategy.cp_kind" in shown.out
    assert "\x1b" not in shown.out  # no colours where nobody looks
    assert max(map(len, shown.out.splitlines())) <= 140


@pytest.mark.parametrize("name", ["qwen3-235b-h100x256", "zoo-002", "zoo-004"])
def test_the_json_of_the_runs(moesim, name, answer_keys):
    answer = moesim("estimate", name, "--json").json
    assert list(answer) == answer_keys
    assert tuple(answer["breakdown_s"]) == BREAKDOWN
    assert sum(answer["breakdown_s"].values()) == pytest.approx(answer["step_time_s"], rel=1e-9)
    assert list(answer["memory"]) == MEMORY
    assert len(answer["memory"]["stages"]) == answer["strategy"]["pp"]
    for stage in answer["memory"]["stages"]:
        classes = {key: value for key, value in stage.items() if key != "peak_bytes"}
        assert all(key.endswith("_bytes") for key in classes)
        assert sum(classes.values()) == pytest.approx(stage["peak_bytes"], rel=1e-9)
    assert answer["memory"]["peak_bytes"] == max(stage["peak_bytes"] for stage in answer["memory"]["stages"])
    assert answer["memory"]["capacity_bytes"] == 85_520_809_984
    assert answer["memory"]["peak_phase"] in ("forward", "loss", "backward", "optimizer")
    assert len(answer["busy_s"]) == answer["strategy"]["pp"]
    assert 0 <= answer["walked_stage"] < answer["strategy"]["pp"]
    assert set(answer["exposed_s"]) == {"ep", "tp", "cp", "pp", "dp", "host"}
    assert set(answer["binding"]) == {"resource", "share"}
    assert answer["evidence"] in ("measured", "calibrated", "datasheet", "assumed")
    assert answer["low_s"] < answer["step_time_s"] < answer["high_s"]
    assert set(answer["interval"]["contributions"][0]) == {"name", "log_error", "share", "evidence", "family"}
    assert "structure" in answer["interval"]["lacks"]
    assert answer["flops_convention"] == "causal"
    assert answer["feasible"] is True
    assert answer["violations"] == []
    assert answer["measured"]["step_time_s"] > 0
    assert answer["layout"] == "count-embedding-and-loss"


def test_set_changes_one_thing_at_a_time(moesim, scenario):
    base = moesim("estimate", scenario, "--json").json
    changed = moesim("estimate", scenario, "--set", "ep=16", "--set", "transport=nccl-alltoall", "--json").json
    prefixed = moesim(
        "estimate", scenario, "--set", "strategy.ep=16", "--set", "strategy.transport=nccl-alltoall", "--json"
    ).json
    assert changed == prefixed
    assert changed["strategy"] == base["strategy"] | {"ep": 16, "transport": "nccl-alltoall"}
    assert changed["step_time_s"] != base["step_time_s"]


def test_set_reaches_hardware_and_cluster(moesim, scenario):
    base = moesim("estimate", scenario, "--json").json
    faster = moesim("estimate", scenario, "--set", "gpu.memory_bandwidth=4.8 TB/s", "--json").json
    assert faster["step_time_s"] < base["step_time_s"]
    assert faster["evidence"] == "assumed"
    larger = moesim("estimate", scenario, "--set", "cluster.count=64", "--json").json
    assert larger["step_time_s"] < base["step_time_s"]


def test_names_instead_of_a_scenario(moesim):
    answer = moesim(
        "estimate", "--model", "qwen3-235b-a22b", "--cluster", "hgx-h100:32", "--set", "strategy.tp=2", "--json"
    ).json
    assert answer["name"] == "qwen3-235b-a22b on hgx-h100:32"
    assert answer["feasible"] is False  # 235 B parameters, unsharded
    assert answer["violations"][0]["rule"] == "memory"
    assert {"sequence_length", "global_batch"} <= set(answer["assumed"])
    assert answer["measured"] is None


def test_what_does_not_fit_is_an_answer(moesim, scenario):
    shown = moesim("estimate", scenario, "--set", "micro_batch=4")
    assert shown.code == 0
    assert "DOES NOT FIT" in shown.out
    assert "79.65 GiB" in shown.out


def test_a_measured_time_beside_the_answer(moesim, scenario):
    answer = moesim("estimate", scenario, "--measured", "19.7s", "--json").json
    error = answer["step_time_s"] / 19.7 - 1
    assert answer["measured"] == {"step_time_s": 19.7, "error": error, "source": "--measured"}
    shown = moesim("estimate", scenario, "--measured", "2000 ms")
    assert f"predicted {answer['step_time_s'] / 2 - 1:+.1%}" in shown.out


def test_vary_is_a_row_a_value(moesim, scenario):
    rows = moesim("estimate", scenario, "--vary", "ep=8,16,33", "--json").json
    assert [row["set"] for row in rows] == [{"ep": "8"}, {"ep": "16"}, {"ep": "33"}]
    alone = moesim("estimate", scenario, "--set", "ep=16", "--json").json
    assert {key: value for key, value in rows[1].items() if key != "set"} == alone
    assert len(rows[2]["refused"]) == 2
    shown = moesim("estimate", scenario, "--vary", "ep=8,16,33")
    assert shown.code == 0
    assert "refused ep=33" in shown.out
    assert "binding" in shown.out


def test_two_paths_vary_in_every_combination(moesim, scenario):
    rows = moesim("estimate", scenario, "--vary", "ep=8,16", "--vary", "recompute=[layernorm, moe_act],none", "--json")
    assert [tuple(row["set"].values()) for row in rows.json] == [
        ("8", "[layernorm, moe_act]"),
        ("8", "none"),
        ("16", "[layernorm, moe_act]"),
        ("16", "none"),
    ]
    assert rows.json[1]["strategy"]["recompute"] == []
    assert "[layernorm, moe_act]" in moesim("estimate", scenario, "--vary", "recompute=[layernorm, moe_act],none").out


def test_an_answer_goes_to_a_file(moesim, scenario):
    quiet = moesim("estimate", scenario, "-o", "answer.json")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    printed = moesim("estimate", scenario, "--json")
    assert (scenario.parent / "answer.json").read_text() == printed.out
    moesim("estimate", scenario, "--output", "answer.txt")
    assert "step time" in (scenario.parent / "answer.txt").read_text()
    moesim("estimate", scenario, "--json", "-o", "answer.txt")
    assert json.loads((scenario.parent / "answer.txt").read_text()) == printed.json


def test_a_file_is_replaced_whole_or_left_alone(moesim, scenario, monkeypatch):
    target = scenario.parent / "answer.json"
    target.write_text("what was there")
    assert moesim("estimate", scenario, "--set", "ep=33", "-o", target).lines
    assert target.read_text() == "what was there"

    def broken_disk(*_):
        raise OSError(28, "No space left on device", "answer.json")

    with monkeypatch.context() as broken:
        broken.setattr("pathlib.Path.replace", broken_disk)
        assert moesim("estimate", scenario, "-o", target).lines == ["answer.json: No space left on device"]
    assert target.read_text() == "what was there"
    assert {path.name for path in scenario.absolute().parent.iterdir()} == {"s.yaml", "answer.json"}


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["-o", "nowhere/x.json"], "--out: there is no folder 'nowhere'; make it, or name another"),
        (["-o", "."], "--out: '.' is a folder; name a file"),
        (["--timeline", "nowhere/x.json"], "--timeline: there is no folder 'nowhere'; make it, or name another"),
        (["-o", "x.json", "--timeline", "x.json"], "--out: 'x.json' is also the file of --timeline; name another"),
        (["--vary", "ep=8,16", "--timeline", "x.json"], "--timeline: draws one step; leave out --vary"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_first(moesim, scenario, options, line):
    assert moesim("estimate", scenario, *options).lines == [line]
    assert [path.name for path in scenario.absolute().parent.iterdir()] == ["s.yaml"]


def test_help_and_version(moesim):
    assert moesim("--version").out.startswith("moesim ")
    page = moesim("estimate", "--help")
    assert page.code == 0
    for option in ("--model", "--cluster", "--set", "--vary", "--json", "--output", "--measured", "--timeline"):
        assert option in page.out
    assert "estimate" in moesim("--help").out
    assert "Usage" in "\n".join(moesim().lines)


def test_a_fault_stands_beside_the_step_without(moesim):
    found = moesim("estimate", "qwen3-235b-h100x256", "--fault", "slow:node3=0.8", "--json").json
    assert found["fault"]["pipeline_ranks_hit"] == [0]
    assert found["step_time_s"] > found["fault"]["step_time_s_without"]
    shown = moesim("estimate", "qwen3-235b-h100x256", "--fault", "nic:node3.rail5")
    assert shown.code == 0
    assert "1 of 8" in shown.out
    (line,) = moesim("estimate", "qwen3-235b-h100x256", "--fault", "node:3").lines
    assert line.startswith("--fault node:3: the job stops: GPUs 24 to 31 are lost")


def test_what_stands_in_the_memory_of_the_host_is_shown(moesim):
    arguments = ("zoo-002", "--set", "optimizer_offload=1")
    shown = moesim("estimate", *arguments).out
    assert "copies to and from the host (PCIe)" in shown
    assert "host memory" in shown
    assert "copies to and from the host" in moesim("compare", *arguments[:1], "--vary", "optimizer_offload=0,1").out
    assert moesim("estimate", *arguments, "--json").json["breakdown_s"]["pcie"] > 0
