"""``moesim checkpoint``: what it prints and refuses."""

import pytest


def test_the_table(moesim):
    shown = moesim("checkpoint", "zoo-002", "--timeout", "600s", "--lose", "16")
    assert (shown.code, shown.err) == (0, "")
    for words in ("12 B", "32 writers", "a failure every", "goodput", "watchdog of 10.0 min", "with 16 nodes"):
        assert words in shown.out


def test_the_json(moesim):
    found = moesim("checkpoint", "zoo-002", "--save-bw", "100GB/s", "--async", "--restart", "10min", "--json").json
    assert found["checkpoint_bytes"] == found["params"] * 12
    assert found["write_bandwidth_bytes_per_s"] == 100e9
    assert 0.9 < found["goodput"] < 1
    assert found["restart_s"] == pytest.approx(600 + found["load_time_s"])


def test_a_strategy_that_is_not_legal_still_has_a_checkpoint(moesim):
    options = ("--model", "qwen3-235b-a22b", "--cluster", "hgx-h100:8", "--set", "pp=8", "--json")
    found = moesim("checkpoint", *options).json
    assert found["step_time_s"] is None
    assert found["save_time_s"] > 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--storage", "nvm"), "no storage 'nvm'; did you mean 'nvme'?"),
        (("--contents", "fp32"), "--contents: no contents 'fp32'; "),
        (("--save-bw", "100"), "--save-bw: '100' has no unit; write for example '400 Gb/s'"),
        (("--mtbf-gpu", "-3h"), "--mtbf-gpu: '-3h' is not more than zero"),
        (("--restart", "10 minutes"), "--restart: '10 minutes' is not a time [s]"),
        (("--writers", "1000"), "--writers: 1000 writers on 256 GPUs"),
        (("--async", "--interval", "1s"), "--interval: a save takes"),
        (("--interval", "1ms"), "--interval: 0.001 s is less than a step of"),
        (("--mtbf-gpu", "1s"), "--mtbf-gpu: a failure every 0.00391 s, and"),
        (("--lose", "32"), "--lose: 32 of 32 nodes; less than 32"),
    ],
)
def test_bad_input(moesim, arguments, line):
    assert any(line in one for one in moesim("checkpoint", "zoo-002", *arguments).lines)


def test_a_load_on_another_layout(moesim):
    shown = moesim("checkpoint", "zoo-002", "--onto", "ep=8", "--format", "layout-bound")
    assert "layout-bound: converted first" in shown.out
    found = moesim("checkpoint", "zoo-002", "--onto", "ep=8", "--json").json
    assert found["resharded"]["direct"]
    assert "resharded" not in moesim("checkpoint", "zoo-002", "--json").json
    refused = moesim("checkpoint", "zoo-002", "--onto", "ep=3")
    assert "not with this strategy" in refused.out


def test_a_format_needs_a_layout(moesim):
    told = moesim("checkpoint", "zoo-002", "--format", "gathered")
    assert told.lines == ["--format: says how a checkpoint loads elsewhere; give --onto as well"]
