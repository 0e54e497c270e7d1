"""What no plan of some degrees and methods can beat, whatever its pipeline: the work of an average rank."""

from __future__ import annotations

import numpy as np

from moesim.cost.blocks import PricedBlock, chunk_blocks, plan_blocks
from moesim.cost.once import Once
from moesim.problem import Problem
from moesim.studies.search.bounds import ROUNDING
from moesim.studies.search.paths import FIRST_OUT
from moesim.studies.search.tables import Array, Passes, column_plan, counted
from moesim.workload.recompute import parse, policies
from moesim.workload.stages import EVEN, place_layers
from moesim.workload.strategy import Strategy

NEUTRAL = {"pp": 1, "vpp": 1, "schedule": "none", "layout": EVEN}
"""A pipeline of one stage."""
LANES, PATHS = slice(0, 3), slice(0, FIRST_OUT)
"""Rows of a pass that are lanes, and those that add up over blocks."""


def relaxed(strategy: Strategy, varied: bool) -> Strategy:
    """The strategy that no other recomputation of it beats, where that is another one: nothing is run again.

    A policy repeats operations in front of a backward and changes no other operation. Where recomputation is not
    ``varied`` and does not depend on what a stage holds, it stays.
    """
    simple = all(parse(name)[1] is None and not policies.get(parse(name)[0]).segments for name in strategy.recompute)
    return strategy.replace(recompute=()) if varied or not simple else strategy


def floors(problem: Problem, strategy: Strategy, splits: bool, prices: Once) -> Array:
    r"""Lower bound of the step of each column, for every pipeline. (n,) [s]

    .. math:: \frac{m}{p} \sum_k (F_k + B_k) = \frac{g \, t c}{N b} \sum_k (F_k + B_k)

    The busiest of p ranks is as busy as their average. The micro-batches m of a pipeline grow with its ranks, so that
    their number does not matter. Sums over all blocks k of the model, of what lanes carry and of paths, are at most the
    sums over chunks of what chunks take, wherever the blocks sit.

    Parameters
    ----------
    problem, strategy
        The job, with global batch g on N GPUs, and degrees in columns with their methods: t, c, and micro-batches of b.
    splits
        Whether backwards may be split.
    prices
        Those of other floors of the same columns, which differ in recomputation and expert transport alone.
    """
    placed = place_layers(len(problem.model.layers), 1, EVEN, problem.model.mtp_layers)
    assert isinstance(placed, tuple)  # one stage holds every layer
    plan = column_plan(problem, strategy.replace(**NEUTRAL), placed, prices=prices)
    chunk, passes = chunk_blocks(plan, placed[0], plan_blocks(plan)), Passes(plan)
    forward = passes.sums(chunk, "F")[PATHS]
    backward = _backward(chunk, passes, splits)[PATHS]
    rows = [forward.max(axis=0), backward.max(axis=0)]
    work = rows[0] + rows[1]
    if strategy.overlap_ep:
        work = np.maximum.reduce([*(forward[LANES] + backward[LANES]), *rows])
    share = problem.global_batch * strategy.tp * strategy.cp / (problem.machine.num_gpus * strategy.micro_batch)
    return np.asarray(share * work * (1 - ROUNDING))


def _backward(chunk: list[PricedBlock], passes: Passes, splits: bool) -> Array:
    """Sums over the backwards of blocks; whole or split, whatever is less of each block. (6, n) [s]"""
    if not splits:
        return passes.sums(chunk, "BW")
    total = np.zeros_like(passes.of(chunk[0], "BW"))
    for block, count in counted(chunk):
        parts = passes.of(block, "B") + passes.of(block, "W")
        total += count * np.minimum(passes.of(block, "BW"), parts)
    return total
