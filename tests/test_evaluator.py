"""Many strategies at once are each of them."""

import math
import random
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import moesim
from moesim.cost.pipeline import step_times
from moesim.estimator import estimate
from moesim.evaluator import evaluate

MODEL = """\
schema: 1
name: divisible
num_layers: 2
hidden_size: 5040
vocab_size: 50400
tie_embeddings: false
attention: {kind: gqa, num_heads: 60, num_kv_heads: 60, head_dim: 84, qk_norm: true}
moe: {num_experts: 120, top_k: 4, ffn_size: 5040, gated: true}
source: nvidia-h100
note: not a real model; its sizes have many divisors, so that thousands of strategies share a pipeline shape
"""
SCENARIO = """\
schema: 1
name: divisible
model: divisible.yaml
cluster: hgx-h100:1260
sequence_length: 5040
global_batch: 20160
strategy: {pp: 2, schedule: 1f1b, sequence_parallel: true}
"""
MANY = 4096
MICRO_BATCHES = 4


def divisors(number):
    return [k for k in range(1, number + 1) if number % k == 0]


@pytest.fixture(scope="module")
def divisible(tmp_path_factory) -> moesim.Problem:
    folder: Path = tmp_path_factory.mktemp("divisible")
    (folder / "divisible.yaml").write_text(MODEL)
    (folder / "scenario.yaml").write_text(SCENARIO)
    return moesim.load(folder / "scenario.yaml")


@pytest.fixture(scope="module")
def strategies(divisible) -> list[moesim.Strategy]:
    """4,096 different strategies of 1F1B on two ranks with four micro-batches each."""
    ranks = divisible.machine.num_gpus // 2
    found = []
    for tp, ep, etp in product(divisors(60), divisors(120), divisors(5040)):
        if ranks % (ep * etp) == 0:
            micro_batch = divisible.global_batch * tp // (ranks * MICRO_BATCHES)
            found.append(divisible.strategy.replace(tp=tp, ep=ep, etp=etp, micro_batch=micro_batch))
    assert len(set(found)) == len(found) > MANY
    return random.Random(0).sample(found, MANY)


def test_4096_strategies_equal_4096_scalar_calls_and_are_30_times_faster(divisible, strategies):
    evaluate(divisible, strategies[:2])  # the graph of the shape is built once, for both
    tries = []
    for _ in range(3):
        started = time.perf_counter()
        batch = evaluate(divisible, strategies)
        tries.append(time.perf_counter() - started)
    together_s = min(tries)  # short enough for a hiccup of the machine to matter
    assert batch.legal.all()

    started = time.perf_counter()
    singles = [evaluate(divisible, [strategy]) for strategy in strategies]
    alone_s = time.perf_counter() - started
    for name in ("step_time_s", "peak_bytes"):
        alone = np.array([getattr(single, name)[0] for single in singles])
        assert getattr(batch, name) == pytest.approx(alone, rel=1e-12, abs=0)
    print(f"{MANY} scalar calls take {alone_s / together_s:.0f} times as long as one batch")
    assert alone_s / together_s >= 30
    assert len(np.unique(batch.step_time_s)) > 0.9 * MANY  # the strategies really differ


def test_a_batch_holds_the_numbers_of_estimates(divisible, strategies):
    batch = evaluate(divisible, strategies)
    for index in range(0, MANY, MANY // 50):
        answer = estimate(divisible, strategies[index])
        assert batch.step_time_s[index] == pytest.approx(answer.step_time_s, rel=1e-12, abs=0)
        assert batch.peak_bytes[index] == pytest.approx(answer.memory.peak_bytes, rel=1e-12, abs=0)


def test_a_mixture_of_shapes_and_methods_holds_the_numbers_of_estimates(small, estimates):
    shuffled = random.Random(1).sample(estimates, len(estimates))
    batch = evaluate(small, [strategy for strategy, _ in shuffled])
    assert batch.legal.all()
    for index, (strategy, answer) in enumerate(shuffled):
        assert batch.step_time_s[index] == pytest.approx(answer.step_time_s, rel=1e-12, abs=0), strategy
        assert batch.peak_bytes[index] == pytest.approx(answer.memory.peak_bytes, rel=1e-12, abs=0), strategy


def test_neighbours_in_a_batch_do_not_change_an_entry(small):
    """Degrees of one rank beside degrees of many: nothing may be decided for the batch as a whole."""
    for transport in ("deepep", "nccl-alltoall"):
        base = small.strategy.replace(transport=transport, pp=2)
        grid = [base.replace(ep=ep, etp=etp) for ep, etp in product((1, 2, 32), (1, 2, 8)) if ep * etp <= 32]
        together = evaluate(small, grid)
        for index, strategy in enumerate(grid):
            alone = evaluate(small, [strategy])
            assert together.step_time_s[index] == pytest.approx(alone.step_time_s[0], rel=1e-13, abs=0)
            assert together.peak_bytes[index] == alone.peak_bytes[0]


@pytest.mark.parametrize("name", ["dense", "latent", "shared"])
@pytest.mark.parametrize("changes", [{}, {"overlap_tp": True}, {"cp_kind": "ulysses"}, {"dp_sharding": "fsdp"}])
def test_every_kind_of_layer_is_the_same_alone_and_among_others(variants, name, changes):
    problem = variants[name]
    split = name != "dense" or "overlap_tp" in changes  # dense layers also run without sequence parallelism
    base = problem.strategy.replace(
        pp=1, schedule="none", sequence_parallel=split, overlap_param_gather=False, **changes
    )
    experts = (1,) if name == "dense" else (1, 8)
    grid = [
        base.replace(tp=tp, cp=cp, ep=ep, micro_batch=tp * cp) for tp, cp, ep in product((1, 2, 4), (1, 2), experts)
    ]
    together = evaluate(problem, grid)
    assert together.legal.all()
    for index, strategy in enumerate(grid):
        alone = evaluate(problem, [strategy])
        assert together.step_time_s[index] == pytest.approx(alone.step_time_s[0], rel=1e-12, abs=0), strategy
        assert together.peak_bytes[index] == pytest.approx(alone.peak_bytes[0], rel=1e-12, abs=0), strategy


def test_illegal_strategies_are_marked_and_do_not_disturb(small):
    good = small.strategy
    bad = [
        good.replace(ep=5),
        good.replace(tp=64),
        good.replace(schedule="zero-bubble"),
        good.replace(transport="pigeons"),
        good.replace(pp=4, vpp=3, schedule="interleaved-1f1b"),
        good.replace(recompute=("full", "moe")),
        good.replace(micro_batch=7),
        good.replace(overlap_ep=True),
    ]
    batch = evaluate(small, [bad[0], good, *bad[1:], good.replace(ep=4)])
    assert batch.legal.tolist() == [False, True, *[False] * 7, True]
    assert np.isnan(batch.step_time_s[~batch.legal]).all()
    assert np.isnan(batch.peak_bytes[~batch.legal]).all()
    assert batch.fits.tolist() == batch.legal.tolist()
    assert batch.step_time_s[1] == evaluate(small, [good]).step_time_s[0]


def test_nothing_to_evaluate(small):
    batch = evaluate(small, [])
    assert batch.step_time_s.shape == batch.peak_bytes.shape == batch.legal.shape == (0,)


def test_a_batch_larger_than_a_piece_is_the_same(small, monkeypatch):
    grid = [small.strategy.replace(ep=ep, etp=etp) for ep, etp in product((1, 2, 4, 8), (1, 2))]
    whole = evaluate(small, grid)
    monkeypatch.setattr("moesim.evaluator.PIECE", 3)
    pieces = evaluate(small, grid)
    assert pieces.step_time_s == pytest.approx(whole.step_time_s, rel=1e-13, abs=0)
    assert pieces.peak_bytes.tolist() == whole.peak_bytes.tolist()


def test_hardware_constants_may_be_columns(small):
    """What if the memory, or the NIC, were faster: columns of one batch equal problems with changed constants."""
    from moesim.cost.blocks import price_blocks
    from moesim.timeline.run import run

    factors = np.array([1.0, 1.2, 2.0])
    plan = small.plan()
    machine = plan.machine
    columns = {
        "gpu.memory_bandwidth": (
            "3.35 TB/s",
            replace(machine, gpu=replace(machine.gpu, memory_bandwidth=machine.gpu.memory_bandwidth * factors)),
        ),
        "nic.bandwidth": (
            "400 Gb/s",
            replace(machine, links=replace(machine.links, nic_bandwidth=machine.links.nic_bandwidth * factors)),
        ),
    }
    for path, (text, wide) in columns.items():
        varied = replace(plan, machine=wide, shape=(3,))
        times = step_times(varied, price_blocks(varied))
        together = run(times.graph.graph, times.durations, times.delays).makespan
        value, unit = text.split()
        for factor, seconds in zip(factors, together, strict=True):
            changed = small.with_changes({path: f"{float(value) * float(factor)!r} {unit}"})
            assert estimate(changed).step_time_s == pytest.approx(seconds, rel=1e-12)
        assert math.isfinite(together.sum())
        assert together[0] > together[2]
