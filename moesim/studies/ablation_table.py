"""Published ablations: one method on and off, as pairs of runs of the run table.

The columns are those of ``docs/ablation_table.md``. A side of a pair is written in words: a run of the run
table, then columns of a run table that differ (``recompute=full``), then fields of a scenario
(``strategy.expert_gemm=loop``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from moesim.base.errors import SpecError, did_you_mean
from moesim.problem import Problem
from moesim.spec import library
from moesim.spec.csv_file import csv_rows
from moesim.studies.run_table import Refused, Row, run_of, table_rows
from moesim.studies.step_factors import judged
from moesim.studies.validate import shipped_table

SHIPPED = "ablation_pairs.csv"
"""Table of published ablations that comes with moesim, in scenarios/tables."""
HELP = "see docs/ablation_table.md"
REQUIRED = (
    "pair_id",
    "group",
    "method",
    "without",
    "with",
    "metric",
    "published_without",
    "published_with",
    "left_out",
)
REASONS = {
    "amd-memory": "memory of a GPU that has no spec; of AMD GPUs only schedules are compared",
    "kernel": "a kernel, an exchange or a launch by itself, not a step",
    "method": "a change that no scenario can say",
    "model": "an architecture that moesim does not express, or that is not published",
    "one-value": "a value without its counterpart",
    "other-quantity": "a quantity that no estimate has",
    "setting": "the run that it was measured in is not published",
}
"""Why a row is no pair, by the word in the table."""
SLOTS = ("slot_rate", "slot_bubble", "slot_copies")
"""Metrics of schedules in slots, without a scenario."""
METRICS = {
    "step_time": "seconds of a step",
    "token_rate": "tokens a second and GPU",
    "flop_rate": "model FLOP a second and GPU, or MFU",
    "validated_rate": "tokens a second and GPU, where zero-bubble schedules validate the optimizer afterwards",
    "kernel_time": "seconds of matrix products and attention in a step",
    "exchange_time": "seconds of the expert exchange in a step",
    "peak_memory": "peak of a GPU as the framework prints it",
    "activations": "most activations and logits that a GPU keeps",
    "state": "weights, gradients, optimizer state and fixed buffers of a GPU",
    "exchange_buffers": "buffers of the expert exchange",
    "slot_rate": "steps a slot",
    "slot_bubble": "idle share of slots",
    "slot_copies": "most chunks that a rank keeps",
}
"""What is compared, by the word in the table."""


@dataclass(frozen=True)
class LeftOut:
    """A row that is no pair of scenarios, and why: a word of `REASONS`, and what the row notes."""

    pair_id: str
    method: str
    reason: str
    note: str


@dataclass(frozen=True)
class Pair:
    """A published pair. ``without``, ``with_``: its sides in words; ``published``: values of the metric, in any unit.

    ``shared``: both sides are runs of the run table as they are. ``assumed``: what the source leaves open.
    """

    pair_id: str
    group: str
    method: str
    metric: str
    without: str
    with_: str
    published: tuple[float, float]
    assumed: str = ""
    note: str = ""
    source: str = ""

    @property
    def shared(self) -> bool:
        """Whether both sides are rows of the run table."""
        return self.metric not in SLOTS and "=" not in self.without + self.with_

    @property
    def sides(self) -> tuple[str, str]:
        """Both sides in full: the second starts from the first unless it names a run of its own."""
        first = self.with_.split()[0]
        return self.without, self.with_ if "=" not in first else f"{self.without} {self.with_}"


def shipped_pairs() -> Path:
    """Path of the table that comes with moesim."""
    return library.root() / "scenarios" / "tables" / SHIPPED


def read_pairs(path: Path) -> Iterator[Pair | LeftOut]:
    """Every row of a table of ablations; a `SpecError` for what is none."""
    for number, row in enumerate(csv_rows(path, REQUIRED, HELP), start=2):
        yield _pair(row, f"{path}:{number}")


def _pair(row: Row, where: str) -> Pair | LeftOut:
    if row["left_out"]:
        _known(row["left_out"], REASONS, where, "left_out", "reason")
        return LeftOut(row["pair_id"], row["method"], row["left_out"], row.get("note", ""))
    _known(row["metric"], METRICS, where, "metric", "metric")
    blank = [name for name in ("without", "with") if not row[name]]
    if blank:
        raise SpecError.single(where, blank[0], "says no run", "a run of the run table, then columns: MBSK-001 ep=8")
    try:
        published = (float(row["published_without"]), float(row["published_with"]))
    except ValueError:
        raise SpecError.single(where, "published_without, published_with", "are no numbers", HELP) from None
    if min(published) <= 0:
        raise SpecError.single(where, "published_without, published_with", "have no ratio", "positive numbers")
    texts = (row.get("assumed", ""), row.get("note", ""), ", ".join(filter(None, map(row.get, ("source", "locator")))))
    names = (row["pair_id"], row["group"], row["method"], row["metric"], row["without"], row["with"])
    return Pair(*names, published, *texts)


def _known(word: str, known: Mapping[str, str], where: str, column: str, kind: str) -> None:
    if word not in known:
        raise SpecError.single(where, column, f"no {kind} '{word}'", did_you_mean(word, tuple(known)))


@cache
def _shipped_runs() -> dict[str, Row]:
    return {row["run_id"]: row for row in table_rows(shipped_table())}


def side_problem(words: str) -> Problem | Refused:
    """The problem that one side of a pair poses, or the rule that refuses it."""
    first, *rest = words.split()
    row: dict[str, str] = {"run_id": first, "model": "", "gpu": "", "num_gpus": "", "seq_len": "", "global_batch": ""}
    if "=" in first:
        rest = [first, *rest]
    elif first not in _shipped_runs():
        return Refused(first, "unknown-run", did_you_mean(first, tuple(_shipped_runs())))
    else:
        row |= _shipped_runs()[first]
    changes: dict[str, str] = {}
    for word in rest:
        name, _, value = word.partition("=")
        (changes if "." in name else row)[name] = value
    row |= {"run_id": row["run_id"] if "=" not in first else "pair"}
    run = run_of(row)
    if isinstance(run, Refused):
        return run
    try:
        problem = run.problem.with_changes(changes) if changes else run.problem
    except SpecError as error:
        return Refused(row["run_id"], "invalid-row", "; ".join(issue.what for issue in error.issues))
    broken = [one.violation for one in problem.check()]
    if broken:
        return Refused(row["run_id"], broken[0].rule, broken[0].message)
    return judged(problem, row["run_id"])  # no pair is judged by a fit that has seen its runs
