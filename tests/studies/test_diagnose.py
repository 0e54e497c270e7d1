"""What explains a gap: ranking, factors, limits."""

import math

import pytest

import moesim
from moesim.studies.diagnose import advice, diagnose
from moesim.studies.faults import with_changes
from moesim.studies.references import references


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


def test_the_verdict_is_the_interval(small):
    answer = moesim.estimate(small)
    times = (0.9 * answer.low_s, answer.low_s, answer.high_s, 1.5 * answer.high_s)
    found = [diagnose(small, seconds) for seconds in times]
    assert [one.verdict for one in found] == ["fast", "normal", "normal", "slow"]
    assert found[1].missing is found[2].missing is None


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"recompute": "full"}, "recompute"),
        ({"rank_imbalance": "2.0"}, "rank_imbalance"),
        ({"software.host.framework_per_kernel": "x3", "software.host.chunk": "x3", "software.host.kernel_launch": "x3"}, "software.host.chunk"),
    ],
)  # fmt: skip
def test_a_run_that_does_otherwise_is_found_out(qwen, changes, path):
    """Make a run that does one thing otherwise than it says: it is among the three first, at nearly all of the gap."""
    found = diagnose(qwen, moesim.estimate(qwen.with_changes(changes)).step_time_s)
    assert found.verdict == "slow"
    named = next(one for one in found.top if path in one.changes)
    assert named.explains == pytest.approx(1, abs=0.05)
    assert found.missing is not None


def test_suspicions_go_the_way_of_the_gap_and_the_nearest_comes_first(small):
    answer = moesim.estimate(small)
    for measured in (0.97 * answer.step_time_s, 1.5 * answer.high_s):
        found = diagnose(small, measured)
        assert len(found.suspicions) > 1
        off = [abs(math.log(one.step_time_s / measured)) for one in found.suspicions]
        assert off == sorted(off)
        for one in found.suspicions:
            assert (one.step_time_s - answer.step_time_s) / found.gap_s == pytest.approx(one.explains)
            assert one.explains >= 0.1
            assert moesim.estimate(with_changes(small, one.changes, "--set")).step_time_s == pytest.approx(
                one.step_time_s
            )
        paths = [tuple(sorted(one.changes)) for one in found.suspicions]
        assert len(paths) == len(set(paths))


def test_terms_add_up_and_each_would_close_the_gap(zoo):
    found = diagnose(zoo, 60.0)
    assert sum(one.predicted_s for one in found.terms) == pytest.approx(found.estimate.step_time_s)
    for one in found.terms:
        assert one.needed is not None
        assert one.predicted_s * (one.needed - 1) == pytest.approx(found.gap_s)


def test_references_are_published_runs_of_the_model_the_nearest_first(qwen):
    found = references(qwen, 4)
    assert [one.distance for one in found] == sorted(one.distance for one in found)
    assert len(found) == 4
    assert all(one.num_gpus > 0 and one.tokens_per_s_per_gpu > 0 and one.source for one in found)
    assert any(one.predicted_tokens_per_s_per_gpu for one in found)
    assert diagnose(qwen, 19.7).references == ()


def test_nobody_published_a_run_of_a_model_of_the_tests(small):
    assert references(small) == ()
