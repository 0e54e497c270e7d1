"""What pipeline ranks and expert ranks lose by waiting for each other."""

from functools import lru_cache

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.blocks import chunk_blocks
from moesim.cost.chunk_graph import SM
from moesim.cost.pipeline import plan_graph
from moesim.matrix.bottlenecks import Bottleneck, bottlenecks
from moesim.matrix.case import Case, Terms
from moesim.timeline.run import run_whole
from moesim.timeline.step import StepGraph
from moesim.timeline.walk import idle_fraction

SOURCE = "olmo-core-report"
SLOTS = {"F": 1, "BW": 2, "B": 1, "W": 1, "OV": 3}
"""Length of a task in slots: a backward takes twice a forward."""


def bubbles(case: Case) -> Terms:
    """Share of the slots of the schedule in which a rank idles, and what waiting for hand-offs adds. [-]"""
    return {"slots of the schedule": idle_slots(plan_graph(case.plan)), "pp": lambda: _hand_offs(case)}


@lru_cache(maxsize=256)
def idle_slots(graph: StepGraph) -> float:
    """Idle share of a step whose chunks all take the same time, and whose messages and updates take none. [-]"""
    slots = np.zeros(graph.num_rows, np.int64)
    for (kind, _), row in graph.rows.items():
        slots[row] = SLOTS.get(kind, 0)
    return float(idle_fraction(graph, run_whole(graph.graph, slots)))


def _hand_offs(case: Case) -> Numeric:
    """Idle time of the ranks that goes away with the messages between stages, over the step. [-]"""
    if case.ranks == 1:
        return 0.0
    timed = case.timed
    idle = idle_fraction(timed.graph, timed.result) * timed.result.makespan
    with_sends, without = (np.asarray(idle)[timed.row(name)] for name in ("", "pp"))
    return np.asarray(np.maximum(with_sends - without, 0.0) / timed.makespan())


def load_imbalance(case: Case) -> Terms:
    """Time that the other ranks wait for the hottest expert rank, and the other stages for the busiest. [s]"""
    return {"ep": lambda: _hot_rank_seconds(case), "pp": lambda: _busy_stage_seconds(case)}


def _hot_rank_seconds(case: Case) -> Numeric:
    """Legs and products of the hottest expert rank less those of the mean, which grow with their rows. [s]"""
    setting = case.plan.setting
    load = setting.routed_load if setting.products.padding is None else 1.0
    routed = (n * one.seconds for one, n in case.ops() if one.op.category in ("ep", "grouped_gemm"))
    return sum(routed, 0.0) * (1 - 1 / np.maximum(load, 1.0)) * case.exchanges


def _busy_stage_seconds(case: Case) -> Numeric:
    """Kernels of the busiest pipeline rank less those of the mean. [s]"""
    plan = case.plan
    ranks = plan.stage_rank
    by_rank: dict[int, Numeric] = dict.fromkeys(ranks, 0.0)
    spent: dict[int, Numeric] = {}
    chunks = plan.of_stages(lambda stage: chunk_blocks(plan, stage, case.blocks))
    for chunk, rank in zip(chunks, ranks, strict=True):
        for block in chunk:
            if id(block) not in spent:
                spent[id(block)] = sum(
                    (one.seconds for one in (*block.forward, *block.backward) if one.lane == SM), 0.0
                )
            by_rank[rank] = by_rank[rank] + spent[id(block)]
    each = np.array([np.broadcast_to(value, plan.shape) for value in by_rank.values()])
    return np.asarray(case.passes * (each.max(axis=0) - each.mean(axis=0)))


bottlenecks.add(
    "pipeline-bubbles",
    Bottleneck("Pipeline bubbles", "waiting", "-", bubbles, 21, by_class=True, run=("pp",)),
    summary="Share of the step in which pipeline ranks idle: slots of the schedule, and waits for hand-offs.",
    source=SOURCE,
)
bottlenecks.add(
    "load-imbalance",
    Bottleneck(
        "Expert/stage load imbalance",
        "balance",
        "s",
        load_imbalance,
        22,
        by_class=True,
        routing="skewed",
        priced=True,
    ),
    summary="Time that others wait for the hottest expert rank and for the busiest pipeline rank.",
    source=SOURCE,
)
