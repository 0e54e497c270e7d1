"""Published ablations beside the estimates of their pairs: direction, size, and what term of the estimate moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from moesim.base.errors import SpecError
from moesim.cost.blocks import price_blocks
from moesim.cost.memory import STATE, rank_memory
from moesim.cost.pipeline import step_times
from moesim.problem import Problem
from moesim.reading import breakdown
from moesim.spec import library
from moesim.studies.ablation_table import SLOTS, LeftOut, Pair, side_problem
from moesim.studies.grouping import in_groups
from moesim.studies.run_table import Refused
from moesim.studies.schedules import skewed_step
from moesim.timeline.run import run
from moesim.timeline.schedules import find_schedule
from moesim.timeline.step import step_graph
from moesim.timeline.walk import busy_seconds, held_chunks, idle_fraction
from moesim.workload.from_spec import model_from_spec

SMALL = 0.03
"""Published effects up to that say nothing about direction. [-]"""
NONE = 0.05
"""Share of the published effect below which the predicted one has no direction either: it is wrong. [-]"""


@dataclass(frozen=True)
class Side:
    """One side of a pair: values of every metric, and the terms of the step and of the memory. [s, B, 1/s]"""

    values: Mapping[str, float]
    seconds: Mapping[str, float]
    bytes: Mapping[str, float]


@dataclass(frozen=True)
class Scored:
    """A pair beside its estimates; effects are logarithms of the metric with the method over without it. [-]

    ``status``: estimated, refused or left out, with ``reason``. ``size_error``: how far the predicted effect is from
    the published one, as a share of that one. ``moves``: the term that changes most, of the step or of the memory.
    """

    pair_id: str
    status: str
    reason: str = ""
    group: str = ""
    method: str = ""
    metric: str = ""
    shared_with_runs: bool = False
    published_effect: float | None = None
    predicted_effect: float | None = None
    predicted_without: float | None = None
    predicted_with: float | None = None
    size_error: float | None = None
    moves: str = ""
    assumed: str = ""
    note: str = ""

    @property
    def counts(self) -> bool:
        """Whether the published effect is large enough to have a direction."""
        return self.published_effect is not None and abs(np.expm1(self.published_effect)) > SMALL

    @property
    def right(self) -> bool | None:
        """Whether the direction is right; None for small effects. No effect is wrong where there is one."""
        if not self.counts or self.predicted_effect is None or self.published_effect is None:
            return None
        return self.predicted_effect / self.published_effect > NONE

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"right": self.right}


def scored(rows: Sequence[Pair | LeftOut], jobs: int = 1) -> Iterator[Scored]:
    """Every row beside its estimates, in the order of the table; ``jobs`` processes share the work."""
    if jobs <= 1:
        yield from map(score, rows)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(score, rows, chunksize=8)


def score(pair: Pair | LeftOut) -> Scored:
    """One row beside its estimates."""
    if isinstance(pair, LeftOut):
        return Scored(pair.pair_id, "left out", pair.reason, method=pair.method, note=pair.note)
    row = Scored(
        pair.pair_id,
        "refused",
        group=pair.group,
        method=pair.method,
        metric=pair.metric,
        shared_with_runs=pair.shared,
        assumed=pair.assumed,
        note=pair.note,
    )
    sides = [side(words, pair.metric in SLOTS) for words in pair.sides]
    refused = [one for one in sides if isinstance(one, Refused)]
    if refused:
        return replace(row, reason=f"{refused[0].rule}: {refused[0].reason}")
    without, with_ = (one for one in sides if isinstance(one, Side))
    before, after = without.values[pair.metric], with_.values[pair.metric]
    published = float(np.log(pair.published[1] / pair.published[0]))
    predicted = float(np.log(after / before))
    return replace(
        row,
        status="estimated",
        published_effect=published,
        predicted_effect=predicted,
        predicted_without=before,
        predicted_with=after,
        size_error=abs(predicted - published) / abs(published) if published else None,
        moves=_moves(without, with_, pair.metric),
    )


MEMORY = ("peak_memory", "activations", "state", "exchange_buffers")


def _moves(without: Side, with_: Side, metric: str) -> str:
    before, after = (without.bytes, with_.bytes) if metric in MEMORY else (without.seconds, with_.seconds)
    changes = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in {**before, **after}}
    if not any(changes.values()):
        return ""
    name = max(changes, key=lambda name: abs(changes[name]))
    return f"{name} {changes[name] / sum(before.values()):+.1%}"


@lru_cache(maxsize=512)
def side(words: str, slots: bool = False) -> Side | Refused:
    """Price one side of a pair; runs that several pairs share are priced once."""
    if slots:
        return _slots(words)
    problem = side_problem(words)
    return problem if isinstance(problem, Refused) else _priced(problem)


def _priced(problem: Problem) -> Side:
    plan = problem.plan()
    blocks = price_blocks(plan)
    times = step_times(plan, blocks)
    result = run(times.graph.graph, times.durations, times.delays)
    busy = busy_seconds(times.graph, result)
    seconds = breakdown(times, result, busy.index(max(busy)))
    step = float(result.makespan)
    validated = skewed_step(times.graph, result) if plan.schedule.splits else step
    tokens = problem.global_batch * problem.sequence_length / problem.machine.num_gpus
    ranks = rank_memory(plan, blocks)
    fullest = max(ranks, key=lambda rank: float(rank.peak))
    reserved = problem.software.runtime.reported_memory.value == "reserved"
    kept = [phase["activations"] + phase["logits"] for rank in ranks for phase in rank.phases.values()]
    values = {
        "step_time": step,
        "token_rate": tokens / step,
        "flop_rate": tokens / step * plan.flop_per_token,
        "validated_rate": tokens / validated,
        "kernel_time": seconds["gemm"] + seconds["grouped_gemm"] + seconds["attention"],
        "exchange_time": seconds["ep"],
        "peak_memory": max(float(rank.reserved if reserved else rank.allocated) for rank in ranks),
        "activations": float(max(kept)),
        "state": float(sum(fullest.classes[name] for name in STATE)),
        "exchange_buffers": float(fullest.classes["transport"]),
    }
    return Side(values, seconds, {name: float(value) for name, value in fullest.classes.items()})


def _slots(words: str) -> Side | Refused:
    r"""A schedule in slots, without a machine: the forward of a rank's layers takes one.

    Input and weight gradient take one each, but attention has no weights and its input gradient is 2.5 times its
    forward: with a share :math:`a` of the FLOP, :math:`B = 1 + 1.5 a` and :math:`W = 1 - a`. Left out the model,
    :math:`a = 0`.

    References
    ----------
    qi2024, section 2 (B and W); published-hopper-figures (five matrix products in the backward, two in the forward)
    """
    given = dict(word.split("=", 1) for word in words.split() if "=" in word)
    try:
        schedule = find_schedule(given["schedule"])
        pp, vpp, micro_batches = (int(given[name]) for name in ("pp", "vpp", "micro_batches"))
        share = attention_share(given["model"], int(given["seq_len"])) if "model" in given else 0.0
    except (SpecError, KeyError, ValueError) as error:
        return Refused(words, "invalid-row", f"slots need schedule, pp, vpp and micro_batches: {error}")
    broken = schedule.constraints(pp, micro_batches, vpp)
    if broken:
        return Refused(words, broken[0].rule, broken[0].message)
    graph = step_graph(schedule, pp, micro_batches, vpp, optimizer=False)
    slots = {"F": 1.0, "B": 1 + 1.5 * share, "W": 1 - share, "BW": 2 + 0.5 * share}
    result = run(graph.graph, [slots[kind] / vpp for kind, _ in graph.rows], np.zeros(graph.num_delay_rows))
    length, idle = float(result.makespan), float(idle_fraction(graph, result))
    values = {"slot_rate": 1 / length, "slot_bubble": idle, "slot_copies": float(max(held_chunks(graph, result)))}
    return Side(values, {"slots": length * (1 - idle), "bubble": length * idle}, {})


def attention_share(model: str, sequence_length: int) -> float:
    """Share of the attention core in the FLOP of a model. [-]"""
    built = model_from_spec(library.get("models", model))
    without = built.flop_per_token(sequence_length, columns=lambda *_: 0.0)
    return 1 - without / built.flop_per_token(sequence_length)


GROUPS: dict[str, Callable[[Scored], str]] = {
    "group": lambda row: row.group,
    "metric": lambda row: row.metric,
    "shared": lambda row: "run table" if row.shared_with_runs else "other",
}
"""What pairs can be grouped by."""


def grouped(rows: Sequence[Scored], by: Sequence[str] = ("group",)) -> list[dict[str, Any]]:
    """Directions and sizes of each group, and of all pairs together last.

    Raises
    ------
    SpecError
        For a column that pairs cannot be grouped by.
    """
    return in_groups([row for row in rows if row.status == "estimated"], by, GROUPS, " of pairs", summary)


def summary(rows: Sequence[Scored]) -> dict[str, Any]:
    """Pairs, those whose published effect counts, how many of them have the right direction, the median size error.

    Shares and errors. [-]
    """
    counted = [row for row in rows if row.right is not None]
    errors = [row.size_error for row in counted if row.size_error is not None]
    return {
        "pairs": len(rows),
        "counted": len(counted),
        "right": sum(bool(row.right) for row in counted),
        "right_share": float(np.mean([bool(row.right) for row in counted])) if counted else None,
        "size_error": float(np.median(errors)) if errors else None,
    }


def omissions(rows: Sequence[Scored]) -> dict[str, int]:
    """How many rows are no pairs of scenarios, by reason; refused pairs by the rule."""
    words = (row.reason.partition(":")[0] for row in rows if row.status != "estimated")
    return dict(Counter(words).most_common())
