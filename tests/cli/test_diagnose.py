"""``moesim diagnose``: what it prints and refuses."""

import pytest


def test_the_table_and_the_json(moesim):
    shown = moesim("diagnose", "zoo-004", "--measured", "60s")
    assert (shown.code, shown.err) == (0, "")
    for words in ("outside of the 90 % interval", "standard errors", "a healthy run shows", "framework_per_kernel"):
        assert words in shown.out
    found = moesim("diagnose", "zoo-004", "--measured", "24.2s", "--json").json
    assert found["measured_step_time_s"] == 24.2
    assert sum(found["healthy_breakdown_s"].values()) == pytest.approx(found["predicted_step_time_s"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("zoo-004",), "Missing option '--measured'"),
        (("zoo-004", "--measured", "24"), "--measured: '24' has no unit"),
        (("zoo-004", "--measured", "0s"), "--measured: '0s' is no duration"),
        (("--measured", "1s"), "what to estimate is missing"),
        (("zoo-004", "--measured", "1s", "--stage", 1), "--stage: is that of a trace; give --trace FILE"),
    ],
)
def test_bad_input(moesim, arguments, line):
    assert any(line in one for one in moesim("diagnose", *arguments).lines)
