"""Machines that are varied are searched each, and ranked together."""

import pytest

from moesim.base.errors import SpecError
from moesim.studies.search.search import search
from moesim.studies.search.space import Vary

COUNTS = ["2", "4"]
LAYOUTS: Vary = {"tp": [1, 2], "ep": [2, 8], "micro_batch": [1, 2], "recompute": [[], ["full"]]}
HOURLY = 2.5


@pytest.fixture(scope="module")
def pairs(tiny):
    """GPUs, step and peak of every layout that fits on either machine."""
    found = []
    for count in COUNTS:
        alone = search(tiny.with_changes({"cluster.count": count}), LAYOUTS, top=1000)
        assert len(alone.top) == alone.plans_fitting > 4
        gpus = alone.space.problem.machine.num_gpus
        found += [(gpus, one.plan.step_time_s, one.plan.peak_bytes) for one in alone.top]
    return found


def tokens_per_dollar(problem, gpus, step):
    return problem.global_batch * problem.sequence_length / (step * gpus * HOURLY / 3600)


@pytest.mark.parametrize("objective", ["step", "memory", "tokens-per-dollar"])
@pytest.mark.parametrize("checkpoint", [None, "s.jsonl"])
def test_they_are_ranked_together(tiny, pairs, fine, tmp_path, objective, checkpoint):
    keys = {
        "step": lambda one: (one[1], one[2]),
        "memory": lambda one: (one[2], one[1]),
        "tokens-per-dollar": lambda one: (-tokens_per_dollar(tiny, *one[:2]), one[1]),
    }
    file = checkpoint and tmp_path / checkpoint
    vary: Vary = {"cluster.count": COUNTS, **LAYOUTS}
    found = search(tiny, vary, top=6, objective=objective, price=HOURLY, checkpoint=file)
    best = [(one.job.problem.machine.num_gpus, one.plan.step_time_s, one.plan.peak_bytes) for one in found.top]
    assert best == sorted(pairs, key=keys[objective])[:6]
    assert found.plans_total == 2 * 16
    assert found.plans_fitting + found.counts.bounded == len(pairs) == found.plans_legal
    for one in found.to_dict()["top"]:
        assert one["varied"]["cluster.count"] == str(one["num_gpus"] // 8)
        wanted = tokens_per_dollar(tiny, one["num_gpus"], one["step_time_s"])
        assert one["tokens_per_dollar"] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("objectives", [("step", "tokens-per-dollar"), ("memory", "tokens-per-dollar", "step")])
def test_fronts_of_time_and_money(tiny, pairs, fine, tmp_path, objectives):
    values = {"step": lambda one: one[1], "memory": lambda one: one[2]}
    values["tokens-per-dollar"] = lambda one: -tokens_per_dollar(tiny, *one[:2])
    told = [tuple(values[name](one) for name in objectives) for one in pairs]
    front = sorted(
        one
        for one in set(told)
        if not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in told)
    )
    vary: Vary = {"cluster.count": COUNTS, **LAYOUTS}
    found = search(tiny, vary, pareto=objectives, price=HOURLY, checkpoint=tmp_path / "s.jsonl")
    best = [(one.job.problem.machine.num_gpus, one.plan.step_time_s, one.plan.peak_bytes) for one in found.top]
    assert [tuple(values[name](one) for name in objectives) for one in best] == [pytest.approx(one) for one in front]
    assert len(front) > 1


def test_each_machine_has_its_price(tiny):
    vary: Vary = {"cluster": ["hgx-h100:2", "hgx-h200:2"], "tp": [1, 2], "ep": [8]}
    prices = {"hgx-h100": 1.0, "hgx-h200": 100.0}
    found = search(tiny, vary, top=4, objective="tokens-per-dollar", price=prices)
    assert [one.job.changes["cluster"] for one in found.top] == ["hgx-h100:2"] * 2 + ["hgx-h200:2"] * 2
    dear = search(tiny, vary, top=4, objective="tokens-per-dollar", price={**prices, "hgx-h100": 10000.0})
    assert [one.job.changes["cluster"] for one in dear.top] == ["hgx-h200:2"] * 2 + ["hgx-h100:2"] * 2


@pytest.mark.parametrize(
    ("vary", "options", "what"),
    [
        ({"cluster": ["hgx-h101:2", "hgx-h100:2"]}, {}, "--vary cluster: .*hgx-h101"),
        ({"cluster.count": "auto"}, {}, "--vary cluster.count: needs a list of values; write for example"),
        ({"cluster.count": []}, {}, "needs a list of values"),
        ({"cluster.size": [2]}, {}, "cluster.size"),
        ({"tp": [1]}, {"objective": "tokens-per-dollar"}, "--objective: 'tokens-per-dollar' needs the price of a GPU"),
        ({"tp": [1]}, {"pareto": ("step", "tokens-per-dollar")}, "--pareto: 'tokens-per-dollar' needs the price"),
        ({"tp": [1]}, {"pareto": ("step", "step")}, "names an objective twice"),
        ({"tp": [1]}, {"price": 0.0}, "--price: 0.0 is out of range"),
        ({"tp": [1]}, {"price": {"hgx-h200": 2.0}}, "has none for hgx-h100"),
        ({"tp": [1]}, {"price": {"hgx-h100": 1.0, "hgx-h200": 2.0}}, "no machine has the node 'hgx-h200'"),
    ],
)
def test_what_cannot_be_is_named(tiny, vary, options, what):
    with pytest.raises(SpecError, match=what) as error:
        search(tiny, vary, **options)
    assert len(set(error.value.issues)) == len(error.value.issues)


def test_a_wrong_field_is_named_once_for_all_machines(tiny):
    with pytest.raises(SpecError) as error:
        search(tiny, {"cluster.count": COUNTS, "tpp": [1]})
    assert len(error.value.issues) == 1
