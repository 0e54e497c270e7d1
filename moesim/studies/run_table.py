"""Rows of a table of published runs as scenarios.

The columns are those of ``docs/run_table.md``. A row that cannot be expressed is refused with its reason; what it leaves
blank takes the default of its software and is listed under ``assumed``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moesim.base.errors import SpecError, did_you_mean
from moesim.base.units import format_quantity
from moesim.cost.memory import plan_memory
from moesim.evaluator import evaluate, peak_columns
from moesim.problem import Problem, resolve
from moesim.spec import library
from moesim.spec.csv_file import csv_rows
from moesim.spec.load import scenario_from_data
from moesim.spec.lookup import hardware_for, software_for
from moesim.workload.strategy import Strategy

Row = Mapping[str, str]

ADAPTERS = {"lora": "lora:32", "qlora": "qlora:32"}
"""Adapter of a task: ``dim: int = 32`` beside linear_qkv, linear_proj, linear_fc1 and linear_fc2 is the default of the LoRA
of Megatron-Bridge (megatron-bridge), which NeMo had before it."""
OFFLOADED = (0.25, 0.5, 0.75, 1.0)
"""Shares of the activations that a run may have moved to the host where it does not print which."""

REQUIRED = ("run_id", "model", "gpu", "num_gpus", "seq_len", "global_batch")
COUNTS = {"tp": "tp", "pp": "pp", "vpp": "vpp", "cp": "cp", "ep": "ep", "etp": "etp", "micro_batch": "micro_batch"}
NAMES = {
    "transport": "transport",
    "dp_sharding": "dp_sharding",
    "grad_dtype": "grad_dtype",
    "optimizer_state_dtype": "optimizer_state_dtype",
    "routing": "routing",
    "cuda_graph": "cuda_graph",
}
SCHEDULES = {"zb-1p": "zb-h1", "zb-2p": "zb-h2"}
"""Schedules that tables call by the memory they take."""
FLAGS = ("sequence_parallel", "overlap_grad_reduce", "overlap_param_gather", "overlap_tp", "overlap_ep", "overlap_p2p")
OPEN_PRECISIONS = ("", "fp8")
"""Precisions that a table leaves open: not printed, and FP8 of unknown kind."""


MODEL_FILE = "model file"
"""Column that a reader adds where the user has a file of the model."""
PEAK_KINDS = ("allocated", "reserved", "active")
"""Counters that frameworks print as their memory: in use, held by the allocator, in use or waiting for a stream."""
CONFIGURATION = (
    *("model", "gpu", "num_gpus", "stack", "stack_version", "precision", "seq_len", "micro_batch", "tp", "pp", "vpp"),
    *("cp", "ep", "etp", "schedule", "dp_sharding", "recompute", "compile", "overlap_tp", "cuda_graph", "task"),
)


@dataclass(frozen=True)
class Refused:
    """A row that cannot be expressed: the rule that refuses it, and the reason in words."""

    run_id: str
    rule: str
    reason: str


@dataclass(frozen=True)
class Run:
    """A published run: the problem it poses and what was measured. Times in s, memory in B, rates per GPU.

    ``peak_kind``: counter of the allocator that ``peak_bytes`` was read from.
    """

    run_id: str
    row: Row
    problem: Problem
    assumed: tuple[str, ...]
    step_time_s: float | None
    peak_bytes: float | None
    peak_kind: str

    @property
    def configuration(self) -> str:
        """What decides its peak memory: all that is printed of the job but how many micro-batches a step has."""
        return " ".join(self.row.get(column, "") for column in CONFIGURATION)


def read_runs(path: Path, models: Path | None = None) -> Iterator[Run | Refused]:
    """Every row of a CSV file, as a run or with the reason why not."""
    for share in shares(list(table_rows(path, models))):
        with library.unchanging():
            found = [run_of(row) for row in share]
        yield from found


SHARE = 8
"""Rows for which files of the library are looked at once."""


def shares(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Rows in shares, the last of which may be smaller."""
    return [rows[first : first + SHARE] for first in range(0, len(rows), SHARE)]


def table_rows(path: Path, models: Path | None = None) -> Iterator[Row]:
    """Rows of a CSV file as they stand; a `SpecError` where it is none of run tables.

    A model that a file of the folder `models` is named after is read from there.
    """
    for printed in csv_rows(path, REQUIRED, "see docs/run_table.md"):
        own = models / f"{printed['model']}.yaml" if models is not None else None
        yield printed | ({MODEL_FILE: str(own.resolve())} if own is not None and own.is_file() else {})


def run_of(row: Row) -> Run | Refused:
    """One row, as a run or with the reason why not."""
    run_id = row["run_id"]
    blank = [name for name in REQUIRED if not row.get(name)]
    if blank:
        return Refused(run_id, "not-printed", f"{', '.join(blank)} is not printed")
    kind = row.get("peak_mem_kind", "")
    if kind and kind not in PEAK_KINDS:
        return Refused(run_id, "invalid-row", f"peak_mem_kind '{kind}'; {did_you_mean(kind, PEAK_KINDS)}")
    refused = _not_modelled(row)
    if refused:
        return Refused(run_id, "not-modelled-yet", refused)
    try:
        data, assumed = _scenario(row)
        problem = resolve(scenario_from_data(data, run_id))
    except SpecError as error:
        return Refused(run_id, _rule(str(error.issues[0].what)), "; ".join(issue.what for issue in error.issues))
    problem, placed = _placed(problem)
    broken = problem.check()
    if broken:
        return Refused(run_id, broken[0].violation.rule, "; ".join(one.violation.message for one in broken))
    if row.get("status", "ok") != "oom" and (state := _state_bytes(problem)) > problem.machine.gpu.memory_capacity:
        told = format_quantity(state, "bytes")
        return Refused(
            run_id, "state-does-not-fit", f"impossible as printed: training state alone takes {told} of a GPU"
        )
    problem, repeated = _fitting(problem)
    return Run(
        run_id,
        row,
        problem,
        (*problem.assumed, *assumed, *placed, *repeated),
        _number(row.get("step_time_s", "")),
        None if (gib := _number(row.get("peak_mem_gib", ""))) is None else gib * 2**30,
        row.get("peak_mem_kind") or str(problem.software.runtime.reported_memory.value),
    )


def _not_modelled(row: Row) -> str | None:
    if row.get("notes", "").startswith("unsupported:"):
        return row["notes"].split(";")[0]
    if "mamba" in row.get("cuda_graph", ""):
        return f"CUDA graphs of Mamba layers (cuda_graph {row['cuda_graph']})"
    return None


def _rule(what: str) -> str:
    known = (
        ("no model", "unknown-model"),
        ("no GPU", "unknown-gpu"),
        ("cannot be expressed", "refused-by-name"),
        ("is not modelled", "refused-by-name"),
    )
    return next((rule for words, rule in known if words in what), "invalid-row")


def _scenario(row: Row) -> tuple[dict[str, Any], list[str]]:
    """Scenario data of a row, and the fields that the row leaves open."""
    assumed = []
    strategy: dict[str, Any] = {name: int(row[column]) for column, name in COUNTS.items() if row.get(column)}
    strategy |= {name: row[column] for column, name in NAMES.items() if row.get(column)}
    strategy |= {name: row[name] == "1" for name in FLAGS if row.get(name)}
    if row.get("schedule"):
        strategy["schedule"] = SCHEDULES.get(row["schedule"], row["schedule"])
    if row.get("recompute"):
        strategy["recompute"] = [part for part in row["recompute"].split(";") if part != "none"]
    precision = row.get("precision", "")
    if precision == "fp8":
        blackwell = row["gpu"].startswith(("b", "gb"))
        strategy["precision"] = "fp8-current" if blackwell else "fp8-delayed"  # recipes of 2024 on Hopper, later there
    elif precision:
        strategy["precision"] = precision
    if precision in OPEN_PRECISIONS:
        assumed.append("strategy.precision")
    if row.get("param_dtype") == "fp8":
        strategy["fp8_params"] = True
    elif row.get("param_dtype"):
        strategy["param_dtype"] = row["param_dtype"]
    if row.get("capacity_factor"):
        strategy["capacity_factor"] = float(row["capacity_factor"])
    elif strategy.get("routing") == "capacity":
        strategy["capacity_factor"] = 1.0
        assumed.append("strategy.capacity_factor")
    if strategy.get("tp", 1) == 1:
        strategy.pop("sequence_parallel", None)
    if row.get("task") in ADAPTERS:
        strategy |= {"adapter": ADAPTERS[row["task"]], "adapter_targets": "linear"}
        assumed += ["strategy.adapter", "strategy.adapter_targets"]
    if row.get("offload") == "optimizer":
        strategy["optimizer_offload"] = 1.0
    elif row.get("offload") == "activation":
        strategy["activation_offload"] = OFFLOADED[0]
        assumed.append("strategy.activation_offload")
    notes = row.get("notes", "")
    if layout := re.search(r"(?:pp_)?layout=(E[EtmL|()*\d]+)", notes):
        strategy["layout"] = layout[1]
    elif layers := re.search(r"(?:pp_)?layout=(\d+(?:/\d+)+)", notes):
        strategy["layout"] = [int(count) for count in layers[1].split("/")]
    if "shared_expert_overlap=1" in notes:
        strategy["overlap_shared_expert"] = True
    hardware = hardware_for(
        row["gpu"],
        int(row["num_gpus"]),
        int(row["gpus_per_node"]) if row.get("gpus_per_node") else None,
        int(row["nvlink_domain_size"]) if row.get("nvlink_domain_size") else None,
        _number(row.get("nic_gbps_per_gpu", "")),
        row.get("fabric", ""),
    )
    cluster = {"node": hardware.node, "count": hardware.count} | ({"gpus": hardware.gpus} if hardware.gpus else {})
    data = {
        "schema": 1,
        "name": row["run_id"],
        "model": row.get(MODEL_FILE) or row["model"],
        "cluster": cluster,
        "software": _software(row),
        "sequence_length": int(row["seq_len"]),
        "global_batch": int(float(row["global_batch"])),
        "strategy": strategy,
        "overrides": hardware.overrides | _remainders(notes),
    }
    return data, assumed + [f"cluster.{name}" for name in hardware.assumed]


def _remainders(notes: str) -> dict[str, Any]:
    """Main weights that a row says are whole FP32, not the bits that BF16 weights lack."""
    return {"software.runtime.main_param_remainders": False} if "master=fp32" in notes else {}


def _software(row: Row) -> str:
    """Profile that a row's stack and version name; two stacks print in other columns which of theirs they mean."""
    name = software_for(row.get("stack") or "megatron-core", row.get("stack_version", ""))
    if name.startswith("torchtitan") and row.get("compile") == "0":
        return name.replace("torchtitan", "torchtitan-eager")
    if name != "llm-foundry":
        return name
    many = row["gpu"] == "h100-sxm-80gb" and int(row["num_gpus"]) >= 128
    pure = row["gpu"] == "a100-sxm-40gb" or (row["gpu"] == "a100-sxm-80gb" and row["model"] == "mpt-70b") or many
    return "llm-foundry-pure" if pure else name


def _placed(problem: Problem) -> tuple[Problem, tuple[str, ...]]:
    """Place layers that do not divide by the rule of the software: a run table has no column for the layout."""
    strategy = problem.strategy
    layers = len(problem.model.layers)
    if strategy.layout != "even" or layers % (strategy.pp * strategy.vpp) == 0:
        return problem, ()
    return problem.with_changes({"layout": problem.software.runtime.placement.value}), ("strategy.layout",)


RECOMPUTES = (
    ("moe_act",),
    ("layernorm", "moe_act"),
    ("mlp",),
    ("layernorm", "mlp"),
    ("mla_up_proj",),
    ("moe_act", "mla_up_proj", "mlp"),
    ("layernorm", "moe"),
    ("attn", "mlp"),
    ("full",),
)
"""What a run that does not print its recomputation may have used."""


def _fitting(problem: Problem) -> tuple[Problem, tuple[str, ...]]:
    """Where the default of an unprinted field does not fit: the least offload, the cheapest recomputation that does."""
    if problem.strategy.activation_offload:  # no table prints the share
        shares = (share for share in OFFLOADED if _fits(problem, problem.strategy.replace(activation_offload=share)))
        return problem.with_changes({"activation_offload": next(shares, OFFLOADED[-1])}), ()
    if "strategy.recompute" not in problem.assumed:
        return problem, ()
    if _fits(problem, problem.strategy):
        return problem, ()
    strategies = [problem.strategy.replace(recompute=names) for names in RECOMPUTES]
    strategies = [strategy for strategy in strategies if _fits(problem, strategy)]
    if not strategies:
        return problem, ()
    best = strategies[int(np.argmin(evaluate(problem, strategies).step_time_s))]
    return problem.with_changes({"recompute": list(best.recompute)}), ("strategy.recompute",)


def _fits(problem: Problem, strategy: Strategy) -> bool:
    """Whether a strategy is legal and its peak within the capacity."""
    return not problem.check(strategy) and bool(
        peak_columns(problem.plan(strategy)) <= problem.machine.gpu.memory_capacity
    )


def _state_bytes(problem: Problem) -> float:
    """Weights, gradients and optimizer state of the fullest pipeline rank. [B]"""
    return max(
        sum(float(rank.classes[name]) for name in ("weights", "gradients", "optimizer"))
        for rank in plan_memory(problem.plan())
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
