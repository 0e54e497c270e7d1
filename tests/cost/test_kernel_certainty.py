"""How well prices of kernels are known: kinds that nobody measured, and sizes far away."""

import numpy as np
import pytest

from moesim.cost.certainty import GRADES, UNCALIBRATED, decades_beyond, widening
from moesim.cost.from_spec import build_residuals
from moesim.cost.kernel_certainty import kernel_certainty
from moesim.cost.machine import Residuals
from moesim.cost.regimes import quantities, regime
from moesim.workload.ops import AttentionCore, Gemm, Traffic

KNOWN = Residuals({"all": (-0.3, 0.0, 0.1), "near": (-0.1, 0.0, 0.1)}, {"m": (10.0, 1000.0)})
H100 = build_residuals("h100-sxm-80gb")


@pytest.mark.parametrize(
    ("m", "decades"), [(10.0, 0.0), (1000.0, 0.0), (1.0, 1.0), (1e5, 2.0), (2000.0, np.log10(2)), (0.01, 3.0)]
)
def test_intervals_grow_by_a_half_for_every_power_of_ten(m, decades):
    assert decades_beyond(KNOWN.covered, {"m": m}) == pytest.approx(decades)
    found = kernel_certainty(KNOWN, "near", {"m": m})
    expected = 0.1 * (1.5 ** max(decades, 1.0) if decades else 1.0)
    assert np.log(float(found.high)) == pytest.approx(expected)
    assert found.grades == [GRADES[1 + (decades > 0)]]
    assert bool(found.why) == (decades > 0)


def test_the_quantity_that_is_furthest_decides():
    covered = {"m": (1.0, 10.0), "n": (1.0, 10.0)}
    assert decades_beyond(covered, {"m": 100.0, "n": 1e4, "k": 1e9}) == pytest.approx(3)
    assert widening(np.array([0.0, 0.1, 2.0])).tolist() == pytest.approx([1, 1.5, 2.25])


def test_what_nobody_measured_is_as_wide_as_an_uncalibrated_price():
    found = kernel_certainty(KNOWN, "another", {"m": 100.0})
    assert (float(found.low), float(found.high)) == pytest.approx(UNCALIBRATED.bounds())
    assert found.grades == ["datasheet"]
    assert "another" in found.why[0]
    assert kernel_certainty(None, "any", {}).grades == ["assumed"]


def test_a_calibration_without_regimes_speaks_for_all():
    one = Residuals({"all": (-0.1, 0.0, 0.1)})
    assert kernel_certainty(one, "any", {}).grades == ["calibrated"]


def test_constants_of_another_gpu_and_a_size_far_away_are_assumed():
    like = Residuals(KNOWN.quantiles, KNOWN.covered, 1.5)
    assert kernel_certainty(like, "near", {"m": np.array([100.0, 1e6])}).grades == ["datasheet", "assumed"]


@pytest.mark.parametrize(
    ("category", "family", "measured", "other"),
    [
        ("gemm", "gemm", Gemm(4096, 4096, 4096), Gemm(4096, 4096, 4096, rate="mxfp8", operand_bytes=33 / 32)),
        ("gemm", "gemm", Gemm(4096, 4096, 4096), Gemm(4096, 4096, 4096, rate="fp8-rowwise", operand_bytes=1.0)),
        (
            "attention",
            "attention",
            AttentionCore(1, 32, 8, 4096, 2048, 128, 128),
            AttentionCore(1, 32, 8, 4096, 2048, 128, 128, backward=True),
        ),
        ("memory_bound", "memory", Traffic(1e9, plain=True), Traffic(1e9)),
        ("memory_bound", "memory", Traffic(1e9, plain=True), Traffic(1e9, cast=True)),
    ],
)
def test_another_format_direction_or_kind_is_less_sure(gpu, category, family, measured, other):
    found = [
        kernel_certainty(H100[family], str(regime(one, category, gpu)), quantities(one)) for one in (measured, other)
    ]
    assert [one.grades for one in found] == [["calibrated"], ["datasheet"]]
    assert found[1].low < found[0].low
    assert found[1].high > found[0].high
