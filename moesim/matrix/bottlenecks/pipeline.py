"""What pipeline ranks and expert ranks lose by waiting for each other."""

from functools import lru_cache

import numpy as np

from moesim.base.numeric import Numeric
from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.case import Case, Terms
from moesim.timeline.run import run
from moesim.timeline.schedule import Schedule
from moesim.timeline.step import step_graph
from moesim.timeline.walk import idle_fraction

SOURCE = "olmo-core-report"
SLOTS = {"F": 1.0, "BW": 2.0, "B": 1.0, "W": 1.0, "OV": 3.0}
"""Length of a task in slots: a backward takes twice a forward."""


def bubbles(case: Case) -> Terms:
    """Share of the slots of the schedule in which a rank idles, and what waiting for hand-offs adds. [-]"""
    strategy = case.plan.strategy
    slots = idle_slots(case.plan.schedule, strategy.pp, case.plan.num_micro_batches, strategy.vpp, strategy.overlap_ep)
    return {"slots of the schedule": slots, "pp": lambda: _hand_offs(case)}


@lru_cache(maxsize=256)
def idle_slots(schedule: Schedule, pp: int, micro_batches: int, vpp: int, merge: bool) -> float:
    """Idle share of a step whose chunks all take the same time and whose messages take none. [-]"""
    graph = step_graph(schedule, pp, micro_batches, vpp, merge_pairs=merge, optimizer=False)
    durations = np.zeros(graph.num_rows)
    for (kind, _), row in graph.rows.items():
        durations[row] = SLOTS[kind]
    return float(idle_fraction(graph, run(graph.graph, durations)))


def _hand_offs(case: Case) -> Numeric:
    """Idle time of the ranks that goes away with the messages between stages, over the step. [-]"""
    if case.ranks == 1:
        return 0.0
    timed = case.timed
    idle = idle_fraction(timed.graph, timed.result) * timed.result.makespan
    with_sends, without = (np.asarray(idle)[timed.rows.index(name)] for name in ("", "pp"))
    return np.asarray(np.maximum(with_sends - without, 0.0) / timed.makespan())


def load_imbalance(case: Case) -> Terms:
    """Rows of the hottest expert rank over the mean, and FLOPs of the busiest pipeline rank over the mean, less one. [-]"""
    plan = case.plan
    load = plan.setting.routed_load if plan.setting.products.padding is None else 1.0
    by_rank = np.zeros(case.ranks)
    ranks = plan.schedule.stage_rank(plan.strategy.pp, plan.strategy.vpp)
    tokens = plan.sequence_length
    ends = 6.0 * plan.model.hidden * plan.model.vocab
    layers = len(plan.model.layers)
    layer = (plan.model.flop_per_token(tokens) - ends) / layers
    for stage, rank in zip(plan.stages, ranks, strict=True):
        by_rank[rank] += layer * stage.num_layers + ends * stage.loss
    return {
        "hottest expert rank": (load - 1.0) * case.exchanges,
        "busiest pipeline rank": float(by_rank.max() / by_rank.mean() - 1.0),
    }


bottlenecks.add(
    "pipeline-bubbles",
    Bottleneck("Pipeline bubbles", "pipeline", "-", bubbles, 21, by_class=True),
    summary="Share of the step in which pipeline ranks idle: slots of the schedule, and waits for hand-offs.",
    source=SOURCE,
)
bottlenecks.add(
    "load-imbalance",
    Bottleneck("Expert/stage load imbalance", "pipeline", "-", load_imbalance, 22, routing="skewed"),
    summary="Hottest expert rank and busiest pipeline rank over the mean, less one.",
    source=SOURCE,
)
