"""Predictions of docs/make_accuracy_targets.py that need more than an estimate of a run."""

from __future__ import annotations

import csv
from collections.abc import Callable, Container, Iterator
from functools import cache
from pathlib import Path

import numpy as np

import moesim
from moesim.cost.blocks import PricedBlock, chunk_blocks, host_times, price_blocks
from moesim.cost.contention import Contention, stretched
from moesim.cost.offload import offload_ratio
from moesim.cost.plan import Plan
from moesim.cost.replication import gather_messages, gradient_messages
from moesim.cost.stage import Piece, chunk_time, chunk_work, sequential, two_batches
from moesim.spec import library
from moesim.studies.checkpoint import CONTENTS, GPU_MTTF_S
from moesim.studies.goodput import job_mtbf
from moesim.timeline.run import run
from moesim.timeline.schedules import schedules
from moesim.timeline.step import step_graph
from moesim.timeline.walk import held_chunks, idle_fraction
from moesim.workload.adapters import adapters
from moesim.workload.adapting import Adapting
from moesim.workload.from_spec import model_from_spec
from moesim.workload.layers import saved_bytes
from moesim.workload.ops import Op
from moesim.workload.sharding import SHARDINGS, RankParams, Replicas, StateTypes, state_bytes

GIB = 2**30
STATE = ("weights_bytes", "gradients_bytes", "optimizer_bytes")
SMALL = ("attention-logsumexp", "router-logits-and-probs", "row-probs")
"""FP32 vectors that the published inventory leaves out."""


def routed(problem: moesim.Problem) -> PricedBlock:
    """Priced routed layer of a problem."""
    blocks = price_blocks(problem.plan())
    return next(block for name, block in blocks.items() if not isinstance(name, str) and name[0].moe)


def routed_block(direction: str) -> float:
    """Time of one routed layer of the runs on four B300, from its first kernel to its last, launches hidden. [ms]"""
    problem = moesim.load("olmo-4g03")
    plan, ops = problem.plan(), getattr(routed(problem), direction)
    contention = plan.contention("F" if direction == "forward" else "BW")
    return 1e3 * float(chunk_time(sequential([ops]), (), host_times(plan), contention, {"host": np.zeros(())}).seconds)


def running(plan: Plan, pieces: tuple[Piece, ...], kind: str) -> Iterator[tuple[Op, float]]:
    """Operations of a forward (F) or backward (BW), and how long they run in all, with what they lose side by side. [s]"""
    work = chunk_work(pieces, (), host_times(plan), plan.contention(kind), {})
    count = len(work.flat)
    times = np.bincount(work.tasks.row, minlength=work.tasks.num_rows)[:count]
    for priced, seconds in zip(work.flat, work.durations[:count] * times, strict=True):
        yield priced.op, float(seconds)


@cache
def parts_of_exchange(transport: str) -> tuple[float, float, float]:
    """Legs, permutations and grouped products of one forward of the profile pair of OLMo-core. [ms]"""
    problem = moesim.from_names("olmo-8l-128e-top8", "hgx-b300:1", "olmo-core")
    shape = {"sequence_length": 8192, "global_batch": 128, "micro_batch": 4, "ep": 8}
    changed = problem.with_changes(shape | {"transport": transport})
    found = list(running(changed.plan(), sequential([routed(changed).forward]), "F"))
    around = ("permute", "sort-by-expert", "unsort", "unpermute")
    legs, passes, products = (
        1e3 * sum(seconds for op, seconds in found if {op.category, op.name} & names)
        for names in ({"ep"}, set(around), {"grouped_gemm"})
    )
    return legs, passes, products


def kernel_time(name: str, categories: Container[str], changes: tuple[tuple[str, object], ...] = ()) -> float:
    """Time that kernels of some categories run in a step of a run with one stage, stretched by what is beside them. [s]"""
    problem = moesim.load(name)
    plan = problem.plan(problem.strategy.replace(**dict(changes)))
    halved = plan.strategy.two_batch_overlap
    blocks = price_blocks(plan.half if halved else plan)
    chunk = chunk_blocks(plan, plan.stages[0], blocks)
    forward, backward = [one.forward for one in chunk], [one.backward for one in reversed(chunk)]
    pieces = (
        ("F", two_batches(forward) if halved else sequential(forward)),
        ("BW", two_batches(backward, backward=True) if halved else sequential(backward)),
    )
    found = (step for kind, chain in pieces for step in running(plan, chain, kind))
    return plan.num_micro_batches * sum(seconds for op, seconds in found if op.category in categories)


def pair_makespan(product: float, exchange: float) -> float:
    """Time of a product and a row-wise leg side by side, from their times alone. [same unit]"""
    constants = moesim.load("olmo-4g03").machine.transports["nvshmem-rowwise"]
    contention = Contention(constants["gemm_slowdown"], constants["exchange_slowdown"])
    alone = np.array([product, exchange])
    lanes = np.array([False, True])
    longer = stretched(alone, ["grouped_gemm", "ep"], lanes, ~lanes, np.ones(2), contention)
    return float(longer.max())


def kept_activations(name: str) -> float:
    """Tensors at the peak beside what stays. [GiB]"""
    stage = moesim.estimate(moesim.load(name)).memory.stages[0]
    return (stage["activations_bytes"] + stage["logits_bytes"] + stage["workspace_bytes"]) / GIB


def log(path: Path) -> Iterator[tuple[str, ...]]:
    """Lines about MEM-03 and MEM-04."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["case"].startswith(("MEM-03", "MEM-04"))]
    for row in rows:
        changes = dict(pair.split("=", 1) for pair in row["strategy"].split())
        changes |= {"sequence_length": row["sequence_length"], "global_batch": row["global_batch"]}
        found = moesim.estimate(moesim.from_names(row["model"], row["cluster"], row["software"]).with_changes(changes))
        memory = found.memory
        fits, told = memory.peak_bytes <= memory.capacity_bytes, row["fits"] == "yes"
        share = memory.peak_bytes / memory.capacity_bytes
        amounts = f"{memory.peak_bytes / GIB:.1f} of {memory.capacity_bytes / GIB:.1f}"
        printed = row["note"] if "MFU" in row["note"] else ""
        verdict = "right" if fits == told else f"wrong: {row['known_miss']}"
        mfu = f"{100 * found.mfu:.1f} %" if printed else ""
        yield row["case"], "fits" if told else "out of memory", amounts, f"{share:.0%}", verdict, printed, mfu


def slots(schedule: str, vpp: int) -> tuple[float, list[float]]:
    """Bubble and chunks in flight of a schedule with 4 ranks and 8 micro-batches, backward twice the forward."""
    step = step_graph(schedules.get(schedule), 4, 8, vpp, optimizer=False)
    lengths = {"F": 1.0, "B": 1.0, "W": 1.0, "BW": 2.0}
    result = run(step.graph, np.array([lengths[kind] for kind, _ in step.rows]), np.zeros(step.num_delay_rows))
    return 100 * idle_fraction(step, result), held_chunks(step, result)


def state(params: RankParams, dense: float, routed_ranks: float) -> float:
    """Bytes of weights, gradients and a sharded optimizer in FP32. [GiB]"""
    found = state_bytes(params, Replicas(dense, routed_ranks), StateTypes(2, 4, 4, 4), SHARDINGS["zero1"])
    return (found.weights + found.gradients + found.optimizer) / GIB


def buffers(precision: str, dispatch: str) -> float:
    """Buffers of the row-wise exchange of the runs on four B300. [GiB]"""
    problem = moesim.load("olmo-4g01")
    strategy = problem.strategy.replace(precision=precision, dispatch_precision=dispatch)
    return moesim.estimate(problem, strategy).memory.stages[0]["transport_bytes"] / GIB


def whole_state() -> float:
    """State of a rank of the runs on four B300. [GiB]"""
    stage = moesim.estimate(moesim.load("olmo-4g03")).memory.stages[0]
    return sum(stage[name] for name in STATE) / GIB


def saved_block() -> float:
    """Activations kept of a routed layer. [GB]"""
    block = routed(moesim.load("olmo-4g03")).block
    small = sum(float(saved.num_bytes) for saved in block.saved if saved.name in SMALL)
    return (float(saved_bytes(block)) - small) / 1e9


def message_gib(messages: Callable[..., list]) -> float:
    """Bytes that data parallelism moves for 12.496 billion parameters. [GiB]"""
    problem = moesim.from_names("olmo3moe-tiny-64e", "hgx-b300:8", "olmo-core")
    plan = problem.with_changes({"sequence_length": 8192, "global_batch": 256, "micro_batch": 4}).plan()
    return float(messages(plan, RankParams(12.496e9))[0].size) / GIB


def lora_params() -> float:
    """Parameters of LoRA, rank 4, beside the attention matrices of GPT-3. [million]"""
    model = model_from_spec(library.get("models", "gpt3-175b"))
    return Adapting(adapters.get("lora"), 4).model_params(model) / 1e6


EXACT: dict[str, Callable[[], float]] = {
    "state-ep4": whole_state,
    "state-dp64": lambda: state(RankParams(dense=12.496e9), 64, 1),
    "gradient-bytes": lambda: message_gib(gradient_messages),
    "weight-bytes": lambda: message_gib(gather_messages),
    "rowwise-buffers": lambda: buffers("bf16", "bf16"),
    "rowwise-buffers-mxfp8": lambda: buffers("mxfp8", "recipe"),
    "saved-block": saved_block,
    "bubble-interleaved": lambda: slots("interleaved-1f1b", 2)[0],
    "bubble-v": lambda: slots("1f1b-v", 2)[0],
    "chunks-interleaved": lambda: slots("interleaved-1f1b", 2)[1][0],
    "chunks-v": lambda: max(slots("1f1b-v", 2)[1]),
    "offload-ratio": lambda: float(offload_ratio(3.96e9, 10.3e-3, 63e9)),
    "checkpoint-bytes": lambda: (
        CONTENTS["fp32-adam"][0] * model_from_spec(library.get("models", "olmo-166.7b-128e")).total_params / GIB
    ),
    "llama3-mtbf": lambda: float(job_mtbf([(16384, GPU_MTTF_S)])) / 3600,
    "mtbf-10000": lambda: float(job_mtbf([(10_000, 100 * 86400.0)])) / 60,
    "lora-params": lora_params,
}
"""Predictions that follow from arithmetic, by the name of their row, in its unit."""
