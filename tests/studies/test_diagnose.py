"""What explains a gap: ranking, factors, limits."""

import pytest

import moesim
from moesim.studies.diagnose import advice, diagnose


@pytest.fixture(scope="module")
def zoo():
    return moesim.load("zoo-004")


def test_suspects_come_by_how_little_they_need_to_be_off(zoo):
    found = diagnose(zoo, 60.0)
    errors = [one.errors for one in found.suspects]
    assert errors == sorted(errors)
    assert found.gap_s == pytest.approx(60.0 - found.estimate.step_time_s)
    assert not found.inside
    assert all(one.likely == (one.errors <= 1.6449) for one in found.suspects)


def test_a_constant_with_its_factor_explains_the_gap(zoo):
    """To first order: a gap of 3 % in the host's time is closed by the factor that is told."""
    step = moesim.estimate(zoo).step_time_s
    found = diagnose(zoo, 1.03 * step)
    host = next(one for one in found.suspects if one.name == "software.host.framework_per_kernel")
    value = zoo.machine.provenance["software.host.framework_per_kernel"].value * host.factor
    changed = zoo.with_changes({"software.host.framework_per_kernel": f"{value * 1e6:.6f} us"})
    assert moesim.estimate(changed).step_time_s == pytest.approx(1.03 * step, rel=0.01)


def test_no_gap_needs_no_factor(zoo):
    found = diagnose(zoo, moesim.estimate(zoo).step_time_s)
    assert found.inside
    assert all(one.errors == pytest.approx(0, abs=1e-9) for one in found.suspects)
    assert all(one.factor == pytest.approx(1) for one in found.suspects if one.factor is not None)


def test_every_kind_of_term_has_an_advice():
    for name in ("gemm", "grouped-gemm", "attention", "memory", "transport-deepep", "collectives-net"):
        assert "moesim explain" not in advice(name)
    assert "CPU" in advice("software.host.framework_per_kernel")
