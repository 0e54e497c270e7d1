"""A small model on a small cluster, and a sample of everything that can legally be asked of it."""

import json
import random
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import moesim
from moesim.estimator import estimate
from moesim.problem import Problem
from moesim.result import Estimate
from moesim.spec.library import root
from moesim.workload.strategy import Strategy

MODEL = """\
schema: 1
name: small-moe
num_layers: 8
hidden_size: 2048
vocab_size: 32000
tie_embeddings: false
attention: {kind: gqa, num_heads: 16, num_kv_heads: 4, head_dim: 128, qk_norm: true}
moe: {num_experts: 32, top_k: 4, ffn_size: 768, gated: true}
source: nvidia-h100
note: a model of the tests
"""
SCENARIO = """\
schema: 1
name: small
model: small-moe.yaml
cluster: hgx-h100:8
sequence_length: 2048
global_batch: 128
strategy: {tp: 2, pp: 4, ep: 8, micro_batch: 1}
overrides: # a host that keeps ahead of these small kernels most of the time
  software.host.kernel_launch: 2.7 us
  software.host.framework_per_kernel: 1 us
  software.host.library_call: 0 s
  software.host.chunk: 0 s
"""


LATENT = "{kind: mla, num_heads: 16, kv_rank: 256, q_rank: 512, nope_dim: 64, rope_dim: 32, value_dim: 64}"
PARTS = {
    "latent": {"{kind: gqa, num_heads: 16, num_kv_heads: 4, head_dim: 128, qk_norm: true}": LATENT},
    "shared": {"gated: true}": "gated: true, num_shared_experts: 2, shared_ffn_size: 1536}"},
    "dense": {"moe: {num_experts: 32, top_k: 4, ffn_size: 768, gated: true}": "ffn: {size: 6144, gated: true}"},
}
"""What other models of the tests have in place of a part of the small one."""


ANSWER_KEYS = [
    "name",
    "feasible",
    "violations",
    "step_time_s",
    "tokens_per_s_per_gpu",
    "model_flop_per_token",
    "flops_convention",
    "tflop_per_s_per_gpu",
    "mfu",
    "bubble_fraction",
    "walked_stage",
    "busy_s",
    "sustained_clock",
    "breakdown_s",
    "exposed_s",
    "low_s",
    "high_s",
    "interval",
    "memory",
    "binding",
    "evidence",
    "assumed",
    "layout",
    "routing",
    "measured",
    "strategy",
]
"""Keys of an answer as data, in their order."""


@pytest.fixture(scope="session")
def names_of() -> Callable[[str], dict[str, Any]]:
    """Names that a script of docs/ defines."""

    def run(script: str) -> dict[str, Any]:
        folder = str(Path(__file__).resolve().parents[1] / "docs")
        sys.path.insert(0, folder)
        try:
            return runpy.run_path(f"{folder}/{script}.py")
        finally:
            sys.path.remove(folder)

    return run


@pytest.fixture(scope="session")
def answer_keys() -> list[str]:
    return ANSWER_KEYS


@pytest.fixture(scope="session")
def scenarios() -> Path:
    """Folder of the shipped scenarios."""
    return root() / "scenarios"


@pytest.fixture(scope="session")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenario file of a small model on 64 H100; read it, do not change it."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small-moe.yaml").write_text(MODEL)
    (folder / "small.yaml").write_text(SCENARIO)
    return folder / "small.yaml"


@pytest.fixture(scope="session")
def small(small_file: Path) -> Problem:
    return moesim.load(small_file)


@pytest.fixture(scope="session")
def free(small: Problem) -> Problem:
    """The small problem with a framework that has every method: what moesim itself refuses stays refused."""
    return replace(small, software=small.software.model_copy(update={"rules": ()}))


@pytest.fixture(scope="session")
def variants(small_file: Path, small: Problem) -> dict[str, Problem]:
    """The small problem, and the same with latent attention, with shared experts, and with dense layers."""
    found = {"small": small}
    for name, parts in PARTS.items():
        text = MODEL.replace("name: small-moe", f"name: small-{name}")
        for old, new in parts.items():
            assert old in text
            text = text.replace(old, new)
        (small_file.parent / f"small-{name}.yaml").write_text(text)
        changes = {"model": f"small-{name}.yaml"} | ({"ep": 1} if name == "dense" else {})
        found[name] = small.with_changes(changes)
    return found


@pytest.fixture(scope="session")
def qwen() -> Problem:
    """Qwen3-235B-A22B on 256 H100, as shipped."""
    return moesim.load("qwen3-235b-h100x256")


def _draw(problem: Problem, pick: random.Random) -> Strategy:
    pp = pick.choice((1, 2, 4))
    vpp = pick.choice((1, 2)) if pp > 1 else 1
    schedule = "none" if pp == 1 else "interleaved-1f1b" if vpp > 1 else pick.choice(("1f1b", "gpipe"))
    precision = pick.choice(("bf16", "bf16", "fp8-current", "fp8-blockwise"))
    routing = pick.choice(("balanced", "natural", "capacity"))
    return problem.strategy.replace(
        tp=pick.choice((1, 2, 4)),
        cp=pick.choice((1, 1, 2, 4)),
        pp=pp,
        vpp=vpp,
        ep=pick.choice((1, 2, 4, 8, 16, 32)),
        etp=pick.choice((1, 1, 2, 4)),
        micro_batch=pick.choice((1, 2, 4)),
        sequence_parallel=True,
        schedule=schedule,
        layout=pick.choice(("even", "count-embedding-and-loss")),
        cp_kind=pick.choice(("ring", "ulysses")),
        transport=pick.choice(("deepep", "nccl-alltoall", "hybridep", "deepep-v2", "nvshmem-rowwise")),
        dp_sharding=pick.choice(("ddp", "zero1", "zero1", "zero2", "fsdp", "hsdp")),
        reshard_after_forward=pick.choice((True, True, False)),
        recompute=pick.choice(
            (
                (),
                ("full",),
                ("full:1",),
                ("moe",),
                ("layernorm", "moe_act"),
                ("core_attn",),
                ("core_attn", "moe"),
                ("attn",),
            )
        ),
        precision=precision,
        fp8_params=precision != "bf16" and pick.choice((True, False)),
        grad_dtype=pick.choice(("fp32", "bf16")),
        param_dtype=pick.choice(("fp32", "bf16")),
        optimizer_state_dtype=pick.choice(("fp32", "bf16")),
        overlap_grad_reduce=pick.choice((True, False)),
        overlap_param_gather=pick.choice((True, False)),
        overlap_tp=pick.choice((True, False)),
        overlap_ep=pick.choice((True, False)),
        overlap_p2p=pick.choice((True, False)),
        routing=routing,
        rank_imbalance=pick.choice((1.0, 1.25)),
        capacity_factor=1.5 if routing == "capacity" else pick.choice((None, 1.1)),
    )


Sample = Callable[[int, int], list[Strategy]]


@pytest.fixture(scope="session")
def sample(small: Problem) -> Sample:
    """Draw different legal strategies of the small problem, the same ones for the same seed."""

    def draw(count: int, seed: int) -> list[Strategy]:
        pick = random.Random(seed)
        found: dict[Strategy, None] = {}
        while len(found) < count:
            strategy = _draw(small, pick)
            if strategy not in found and not small.check(strategy):
                found[strategy] = None
        return list(found)

    return draw


@pytest.fixture(scope="session")
def estimates(small: Problem, sample: Sample) -> list[tuple[Strategy, Estimate]]:
    """Estimates of forty legal strategies of all kinds."""
    return [(strategy, estimate(small, strategy)) for strategy in sample(40, 7)]


TraceEvent = dict[str, Any]


class MadeTrace:
    """A small Kineto trace: operators, launches and kernels with their links."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[TraceEvent] = []
        self.head: dict[str, Any] = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0}}
        self.tail: dict[str, Any] = {"traceName": "made.json"}
        self._next = 100

    def add(self, cat: str, name: str, ts: float, dur: float, tid: int = 1, pid: int = 50, **args: Any) -> TraceEvent:
        """One event; times in microseconds."""
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)
        return event

    def kernel(
        self, name: str, ts: float, dur: float, stream: int = 7, launch: float | None = None, **more: Any
    ) -> TraceEvent:
        """A kernel, and its launch where a time is given."""
        self._next += 1
        number = self._next
        external = more.pop("external", number + 50_000)
        device = more.pop("device", 0)
        if launch is not None:
            self.add("cuda_runtime", "cudaLaunchKernel", launch, 1.0, correlation=number, **{"External id": external})
        told = {"device": device, "stream": stream, "correlation": number, "External id": external, **more}
        return self.add(told.pop("cat", "kernel"), name, ts, dur, tid=stream, pid=device, **told)

    def text(self) -> str:
        """The file as Kineto writes it."""
        return json.dumps({**self.head, "traceEvents": self.events, **self.tail}, indent=1)

    def write(self, name: str = "made.json", text: str | bytes | None = None) -> Path:
        """Write it."""
        path = self.folder / name
        content = self.text() if text is None else text
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@pytest.fixture
def made(tmp_path: Path) -> MadeTrace:
    return MadeTrace(tmp_path)


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """Public traces beside the checkout; the tests that need them are skipped without."""
    folder = root().parent / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip("no public traces beside the checkout")
    return folder
