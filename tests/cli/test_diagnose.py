"""``moesim diagnose``: what it prints and refuses."""

import pytest


def test_the_table_and_the_json(moesim):
    shown = moesim("diagnose", "zoo-004", "--measured", "60s")
    assert (shown.code, shown.err) == (0, "")
    words = ("outside of the 90 % interval", "standard errors", "a healthy run shows", "framework_per_kernel")
    for word in (*words, "verdict: slow; missing: the host is three times as slow", "what to check", "6n-plus-attn"):
        assert word in shown.out
    found = moesim("diagnose", "zoo-004", "--measured", "24.2s", "--json").json
    assert found["measured_step_time_s"] == 24.2
    assert sum(found["healthy_breakdown_s"].values()) == pytest.approx(found["predicted_step_time_s"])


@pytest.mark.parametrize("measured", ["1700 tok/s", "19.7s", "245 TFLOP/s", "25%", "435k tok/s total"])
def test_a_rate_or_an_mfu_is_a_step(moesim, measured):
    found = moesim("diagnose", "qwen3-235b-h100x256", "--measured", measured, "--json").json
    assert found["measured_step_time_s"] == pytest.approx(19.5, rel=0.05)
    assert (found["verdict"], found["missing"]) == ("normal", None)
    assert len(found["top_gaps"]) <= 3
    assert {one["convention"] for one in found["conventions"]} == {"causal", "full", "6n-plus-attn"}


def test_published_runs_beside_it(moesim):
    shown = moesim("diagnose", "zoo-004", "--measured", "24.2s", "--reference")
    assert "published runs of the model" in shown.out
    assert "Megatron" in shown.out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("zoo-004",), "Missing option '--measured'"),
        (("zoo-004", "--measured", "24"), "--measured: '24' has no unit"),
        (("zoo-004", "--measured", "0s"), "--measured: '0s' is no duration"),
        (("zoo-004", "--measured", "9%", "--convention", "all"), "--convention: no convention of FLOPs 'all'"),
        (("zoo-004", "--measured", "130%"), "--measured: an MFU of '130%' is not below 100 %"),
        (("--measured", "1s"), "what to estimate is missing"),
        (("zoo-004", "--measured", "1s", "--stage", 1), "--stage: is that of a trace; give --trace FILE"),
    ],
)
def test_bad_input(moesim, arguments, line):
    assert any(line in one for one in moesim("diagnose", *arguments).lines)
