"""Fill the tables of docs/accuracy.md, and write docs/accuracy_budget.md: ``python docs/make_accuracy.py``.

The tables of kernels and collectives are those of docs/accuracy_kernels.md and docs/accuracy_collectives.md, which have
scripts of their own; ``make accuracy`` runs all.
Each table stands between ``<!-- NAME -->`` and ``<!-- end -->``; the text around is written by hand.
"""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from accuracy_causes import CAUSES, MEMORY_CAUSES
from accuracy_runs import run_parts, validation
from accuracy_stamp import stamp
from make_accuracy_budget import write as write_budget
from refresh import signed, table

import moesim
from moesim.spec import library
from moesim.studies.explain import explain
from moesim.studies.step_factors import judged

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
VERDICTS = ROOT / "tests" / "published" / "oom_verdicts.csv"
GIB = 2**30
FACTOR = 1.4
"""A miss: predicted over measured, or the other way round."""


@dataclass(frozen=True)
class Shown:
    """A scenario beside its measurement. Times in s, memory in GiB; None where nothing was measured."""

    name: str
    problem: moesim.Problem
    estimate: moesim.Estimate

    @property
    def measured_s(self) -> float | None:
        """Measured step; from tokens/s where that is all that is printed."""
        measured = self.problem.measured
        if measured is None or measured.step_time is not None or measured.tokens_per_s_per_gpu is None:
            return measured.step_time if measured else None
        tokens = self.problem.global_batch * self.problem.sequence_length / self.problem.machine.num_gpus
        return tokens / measured.tokens_per_s_per_gpu

    @property
    def error(self) -> float | None:
        """Signed error of the step time. [-]"""
        return self.estimate.step_time_s / self.measured_s - 1 if self.measured_s else None

    @property
    def inside(self) -> bool | None:
        """Whether the measured step lies in the interval of the prices."""
        low, high = self.estimate.low_s, self.estimate.high_s
        return low <= self.measured_s <= high if self.measured_s and low and high else None

    @property
    def memory_gib(self) -> float:
        """Peak of the kind that the framework prints."""
        return peak(self.problem, self.estimate) / GIB

    @property
    def measured_gib(self) -> float | None:
        """Measured peak."""
        measured = self.problem.measured
        return measured.peak_memory / GIB if measured and measured.peak_memory else None

    @property
    def memory_error(self) -> float | None:
        """Signed error of the peak memory. [-]"""
        return self.memory_gib / self.measured_gib - 1 if self.measured_gib else None


def peak(problem: moesim.Problem, estimate: moesim.Estimate) -> float:
    """Predicted peak of the kind that the framework prints: allocated (active counts as such), or reserved. [B]"""
    memory = estimate.memory
    reserved = problem.software.runtime.reported_memory.value == "reserved"
    return memory.reserved_peak_bytes if reserved else memory.allocated_peak_bytes


def is_miss(error: float | None) -> bool:
    """Whether an error is beyond the factor."""
    return error is not None and not 1 / FACTOR <= 1 + error <= FACTOR


def cause(causes: dict[str, str], name: str) -> str | None:
    """Cause of a miss."""
    return next((text for pattern, text in causes.items() if re.match(pattern, name)), None)


def shown_runs() -> list[Shown]:
    """Every shipped scenario with its answer; a published run as a fit of steps that has not seen its group prices it."""
    found = []
    for name in (*library.names("scenarios"), *library.names("runs")):
        problem = moesim.load(name)
        run_id = problem.measured.run_id if problem.measured else None
        problem = judged(problem, run_id or "")
        found.append(Shown(name, problem, moesim.estimate(problem)))
    return found


def group(run: Shown) -> str:
    """Table that a scenario stands in."""
    if run.problem.model.moe is None:
        return "Dense models"
    blackwell = run.problem.machine.gpu.name.startswith(("b2", "b3", "gb"))
    return "Mixture of experts, Blackwell" if blackwell else "Mixture of experts, Hopper"


def seconds(value: float | None) -> str:
    """Three or four digits, enough to compare."""
    return (
        "" if value is None else f"{value:.3f} s" if value < 1 else f"{value:.2f} s" if value < 20 else f"{value:.1f} s"
    )


def optional(value: float | None, form: str = "{:.1f}") -> str:
    """Nothing for None."""
    return "" if value is None else form.format(value)


def scenario_tables(runs: list[Shown]) -> str:
    """Every scenario, grouped."""
    head = ["scenario", "run", "measured", "predicted", "error", "memory", "predicted", "error", "phase", "assumed"]
    parts = []
    for title in sorted({group(run) for run in runs}, reverse=True):
        rows = []
        for run in runs:
            if group(run) != title:
                continue
            problem, memory = run.problem, run.estimate.memory
            where = f"{problem.model.name}, {problem.machine.num_gpus} {problem.machine.gpu.name}"
            rows.append(
                [
                    f"`{run.name}`",
                    f"{where}, {problem.software.name}",
                    seconds(run.measured_s),
                    seconds(run.estimate.step_time_s),
                    "" if run.error is None else signed(run.error),
                    optional(run.measured_gib),
                    f"{run.memory_gib:.1f}",
                    "" if run.memory_error is None else signed(run.memory_error),
                    memory.peak_phase,
                    str(len(run.estimate.assumed)),
                ]
            )
        parts.append(f"### {title}\n\n{table(head, rows, left=2)}")
    return "\n\n".join(parts)


def summary(runs: list[Shown]) -> str:
    """How many are how far off."""
    errors = np.array([run.error for run in runs if run.error is not None])
    memory = np.array([run.memory_error for run in runs if run.memory_error is not None])
    inside = np.mean([run.inside for run in runs if run.inside is not None])
    rows = []
    for what, values in (("step time", errors), ("peak memory", memory)):
        within = [f"{np.mean(np.abs(values) <= share):.0%}".replace("%", " %") for share in (0.1, 0.2)]
        misses = sum(is_miss(value) for value in values.tolist())
        covered = f"{inside:.0%}".replace("%", " %") if what == "step time" else ""
        rows.append([what, str(len(values)), signed(float(np.median(values))), *within, str(misses), covered])
    head = ["median error", "within 10 %", "within 20 %", f"beyond a factor {FACTOR}", "inside the 90 % interval"]
    return table(["", "scenarios", *head], rows)


def miss_table(runs: list[Shown]) -> str:
    """Misses with their causes, runs of one cause together."""
    rows, unnamed = [], []
    for causes, what, errors in (
        (CAUSES, "time", {run.name: run.error for run in runs}),
        (MEMORY_CAUSES, "memory", {run.name: run.memory_error for run in runs}),
    ):
        by_cause: dict[str, list[str]] = {}
        for name, error in errors.items():
            if error is not None and is_miss(error):
                text = cause(causes, name)
                unnamed += [] if text else [f"{what} of {name}"]
                by_cause.setdefault(text or "?", []).append(f"`{name}` {signed(error)}")
        rows += [[what, ", ".join(names), text] for text, names in by_cause.items()]
    if unnamed:
        raise SystemExit(f"no cause is named for the {', the '.join(unnamed)}: add it to CAUSES")
    return table(["", "runs", "cause"], rows, left=3)


def ladder_table() -> str:
    """Phases of the memory of the Moonlight runs, which differ in recomputation only."""
    rows = []
    for place in range(1, 7):
        name = f"mbsk-{place:03d}"
        problem = moesim.load(name)
        phases = explain(problem).memory[0]
        tensors = {
            phase: sum(value for part, value in classes.items() if part not in ("slack", "context", "nccl")) / GIB
            for phase, classes in phases.items()
        }
        measured = problem.measured
        assert measured is not None
        assert measured.peak_memory is not None
        predicted = max(tensors.values())
        rows.append(
            [
                f"`{name}`",
                ", ".join(problem.strategy.recompute) or "nothing",
                f"{measured.peak_memory / GIB:.2f}",
                f"{predicted:.2f}",
                signed(predicted / (measured.peak_memory / GIB) - 1),
                *(f"{tensors[phase]:.2f}" for phase in ("loss", "backward", "optimizer")),
            ]
        )
    head = ["run", "recomputed", "measured", "predicted", "error", "loss", "backward", "optimizer"]
    return table(head, rows, left=2)


def verdict_table() -> str:
    """Does it fit: reports of users beside the prediction."""
    rows = []
    with VERDICTS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            changes = dict(pair.split("=", 1) for pair in row["strategy"].split())
            changes |= {"sequence_length": row["sequence_length"], "global_batch": row["global_batch"]}
            problem = moesim.from_names(row["model"], row["cluster"], row["software"]).with_changes(changes)
            memory = moesim.estimate(problem).memory
            fits = memory.peak_bytes <= memory.capacity_bytes
            amounts = f"{memory.peak_bytes / GIB:.1f} of {memory.capacity_bytes / GIB:.1f}"
            told = "fits" if row["fits"] == "yes" else "out of memory"
            right = "right" if fits == (row["fits"] == "yes") else "wrong"
            rows.append([row["case"], f"{row['model']} on {row['cluster']}", told, amounts, right])
    return table(["case", "", "reported", "predicted, GiB", ""], rows, left=5)


def first_table(page: str) -> str:
    """First table of a page beside this one."""
    text = PAGE.with_name(page).read_text(encoding="utf-8")
    found = re.search(r"(?:^\|.*\n)+", text, flags=re.M)
    assert found is not None, page
    return found[0].rstrip()


def main() -> None:
    """Fill the page, and write that of the error budget."""
    runs = shown_runs()
    measured = [run for run in runs if run.problem.measured is not None]
    parts = {
        "summary": summary(measured),
        "scenarios": scenario_tables(measured),
        "misses": miss_table(measured),
        "ladder": ladder_table(),
        "verdicts": verdict_table(),
        "kernels": first_table("accuracy_kernels.md"),
        "collectives": first_table("accuracy_collectives.md"),
        "date": f"Tables of {date.today():%Y-%m-%d}, made by `make accuracy` for the calibrations of `stamp {stamp()}`.",
    }
    rows, lines = validation(os.cpu_count() or 1)
    parts |= run_parts(rows, lines)
    text = PAGE.read_text(encoding="utf-8")
    for name, content in parts.items():
        whole = f"<!-- {name} -->\n{content}\n<!-- end -->"
        text, count = re.subn(rf"<!-- {name} -->.*?<!-- end -->", lambda _, new=whole: new, text, flags=re.S)
        assert count == 1, name
    PAGE.write_text(text, encoding="utf-8")
    write_budget(rows)


if __name__ == "__main__":
    main()
