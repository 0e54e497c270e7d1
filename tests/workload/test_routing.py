"""Popularity of experts, and what the slowest rank gets of it, worked out by hand."""

import numpy as np
import pytest

from moesim.workload.loads import Cut, placed, skew
from moesim.workload.routing import has_law, popularity, problem, routings

LISTED = "histogram:4,2,1,1,0,0,0,0"
"""Eight experts on two ranks: all rows end on the first four."""


@pytest.mark.parametrize(
    "law", ["zipf:0", "zipf:0.7", "zipf:2", "power-law:0.5", "power-law:1", "power-law:1.6", LISTED]
)
def test_rows_over_the_mean_have_the_mean_one(law):
    rows = popularity(law, 8)
    assert rows.mean() == pytest.approx(1.0)
    assert (rows >= 0).all()
    assert (np.diff(rows) <= 1e-12).all()


def test_zipf_by_hand():
    # 1 + 1/2 + 1/3 + 1/4 = 25/12
    assert popularity("zipf:1", 4) == pytest.approx(np.array([1, 1 / 2, 1 / 3, 1 / 4]) * 4 * 12 / 25)


def test_a_power_law_is_its_quantiles():
    # density x^-2 on 1 to 1000: x(u) = 1 / (1 - u (1 - 1/1000)), at u = 3/4 and 1/4
    rows = np.array([1 / (1 - 0.75 * 0.999), 1 / (1 - 0.25 * 0.999)])
    assert popularity("power-law:2", 2) == pytest.approx(rows / rows.mean())


def test_without_an_exponent_all_experts_are_alike():
    even = skew("zipf:0", 8, 4, Cut())
    assert (even.load, even.exchanged, even.dropped) == pytest.approx((1.0, 1.0, 0.0))
    assert even.spread == pytest.approx(np.ones(2))


@pytest.mark.parametrize(
    ("cut", "load", "exchanged", "dropped", "rows"),
    [
        (Cut(), 2.0, 2.0, 0.0, [4, 2, 1, 1]),
        # the first rank keeps 1.5 of its 2, half of the ranks lose half a mean
        (Cut(1.5), 1.5, 1.5, 0.25, [4, 2, 1, 1]),
        # experts of 4 and 2 keep 1.5 each: 3 of 8 rows are lost
        (Cut(1.5, per_expert=True), 1.25, 1.25, 0.375, [1.5, 1.5, 1, 1]),
        # the hottest expert, half of all rows, stays where the tokens are: 4/4 come in, and 4/8 are one's own
        (Cut(replicated=1), 1.5, 1.0, 0.0, [2, 1, 1, 2]),
        (Cut(replicated=2), 1.25, 0.5, 0.0, [1, 1, 2, 1]),
    ],
)
def test_the_slowest_rank_by_hand(cut, load, exchanged, dropped, rows):
    found = skew(LISTED, 8, 2, cut)
    assert (found.load, found.exchanged, found.dropped) == pytest.approx((load, exchanged, dropped))
    assert found.groups == len(rows)
    assert found.spread == pytest.approx(np.array(rows) / np.mean(rows))


def test_one_rank_holds_all_experts_and_waits_for_nobody():
    alone = skew("zipf:1.2", 16, 1, Cut())
    assert alone.load == pytest.approx(1.0)
    assert len(alone.spread) == 16


def test_a_budget_of_the_rank_never_drops_more_than_budgets_of_its_experts():
    for law in ("zipf:0.3", "zipf:1", "power-law:1.4", LISTED):
        for ep in (1, 2, 4):
            rank, each = (skew(law, 8, ep, Cut(1.2, per_expert=per)).dropped for per in (False, True))
            assert rank <= each + 1e-12


@pytest.mark.parametrize("law", ["zipf", "power-law"])
def test_a_steeper_law_is_hotter_everywhere(law):
    loads = [skew(f"{law}:{exponent}", 64, 8, Cut()).load for exponent in (0, 0.5, 1.0, 1.5)]
    assert loads == sorted(loads)
    assert loads[-1] > 1.5 * loads[0]


def test_columns_are_scalar_runs():
    sizes = np.array([1, 8, 2, 8, 4])
    together = skew("zipf:0.8", 16, sizes, Cut(1.3, replicated=2))
    for column, size in enumerate(sizes):
        alone = skew("zipf:0.8", 16, int(size), Cut(1.3, replicated=2))
        for name in ("load", "exchanged", "dropped", "groups"):
            assert getattr(together, name)[column] == getattr(alone, name)
        spread = together.spread[:, column]
        assert spread[: len(alone.spread)].tolist() == alone.spread.tolist()
        assert not spread[len(alone.spread) :].any()


def test_a_histogram_stays_in_its_order_and_a_law_is_shuffled():
    assert placed(LISTED, 8, 2).tolist() == popularity(LISTED, 8).tolist()
    mixed = placed("zipf:1", 8, 2)
    assert mixed.tolist() != popularity("zipf:1", 8).tolist()
    assert sorted(mixed) == sorted(popularity("zipf:1", 8))
    assert placed("zipf:1", 8, 2).tolist() == mixed.tolist()


@pytest.mark.parametrize(
    ("routing", "what"),
    [
        ("zipf", "'' is no exponent"),
        ("zipf:-1", "outside of 0 to 10"),
        ("power-law:x", "'x' is no exponent"),
        ("histogram:1,2", "2 numbers for 8 experts"),
        ("histogram:1,2,3,4,5,6,7,eight", "a list of numbers"),
        ("histogram:0,0,0,0,0,0,0,0", "not all 0"),
        ("histogram:1,1,1,1,1,1,1,-1", "0 or more"),
        ("histogram:1,1,1,1,1,1,1,nan", "0 or more"),
        ("balanced:2", "takes no argument"),
        ("zipf:1", ""),
        (LISTED, ""),
        ("natural", ""),
    ],
)
def test_what_is_wrong_with_an_argument(routing, what):
    assert what in problem(routing, 8)
    assert bool(what) == bool(problem(routing, 8))


def test_only_laws_speak_of_single_experts():
    assert {entry.name for entry in routings.entries() if has_law(entry.name)} == {"zipf", "power-law", "histogram"}
    with pytest.raises(ValueError, match="no law"):
        popularity("natural", 8)
