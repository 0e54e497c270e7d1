"""Published runs like a job: what others measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.spec import library
from moesim.studies.run_table import Row, Run, run_of, table_rows

TABLE = "tables/published_runs.csv"
"""Published runs that come with moesim, below its scenarios."""


@dataclass(frozen=True)
class Reference:
    """A published run of the same model. Rates per GPU.

    ``distance``: doublings of GPUs, sequence and batch between it and the job, as a root of the sum of squares, another
    GPU or precision counting as two and one. ``predicted_tokens_per_s_per_gpu``: estimate of that run; None where its row
    cannot be expressed. [-, 1/s]
    """

    run_id: str
    gpu: str
    num_gpus: int
    sequence_length: int
    global_batch: int
    precision: str
    layout: str
    tokens_per_s_per_gpu: float
    tflop_per_s_per_gpu: float | None
    flops_convention: str
    predicted_tokens_per_s_per_gpu: float | None
    distance: float
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dict(vars(self))


def references(problem: Problem, count: int = 5) -> tuple[Reference, ...]:
    """Return the published runs of a job's model that are nearest to it; none where nobody published one."""
    path = library.root() / "scenarios" / TABLE
    rows = [row for row in table_rows(path) if _usable(row) and _model(row["model"]) == _model(problem.scenario.model)]
    rows.sort(key=lambda row: _distance(row, problem))
    return tuple(_reference(row, problem) for row in rows[:count])


def _usable(row: Row) -> bool:
    needed = ("gpu", "num_gpus", "seq_len", "global_batch", "tokens_per_s_per_gpu")
    return row.get("status", "ok") == "ok" and all(row.get(name) for name in needed)


def _model(name: str) -> str:
    try:
        return library.find("models", name)
    except SpecError:
        return name


def _distance(row: Row, problem: Problem) -> float:
    sizes = (
        (row["num_gpus"], problem.machine.num_gpus),
        (row["seq_len"], problem.sequence_length),
        (row["global_batch"], problem.global_batch),
    )
    steps = [math.log2(float(one) / other) for one, other in sizes]
    steps.append(2.0 * (row["gpu"] != problem.machine.gpu.name))
    steps.append(1.0 * (row.get("precision") != problem.strategy.precision))
    return math.sqrt(sum(step**2 for step in steps))


def _reference(row: Row, problem: Problem) -> Reference:
    run = run_of(row)
    predicted = estimate(run.problem).tokens_per_s_per_gpu if isinstance(run, Run) else None
    degrees = (name for name in ("tp", "pp", "vpp", "cp", "ep", "etp") if row.get(name, "") not in ("", "0", "1"))
    return Reference(
        run_id=row["run_id"],
        gpu=row["gpu"],
        num_gpus=int(row["num_gpus"]),
        sequence_length=int(row["seq_len"]),
        global_batch=int(float(row["global_batch"])),
        precision=row.get("precision", ""),
        layout=" ".join(f"{name}{row[name]}" for name in degrees),
        tokens_per_s_per_gpu=float(row["tokens_per_s_per_gpu"]),
        tflop_per_s_per_gpu=float(row["tflops_per_gpu"]) if row.get("tflops_per_gpu") else None,
        flops_convention=row.get("flops_convention", ""),
        predicted_tokens_per_s_per_gpu=predicted,
        distance=_distance(row, problem),
        source=row.get("source", ""),
    )
