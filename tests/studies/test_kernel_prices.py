"""Prices of kernels on a GPU that nobody measured."""

import pytest

import moesim.studies.kernel_prices as kernel_prices
from moesim.cost.certainty import UNCALIBRATED
from moesim.workload.ops import Gemm, Traffic


@pytest.mark.parametrize(("family", "work"), [("gemm", Gemm(4096, 4096, 4096)), ("memory", Traffic(1e9, plain=True))])
def test_without_measurements_the_interval_is_wide_and_assumed(monkeypatch, family, work):
    known = kernel_prices.kernel_price(kernel_prices.Asked(family, work, "h100"))
    monkeypatch.setattr(kernel_prices, "build_residuals", lambda name, own: {})
    bare = kernel_prices.kernel_price(kernel_prices.Asked(family, work, "h100"))
    assert bare.evidence == "assumed"
    assert bare.time_s == known.time_s
    assert (bare.low_s / bare.time_s, bare.high_s / bare.time_s) == pytest.approx(UNCALIBRATED.bounds())
    assert bare.high_s / bare.low_s > known.high_s / known.low_s
