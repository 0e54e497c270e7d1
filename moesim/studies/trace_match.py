"""A measured step beside the estimate of its scenario, operation by operation.

Matrix products and attention are matched by their shape (a product and its transpose are one), collectives by operation
and size, the rest by what kind of work it is. What one side has and the other has not is listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from moesim.base.errors import SpecError
from moesim.cost.blocks import price_blocks
from moesim.cost.pipeline import COMMUNICATION
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.studies.roofline import Call, step_calls
from moesim.studies.trace_ops import TracedOp, label, traced_ops
from moesim.traces.collectives import Collective, collectives
from moesim.traces.event_table import ANNOTATION, Mask
from moesim.traces.host import STEP, host_time, steps
from moesim.traces.kernel_rule import COMMUNICATION as MOVING
from moesim.traces.matrix_shapes import MatrixShape
from moesim.traces.op_work import AttentionShape, Shape, shape_of
from moesim.traces.summary import SECOND, DeviceSummary, Work, device_summary
from moesim.workload.ops import AttentionCore, Gemm, Message

SAME_SIZE = 0.02
"""Share by which the sizes of a collective may differ. [-]"""
KINDS = {
    "gemm": ("gemm",),
    "grouped_gemm": (),
    "attention": ("attention",),
    "memory_bound": ("elementwise", "normalization", "softmax", "reduction", "index", "routing", "copy", "set"),
    "optimizer": ("optimizer",),
    "communication": MOVING,
}
"""Classes of kernels by category of the estimate; experts' products run in kernels that are products like others."""


@dataclass(frozen=True)
class Matched:
    """An operation on both sides. Times in s of one call; counts in a step."""

    name: str
    where: str
    category: str
    shape: str
    predicted_s: float
    measured_s: float
    predicted_count: float
    measured_count: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one. [-]"""
        return self.predicted_s / self.measured_s - 1 if self.measured_s else 0.0

    @property
    def difference_s(self) -> float:
        """What the measured step spends more in it. [s]"""
        return self.measured_s * self.measured_count - self.predicted_s * self.predicted_count


@dataclass(frozen=True)
class Alone:
    """An operation that only one side has; times in s of all its calls in a step."""

    name: str
    category: str
    shape: str
    count: float
    time_s: float


@dataclass(frozen=True)
class Difference:
    """A kind of work in both steps: sums of kernel times, so what runs side by side counts twice. [s]"""

    category: str
    predicted_s: float
    measured_s: float

    @property
    def difference_s(self) -> float:
        """What the measured step spends more in it. [s]"""
        return self.measured_s - self.predicted_s


@dataclass(frozen=True)
class TraceMatch:
    """A measured step beside its estimate.

    Attributes
    ----------
    step
        Number of the step in the trace; None where it has none and the whole window counts as one.
    predicted_step_s, measured_step_s
        The steps. [s]
    predicted_bubble_s
        Waiting for other pipeline ranks in the estimate; idle time in the trace holds the same. [s]
    measured_idle_s, measured_host_s, measured_exposed_s
        Of the measured window: nothing runs; of that, the GPU waits for the host; communication that nothing hides. [s]
    """

    scenario: str
    step: int | None
    predicted_step_s: float
    measured_step_s: float
    predicted_bubble_s: float
    predicted_host_s: float
    measured_idle_s: float
    measured_host_s: float
    measured_exposed_s: float
    matched: tuple[Matched, ...]
    only_predicted: tuple[Alone, ...]
    only_measured: tuple[Alone, ...]
    differences: tuple[Difference, ...]

    @property
    def missing(self) -> str | None:
        """The kind of work, or of waiting, that the measured step spends most more in; None where it spends more in none."""
        more = {one.category: one.difference_s for one in self.differences}
        more["host"] = self.measured_host_s - self.predicted_host_s
        most = max(more, key=lambda name: more[name])
        return most if more[most] > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        matched = [{**asdict(one), "error": one.error, "difference_s": one.difference_s} for one in self.matched]
        differences = [{**asdict(one), "difference_s": one.difference_s} for one in self.differences]
        return {**asdict(self), "matched": matched, "differences": differences}


def trace_match(work: Work, problem: Problem, stage: int = 0, step: int | None = None) -> TraceMatch:
    """Set a step of a trace beside the estimate of a scenario.

    Parameters
    ----------
    work
        GPU work of one rank.
    problem
        What ran.
    stage
        Pipeline rank of the trace.
    step
        Number of the step; the middle one by its time where left out.
    """
    if not len(work.links.work):
        raise SpecError.single(work.table.source, "", "no GPU did any work: there is nothing to match", "")
    answer = estimate(problem)
    plan = problem.plan()
    ranks = int(plan.strategy.pp)
    if not 0 <= stage < ranks:
        raise SpecError.single("--stage", "", f"{stage} is no pipeline rank", f"0 to {ranks - 1}")
    chosen, number, measured, device = one_step(work, step)
    calls = list(step_calls(plan, price_blocks(plan), stage))
    found = traced_ops([chosen])
    matched, left, over = _matched(calls, chosen, found.ops)
    window = device_summary(chosen, device)
    host = host_time(chosen, device)
    return TraceMatch(
        scenario=problem.name,
        step=number,
        predicted_step_s=answer.step_time_s,
        measured_step_s=measured,
        predicted_bubble_s=answer.breakdown_s.get("bubble", 0.0),
        predicted_host_s=answer.breakdown_s.get("host", 0.0),
        measured_idle_s=window.idle_s,
        measured_host_s=host.host_bound_s,
        measured_exposed_s=window.exposed_s,
        matched=tuple(sorted(matched, key=lambda one: -abs(one.difference_s))),
        only_predicted=tuple(sorted(left, key=lambda one: -one.time_s)),
        only_measured=tuple(sorted(over, key=lambda one: -one.time_s)),
        differences=_differences(calls, window),
    )


def one_step(work: Work, wanted: int | None) -> tuple[Work, int | None, float, int]:
    """Work that was launched in a step of the profiler: the work, number and time [s] of the step, and the GPU."""
    device = max(work.table.devices, key=lambda one: int(work.on(one).sum()))
    found = steps(work, device)
    if not found:
        if wanted is not None:
            raise SpecError.single("--step", "", "the trace has no steps of the profiler", "leave it out")
        mine = _only(work, work.on(device))
        return mine, None, device_summary(mine, device).window_s, device
    complete = found[:-1] or found  # the profiler may cut the last one
    middle = sorted(complete, key=lambda one: one.host_s)[len(complete) // 2]
    chosen = middle if wanted is None else next((one for one in found if one.number == wanted), None)
    if chosen is None:
        known = ", ".join(str(one.number) for one in found)
        raise SpecError.single("--step", "", f"the trace has no step {wanted}", f"steps: {known}")
    table = work.table
    event = next(
        place
        for place in np.flatnonzero(table.of(ANNOTATION)).tolist()
        if (name := STEP.match(table.name_of(place))) and int(name[1]) == chosen.number
    )
    launched = table.start[work.links.launch]
    inside = work.linked & (launched >= table.start[event]) & (launched < table.end[event])
    return _only(work, inside & work.on(device)), chosen.number, chosen.host_s, device


def _only(work: Work, mask: Mask) -> Work:
    links = replace(work.links, work=work.links.work[mask], launch=work.links.launch[mask], op=work.links.op[mask])
    return replace(work, links=links, family=work.family[mask], communication=work.communication[mask])


Key = tuple[Any, ...]


def _matched(
    calls: Sequence[Call], work: Work, ops: Sequence[TracedOp]
) -> tuple[list[Matched], list[Alone], list[Alone]]:
    """Operations on both sides, and on either side alone."""
    predicted: dict[Key, list[Call]] = {}
    left: list[Alone] = []
    for call in calls:
        key = _key(call)
        if key is not None:
            predicted.setdefault(key, []).append(call)
    measured = dict(_measured_keys(work))
    matched = []
    for key, same in predicted.items():
        count = float(sum(call.count for call in same))
        seconds = sum(float(call.priced.seconds) * call.count for call in same)
        names = "/".join(dict.fromkeys(call.priced.op.name for call in same))
        where = "/".join(dict.fromkeys(call.where for call in same))
        category, text = same[0].priced.op.category, _key_text(key)
        hit = next((other for other in measured if _same(key, other)), None)
        if hit is None:
            left.append(Alone(names, category, text, count, seconds))
        else:
            times = measured.pop(hit)
            one = float(np.median(times))
            matched.append(Matched(names, where, category, text, seconds / count, one, count, float(len(times))))
    over = [
        Alone(str(key[0]), str(key[0]), _key_text(key), float(len(times)), sum(times))
        for key, times in measured.items()
    ]
    shaped = {label(shape) for shape in _shapes(work)}
    over += [
        Alone(one.op, one.family, one.shape, float(one.count), one.total_s)
        for one in ops
        if one.family not in ("nccl",) and not (one.family in ("gemm", "attention") and one.shape in shaped)
    ]
    return matched, left, over


def _key(call: Call) -> Key | None:
    """What tells an operation of the estimate apart; None for what is compared by its kind alone."""
    work = call.priced.op.work
    if isinstance(work, Gemm) and call.priced.op.category == "gemm":
        return ("gemm", *sorted(round(float(size)) for size in (work.m, work.n, work.k)), round(float(work.groups)))
    if isinstance(work, AttentionCore):
        shape = (work.batch, work.heads, work.kv_heads, work.queries)
        return ("attention", *(round(float(size)) for size in shape), work.query_dim, work.backward)
    if isinstance(work, Message) and float(call.priced.seconds):
        return ("collective", work.collective, float(work.size))
    return None


def _shapes(work: Work) -> Iterator[Shape]:
    table = work.table
    for place in np.flatnonzero(work.links.op >= 0).tolist():
        op = int(work.links.op[place])
        shape = shape_of(str(work.family[place]), table.name_of(op), table.detail_of(op))
        if isinstance(shape, MatrixShape | AttentionShape):
            yield shape


def _measured_keys(work: Work) -> Iterator[tuple[Key, list[float]]]:
    """What tells measured operations apart, with the time of each. [s]"""
    table = work.table
    by_op: dict[int, list[int]] = {}
    for place in np.flatnonzero(
        (work.links.op >= 0) & np.isin(work.family.astype(str), ("gemm", "attention"))
    ).tolist():
        by_op.setdefault(int(work.links.op[place]), []).append(place)
    found: dict[Key, list[float]] = {}
    for op, places in by_op.items():
        shape = shape_of(str(work.family[places[0]]), table.name_of(op), table.detail_of(op))
        if isinstance(shape, MatrixShape):
            key: Key = ("gemm", *sorted((shape.m, shape.n, shape.k)), shape.batch)
        elif isinstance(shape, AttentionShape):
            sizes = (shape.batch, shape.heads, shape.kv_heads, shape.queries, shape.query_dim)
            key = ("attention", *sizes, shape.backward)
        else:
            continue
        found.setdefault(key, []).append(int(table.duration[work.links.work[places]].sum()) / SECOND)
    yield from found.items()
    moved: dict[Key, list[float]] = {}
    for one in collectives(work):
        moved.setdefault(_collective_key(one), []).append(one.time_s)
    yield from moved.items()


def _collective_key(one: Collective) -> Key:
    return ("collective", one.operation or one.kind, one.size)


def _same(first: Key, second: Key) -> bool:
    if first[0] != "collective" or second[0] != "collective":
        return first == second
    sizes = (first[2], second[2])
    if first[1] != second[1] or None in sizes:
        return False
    return bool(abs(sizes[0] - sizes[1]) <= SAME_SIZE * max(sizes))


def _key_text(key: Key) -> str:
    kind, *sizes = key
    if kind == "gemm":
        return " x ".join(str(size) for size in sizes[:3]) + (f", {sizes[3]} at once" if sizes[3] != 1 else "")
    if kind == "collective":
        return f"{sizes[0]}, {'size unknown' if sizes[1] is None else f'{sizes[1]:,.0f} B'}"
    return (
        f"{sizes[0]} x {sizes[3]} tokens, {sizes[1]}/{sizes[2]} heads of {sizes[4]}{', backward' if sizes[5] else ''}"
    )


def _differences(calls: Sequence[Call], window: DeviceSummary) -> tuple[Difference, ...]:
    """Sums of kernel times by kind of work on both sides, the largest difference first."""
    predicted: dict[str, float] = {}
    for call in calls:
        category = call.priced.op.category
        name = "communication" if category in COMMUNICATION else category
        name = "gemm" if name == "grouped_gemm" else name  # a trace tells them apart by shapes that it does not have
        predicted[name] = predicted.get(name, 0.0) + float(call.priced.seconds) * call.count
    measured: dict[str, float] = {}
    known = {family: category for category, families in KINDS.items() for family in families}
    for family, part in window.classes.items():
        name = known.get(family, "other")
        measured[name] = measured.get(name, 0.0) + part.time_s
    names = dict.fromkeys([*predicted, *measured])
    rows = [Difference(name, predicted.get(name, 0.0), measured.get(name, 0.0)) for name in names]
    return tuple(sorted(rows, key=lambda one: -abs(one.difference_s)))
