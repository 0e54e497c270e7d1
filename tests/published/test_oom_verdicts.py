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
    assert (memory.peak_bytes <= memory.capacity_bytes) == (row["fits"] == "yes")


def test_the_state_alone_nearly_fills_the_gpu_of_mem_01():
    """77 GB: 5.16 billion weights of 6 bytes, 12 for each of 3.62 billion expert weights and an eighth of the others."""
    stage = moesim.estimate(problem(ROWS[0])).memory.stages[0]
    state = sum(stage[name] for name in ("weights_bytes", "gradients_bytes", "optimizer_bytes"))
    assert state == pytest.approx(5.16e9 * 6 + 12 * 3.62e9 + 12 * 1.54e9 / 8, rel=0.01)


def test_every_row_has_a_source():
    assert {row["source"] for row in ROWS} <= set(sources())
