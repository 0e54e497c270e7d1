"""Each software and profile is complete, and says what its framework does."""

from typing import Any

import pytest

from moesim.spec import library
from moesim.spec.methods import METHODS
from moesim.spec.scenario import STRATEGY_FIELDS

SOFTWARE = library.names("software")
RULES_OF_PROFILES = {
    "paper-2023": (["schedules"], []),  # the fork that brought zero-bubble schedules
    "megatron-core-2026": (["kv-heads-divide-by-tp"], ["kv-heads-or-multiples"]),
    "megatron-bridge-qwen35": (["kv-heads-divide-by-tp"], ["no-more-tp-than-kv-heads"]),
}
"""Rules of the base that a profile does not have, and those that it has besides."""
STACKS = "megatron-core megatron-bridge nemo torchtitan llm-foundry deepspeed automodel nanotron olmo-core xtuner trl paper vtrain simumax-bench"


def test_the_stacks_of_the_field_are_there() -> None:
    assert set(STACKS.split()) <= set(SOFTWARE)


@pytest.mark.parametrize("name", SOFTWARE)
def test_complete_and_dated(name: str) -> None:
    software = library.get("software", name)
    assert set(STRATEGY_FIELDS) - set(METHODS) <= set(software.defaults) <= set(STRATEGY_FIELDS)
    assert software.date
    assert software.name == name
    runtime = software.runtime
    routed = runtime.launches_per_moe_layer or runtime.launches_per_operation
    assert routed.value > 0
    assert runtime.launches_per_dense_layer.value > 0
    if software.profile_of:
        assert software.profiles == {}
        assert library.file("software", name).stem != name
        base = library.get("software", software.profile_of)
        missing, more = RULES_OF_PROFILES.get(name, ([], []))
        assert [rule.name for rule in software.rules] == [r.name for r in base.rules if r.name not in missing] + more


def default(software: str, field: str, **values: Any) -> Any:
    return library.get("software", software).defaults[field].resolve(values)


@pytest.mark.parametrize(
    ("software", "field", "values", "expected"),
    [
        ("torchtitan", "dp_sharding", {}, "fsdp"),
        ("torchtitan", "main_param_dtype", {}, "fp32"),
        ("torchtitan", "grad_dtype", {}, "fp32"),
        ("torchtitan", "reshard_after_forward", {"pp": 1}, True),
        ("torchtitan", "reshard_after_forward", {"pp": 8}, False),
        ("llm-foundry", "grad_dtype", {}, "fp32"),
        ("llm-foundry-pure", "grad_dtype", {}, "bf16"),
        ("deepspeed-2021", "param_dtype", {}, "fp16"),
        ("nanotron", "overlap_tp", {"tp": 8}, True),
        ("nanotron", "overlap_tp", {"tp": 1}, False),
        ("olmo-core", "capacity_factor", {"num_experts": 64, "transport": "nvshmem-rowwise"}, 1.25),
        ("olmo-core", "capacity_factor", {"num_experts": 64, "transport": "deepep-v2"}, None),
        ("megatron-core", "grad_dtype", {"dp_sharding": "zero1"}, "fp32"),
        ("megatron-core", "grad_dtype", {"dp_sharding": "fsdp"}, "bf16"),
        ("zero-bubble", "overlap_p2p", {"vpp": 3}, False),
        ("megatron-bridge", "grad_dtype", {}, "bf16"),
        ("megatron-bridge", "optimizer_state_dtype", {"num_experts": 256}, "bf16"),
        ("megatron-bridge", "optimizer_state_dtype", {"num_experts": 128}, "fp32"),
        ("megatron-bridge", "fp8_params", {"precision": "mxfp8"}, True),
        ("megatron-bridge", "fp8_params", {"precision": "fp8-blockwise"}, False),
        ("megatron-bridge", "overlap_tp", {"tp": 4, "num_experts": 0, "precision": "bf16"}, True),
        ("megatron-bridge", "overlap_tp", {"tp": 4, "num_experts": 128, "precision": "bf16"}, False),
        ("megatron-bridge-2606", "cuda_graph", {"precision": "mxfp8", "num_experts": 128}, "full"),
        ("megatron-bridge-2606", "cuda_graph", {"precision": "bf16", "num_experts": 128}, "none"),
        ("simumax-bench", "cp_kind", {}, "ulysses"),
        ("vtrain", "recompute", {}, ["full"]),
    ],
)
def test_what_a_framework_does(software: str, field: str, values: dict[str, Any], expected: Any) -> None:
    assert default(software, field, **values) == expected


@pytest.mark.parametrize(
    ("software", "reported"),
    [("megatron-core", "allocated"), ("torchtitan", "reserved"), ("nanotron", "allocated"), ("olmo-core", "active")],
)
def test_the_memory_that_is_printed(software: str, reported: str) -> None:
    assert library.get("software", software).runtime.reported_memory.value == reported


def test_aliases_reach_profiles() -> None:
    assert library.get("software", "megatron-deepspeed").name == "vtrain"
    assert library.file("software", "vtrain").name == "megatron-core.yaml"


def test_provenance_covers_the_runtime() -> None:
    numbers = library.get("software", "olmo-core").provenance("software")
    assert numbers["software.runtime.launches_per_moe_layer"].value == 264
    assert numbers["software.runtime.launches_per_moe_layer"].source == "olmo-core-profile"
