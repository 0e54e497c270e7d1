"""What ranks hold whatever they run is no more than the peak of a single estimate."""

import random
from dataclasses import replace

import numpy as np
import pytest

from moesim.cost.transports import transports
from moesim.evaluator import evaluate
from moesim.studies.search import block
from moesim.studies.search.peaks import peak_bytes as exact_peaks
from moesim.studies.search.pool import Batch, Pool
from moesim.studies.search.space import space
from moesim.studies.search.walk import Walk
from moesim.timeline.schedules import schedules
from moesim.workload.recompute import policies
from moesim.workload.strategy import Strategy

ROOMY = {"cluster.count": 2, "global_batch": 32, "strategy.pp": 2, "gpu.memory_capacity": "10 TB"}
"""GPUs that hold every layout, so that none is left out before its peak is known."""
OTHERS = {
    "dp_sharding": ("ddp", "zero1", "zero2", "fsdp", "hsdp"),
    "precision": ("bf16", "fp8-blockwise"),
    "optimizer_offload": (0.0, 0.5),
    "optimizer": ("adam", "muon"),
    "reshard_after_forward": (False, True),
    "overlap_grad_reduce": (False, True),
    "cp_kind": ("ring", "ulysses"),
}
SAMPLED = 16


class Deaf(Pool):
    """A pool that runs nothing."""

    def add(self, batch):
        """Drop what is found."""


def draw(pick):
    """A schedule, degrees, and two each of some methods."""
    some = {name: pick.sample(OTHERS[name], 2) for name in pick.sample(list(OTHERS), 2)}
    recompute = [[], [pick.choice(policies.names())]]
    degrees = {"tp": [1, 2], "ep": [1, 8], "micro_batch": [1, 2], "pp": [1, 2, 4], "vpp": [1, 2]}
    return degrees | {"recompute": recompute, "transport": pick.sample(transports.names(), 2)} | some


@pytest.mark.parametrize("schedule", schedules.names())
def test_the_floor_of_memory_is_below_every_peak(variants, monkeypatch, schedule):
    pick = random.Random(schedule)
    tiny = pick.choice(list(variants.values())).with_changes(ROOMY)
    tiny = replace(tiny, software=tiny.software.model_copy(update={"rules": ()}))
    found: list[tuple[Strategy, float]] = []

    def peaks(frame, tables, places, columns):
        layers = {name: getattr(tables.plan.strategy, name) for name in block.OF_LAYERS}
        plans = Batch(frame.plan.strategy.replace(**layers), columns, np.zeros(0), np.zeros(0))
        found.extend((plans.plan(place), frame.least_bytes[one]) for place, one in enumerate(columns))
        return original(frame, tables, places, columns)

    original = exact_peaks
    monkeypatch.setattr(block, "peak_bytes", peaks)
    Walk(space(tiny, draw(pick) | {"schedule": [schedule]}), Deaf(tiny, 1)).run()
    assert found
    some = pick.sample(found, min(SAMPLED, len(found)))
    exact = evaluate(tiny, [strategy for strategy, _ in some])
    floors = np.array([floor for _, floor in some])
    assert (floors > 0).all()
    assert (floors <= exact.peak_bytes * (1 + 1e-12)).all()
