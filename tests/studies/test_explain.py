"""What an explanation lists adds up to the estimate that it explains."""

import json

import pytest

import moesim
from moesim.cost.memory import CLASSES, TENSORS
from moesim.result import BREAKDOWN
from moesim.studies.explain import explain

FREE = {
    "software.host.framework_per_kernel": "0 s",
    "software.host.kernel_launch": "0 s",
    "software.host.device_sync": "0 s",
}
ALONE = FREE | {"tp": 1, "ep": 1, "pp": 1, "overlap_grad_reduce": False, "overlap_param_gather": False}


@pytest.fixture(scope="module")
def piped(small):
    return explain(small)


def test_the_estimate_is_that_of_the_problem(piped, small):
    assert piped.estimate == moesim.estimate(small)
    assert piped.rank == piped.estimate.walked_stage


def test_where_nothing_runs_side_by_side_the_operations_are_the_step(variants):
    for name in ("small", "latent", "dense"):
        found = explain(variants[name].with_changes(ALONE))
        answer = found.estimate
        listed = sum(row.seconds * row.calls for row in found.ops)
        outside = sum(answer.breakdown_s[part] for part in ("dp", "optimizer", "host"))
        assert listed == pytest.approx(answer.step_time_s - outside, rel=1e-9)
        for category in ("gemm", "grouped_gemm", "attention", "memory_bound"):
            of_one = sum(row.seconds * row.calls for row in found.ops if row.category == category)
            assert of_one == pytest.approx(answer.breakdown_s[category], rel=1e-9), category


def test_a_rank_never_takes_less_than_the_work_of_its_compute_lane(piped):
    work = sum(row.seconds * row.calls for row in piped.ops if row.lane == "sm")
    assert work <= piped.estimate.busy_s[piped.rank]
    launched = sum(row.host_s * row.calls for row in piped.ops)
    assert launched <= piped.estimate.busy_s[piped.rank] * (1 + 1e-12)


@pytest.mark.parametrize("name", ["small", "shared", "latent", "dense"])
@pytest.mark.parametrize("degrees", [{}, {"tp": 2}, {"cp": 2}, {"cp": 2, "cp_kind": "ulysses"}, {"ep": 8}])
def test_the_flops_of_all_ranks_are_those_of_the_model(variants, name, degrees):
    if name == "dense":
        degrees = degrees | {"ep": 1}
    problem = variants[name].with_changes({"pp": 1, "tp": 1} | degrees)
    found = explain(problem)
    per_rank = sum(row.flop * row.calls for row in found.ops)
    tokens = problem.global_batch * problem.sequence_length
    model = found.estimate.model_flop_per_token * tokens
    assert per_rank * problem.machine.num_gpus == pytest.approx(model, rel=1e-12)


def test_recomputed_operations_are_listed_and_are_no_model_flops(small):
    plain, again = (explain(small.with_changes({"pp": 1, "recompute": names})) for names in ("none", "full"))
    assert {row.name for row in again.ops} - {row.name for row in plain.ops} == {
        f"{row.name} again" for row in plain.ops if row.where == "moe fwd"
    }
    assert again.estimate.model_flop_per_token == plain.estimate.model_flop_per_token
    assert sum(row.flop * row.calls for row in again.ops) > sum(row.flop * row.calls for row in plain.ops)


def test_calls_are_layers_times_micro_batches(small):
    problem = small.with_changes({"pp": 1})
    found = explain(problem)
    micro_batches = problem.plan().num_micro_batches
    assert micro_batches == 128 // 32
    calls = {row.where: row.calls for row in found.ops}
    assert calls == {
        "embedding fwd": micro_batches,
        "embedding bwd": micro_batches,
        "moe fwd": 8 * micro_batches,
        "moe bwd": 8 * micro_batches,
        "head fwd": micro_batches,
        "head bwd": micro_batches,
    }


def test_only_what_sits_on_the_rank_is_listed(piped):
    assert piped.rank == 0
    assert {row.where.split()[0] for row in piped.ops} == {"embedding", "moe"}


def test_the_largest_phase_of_a_rank_is_its_peak(piped, variants):
    for found in (piped, explain(variants["dense"].with_changes({"dp_sharding": "fsdp", "pp": 1}))):
        stages = found.estimate.memory.stages
        assert len(found.memory) == len(stages)
        for phases, stage in zip(found.memory, stages, strict=True):
            totals = {name: sum(classes.values()) for name, classes in phases.items()}
            assert max(totals.values()) == pytest.approx(stage["peak_bytes"], rel=1e-12)
            assert all(set(classes) == set(CLASSES) for classes in phases.values())
        peak = found.memory[found.estimate.memory.peak_stage][found.estimate.memory.peak_phase]
        assert sum(peak.values()) == pytest.approx(found.estimate.memory.peak_bytes)
        assert sum(peak[name] for name in TENSORS) <= found.estimate.memory.allocated_peak_bytes * (1 + 1e-12)


def test_every_operation_has_a_bound_a_lane_and_a_category(piped):
    for row in piped.ops:
        assert row.bound in ("tensor-cores", "hbm", "nvlink", "nic", "kernel start", "nothing")
        assert row.lane in ("sm", "tp", "ep", "cp", "dp")
        assert row.category in BREAKDOWN
        assert row.seconds >= 0
        assert (row.message_bytes > 0) <= (row.lane != "sm")
    assert {row.bound for row in piped.ops if row.lane == "ep"} == {"nvlink"}  # ep 8 stays in a node


def test_what_limits_an_operation():
    problem = moesim.from_names("llama3-70b", "hgx-h100:8").with_changes({"tp": 8, "pp": 2, "global_batch": 64})
    bounds = {row.name: row.bound for row in explain(problem).ops}
    assert bounds["mlp-up"] == bounds["mlp-up-wgrad"] == bounds["attention-core"] == "tensor-cores"
    assert bounds["input-norm"] == bounds["mlp-activation"] == "hbm"
    assert bounds["mlp-enter"] == "nvlink"
    wide = problem.with_changes({"tp": 16, "software": "automodel"})
    assert {row.bound for row in explain(wide).ops if row.name == "mlp-enter"} == {"nic"}


@pytest.mark.parametrize(
    ("model", "labels"),
    [
        ("deepseek-v3-l4", {"MLA moe", "MLA dense"}),
        ("gpt-oss-120b", {"moe", "moe w128"}),
        ("llama4-scout", {"moe", "moe c8192"}),
        ("mixtral-8x7b", {"moe"}),
    ],
)
def test_kinds_of_layers_are_told_apart(model, labels):
    problem = moesim.from_names(model, "hgx-h200:8").with_changes({"ep": 4})
    found = {row.where.rsplit(" ", 1)[0] for row in explain(problem).ops}
    assert found - {"embedding", "head", "mtp"} == labels


def test_layers_in_16_bits_and_layers_that_are_kept_are_told_apart(small):
    ends = {"pp": 1, "precision": "fp8-current", "software.runtime.bf16_layers": 1, "recompute": "full:6"}
    found = {
        row.where.removesuffix(" fwd") for row in explain(small.with_changes(ends)).ops if row.where.endswith("fwd")
    }
    assert found == {"embedding", "moe bf16", "moe", "moe kept", "moe kept bf16", "head"}


def test_it_survives_json(piped):
    plain = piped.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert set(plain) == {"estimate", "rank", "ops", "memory_phases", "constants"}
    assert plain["estimate"] == piped.estimate.to_dict()
    ranked = [abs(constant["elasticity"]) for constant in plain["constants"]]
    assert ranked == sorted(ranked, reverse=True)
    assert all(
        constant["kind"] and (constant["source"] or constant["kind"] == "assumed") for constant in plain["constants"]
    )
