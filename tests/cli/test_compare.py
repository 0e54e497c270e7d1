"""``moesim compare``: columns, differences that add up, refusals."""

import pytest


def test_the_differences_of_the_terms_add_up_to_that_of_the_step(moesim):
    found = moesim("compare", "zoo-002", "--vary", "ep=8,16", "--json").json
    assert [case["case"] for case in found["cases"]] == ["zoo-002", "ep=8", "ep=16"]
    assert found["base"] == "zoo-002"
    assert found["cases"][0]["delta_s"] == 0
    for case in found["cases"]:
        assert sum(case["delta_breakdown_s"].values()) == pytest.approx(case["delta_s"], abs=1e-9)
        step = found["cases"][0]["estimate"]["step_time_s"]
        assert case["estimate"]["step_time_s"] == pytest.approx(step + case["delta_s"])


def test_scenarios_beside_each_other(moesim):
    shown = moesim("compare", "qwen3-235b-h100x256", "zoo-002")
    assert (shown.code, shown.err) == (0, "")
    for words in ("qwen3-235b-h100x256", "zoo-002", "expert exchange (EP)", "speed-up", "peak memory"):
        assert words in shown.out


def test_what_cannot_be_estimated_is_named_beside_what_can(moesim):
    found = moesim("compare", "zoo-002", "--vary", "ep=48,16", "--json").json
    assert "refused" in found["cases"][1]
    assert "estimate" in found["cases"][2]
    assert "refused ep=48" in moesim("compare", "zoo-002", "--vary", "ep=48,16").out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "one case has nothing beside it; give a second SCENARIO"),
        (("zoo-002",), "one case has nothing beside it; give a second SCENARIO"),
        (("zoo-002", "zoo-02"), "zoo-02"),
        (("zoo-002", "--set", "ep=48", "--vary", "tp=1"), "--set ep: etp*ep*pp = 384 does not divide 256 GPUs"),
        (("zoo-002", "--vary", "ep=3"), "--vary ep: etp*ep*pp = 24 does not divide 256 GPUs"),
        (("zoo-002", "zoo-004", "--model", "kimi-k2"), "--model: does not go with a scenario"),
    ],
)
def test_bad_input(moesim, arguments, line):
    assert any(line in one for one in moesim("compare", *arguments).lines)


def test_each_case_may_have_its_own_best_layout(moesim, small_file):
    options = ("compare", small_file, "--vary", "gpu.memory_capacity=60 GB,80 GB", "--reoptimise", "ep,micro_batch")
    found = moesim(*options, "--json").json
    for case in found["cases"]:
        assert set(case["reoptimised"]) == {"ep", "micro_batch"}
        assert case["estimate"]["feasible"]
    plain = moesim("estimate", small_file, "--json").json
    assert found["cases"][0]["estimate"]["step_time_s"] <= plain["step_time_s"]
    assert "micro_batch" in moesim(*options).out
    (line,) = moesim("compare", small_file, "--vary", "ep=2", "--reoptimise", "tpp").lines
    assert line.startswith("--reoptimise tpp: a search varies fields of the strategy; did you mean 'tp'?")
