"""What recomputing frees, and the longest sequence that fits."""

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.studies.longest import longest
from moesim.studies.recomputing import ranked


@pytest.fixture(scope="module")
def job():
    return moesim.load("qwen3-235b-h100x256").with_changes({"recompute": "none"})


@pytest.fixture(scope="module")
def ranking(job):
    return ranked(job, target_bytes=6 * 2**30)


def test_a_module_is_the_difference_of_two_estimates(job, ranking):
    one = next(module for module in ranking.modules if module.name == "moe_act")
    after = moesim.estimate(job.with_changes({"recompute": "moe_act"}))
    assert one.step_time_s == after.step_time_s
    assert one.freed_bytes == ranking.base.memory.peak_bytes - after.memory.peak_bytes > 0
    assert one.added_s > 0


def test_fused_attention_frees_next_to_nothing(ranking):
    one = next(module for module in ranking.modules if module.name == "core_attn")
    assert 0 <= one.freed_bytes < 0.5 * 2**30


def test_modules_that_the_model_lacks_are_free_and_useless(ranking):
    one = next(module for module in ranking.modules if module.name == "shared_experts")
    assert (one.freed_bytes, one.added_s, one.bytes_per_s) == (0, 0, None)


def test_the_chosen_set_frees_enough_and_costs_least_of_the_single_ones(ranking):
    freed = ranking.base.memory.peak_bytes - ranking.chosen_estimate.memory.peak_bytes
    assert freed >= 6 * 2**30
    alone = [module.step_time_s for module in ranking.modules if module.freed_bytes >= 6 * 2**30]
    assert ranking.chosen_estimate.step_time_s <= min(alone)


def test_more_than_everything_cannot_be_freed(job):
    found = ranked(job, target_bytes=200 * 2**30)
    assert found.chosen is None
    assert found.to_dict()["chosen"] is None


def test_the_longest_sequence_fits_and_the_next_does_not(job):
    (found,) = longest(job, [{"cp": "2"}])
    assert found.sequence_length is not None
    at_end, beyond = (
        moesim.estimate(job.with_changes({"cp": "2", "sequence_length": str(found.sequence_length + more)}))
        for more in (0, 1024)
    )
    assert at_end.feasible
    assert not beyond.feasible
    assert "GiB too much" in found.next_refused


def test_context_parallelism_lengthens_it(job):
    one, two = longest(job, [{"cp": "1"}, {"cp": "2"}])
    assert one.sequence_length is not None
    assert two.sequence_length is not None
    assert two.sequence_length >= 2 * one.sequence_length


def test_a_variant_that_is_never_legal_says_why(job):
    (found,) = longest(job, [{"tp": "3"}])
    assert found.sequence_length is None
    assert "does not divide 256 GPUs" in found.next_refused
    with pytest.raises(SpecError):
        longest(job.with_changes({"tp": "3"}), [{}])
