"""Moonlight-16B-A3B on 8 H100 under six recomputations: allocated memory as printed, and the floor that it ends on.

``-s`` or ``-rP`` shows the errors. Recomputing the attention core saves next to nothing, and the other four end on one
floor: below it lies another phase of the step, which no recomputation lowers.
"""

import csv
from pathlib import Path

import pytest

import moesim
from moesim.result import MemoryEstimate

GIB = 2**30
with Path(__file__).with_name("moonlight_memory.csv").open(encoding="utf-8") as file:
    ROWS = {row["run_id"]: row for row in csv.DictReader(file)}
NONE, CORE, *OTHERS = ROWS


@pytest.fixture(scope="module")
def memory() -> dict[str, MemoryEstimate]:
    return {name: moesim.estimate(moesim.load(row["scenario"])).memory for name, row in ROWS.items()}


def gib(memory: MemoryEstimate) -> float:
    return memory.allocated_peak_bytes / GIB


def test_the_scenarios_are_the_printed_runs():
    for name, row in ROWS.items():
        problem = moesim.load(row["scenario"])
        assert problem.measured is not None
        assert problem.measured.run_id == name
        assert problem.measured.peak_memory == pytest.approx(float(row["allocated_gib"]) * GIB)
        assert " ".join(problem.strategy.recompute) == row["recompute"].removeprefix("none")
        assert not problem.machine.runtime.main_param_remainders  # main weights are stated to be whole
        strategy = problem.strategy
        assert (strategy.grad_dtype, strategy.optimizer_state_dtype, strategy.tp, strategy.ep) == ("bf16", "bf16", 2, 8)
    assert all(row["why"] and row["source"] for row in ROWS.values())


@pytest.mark.parametrize("name", ROWS)
def test_allocated_memory(memory, name):
    row, found = ROWS[name], gib(memory[name])
    printed = float(row["allocated_gib"])
    print(f"{name} {row['recompute']}: {found:.2f} GiB, {found / printed - 1:+.1%}, peak in {memory[name].peak_phase}")
    assert found == pytest.approx(printed, rel=float(row["tolerance"]))


def test_recomputing_the_attention_core_saves_next_to_nothing(memory):
    assert 0 < gib(memory[NONE]) - gib(memory[CORE]) < 0.05
    assert {memory[name].peak_phase for name in (NONE, CORE)} == {"loss"}


def test_the_others_end_on_one_floor_which_the_optimizer_holds(memory):
    for name in OTHERS:
        assert 0.3 < gib(memory[NONE]) - gib(memory[name]) < 1.0
        assert memory[name].peak_phase == "optimizer"  # FP32 copies of the BF16 gradients
    assert len({memory[name].allocated_peak_bytes for name in OTHERS}) == 1
