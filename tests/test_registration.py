"""Methods of somebody else: registered, listed, estimated, and gone again."""

import importlib
import sys
from typing import Any

import pytest

from moesim.base.errors import SpecError
from moesim.base.registry import Registry
from moesim.cost.expert_gemms import expert_gemms
from moesim.cost.transports import transports
from moesim.estimator import estimate
from moesim.evaluator import evaluate
from moesim.timeline.schedules import schedules
from moesim.workload.adapters import adapters
from moesim.workload.compression import compressions
from moesim.workload.fusions import fusions
from moesim.workload.optimizers import optimizers
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies
from moesim.workload.routing import routings

TOYS = '''\
"""Methods that nobody would use."""

from dataclasses import replace

import numpy as np

from moesim.cost.expert_gemms import ExpertGemm, expert_gemms
from moesim.cost.transports import transports
from moesim.timeline.schedule import Schedule, one_forward_one_backward, single_chunk
from moesim.timeline.schedules import schedules
from moesim.workload.fusions import Fused, fusions
from moesim.workload.adapters import Adapter, adapters
from moesim.workload.compression import Compression, compressions
from moesim.workload.optimizers import Optimizer, optimizers
from moesim.workload.precision import Recipe, recipes
from moesim.workload.recompute import RecomputePolicy, policies
from moesim.workload.routing import Routing, routings
from moesim.workload.setting import LayoutPasses


class Eager(Schedule):
    """1F1B with one forward more than it needs."""

    def constraints(self, pp, micro_batches, vpp):
        return list(single_chunk("toy-eager", vpp))

    def order(self, pp, micro_batches, vpp, extra_warmup=0):
        ranks = [np.column_stack([np.full(micro_batches, r), np.arange(micro_batches)]) for r in range(pp)]
        return [one_forward_one_backward(rank, rank, pp - r + extra_warmup) for r, rank in enumerate(ranks)]


class Teleport:
    """Every leg takes a second and nothing else."""

    host_syncs = 0

    def leg_time(self, leg, group, machine):
        return 1.0 + 0.0 * leg.tokens

    def passes(self, leg, group):
        return LayoutPasses(0.0, 0.0, 0.0, 0.0)

    def buffer_bytes(self, leg, group, machine, routed_layers):
        return 12345.0

    def sm_share(self, group, machine):
        return 0.0


schedules.add("toy-eager", Eager(), summary="a toy schedule", source="tests")
transports.add("toy-teleport", Teleport(), summary="a toy transport", source="tests")
policies.add("toy-attn", RecomputePolicy(module="layernorm"), summary="a toy policy", source="tests")
adapters.add("toy-2bit", Adapter(frozen_bytes=0.25), summary="a toy adapter", source="tests")
compressions.add("toy-byte", Compression(1.0), summary="a toy compression", source="tests")
optimizers.add("toy-lion", Optimizer(3.0, 3.0), summary="a toy optimizer", source="tests")
recipes.add("toy-int8", Recipe("fp8", 1.0, 1.0, 8.0, 2), summary="a toy precision", source="tests")


def first_only(argument, num_experts):
    """All rows to the first expert."""
    return np.eye(1, num_experts)[0]


def no_norms(ops, cast_bytes):
    """Norms that nothing launches."""
    return tuple(replace(op, kernels=0) if "norm" in op.name else op for op in ops)


routings.add("toy-first", Routing(first_only, shuffled=False), summary="a toy routing", source="tests")
expert_gemms.add("toy-slow", ExpertGemm(lambda work, gpu: 0.01), summary="a toy product", source="tests")
fusions.add("toy-norms", Fused(no_norms), summary="a toy fusion", source="tests")
'''
NAMES = {
    "schedules": "toy-eager",
    "transports": "toy-teleport",
    "recompute": "toy-attn",
    "precisions": "toy-int8",
    "routings": "toy-first",
    "expert-gemms": "toy-slow",
    "fusions": "toy-norms",
    "adapters": "toy-2bit",
    "compressions": "toy-byte",
    "optimizers": "toy-lion",
}
REGISTRIES: dict[str, Registry[Any]] = {
    "schedules": schedules,
    "transports": transports,
    "recompute": policies,
    "precisions": recipes,
    "routings": routings,
    "expert-gemms": expert_gemms,
    "fusions": fusions,
    "adapters": adapters,
    "compressions": compressions,
    "optimizers": optimizers,
}
FIELDS = {
    "schedules": "schedule",
    "transports": "transport",
    "recompute": "recompute",
    "precisions": "precision",
    "routings": "routing",
    "expert-gemms": "expert_gemm",
    "fusions": "fusions",
    "adapters": "adapter",
    "compressions": "grad_compression",
    "optimizers": "optimizer",
}


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """A module of another package, imported as an entry point would import it."""
    (tmp_path / "moesim_toys.py").write_text(TOYS)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("moesim_toys")
    yield
    for kind, name in NAMES.items():
        if name in REGISTRIES[kind]:
            REGISTRIES[kind].remove(name)
    del sys.modules["moesim_toys"]


def listed(kind, capsys, monkeypatch):
    from moesim.cli.main import main

    monkeypatch.setattr(sys, "argv", ["moesim", "specs", kind])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", NAMES)
def test_it_is_listed_and_disappears_again(toys, capsys, monkeypatch, kind):
    assert NAMES[kind] in listed(kind, capsys, monkeypatch)
    REGISTRIES[kind].remove(NAMES[kind])
    assert NAMES[kind] not in listed(kind, capsys, monkeypatch)


def test_it_is_estimated(toys, small):
    base = estimate(small)
    eager = estimate(small, small.strategy.replace(schedule="toy-eager"))
    assert eager.memory.stages[3]["activations_bytes"] > base.memory.stages[3]["activations_bytes"]
    assert eager.step_time_s == pytest.approx(base.step_time_s, rel=0.2)

    teleport = estimate(small, small.strategy.replace(transport="toy-teleport"))
    # 2 layers a stage, four legs a layer, one second each, on the rank that never waits for itself
    assert teleport.breakdown_s["ep"] == pytest.approx(16 * 2 * 4 * 1.0)
    assert teleport.memory.stages[0]["transport_bytes"] == 12345.0

    again = estimate(small, small.strategy.replace(recompute=("toy-attn",)))
    assert again.step_time_s == estimate(small, small.strategy.replace(recompute=("layernorm",))).step_time_s

    fp8, casts = (estimate(small, small.strategy.replace(precision=name)) for name in ("fp8-current", "toy-int8"))
    assert casts.breakdown_s["memory_bound"] > fp8.breakdown_s["memory_bound"]
    assert casts.memory.stages[0]["activations_bytes"] == fp8.memory.stages[0]["activations_bytes"]


def test_methods_of_experts_are_estimated(toys, small):
    base = estimate(small)
    hot = estimate(small, small.strategy.replace(routing="toy-first"))
    assert hot.routing == {"hottest_rank_load": 8.0, "dropped_share": 0.0}  # one of eight ranks has all rows
    assert hot.step_time_s > base.step_time_s
    slow = estimate(small, small.strategy.replace(expert_gemm="toy-slow"))
    # 2 layers a stage, six products a layer, a hundredth of a second each
    assert slow.breakdown_s["grouped_gemm"] == pytest.approx(16 * 2 * 6 * 0.01)
    joined = estimate(small, small.strategy.replace(fusions=("toy-norms",)))
    assert joined.step_time_s < base.step_time_s


def test_methods_of_training_state_are_estimated(toys, free):
    def stage(**changes):
        return estimate(free, free.strategy.replace(**changes)).memory.stages[1]

    lion, adam = stage(optimizer="toy-lion"), stage()
    assert lion["optimizer_bytes"] == pytest.approx(adam["optimizer_bytes"] * (4 + 3 * 4) / (4 + 2 * 4))
    assert stage(adapter="toy-2bit:4")["weights_bytes"] < stage(adapter="qlora:4")["weights_bytes"]
    slow = {"overlap_grad_reduce": False, "overlap_param_gather": False}
    byte, half = (estimate(free, free.strategy.replace(grad_compression=name, **slow)) for name in ("toy-byte", "bf16"))
    assert byte.exposed_s["dp"] < half.exposed_s["dp"]


def test_it_is_evaluated_in_a_batch(toys, small):
    strategies = [
        small.strategy.replace(
            schedule="toy-eager", transport="toy-teleport", recompute=("toy-attn",), ep=ep, precision="toy-int8"
        )
        for ep in (1, 4, 8)
    ]
    batch = evaluate(small, strategies)
    assert batch.legal.all()
    for strategy, seconds in zip(strategies, batch.step_time_s, strict=True):
        assert estimate(small, strategy).step_time_s == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("kind", NAMES)
def test_a_near_miss_suggests_it_while_it_is_there(toys, small, kind):
    field, typo = FIELDS[kind], NAMES[kind] + "x"
    changes = {field: [typo] if field in ("recompute", "fusions") else typo}
    with pytest.raises(SpecError, match=f"did you mean '{NAMES[kind]}'"):
        estimate(small.with_changes(changes))
    REGISTRIES[kind].remove(NAMES[kind])
    with pytest.raises(SpecError) as error:
        estimate(small.with_changes(changes))
    assert NAMES[kind] + "'" not in str(error.value)
