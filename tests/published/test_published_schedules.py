"""Slot counts of the schedules against runs of their graphs.

`times` are those of F, B, W and, where pairs are merged, of a pair (OV), in units of `forward_slots`; BW is B + W. Each value follows from the definition in the source it names; they were found by an independent symbolic simulation.
"""

import csv
from pathlib import Path

import numpy as np
import pytest

from moesim.timeline.run import run
from moesim.timeline.schedules import schedules
from moesim.timeline.step import step_graph
from moesim.timeline.walk import events, held_chunks, idle_fraction

with Path(__file__).with_name("schedules.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def measured(row):
    shape = int(row["pp"]), int(row["micro_batches"]), int(row["vpp"])
    scale = float(row["forward_slots"])
    forward, backward, weight, *pair = (scale * float(time) for time in row["times"].split())
    lengths = {"F": forward, "B": backward, "W": weight, "BW": backward + weight, "OV": sum(pair)}
    step = step_graph(schedules.get(row["schedule"]), *shape, optimizer=False, merge_pairs=bool(pair))
    durations = [lengths[kind] for kind, _ in step.rows]
    delays = np.full(step.num_delay_rows, float(row["delay_slots"]))
    delays[0] = 0
    result = run(step.graph, durations, delays)
    match row["quantity"]:
        case "makespan":
            return [float(result.makespan)]
        case "idle":
            busy = [(result.end - result.start)[step.tasks_of(rank)].sum() for rank in range(shape[0])]
            assert busy == pytest.approx([busy[0]] * len(busy), rel=1e-12)
            return [float(result.makespan - busy[0])]
        case "bubble":
            return [idle_fraction(step, result)]
        case "in_flight":
            return [chunks * scale for chunks in held_chunks(step, result)]
        case "peak":
            return [max(held_chunks(step, result)) * scale]
        case "boundaries":
            return [len(events(step, result)[1]) / shape[1] / 2]
        case _:
            raise AssertionError(row["quantity"])


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{place + 2}-{row['schedule']}-{row['quantity']}" for place, row in enumerate(ROWS)]
)
def test_published_value(row):
    expected = [float(value) for value in row["value"].split()]
    assert measured(row) == pytest.approx(expected, abs=float(row["tolerance"]), rel=0)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["quantity"] == "in_flight"], ids=lambda row: row["schedule"]
)
def test_published_in_flight_is_the_closed_form(row):
    shape = int(row["pp"]), int(row["micro_batches"]), int(row["vpp"])
    held = schedules.get(row["schedule"]).in_flight(*shape)
    assert [chunks * int(row["forward_slots"]) for chunks in held] == [int(value) for value in row["value"].split()]


def test_every_row_says_why_its_tolerance():
    assert all(row["why"] and row["source"] for row in ROWS)
