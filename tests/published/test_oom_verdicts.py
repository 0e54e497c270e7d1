"""Does it fit: reports from practitioners and one figure, against the prediction; ``-rP`` shows the amounts.

A row with a reason under ``known_miss`` is predicted wrongly and says why; it fails as soon as it becomes right.
"""

import csv
from pathlib import Path

import pytest

import moesim
from moesim.spec.check import sources

GIB = 2**30

with Path(__file__).with_name("oom_verdicts.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def problem(row: dict[str, str]) -> moesim.Problem:
    changes = dict(pair.split("=", 1) for pair in row["strategy"].split())
    changes |= {"sequence_length": row["sequence_length"], "global_batch": row["global_batch"]}
    return moesim.from_names(row["model"], row["cluster"], row["software"]).with_changes(changes)


@pytest.mark.parametrize("row", ROWS, ids=[row["case"] for row in ROWS])
def test_the_verdict_is_that_of_the_report(row):
    memory = moesim.estimate(problem(row)).memory
    print(f"{row['case']}: {memory.peak_bytes / GIB:.1f} of {memory.capacity_bytes / GIB:.1f} GiB, {memory.peak_phase}")
    assert (memory.peak_bytes <= memory.capacity_bytes) == ((row["fits"] == "yes") != bool(row["known_miss"]))


def test_the_state_alone_nearly_fills_the_gpu_of_mem_01():
    """77 GB: 5.16 billion weights of 6 bytes, 12 for each of 3.62 billion expert weights and an eighth of the others."""
    stage = moesim.estimate(problem(ROWS[0])).memory.stages[0]
    state = sum(stage[name] for name in ("weights_bytes", "gradients_bytes", "optimizer_bytes"))
    assert state == pytest.approx(5.16e9 * 6 + 12 * 3.62e9 + 12 * 1.54e9 / 8, rel=0.01)


def test_every_row_has_a_source():
    assert {row["source"] for row in ROWS} <= set(sources())


def test_frozen_weights_alone_overfill_the_gpus_of_mem_04():
    """32 GB at EP 2, 17.6 GB at EP 4: two bytes for each of 1.54 billion weights and 29 billion of experts."""
    two, four = (moesim.estimate(problem(row)).memory.stages[0] for row in ROWS if row["case"].startswith("MEM-04"))
    assert two["weights_bytes"] == pytest.approx(2 * (29.0e9 / 2 + 1.54e9), rel=0.03)
    assert four["weights_bytes"] == pytest.approx(2 * (29.0e9 / 4 + 1.54e9), rel=0.03)
    assert two["optimizer_bytes"] < 0.05 * two["weights_bytes"]


def test_the_tuning_log_of_mem_03_is_in_order():
    """Utilisation rises with each step; at 6144 tokens 88 % of the memory is taken."""
    log = [row for row in ROWS if row["case"].startswith("MEM-03") and row["note"]]
    mfu = [moesim.estimate(problem(row)).mfu for row in log]
    assert mfu[0] < mfu[1] < mfu[2] < mfu[3]
    memory = moesim.estimate(problem(log[-1])).memory
    assert memory.peak_bytes / memory.capacity_bytes == pytest.approx(0.88, abs=0.08)
