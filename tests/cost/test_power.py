"""The clock under a power limit: bounds, direction, and what a step makes of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import moesim
from moesim.base.errors import SpecError
from moesim.cost.blocks import price_blocks
from moesim.cost.machine import Power
from moesim.cost.power import follows_clock, step_energy, sustained_clock
from moesim.workload.ops import AttentionCore, Gemm, Traffic

POWER = Power(limit=700.0, idle=140.0, per_flop={"bf16": 0.8e-12, "fp8": 0.4e-12}, per_byte=50e-12)
QWEN = "qwen3-235b-h100x256"

positive = st.floats(1e-3, 1e3)


@given(energy=st.floats(0, 1e6), seconds=positive, share=st.floats(1e-3, 1))
def test_never_above_the_clock_of_the_kernels(energy, seconds, share):
    assert 0 < sustained_clock(energy, seconds, share * seconds, POWER) <= 1


@given(energy=st.floats(0, 1e6), seconds=positive, more=st.floats(0, 1e3))
def test_a_higher_limit_is_never_slower(energy, seconds, more):
    raised = replace(POWER, limit=POWER.limit + more)
    assert sustained_clock(energy, seconds, seconds, raised) >= sustained_clock(energy, seconds, seconds, POWER)


@given(energy=st.floats(0, 1e6), seconds=positive, share=st.floats(1e-3, 1))
def test_the_step_draws_no_more_than_the_limit(energy, seconds, share):
    clocked = share * seconds
    clock = sustained_clock(energy, seconds, clocked, POWER)
    held = seconds - clocked + clocked / clock
    assert energy <= (POWER.limit - POWER.idle) * held * (1 + 1e-6)


def test_half_of_the_time_at_work_leaves_the_clock_alone():
    busy = 600.0  # J in a second beyond idle, if it did nothing else
    assert sustained_clock(busy, 1.0, 1.0, POWER) == pytest.approx(560 / 600)
    assert sustained_clock(busy, 2.0, 1.0, POWER) == 1


def test_columns_are_their_entries():
    energy = np.array([100.0, 600.0, 900.0])
    columns = sustained_clock(energy, 1.0, 0.8, POWER)
    assert columns.tolist() == [float(sustained_clock(one, 1.0, 0.8, POWER)) for one in energy]


def test_energy_counts_flop_by_type_and_bytes():
    gpu = moesim.load(QWEN).machine.gpu
    wide = Gemm(1024, 1024, 1024)
    narrow = Gemm(1024, 1024, 1024, rate="fp8-blockwise", operand_bytes=1.0)
    copy = Traffic(1e9)
    assert step_energy([(copy, 2)], gpu, POWER) == pytest.approx(2e9 * 50e-12)
    per_flop = [(step_energy([(work, 1)], gpu, POWER) - 50e-12 * work.hbm_bytes) / work.flop for work in (wide, narrow)]
    assert per_flop == pytest.approx([0.8e-12, 0.4e-12])
    core = AttentionCore(1, 8, 8, 4096, 2048, 128, 128)
    back = replace(core, backward=True)
    bytes_ = core.hbm_bytes * 50e-12
    forward, backward = (step_energy([(work, 1)], gpu, POWER) for work in (core, back))
    assert (backward - 2 * bytes_) / (forward - bytes_) == pytest.approx(2.5)  # five products against two


def test_what_follows_the_clock():
    assert follows_clock(Gemm(8, 8, 8))
    assert not follows_clock(Traffic(1e6))


def step(problem):
    return moesim.estimate(problem)


@pytest.fixture(scope="module")
def dense():
    return moesim.from_names("llama3-8b", "hgx-h100:1").with_changes({"global_batch": 64, "micro_batch": 1})


def test_a_lower_limit_takes_longer_and_says_so(dense):
    free, held = step(dense), step(dense.with_changes({"gpu.power": "450 W"}))
    assert held.step_time_s > 1.1 * free.step_time_s
    assert held.sustained_clock < free.sustained_clock <= 1
    assert {one.setting: one.elasticity for one in held.constants}["gpu.power"] < -0.3
    assert "gpu.energy.per_flop.bf16" in {one.name for one in held.interval.contributions}


def test_without_measured_energies_the_clock_stays(dense):
    unknown = replace(dense, machine=replace(dense.machine, gpu=replace(dense.machine.gpu, power=None)))
    assert price_blocks(unknown.plan()).clock == 1
    assert step(unknown).sustained_clock is None


def test_a_batch_has_a_clock_for_each_strategy(dense):
    held = dense.with_changes({"gpu.power": "450 W"})
    strategies = [held.strategy.replace(tp=tp) for tp in (1, 2, 4)]
    together = moesim.evaluate(held, strategies).step_time_s
    alone = [moesim.evaluate(held, [one]).step_time_s[0] for one in strategies]
    assert together == pytest.approx(alone, rel=1e-12)


def test_a_limit_below_idle_is_refused(dense):
    with pytest.raises(SpecError, match="is no more than the 140 W drawn idle"):
        dense.with_changes({"gpu.power": "100 W"})
