from typing import Any

import numpy as np
import pytest

from moesim.spec import library
from moesim.spec.methods import METHODS
from moesim.spec.scenario import STRATEGY_FIELDS
from moesim.workload.strategy import OFF

MEGATRON = library.get("software", "megatron-core")
GOOD: dict[str, Any] = {name: OFF[name] for name in METHODS} | {
    "schedule": "interleaved-1f1b",
    "schedule_file": False,
    "num_heads": 64,
    "num_kv_heads": 4,
    "num_experts": 128,
    "tp": 2,
    "pp": 8,
    "vpp": 4,
    "ep": 32,
    "num_micro_batches": 128,
    "sequence_parallel": True,
    "overlap_ep": True,
    "overlap_p2p": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "dp_sharding": "zero1",
    "recompute_full": False,
    "recompute_moe": False,
}


def test_every_strategy_field_has_a_default() -> None:
    assert sorted(MEGATRON.defaults) == sorted(set(STRATEGY_FIELDS) - set(METHODS))


@pytest.mark.parametrize(
    ("field", "values", "expected"),
    [
        ("schedule", {"pp": 1, "vpp": 1}, "none"),
        ("schedule", {"pp": 8, "vpp": 1}, "1f1b"),
        ("schedule", {"pp": 8, "vpp": 4}, "interleaved-1f1b"),
        ("overlap_p2p", {"vpp": 4}, True),
        ("overlap_p2p", {"vpp": 1}, False),
        ("sequence_parallel", {"tp": 2}, True),
        ("overlap_param_gather", {"dp_sharding": "ddp", "overlap_grad_reduce": True}, False),
        ("dp_sharding", {}, "zero1"),
        ("recompute", {}, []),
    ],
)
def test_defaults(field: str, values: dict[str, Any], expected: Any) -> None:
    assert MEGATRON.defaults[field].resolve(values) == expected


def test_a_published_run_breaks_no_rule() -> None:
    assert MEGATRON.violations(GOOD) == []


@pytest.mark.parametrize(
    ("changes", "rule", "message"),
    [
        ({"tp": 8}, "kv-heads-divide-by-tp", "4 KV heads are not a multiple of tp 8"),
        ({"sequence_parallel": False}, "moe-with-tp-needs-sequence-parallel", "MoE with tp 2 needs sequence_parallel"),
        ({"num_micro_batches": 12}, "interleaving-needs-micro-batches-by-pp", "12 micro-batches are not a multiple of pp 8"),
        ({"vpp": 1, "overlap_p2p": False}, "ep-overlap-needs-interleaving", "overlap_ep with pp 8 needs an interleaved schedule"),
        ({"vpp": 1, "overlap_ep": False}, "p2p-overlap-needs-interleaving", "overlap_p2p needs an interleaved schedule"),
        ({"pp": 2, "overlap_p2p": False}, "interleaving-without-p2p-overlap-needs-pp-3", "more than 2 pipeline ranks, not 2"),
        ({"dp_sharding": "ddp"}, "param-gather-overlap-needs-distributed-optimizer", "dp_sharding is ddp"),
        ({"ep": 1}, "ep-overlap-needs-ep", "not 1"),
        ({"recompute_moe": True}, "ep-overlap-without-full-recompute", "recompute full or moe"),
    ],
)  # fmt: skip
def test_rules_name_the_framework(changes: dict[str, Any], rule: str, message: str) -> None:
    (violation,) = MEGATRON.violations(GOOD | changes)
    assert violation.rule == f"megatron-core: {rule}"
    assert message in violation.message
    assert violation.legal
    assert violation.source == "megatron-lm"


def test_a_rule_is_also_the_mask_of_a_batch() -> None:
    tp = np.array([1, 2, 3, 4, 8])
    for rule in MEGATRON.rules:
        one_by_one = [rule.holds(GOOD | {"tp": int(degree)}) for degree in tp]
        assert np.broadcast_to(rule.holds(GOOD | {"tp": tp}), tp.shape).tolist() == one_by_one
