"""Published runs beside their estimates: every row with its errors, and what the errors of each group are like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from moesim.estimator import estimate
from moesim.intervals import MODEL_FORM
from moesim.result import Estimate
from moesim.spec import library
from moesim.studies.error_budget import Budget, row_budget
from moesim.studies.grouping import in_groups
from moesim.studies.run_table import Refused, Run, run_of, shares, table_rows
from moesim.studies.step_factors import judged

SHIPPED = "published_runs.csv"
"""Table of published runs that comes with moesim, in scenarios/tables."""
LAYOUTS = 4
"""Layouts of one job from which their order says something."""
TIE = 0.01
"""Measured steps closer than that are a tie for the order of layouts. [-]"""


@dataclass(frozen=True)
class Row:
    """One row of a run table with its estimate; times in s, memory in B.

    ``status``: estimated, or refused with ``reason``. Errors are predicted over measured minus one. ``blame`` is what the step
    time is most uncertain by; ``memory_kind`` what the framework prints: allocated, active or reserved. ``configuration``: what
    decides the memory; rows that share it differ in their batches.
    """

    run_id: str
    status: str
    reason: str = ""
    family: str = ""
    stack: str = ""
    gpu: str = ""
    is_moe: bool | None = None
    model: str = ""
    layout_group: str = ""
    global_batch: float = 0.0
    predicted_step_time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    measured_step_time_s: float | None = None
    time_error: float | None = None
    mfu: float | None = None
    measured_mfu: float | None = None
    predicted_peak_bytes: float | None = None
    measured_peak_bytes: float | None = None
    memory_kind: str = ""
    configuration: str = ""
    memory_error: float | None = None
    predicted_oom: bool | None = None
    measured_oom: bool | None = None
    assumed: tuple[str, ...] = ()
    blame: str = ""
    budget: Budget | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values; no budget where none was asked for."""
        plain = asdict(self) | {"assumed": list(self.assumed)}
        if self.budget is None:
            del plain["budget"]
        return plain

    @property
    def inside(self) -> bool | None:
        """Whether the measured step lies in the interval; None where one of both is missing."""
        low, measured, high = self.low_s, self.measured_step_time_s, self.high_s
        return None if low is None or high is None or measured is None else low <= measured <= high


@dataclass(frozen=True)
class Order:
    """Layouts of one job: how many there are, and the rank correlation of predicted and measured steps. [-]"""

    group: str
    count: int
    tau: float


def shipped_table() -> Path:
    """Path of the table that comes with moesim."""
    return library.root() / "scenarios" / "tables" / SHIPPED


def validated(
    path: Path,
    jobs: int = 1,
    models: Path | None = None,
    changes: Mapping[str, Any] | None = None,
    budget: bool = False,
) -> Iterator[Row]:
    """Every row of a run table, estimated or refused, in the order of the table.

    Runs that the calibration of steps was fitted to are priced with what it finds without their group.

    Parameters
    ----------
    path, models
        A table as in docs/run_table.md; a folder with models of one's own.
    jobs
        Processes that share the work.
    changes
        Values to set in every run, by path.
    budget
        Whether to say what each error may come from.
    """
    rows, priced = list(table_rows(path, models)), partial(rows_of, changes=changes, budget=budget)
    if jobs <= 1:
        for share in shares(rows):
            yield from priced(share)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(priced, shares(rows)):
            yield from found


def rows_of(
    printed: Sequence[Mapping[str, str]], changes: Mapping[str, Any] | None = None, budget: bool = False
) -> list[Row]:
    """Rows with their estimates; files of the library are looked at once for all of them."""
    with library.unchanging():
        return [row_of(one, changes, budget) for one in printed]


def row_of(printed: Mapping[str, str], changes: Mapping[str, Any] | None = None, budget: bool = False) -> Row:
    """One row with its estimate."""
    run = run_of(printed)
    if isinstance(run, Refused):
        return Row(run.run_id, "refused", f"{run.rule}: {run.reason}", stack=printed.get("stack", ""))
    problem = run.problem.with_changes(changes) if changes else run.problem
    run = replace(run, problem=judged(problem, run.run_id))
    answer = estimate(run.problem)
    row = _compared(run, answer)
    return replace(row, budget=row_budget(run.problem, answer)) if budget else row


def _compared(run: Run, answer: Estimate) -> Row:
    problem = run.problem
    measured = run.step_time_s
    memory = answer.memory
    peak = memory.reserved_peak_bytes if run.peak_kind == "reserved" else memory.allocated_peak_bytes
    interval = answer.interval
    blame = next((one.name for one in interval.contributions if one.name != MODEL_FORM), "")
    batch = f"{run.row.get('global_batch')} x {run.row.get('seq_len')}"
    return Row(
        run.run_id,
        "estimated",
        family=family_of(run),
        stack=run.row.get("stack", ""),
        gpu=problem.machine.gpu.name,
        is_moe=problem.model.moe is not None,
        model=run.row["model"],
        layout_group=" ".join(
            (
                run.row["model"],
                run.row["gpu"],
                run.row["num_gpus"],
                run.row.get("stack", ""),
                run.row.get("stack_version", ""),
                run.row.get("precision", ""),
                batch,
            )
        ),
        global_batch=float(problem.global_batch),
        predicted_step_time_s=answer.step_time_s,
        low_s=answer.low_s,
        high_s=answer.high_s,
        measured_step_time_s=measured,
        time_error=answer.step_time_s / measured - 1 if measured else None,
        mfu=answer.mfu,
        measured_mfu=answer.mfu * answer.step_time_s / measured if measured else None,
        predicted_peak_bytes=peak,
        measured_peak_bytes=run.peak_bytes,
        memory_kind=run.peak_kind,
        configuration=run.configuration,
        memory_error=peak / run.peak_bytes - 1 if run.peak_bytes else None,
        predicted_oom=not answer.feasible,
        measured_oom=run.row.get("status", "ok") == "oom",
        assumed=run.assumed,
        blame=blame,
    )


def family_of(run: Run) -> str:
    """Kind of run that errors are reported for."""
    row, gpu = run.row, run.problem.machine.gpu.name
    if row.get("task", "pretrain") not in ("", "pretrain"):
        return row["task"]
    stack = row.get("stack", "")
    if stack in ("olmo-core", "vtrain"):
        return stack
    if row.get("schedule", "").startswith("zb-") or row.get("source", "").startswith("Zero Bubble"):
        return "zero-bubble paper"
    blackwell = gpu.startswith(("b200", "b300", "gb"))
    if run.problem.model.moe is None:
        return "dense, Blackwell" if blackwell else "dense, H100 and A100"
    if blackwell:
        return "MoE, Blackwell"
    known = row.get("routing") in ("balanced", "capacity")
    return "MoE, H100, balanced" if known else "MoE, H100, natural or not printed"


Key = Callable[[Row], tuple[Any, ...]]
COLUMNS = ("family", "stack", "gpu", "is_moe", "model", "memory_kind")
"""What rows can be grouped by."""


def grouped(rows: Sequence[Row], by: Sequence[str] = ("family",)) -> list[dict[str, Any]]:
    """Errors of each group, and of all rows together last.

    Raises
    ------
    SpecError
        For a column that rows cannot be grouped by.
    """
    columns = {name: attrgetter(name) for name in COLUMNS}
    return in_groups([row for row in rows if row.status == "estimated"], by, columns, "", summary)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Errors of some rows: of the step time, of the peak memory (each configuration once), of verdicts, of the order.

    ``floor``: median error of a guess that gives every row the median MFU of the group. ``kendall``: median of the rank
    correlation over groups of four and more layouts, which ``orders`` lists. Shares and errors. [-]
    """
    timed = [row for row in rows if row.time_error is not None]
    errors = np.array([row.time_error for row in timed], dtype=float)
    memory = np.array(memory_errors(rows), dtype=float)
    inside = [row.inside for row in timed if row.inside is not None]
    found = list(orders(rows))
    wrong = sum(bool(row.predicted_oom) and not row.measured_oom for row in rows)
    return {
        "rows": len(rows),
        "time": _errors(errors),
        "floor": _floor(timed),
        "memory": _errors(memory),
        "coverage": float(np.mean(inside)) if inside else None,
        "kendall": float(np.median([one.tau for one in found])) if found else None,
        "kendall_groups": len(found),
        "orders": [asdict(one) for one in found],
        "fitting_rows_predicted_oom": wrong,
        "oom_rows_predicted_to_fit": sum(bool(row.measured_oom) and not row.predicted_oom for row in rows),
    }


def _errors(errors: np.ndarray) -> dict[str, Any] | None:
    if not len(errors):
        return None
    size = np.abs(errors)
    return {
        "count": len(errors),
        "median": float(np.median(size)),
        "p90": float(np.quantile(size, 0.9)),
        "bias": float(np.median(errors)),
        "within_10": float(np.mean(size <= 0.1)),
        "within_20": float(np.mean(size <= 0.2)),
    }


def _floor(rows: Sequence[Row]) -> float | None:
    """Median error of the step where every row is given the median of the measured MFUs."""
    mfus = np.array([row.measured_mfu for row in rows if row.measured_mfu], dtype=float)
    return float(np.median(np.abs(mfus / np.median(mfus) - 1))) if len(mfus) > 1 else None


def memory_errors(rows: Iterable[Row]) -> list[float]:
    """Error of the peak memory of each configuration: the median where rows differ in their batches only. [-]"""
    once: dict[str, list[float]] = {}
    for row in rows:
        if row.memory_error is not None:
            once.setdefault(row.configuration, []).append(row.memory_error)
    return [float(np.median(errors)) for errors in once.values()]


def orders(rows: Sequence[Row]) -> Iterator[Order]:
    """Rank correlation of predicted and measured steps, for every four and more layouts of one job."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.time_error is not None:
            groups.setdefault(row.layout_group, []).append(row)
    for name, members in groups.items():
        if len(members) >= LAYOUTS:
            yield Order(name, len(members), kendall(members))


def kendall(rows: Sequence[Row]) -> float:
    r"""Rank correlation, :math:`(C - D) / (C + D)`; pairs that were measured alike do not count. [-]"""
    score, pairs = 0, 0
    for one, other in combinations(rows, 2):
        measured = np.log((one.measured_step_time_s or np.nan) / (other.measured_step_time_s or np.nan))
        if abs(measured) >= TIE:
            predicted = (one.predicted_step_time_s or 0.0) - (other.predicted_step_time_s or 0.0)
            score += int(np.sign(measured) * np.sign(predicted))
            pairs += 1
    return score / pairs if pairs else 1.0


def refusals(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows were refused, by reason without its numbers."""
    return dict(Counter(row.reason.partition(":")[0] for row in rows if row.status == "refused").most_common())


def worst(rows: Sequence[Row], number: int = 10) -> list[Row]:
    """Rows whose step is furthest off, as a ratio."""
    timed = [row for row in rows if row.time_error is not None]
    return sorted(timed, key=lambda row: -abs(np.log1p(row.time_error or 0.0)))[:number]
