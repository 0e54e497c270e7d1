"""Optimizers: what each keeps, moves and computes."""

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.cost.blocks import price_blocks
from moesim.cost.gemm import gemm_time
from moesim.cost.memory import rank_memory
from moesim.cost.memory_bound import traffic_time
from moesim.cost.update import (
    newton_schulz,
    optimizer_time,
    optimizer_work,
    orthogonalise_bytes,
    orthogonalise_messages,
    orthogonalise_time,
    update_parts,
)
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.problem import Problem
from moesim.workload.matrices import Matrix
from moesim.workload.optimizers import optimizers

DDP = {"dp_sharding": "ddp", "overlap_param_gather": False}


def plan(problem: Problem, **changes: object):
    return problem.plan(problem.strategy.replace(**changes))


def state(problem: Problem, rank: int, **changes: object) -> float:
    made = plan(problem, **changes)
    return float(rank_memory(made, price_blocks(made))[rank].classes["optimizer"])


@pytest.mark.parametrize(("name", "moments"), [("adam", 2), ("sgd-momentum", 1), ("sgd", 0)])
def test_state_is_the_main_weights_and_the_moments(small, name, moments):
    total = plan(small).params[1].total
    assert state(small, 1, optimizer=name, **DDP) == pytest.approx(total * (4 + 4 * moments), rel=1e-14)
    assert state(small, 1, optimizer=name, optimizer_state_dtype="bf16", **DDP) == pytest.approx(
        total * (4 + 2 * moments), rel=1e-14
    )


def test_muon_keeps_one_moment_of_matrices_and_two_of_the_rest(small):
    params = plan(small).params[0]  # with the embedding of 32000 x 2048 over tp 2
    assert params.plain == 32000 * 2048 / 2 + 2 * (2 * 2048 + 2 * 128)
    matrices = params.total - params.plain
    assert state(small, 0, optimizer="muon", **DDP) == pytest.approx(8 * matrices + 12 * params.plain, rel=1e-14)


@pytest.mark.parametrize(("name", "moments"), [("adam", 2), ("sgd-momentum", 1), ("sgd", 0)])
def test_an_update_reads_and_writes_each_moment(small, name, moments):
    made = plan(small, optimizer=name, **DDP)
    # clear 4, read gradients twice 8, main weights in and out 8, weights out 2
    assert optimizer_work(made, 1).hbm_bytes == pytest.approx(made.params[1].total * (22 + 8 * moments), rel=1e-14)
    assert optimizer_time(made, 1) == traffic_time(optimizer_work(made, 1).hbm_bytes, made.machine.gpu)


def test_a_newton_schulz_step_is_4_n2_m_and_2_n3():
    for matrix in (Matrix("up", 100, 300), Matrix("down", 300, 100, split="rows")):
        assert sum(work.flop for work in newton_schulz(matrix)) == 4 * 100**2 * 300 + 2 * 100**3


def test_muon_works_on_whole_matrices_shared_out_over_the_replicas(small):
    made = plan(small, optimizer="muon", tp=2, ep=8, pp=4)
    gpu = made.machine.gpu

    def once(rows, columns):
        return sum(gemm_time(work, gpu) for work in newton_schulz(Matrix("", rows, columns)))

    # two layers: query, key, value, output and router whole; 96 experts' matrices of 32/8 experts; dp 8, edp 2
    dense = 2 * once(2048, 2048) + 2 * once(2048, 512) + once(2048, 32)
    expected = 5 * 2 * (dense / 8 + 3 * 4 * once(2048, 768) / 2)
    assert orthogonalise_time(made, 1) == pytest.approx(expected, rel=1e-12)
    alone = plan(small, optimizer="muon", tp=2, ep=8, pp=4, **DDP)
    assert orthogonalise_time(alone, 1) == pytest.approx(5 * 2 * (dense + 12 * once(2048, 768)), rel=1e-12)
    assert orthogonalise_bytes(made, 1) == 4 * 2048**2 + 4 * 2048**2


def test_muon_gathers_what_is_split(small):
    made = plan(small, optimizer="muon", tp=2, ep=8, pp=4)
    sizes = {message.axis: message.size for message in orthogonalise_messages(made, 1)}
    attention = 2 * (2 * 2048 * 2048 + 2 * 2048 * 512)
    router, experts = 2 * 2048 * 32, 2 * 3 * 2048 * 768 * 4
    assert sizes["dense-shard"] == pytest.approx(2 * (attention / 2 + router))
    assert sizes["routed-shard"] == pytest.approx(2 * experts)
    assert sizes["tp"] == pytest.approx(2 * attention / 8)
    replicated = {message.axis for message in orthogonalise_messages(plan(small, optimizer="muon", **DDP), 1)}
    assert replicated == {"tp", "etp"}
    parts = update_parts(made, 1)
    assert parts["dp"] > 0
    assert optimizer_time(made, 1) == sum(parts.values())
    assert not orthogonalise_messages(plan(small), 1)


def test_muon_saves_memory_and_costs_time(small):
    adam, muon = (estimate(small, small.strategy.replace(optimizer=name)) for name in ("adam", "muon"))
    assert muon.memory.stages[1]["optimizer_bytes"] < adam.memory.stages[1]["optimizer_bytes"]
    assert muon.breakdown_s["optimizer"] > adam.breakdown_s["optimizer"]
    assert sum(muon.breakdown_s.values()) == pytest.approx(muon.step_time_s, rel=1e-12)
    assert "optimizer" not in adam.strategy  # adam is what nobody has to ask for
    assert muon.strategy["optimizer"] == "muon"


@pytest.mark.parametrize("name", optimizers.names())
def test_a_batch_gives_the_numbers_of_one(small, name):
    strategies = [small.strategy.replace(optimizer=name, ep=ep, tp=tp) for ep in (4, 8) for tp in (1, 2)]
    batch = evaluate(small, strategies)
    for strategy, seconds, peak in zip(strategies, batch.step_time_s, batch.peak_bytes, strict=True):
        one = estimate(small, strategy)
        assert one.step_time_s == pytest.approx(seconds, rel=1e-12)
        assert one.memory.peak_bytes == pytest.approx(peak, rel=1e-12)
    assert np.isfinite(batch.step_time_s).all()


def test_an_unknown_optimizer_is_refused(small):
    with pytest.raises(SpecError, match=r"no optimizer 'adamm' .*did you mean 'adam'"):
        estimate(small.with_changes({"optimizer": "adamm"}))
