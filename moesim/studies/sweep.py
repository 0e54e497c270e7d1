"""A grid of estimates: every combination of some values, ranked, with what makes each one lose or refuses it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moesim.base import checked
from moesim.base.display import Shown
from moesim.base.errors import Collector, Issue, SpecError, did_you_mean
from moesim.base.words import counted
from moesim.cost.pipeline import COMMUNICATION
from moesim.estimator import estimate
from moesim.problem import Named, Problem, as_problem
from moesim.result import Estimate
from moesim.spec.overrides import COMM_SMS, HARDWARE_PREFIXES
from moesim.spec.scenario import ScenarioSpec
from moesim.studies.faults import PATH, with_changes
from moesim.studies.knees import Curve, curve, plain_value
from moesim.studies.meaning import sound
from moesim.studies.search.space import Vary, space

MOST = 20_000
"""Combinations of a grid; beyond, a search bounds what it need not run."""
LISTED = 0.1
"""Share of what is longer from which what is shorter is named beside it. [-]"""
OBJECTIVES: dict[str, Callable[[Estimate], float]] = {
    "throughput": lambda answer: 1 / answer.tokens_per_s_per_gpu,
    "step": lambda answer: answer.step_time_s,
    "memory": lambda answer: answer.memory.peak_bytes,
    "exposed": lambda answer: exposed_share(answer),
}
"""What may be least: seconds of a GPU for a token, of a step, bytes of the fullest rank, or the share that waits for
communication. [s, s, B, -]"""


def exposed_share(answer: Estimate) -> float:
    """What the step would lose without any communication of each class, added up, over the step. [-]"""
    return sum(answer.exposed_s[name] for name in COMMUNICATION) / answer.step_time_s


@dataclass(frozen=True)
class Row:
    """One combination: its estimate, or why there is none. ``rules``: names of the rules that refuse it."""

    case: Mapping[str, Any]
    answer: Estimate | None
    refused: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it can run."""
        return self.answer is not None and self.answer.feasible

    @property
    def state(self) -> str:
        """``fits``, ``does not fit`` or ``refused``."""
        return "refused" if self.answer is None else "fits" if self.answer.feasible else "does not fit"


@dataclass(frozen=True, repr=False)
class Sweep(Shown):
    """Rows, the best first, then those that do not fit, then those that are refused.

    ``objective``: what they are ranked by. ``total``: combinations of the grid; fewer rows where it was stopped.
    """

    axes: Mapping[str, tuple[Any, ...]]
    objective: str
    rows: tuple[Row, ...]
    total: int

    def __repr__(self) -> str:
        fits = sum(row.fits for row in self.rows)
        return f"Sweep({counted(self.total, 'combination')} of {', '.join(self.axes)}, {fits:,} fit)"

    @property
    def best(self) -> Row | None:
        """The best row that fits; None where none does."""
        return self.rows[0] if self.rows and self.rows[0].fits else None

    def loses_by(self, row: Row) -> dict[str, float]:
        """What a row takes longer than the best for the same work, by term, the largest first. [s]

        The step of the row is scaled to the tokens and GPUs of the best one; the terms add up to the difference.
        """
        if self.best is None or self.best.answer is None or row.answer is None:
            return {}
        best = self.best.answer
        work = _gpu_seconds_a_token(row.answer) / row.answer.step_time_s
        work *= best.step_time_s / _gpu_seconds_a_token(best)
        before, after = best.breakdown_s, row.answer.breakdown_s
        deltas = {name: after.get(name, 0.0) * work - before.get(name, 0.0) for name in {**before, **after}}
        return dict(sorted(deltas.items(), key=lambda one: -one[1]))

    def reason(self, row: Row) -> str:
        """Why a row is not the best: terms that are longer, the class of memory that is too much, or what refuses it."""
        if row is self.best:
            return ""
        if row.answer is None:
            return "; ".join(row.refused)
        if not row.answer.feasible:
            return "; ".join(one.message for one in row.answer.violations)
        terms = ", ".join(f"{name} {value:+.4g} s" for name, value in self.largest(row))
        return f"{sum(self.loses_by(row).values()):+.4g} s: {terms}" if terms else "as good"

    def largest(self, row: Row) -> list[tuple[str, float]]:
        """The terms that make most of what a row takes longer, with the one that gives most back. [s]"""
        deltas = list(self.loses_by(row).items())
        longer = [one for one in deltas if one[1] > 0][:2]
        return longer + [one for one in deltas[-1:] if -one[1] > LISTED * sum(value for _, value in longer)]

    @property
    def curves(self) -> tuple[Curve, ...]:
        """For each axis of more than one value, its optimum and where it stops to pay."""
        score = OBJECTIVES[self.objective]
        found = []
        for name, values in self.axes.items():
            if len(values) < 2:
                continue
            members = {value: [row for row in self.rows if row.case[name] is value] for value in values}
            best = {value: next((row for row in rows if row.fits), None) for value, rows in members.items()}
            costs = [math.inf if row is None or row.answer is None else score(row.answer) for row in best.values()]
            found.append(curve(name, values, costs, [_told(row, members[value]) for value, row in best.items()]))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        states = [row.state for row in self.rows]
        return {
            "axes": {name: [plain_value(value) for value in values] for name, values in self.axes.items()},
            "objective": self.objective,
            "total": self.total,
            "complete": len(self.rows) == self.total,
            "counts": {state: states.count(state) for state in ("fits", "does not fit", "refused")},
            "curves": [one.to_dict() for one in self.curves],
            "rows": [self.row_dict(row) for row in self.rows],
        }

    def row_dict(self, row: Row) -> dict[str, Any]:
        """One row as plain values in SI units."""
        plain: dict[str, Any] = {
            "set": {name: plain_value(value) for name, value in row.case.items()},
            "state": row.state,
        }
        if row.answer is None:
            return plain | {"refused": list(row.refused), "rules": list(row.rules), "reason": self.reason(row)}
        answer = row.answer
        return plain | {
            "step_time_s": answer.step_time_s,
            "low_s": answer.low_s,
            "high_s": answer.high_s,
            "tokens_per_s_per_gpu": answer.tokens_per_s_per_gpu,
            "mfu": answer.mfu,
            "peak_bytes": answer.memory.peak_bytes,
            "binding": answer.binding["resource"],
            "evidence": answer.evidence,
            "bubble_fraction": answer.bubble_fraction,
            "routing": answer.routing,
            "exposed_share": exposed_share(answer),
            "exposed_s": dict(answer.exposed_s),
            "breakdown_s": dict(answer.breakdown_s),
            "slower_s": self.loses_by(row),
            "reason": self.reason(row),
        }


def sweep(
    problem: Named,
    vary: Vary,
    objective: str = "throughput",
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Estimate every combination of some values and rank them.

    Parameters
    ----------
    problem
        The job.
    vary
        Values of each path, as :meth:`moesim.Problem.with_changes` takes them, ``fault`` among them; ``auto`` for all
        that a field of the strategy can have.
    objective
        One of :data:`OBJECTIVES`.
    progress
        Called with rows done and in all. A ``KeyboardInterrupt`` ends the sweep with what it has found.

    Raises
    ------
    SpecError
        For an unknown path or objective, a value that has no meaning whatever the others are, a grid that is too large,
        and where nothing of it can be estimated. What is only illegal beside the others is a row that is refused.
    """
    problem = as_problem(problem, "sweep")
    checked.axes("sweep", vary)
    if objective not in OBJECTIVES:
        raise SpecError.single("--by", "", f"'{objective}' is no objective", did_you_mean(objective, OBJECTIVES))
    axes = _axes(problem, vary)
    total = math.prod(len(values) for values in axes.values())
    if total > MOST:
        what = f"{total:,} combinations, and a sweep estimates {MOST:,} at most"
        raise SpecError.single("--vary", "", what, "vary less, or ask moesim search")
    auto = {path.removeprefix("strategy.") for path, values in vary.items() if values == "auto"}
    told = {path: [_changed(value) for value in values] for path, values in axes.items() if path not in auto}
    sound([problem], told, "--vary")
    rows: list[Row] = []
    issues: dict[Issue, None] = {}
    try:
        for row, found in _rows(problem, axes):
            rows.append(row)
            issues |= dict.fromkeys(found)
            if progress is not None:
                progress(len(rows), total)
    except KeyboardInterrupt:
        if not rows:
            raise
    if all(row.answer is None for row in rows):
        raise SpecError(issues)
    rows.sort(key=lambda row: _place(row, OBJECTIVES[objective]))
    return Sweep(axes, objective, tuple(rows), total)


def _axes(problem: Problem, vary: Vary) -> dict[str, tuple[Any, ...]]:
    """Values of each path, ``auto`` read; one issue for each path that has none or is named twice."""
    if not vary:
        raise SpecError.single("--vary", "", "nothing is varied", "write for example --vary ep=8,16,32")
    problems = Collector()
    auto = {path: "auto" for path, values in vary.items() if values == "auto"}
    others = {*ScenarioSpec.model_fields, *HARDWARE_PREFIXES, COMM_SMS, PATH} - {"strategy"}
    for path in auto:
        if path.partition(".")[0] in others:
            problems.add(f"--vary {path}", "", "auto has no list of its values", "write them out")
    problems.raise_if_any()
    read = {axis.name: axis.values for axis in space(problem, auto).axes} if auto else {}
    found: dict[str, tuple[Any, ...]] = {}
    for path, values in vary.items():
        name = path.removeprefix("strategy.")
        if name in found:
            problems.add(f"--vary {path}", "", "is given twice", "give each path once")
        elif isinstance(values, str) and values != "auto":
            problems.add(f"--vary {path}", "", f"'{values}' is no list of values", f"write [{values}], or auto")
        elif not values:
            problems.add(f"--vary {path}", "", "has no values", f"write for example --vary {path}=1,2,4")
        else:
            found[name] = read[name] if values == "auto" else _distinct(path, values, problems)
    problems.raise_if_any()
    return found


def _distinct(path: str, values: Sequence[Any], problems: Collector) -> tuple[Any, ...]:
    """Values, each once; a list of names is one value."""
    found: dict[Any, None] = {}
    for value in values:
        try:
            found[tuple(value) if isinstance(value, list) else value] = None
        except TypeError:
            problems.add(f"--vary {path}", "", f"{value!r} is no value", "write a number, a name, or a list of names")
    return tuple(found)


def _rows(problem: Problem, axes: Mapping[str, tuple[Any, ...]]) -> Iterator[tuple[Row, tuple[Issue, ...]]]:
    for values in itertools.product(*axes.values()):
        case = dict(zip(axes, values, strict=True))
        changes = {path: _changed(value) for path, value in case.items()}
        try:
            yield Row(case, estimate(with_changes(problem, changes, "--vary"))), ()
        except SpecError as error:
            rules = [issue.what.rpartition(" [")[2].rstrip("]") for issue in error.issues if issue.what.endswith("]")]
            yield Row(case, None, tuple(str(issue) for issue in error.issues), tuple(rules)), error.issues


def _changed(value: Any) -> Any:
    """A value as :meth:`moesim.Problem.with_changes` takes it."""
    return list(value) if isinstance(value, tuple) else value


def _place(row: Row, score: Callable[[Estimate], float]) -> tuple[int, float]:
    """What fits by its score, then what does not by what it needs, then what is refused."""
    if row.answer is None:
        return 2, 0.0
    return (0, score(row.answer)) if row.fits else (1, row.answer.memory.peak_bytes)


def _gpu_seconds_a_token(answer: Estimate) -> float:
    return 1 / answer.tokens_per_s_per_gpu


def _told(row: Row | None, members: Sequence[Row]) -> dict[str, Any]:
    """What the best row of a value says, and how many of the value's rows run."""
    counts = {"rows": len(members), "fitting": sum(one.fits for one in members)}
    if row is None or row.answer is None:
        return counts
    answer = row.answer
    return counts | {
        "step_time_s": answer.step_time_s,
        "tokens_per_s_per_gpu": answer.tokens_per_s_per_gpu,
        "peak_bytes": answer.memory.peak_bytes,
        "exposed_share": exposed_share(answer),
        "binding": answer.binding["resource"],
    }
