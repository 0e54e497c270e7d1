"""A search returns what single estimates of all its plans would."""

import itertools
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.studies.search.parts import degrees
from moesim.studies.search.pool import Pool, refined
from moesim.studies.search.search import search
from moesim.studies.search.space import Vary, space
from moesim.studies.search.walk import Walk
from moesim.timeline.schedules import schedules
from moesim.workload.strategy import DEGREES

CHOICES = {
    "tp": (1, 2, 4),
    "cp": (1, 2),
    "ep": (1, 2, 8, 16),
    "etp": (1, 2),
    "micro_batch": (1, 2, 4),
    "pp": (1, 2, 4),
    "vpp": (1, 2),
    "layout": ("even", "count-embedding-and-loss", "first-stages-larger"),
    "recompute": ((), ("full",), ("full:1",), ("sqrt",), ("layernorm", "moe_act"), ("moe",), ("core_attn",)),
    "transport": ("nccl-alltoall", "deepep", "hybridep", "nvshmem-rowwise"),
    "dp_sharding": ("ddp", "zero1", "zero2", "fsdp", "hsdp"),
    "precision": ("bf16", "fp8-blockwise"),
    "cp_kind": ("ring", "ulysses"),
    "overlap_ep": (False, True),
    "overlap_p2p": (False, True),
    "overlap_grad_reduce": (False, True),
    "overlap_param_gather": (False, True),
    "overlap_tp": (False, True),
    "reshard_after_forward": (False, True),
    "expert_waves": (1, 2),
    "delay_wgrad": (False, True),
    "two_batch_overlap": (False, True),
    "optimizer": ("adam", "muon"),
    "optimizer_offload": (0.0, 0.5),
    "expert_offload": (0.0, 0.5),
    "stale_gradients": (False, True),
}


TIGHT = {"cluster.count": 2, "global_batch": 32, "strategy.pp": 2, "gpu.memory_capacity": "6 GB"}
"""A small job on GPUs with so little memory that part of the layouts do not fit."""


def draw(seed):
    """A space of at most a few hundred plans."""
    pick = random.Random(seed)
    names = list(dict.fromkeys(["schedule", "micro_batch", "tp", "pp", *pick.sample(list(CHOICES), 5)]))
    vary, size = {}, 1
    for name in names:
        known = tuple(schedules.names()) if name == "schedule" else CHOICES[name]
        most = 3 if name == "schedule" else 2
        values = pick.sample(known, min(most, len(known)))
        if size * len(values) <= 48:
            vary[name], size = values, size * len(values)
    return vary


class Listening(Pool):
    """A pool that keeps all that it is given, with its bounds and with the closer ones, and runs nothing."""

    def __init__(self, problem, top):
        super().__init__(problem, top)
        self.given = []

    def add(self, batch):
        alike, rest = batch.split(np.ones(len(batch.columns), dtype=bool))
        for one in [batch, *rest, *refined(alike)]:
            self.given += [(one.plan(place), one.bounds[place], one.peaks[place]) for place in range(len(one.columns))]


def combinations(problem, vary):
    """Every plan of a space as single estimates get it, defaults and all."""
    for values in itertools.product(*vary.values()):
        chosen = {name: list(one) if isinstance(one, tuple) else one for name, one in zip(vary, values, strict=True)}
        yield problem.with_changes(chosen).strategy


@pytest.mark.parametrize("seed", range(20))
def test_a_search_equals_brute_force(variants, seed):
    tiny = list(variants.values())[seed // 2 % 4].with_changes(TIGHT)
    problem = replace(tiny, software=tiny.software.model_copy(update={"rules": ()})) if seed % 2 else tiny
    vary = draw(seed)
    plans = [(strategy, problem.check(strategy)) for strategy in combinations(tiny, vary)]
    legal = [strategy for strategy, broken in plans if not broken]
    exact = evaluate(problem, legal)
    assert exact.legal.all()

    pool = Listening(problem, 10**6)  # never full, so that nothing is left out
    walk = Walk(space(problem, vary), pool)
    walk.run()
    assert walk.counts.done == len(plans)
    assert walk.counts.legal == len(legal)
    assert sum(walk.counts.refused.values()) == len(plans) - len(legal)
    known = {one.violation.rule for _, broken in plans for one in broken}
    for name, pp, vpp in itertools.product(vary["schedule"], vary["pp"], vary.get("vpp", [1])):
        known |= {one.rule for one in schedules.get(name).constraints(pp, 1, vpp)}  # asked before the rules of degrees
    assert set(walk.counts.refused) <= known

    fitting = {strategy: place for place, strategy in enumerate(legal) if exact.fits[place]}
    assert (walk.counts.fitting, walk.counts.bounded) == (len(fitting), 0)
    assert {strategy for strategy, _, _ in pool.given} == set(fitting)
    for strategy, bound, peak in pool.given:
        place = fitting[strategy]
        assert bound <= exact.step_time_s[place], strategy
        assert peak == pytest.approx(exact.peak_bytes[place], rel=1e-9), strategy

    order = sorted(fitting, key=lambda one: (exact.step_time_s[fitting[one]], exact.peak_bytes[fitting[one]]))[:5]
    best = Pool(problem, 5)
    walk = Walk(space(problem, vary), best)
    walk.run()
    found = [plan.step_time_s for plan in best.best]
    assert found == pytest.approx([exact.step_time_s[fitting[one]] for one in order], rel=1e-9)
    assert walk.counts.fitting <= len(fitting) <= walk.counts.fitting + walk.counts.bounded
    assert (walk.counts.done, walk.counts.legal) == (len(plans), len(legal))


@pytest.mark.parametrize("name", schedules.names())
def test_no_bound_is_above_the_run(variants, name):
    """Floors of degrees, bounds of plans, and closer ones, for a sample of plans of each schedule."""
    tiny = list(variants.values())[len(name) % 4].with_changes(TIGHT | {"gpu.memory_capacity": "80 GB"})
    problem = replace(tiny, software=tiny.software.model_copy(update={"rules": ()}))
    pick = random.Random(name)
    vary = {
        "schedule": [name],
        "pp": [1, 2, 4],
        "vpp": [1, 2],
        "tp": [1, 2],
        "recompute": [(), ("moe_act",), ("full",)],
    }
    for other in pick.sample(["ep", "etp", "micro_batch", "transport", "overlap_ep", "dp_sharding", "overlap_p2p"], 3):
        vary[other] = pick.sample(CHOICES[other], 2)
    whole = space(problem, vary)
    pool = Listening(problem, 10**6)  # never full, so that nothing is left out
    walk = Walk(whole, pool)
    floors: dict[tuple[float, ...], float] = {}
    for part in walk.parts():
        columns = degrees(whole, part.flat).columns
        floors |= dict(zip(zip(*(columns[one].tolist() for one in DEGREES), strict=True), part.floors, strict=True))
        walk.run_part(part)
    sample = pick.sample(pool.given, min(40, len(pool.given)))
    exact = evaluate(problem, [plan for plan, _, _ in sample]).step_time_s
    assert len(sample)
    for (plan, bound, _), step in zip(sample, exact, strict=True):
        assert floors[tuple(float(getattr(plan, one)) for one in DEGREES)] <= bound <= step, plan


def test_parts_are_independent(tiny):
    vary: Vary = {"tp": [1, 2, 3], "ep": [2, 4], "micro_batch": [1, 2], "recompute": [[], ["full"]]}
    legal = [one for one in combinations(tiny, vary) if not tiny.check(one)]
    exact = evaluate(tiny, legal)
    whole = space(tiny, vary)
    walk = Walk(whole, Pool(tiny, 3))
    parts = [
        replace(part, flat=part.flat[one], floors=part.floors[one], legal=part.legal[one])
        for part in walk.parts()
        for one in (slice(0, None, 2), slice(1, None, 2))
    ]
    assert sum(walk.counts.refused.values()) == walk.counts.done == whole.size - len(legal)
    best, legal_of_parts = [], 0
    for part in reversed(parts):
        own = Walk(whole, Pool(tiny, 3))
        own.run_part(pickle.loads(pickle.dumps(part)))
        assert own.counts.done == own.counts.legal == part.legal.sum()
        assert not own.pool.size
        best += own.pool.best
        legal_of_parts += own.counts.legal
    assert legal_of_parts == len(legal)
    steps = sorted(plan.step_time_s for plan in best)[:3]
    assert steps == pytest.approx(sorted(exact.step_time_s[exact.fits])[:3], rel=1e-9)


def test_what_a_bound_leaves_out_is_counted_and_none_of_the_best(tiny):
    vary: Vary = {
        "tp": [1, 2, 4],
        "ep": [2, 4, 8],
        "micro_batch": [1, 2, 4],
        "recompute": [[], ["full"]],
        "transport": ["deepep", "nccl-alltoall"],
    }
    legal = [one for one in combinations(tiny, vary) if not tiny.check(one)]
    exact = evaluate(tiny, legal)
    found = search(tiny, vary, top=2)
    assert [one.plan.step_time_s for one in found.top] == pytest.approx(
        sorted(exact.step_time_s[exact.fits])[:2], rel=1e-9
    )
    assert found.plans_legal == len(legal)
    assert 0 < found.plans_bounded <= len(legal) - found.plans_fitting
    assert found.runs < len(legal)


def test_the_answer_is_that_of_single_estimates(tiny):
    vary: Vary = {"tp": [1, 2, 3], "ep": [4, 8], "schedule": ["1f1b", "gpipe"], "recompute": [["moe_act"], []]}
    found = search(tiny, vary, top=3)
    answers = [estimate(tiny, one) for one in combinations(tiny, vary) if not tiny.check(one)]
    fitting = sorted((one.step_time_s, one.memory.peak_bytes) for one in answers if one.feasible)
    assert (found.plans_total, found.plans_legal, found.plans_fitting) == (24, len(answers), len(fitting))
    assert found.refused["megatron-core: schedules"] == 12  # gpipe, whatever the others are
    assert found.refused["heads"] == 4  # tp = 3, whatever the others are but gpipe
    assert [one.plan.step_time_s for one in found.top] == pytest.approx([step for step, _ in fitting[:3]], rel=1e-9)
    told = found.to_dict()
    assert told["complete"]
    assert told["plans_per_s"] == told["plans_done"] / told["seconds"]
    assert set(told["top"][0]) >= {"strategy", "step_time_s", "low_s", "high_s", "peak_bytes", "binding"}
    for one in found.top:
        assert sum(found.loses_by(one).values()) == pytest.approx(
            one.plan.step_time_s - found.top[0].plan.step_time_s, abs=1e-9
        )


@pytest.mark.parametrize("capacity", [3.3, 3.7])
def test_shapes_that_hold_too_much_are_not_priced(tiny, capacity):
    """Their kinds of stages have no prices, as the shapes that are left have others."""
    tight = tiny.with_changes({"gpu.memory_capacity": f"{capacity} GB"})
    vary: Vary = {
        "pp": [1, 2, 4],
        "ep": [4, 8],
        "layout": ["even", "count-embedding-and-loss"],
        "recompute": [[], ["full"]],
    }
    exact = evaluate(tight, [one for one in combinations(tight, vary) if not tight.check(one)])
    found = search(tight, vary, top=2)
    assert found.plans_fitting + found.plans_bounded >= np.count_nonzero(exact.fits)
    best = sorted(exact.step_time_s[exact.fits])[:2]
    assert [one.plan.step_time_s for one in found.top] == pytest.approx(best, rel=1e-9)


def test_methods_that_are_off_are_told_too(tiny):
    found = search(tiny, {"expert_offload": [0.0, 0.5], "delay_wgrad": [False, True]}, top=4)
    varied = [one.to_dict(("expert_offload", "delay_wgrad"))["varied"] for one in found.top]
    assert {(one["expert_offload"], one["delay_wgrad"]) for one in varied} >= {(0.0, False), (0.5, False)}
    for one in found.top:
        assert one.plan.peak_bytes == pytest.approx(one.answer.memory.peak_bytes)


def test_other_objectives(tiny):
    vary: Vary = {"tp": [1, 2], "ep": [2, 4, 8], "micro_batch": [1, 2, 4], "recompute": [[], ["full"], ["moe_act"]]}
    legal = [one for one in combinations(tiny, vary) if not tiny.check(one)]
    exact = evaluate(tiny, legal)
    pairs = sorted(zip(exact.step_time_s[exact.fits], exact.peak_bytes[exact.fits], strict=True))
    front = [one for one in pairs if not any(other[0] <= one[0] and other[1] < one[1] for other in pairs)]
    found = search(tiny, vary, pareto=("step", "memory"))
    assert [one.plan.step_time_s for one in found.top] == pytest.approx([step for step, _ in front], rel=1e-9)
    assert 1 < len(front) < len(pairs)
    least = search(tiny, vary, top=3, objective="memory")
    smallest = sorted(pairs, key=lambda one: (one[1], one[0]))[:3]
    assert [one.plan.peak_bytes for one in least.top] == pytest.approx([peak for _, peak in smallest], rel=1e-9)
    assert [one.plan.step_time_s for one in least.top] == pytest.approx([step for step, _ in smallest], rel=1e-9)


def test_a_stopped_search_tells_what_it_has(tiny):
    def stop(progress):
        if progress.counts.fitting:
            raise KeyboardInterrupt

    vary: Vary = {"tp": [1, 2], "recompute": [["full"], []], "transport": ["nccl-alltoall", "deepep"]}
    found = search(tiny, vary, progress=stop)
    assert not found.complete
    assert 0 < found.counts.done < found.plans_total
    assert found.top


@pytest.mark.parametrize(
    ("vary", "what"),
    [
        ({"tpp": [1]}, "--vary tpp: a search varies fields"),
        ({"global_batch": [1]}, "a search varies fields"),
        ({"tp": "1,2"}, "no list of values"),
        ({"schedule": ["1f1c"]}, "no pipeline schedule '1f1c'"),
        ({"optimizer": "auto"}, "auto has no list"),
        ({"tp": []}, "has no values"),
    ],
)
def test_what_cannot_be_varied_is_named(tiny, vary, what):
    with pytest.raises(SpecError, match=what):
        search(tiny, vary)


@pytest.mark.parametrize(
    ("model", "others"),
    [
        ("small", {"moe", "moe_act"}),
        ("latent", {"moe", "moe_act", "mla_up_proj"}),
        ("shared", {"moe", "moe_act", "shared_experts"}),
        ("dense", {"mlp"}),
    ],
)
def test_auto_recomputes_what_the_model_has(variants, model, others):
    (axis,) = space(variants[model], {"recompute": "auto"}).axes
    singles = {name for names in axis.values for name in names}
    assert singles == {"attn", "core_attn", "full", "layernorm", "op-selective", "sqrt"} | others
    assert () in axis.values
