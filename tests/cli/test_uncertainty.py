"""``moesim uncertainty``."""

import pandas as pd
import pytest


def test_percentiles_shares_and_agreement(moesim, small_file, tmp_path):
    call = ("uncertainty", small_file, "--samples", 200, "--seed", 5)
    found = moesim(*call, "--json", "--plot", tmp_path / "a.svg").json
    assert (found["samples"], found["seed"]) == (200, 5)
    assert found["percentiles_s"]["p5"] < found["step_time_s"] < found["percentiles_s"]["p95"]
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    shown = moesim(*call, "-o", tmp_path / "draws.csv").out
    for words in ("P5", "P95", "agreement", "analytic", "follows from"):
        assert words in shown
    frame = pd.read_csv(tmp_path / "draws.csv")
    assert len(frame) == 200
    assert frame["step_time_s"].quantile(0.05) == pytest.approx(found["percentiles_s"]["p5"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--samples", "10"), "--samples: 10 samples; 100 to 100,000"),
        (("--plot", "a.txt"), "--plot: 'a.txt' is no picture"),
        (("-o", "a.xls"), "--out: no answer of the kind '.xls'"),
        (("--set", "ep=33"), "--set ep: "),
    ],
)
def test_bad_input(moesim, small_file, options, message):
    assert moesim("uncertainty", small_file, *options).lines[0].startswith(message)
