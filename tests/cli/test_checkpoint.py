"""``moesim checkpoint``: what it prints and refuses."""

import pytest


def test_the_table(moesim):
    shown = moesim("checkpoint", "zoo-002", "--timeout", "600s", "--lose", "16")
    assert (shown.code, shown.err) == (0, "")
    for words in (
        "12 B",
        "256 writers",
        "imbalance 1.",
        "bound by",
        "a failure every",
        "goodput",
        "watchdog of 10.0 min",
        "with 16 nodes",
    ):
        assert words in shown.out


def test_the_json(moesim):
    found = moesim("checkpoint", "zoo-002", "--save-bw", "100GB/s", "--async", "--restart", "10min", "--json").json
    assert found["checkpoint_bytes"] == found["params"] * 12
    assert found["write_bandwidth_bytes_per_s"] == 100e9
    assert 0.9 < found["goodput"] < 1
    assert found["restart_s"] == pytest.approx(600 + found["load_time_s"])


def test_a_watchdog_that_trips_says_what_would_help(moesim):
    call = (
        "checkpoint",
        "--model",
        "qwen3-235b-a22b",
        "--cluster",
        "hgx-h100:8",
        "--writers",
        64,
        "--save-bw",
        "2GB/s",
    )
    found = moesim(*call, "--timeout", "600s", "--json").json
    assert found["trips_watchdog"] == "yes"
    assert found["waits_s"] == found["slow_save_time_s"] > 600
    enough = f"{found['bandwidth_for_timeout_bytes_per_s']} B/s"
    after = moesim(*call[:-1], enough, "--timeout", "600s", "--json").json
    assert after["waits_s"] == pytest.approx(600)
    shown = moesim(*call, "--timeout", "600s").out
    assert "trips: yes; a rank waits up to 3.6 h: set it to more, or write" in shown


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
        (("--save", "shard"), "--save: no kind of save 'shard'; did you mean 'sharded'?"),
        (("--save", "gathered", "--writers", "4"), "--writers: a gathered save says itself who writes"),
        (("--writer-bw", "2GB/s"), "--writer-bw: is of one writer, and nobody says how many"),
        (("--writer-bw", "2GB/s", "--save-bw", "2GB/s", "--writers", "4"), "--writer-bw: and --save-bw say the same"),
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
