"""Whether a job fits, and the fewest changes with which it would."""

import pytest

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.studies.fit import fit


@pytest.fixture(scope="module")
def small_gpu(small):
    """The small job on GPUs that are a little too small for it."""
    peak = estimate(small).memory.peak_bytes
    return small.with_changes({"gpu.memory_capacity": f"{0.97 * peak:.0f} B"})


@pytest.fixture(scope="module")
def refused(small_gpu):
    return fit(small_gpu)


def test_what_fits_needs_no_remedy(small):
    found = fit(small)
    assert (found.fits, found.fits_gpu, found.fits_host, found.remedies, found.tried) == (True, True, True, (), 0)
    assert found.tightest["headroom_bytes"] == small.machine.gpu.memory_capacity - found.answer.memory.peak_bytes


def test_the_tightest_rank_is_the_fullest_and_its_class_the_largest(refused):
    plain = refused.to_dict()
    peaks = [stage["peak_bytes"] for stage in plain["stages"]]
    stage = plain["stages"][plain["tightest"]["stage"]]
    assert plain["peak_bytes"] == max(peaks) == stage["peak_bytes"]
    classes = {name: value for name, value in stage.items() if name != "peak_bytes"}
    assert plain["tightest"]["class_bytes"] == max(classes.values()) == classes[plain["tightest"]["class"] + "_bytes"]
    assert plain["tightest"]["headroom_bytes"] < 0


def test_every_remedy_fits_and_the_cheapest_comes_first(small_gpu, refused):
    assert not refused.fits
    assert refused.remedies
    for one in refused.remedies:
        after = estimate(small_gpu.with_changes(one.changes))
        assert after.feasible
        assert one.slowdown == refused.answer.tokens_per_s_per_gpu / after.tokens_per_s_per_gpu
    assert [one.slowdown for one in refused.remedies] == sorted(one.slowdown for one in refused.remedies)
    paths = [tuple(one.changes) for one in refused.remedies]
    assert len(paths) == len(set(paths))


def test_two_changes_where_one_is_not_enough(small):
    tight = small.with_changes({"gpu.memory_capacity": f"{0.8 * estimate(small).memory.peak_bytes:.0f} B"})
    found = fit(tight)
    assert found.remedies
    assert {len(one.changes) for one in found.remedies} == {2}
    for one in found.remedies:
        for path, value in one.changes.items():
            assert not estimate(tight.with_changes({path: value})).feasible


def test_a_host_that_is_too_small(small):
    job = small.with_changes({"optimizer_offload": "1.0"})
    need = estimate(job).memory.host_bytes_per_node
    assert (fit(job).fits, fit(job).fits_host) == (True, None)
    assert (fit(job, need).fits, fit(job, need).fits_host) == (True, True)
    found = fit(job, 0.9 * need)
    assert (found.fits, found.fits_gpu, found.fits_host) == (False, True, False)
    assert all(one.answer.memory.host_bytes_per_node <= 0.9 * need for one in found.remedies)
    assert "optimizer_offload" in {path for one in found.remedies for path in one.changes}


def test_what_is_not_legal_is_no_answer(small):
    with pytest.raises(SpecError, match="divide"):
        fit(small.with_changes({"ep": "3"}))
