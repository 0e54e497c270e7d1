"""Packed documents: keys a query sees, and how much the busiest rank has to do."""

import math
import random

import numpy as np
import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.workload.documents import Documents
from moesim.workload.model import mean_columns

TWO = Documents(1280.0, points=((512.0, 0.75), (3584.0, 0.25)))


def test_work_goes_with_the_sum_of_squares():
    # three documents of 512 and one of 3584 fill 5120 tokens
    assert TWO.columns(8192) == pytest.approx((3 * 512**2 + 3584**2) / 2 / 5120)
    assert Documents(1000.0, 1.0).columns(10**9) == pytest.approx(1000 * (1 + 1**2) / 2)


def test_longer_documents_are_cut_at_the_sequence():
    assert TWO.columns(1024) == pytest.approx((3 * 512**2 / 2 + 3584 * 512) / 5120)
    for length, window, chunk in ((4096, None, None), (4096, 1024, None), (4096, None, 512)):
        assert Documents(1e6).columns(length, window, chunk) == mean_columns(length, window, chunk)


def test_a_window_bounds_what_a_document_sees():
    seen = 3 * 512**2 / 2 + (1024 * 3584 - 1024**2 / 2)
    assert TWO.columns(8192, window=1024) == pytest.approx(seen / 5120)
    assert TWO.columns(8192, chunk=1024) == pytest.approx((3 * 512**2 / 2 + 3584 * 512) / 5120)


@pytest.mark.parametrize("power", [0, 1, 2, 3, 4])
def test_moments_of_log_normal_lengths(power):
    documents = Documents(1000.0, 0.5)
    assert documents.moment(power) == pytest.approx(1000.0**power * (1 + 0.25) ** (power * (power - 1) / 2))
    assert documents.moment(power, 0, 700) + documents.moment(power, 700) == pytest.approx(documents.moment(power))


def test_equal_documents_are_balanced():
    assert Documents(512.0).hottest(8192, 64, 8192) == 1.0
    assert Documents(1e6, 0.5).hottest(8192, 64, 4096) == pytest.approx(1.0, abs=1e-3)
    assert TWO.hottest(8192, 1, 8192) == 1.0


def test_the_busiest_of_many_ranks_is_where_draws_put_it():
    draw, tokens, ranks = random.Random(1), 2_000_000, 64
    location, sigma = math.log(1000) - math.log(1.25) / 2, math.sqrt(math.log(1.25))

    def work():
        left, total = float(tokens), 0.0
        while left > 0:
            length = min(draw.lognormvariate(location, sigma), left, 8192)
            left, total = left - length, total + length**2
        return total

    loads = [work() for _ in range(ranks)]
    predicted = Documents(1000.0, 0.5).hottest(tokens, ranks, 8192)
    assert predicted - 1 == pytest.approx(max(loads) / np.mean(loads) - 1, rel=0.5)


def test_more_tokens_even_out_and_more_ranks_find_a_busier_one():
    documents = Documents(1000.0, 2.0)
    by_tokens = [documents.hottest(tokens, 64, 8192) for tokens in (1e5, 1e6, 1e7)]
    assert by_tokens == sorted(by_tokens, reverse=True)
    by_ranks = [documents.hottest(1e6, ranks, 8192) for ranks in (1, 8, 64)]
    assert by_ranks == sorted(by_ranks)
    assert documents.hottest(1.0, 4, 8192) == 4.0


@pytest.fixture(scope="module")
def long(small):
    return small.with_changes({"sequence_length": 32768, "global_batch": 64})


def test_a_sequence_of_one_document_changes_nothing(long):
    plain, same = estimate(long), estimate(long.with_changes({"documents": {"mean": 1e8}}))
    assert same.step_time_s == pytest.approx(plain.step_time_s, rel=1e-12)
    assert same.mfu == pytest.approx(plain.mfu, rel=1e-12)


def test_packed_documents_need_less_attention_and_memory_is_as_before(long):
    plain = estimate(long)
    found = [estimate(long.with_changes({"documents": {"mean": 2048, "cv": cv}})) for cv in (0, 1, 3)]
    attention = [one.breakdown_s["attention"] for one in found]
    assert attention == sorted(attention)
    assert attention[-1] < plain.breakdown_s["attention"]
    assert found[0].model_flop_per_token < found[1].model_flop_per_token < plain.model_flop_per_token
    assert all(one.memory == plain.memory for one in found)


def test_a_ring_waits_for_its_busiest_rank_and_an_exchange_of_heads_does_not(long):
    packed = long.with_changes({"documents": {"histogram": {512: 3, 16384: 1}}})
    times = {}
    for kind in ("ring", "ulysses"):
        plan = packed.plan(packed.strategy.replace(cp=2, cp_kind=kind))
        times[kind] = plan.setting.columns(None, None)
    assert times["ring"] > times["ulysses"]
    batch = evaluate(packed, [packed.strategy.replace(cp=cp) for cp in (1, 2)])
    for cp, seconds in zip((1, 2), batch.step_time_s, strict=True):
        assert estimate(packed, packed.strategy.replace(cp=cp)).step_time_s == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ({}, "write mean"),
        ({"cv": 1}, "write mean"),
        ({"mean": 100, "histogram": {10: 1}}, "write mean"),
        ({"histogram": {}}, "lengths of 1 token or more"),
        ({"histogram": {0: 1}}, "lengths of 1 token or more"),
        ({"histogram": {512: -1}}, "must be greater than 0, not -1"),
        ({"mean": 0}, "must be at least 1, not 0"),
        ({"mean": 100, "cv": -1}, "must be at least 0, not -1"),
    ],
)
def test_lengths_that_cannot_be_are_refused(small, documents, message):
    with pytest.raises(SpecError, match=message):
        small.with_changes({"documents": documents})


def test_one_field_of_the_lengths_can_be_set(small):
    packed = small.with_changes({"documents": {"mean": 512}})
    assert packed.with_changes({"documents.cv": "2"}).documents == Documents(512.0, 2.0)
    assert moesim.estimate(packed).feasible
