"""Rules: each is a mask and a message, and the two agree."""

import random

import numpy as np
import pytest

from moesim.constraints import ALL_RULES, CHOICES, legal_mask
from moesim.problem import Problem
from moesim.rule_sources import ARITHMETIC, RULE_SOURCES, SCOPE
from moesim.spec.check import sources
from moesim.workload.strategy import DEGREES, FIELDS, Strategy

LEGAL_OF = {rule.name: rule for rule in ALL_RULES}
PLAIN = {"pp": 1, "vpp": 1, "schedule": "none", "overlap_p2p": False, "layout": "even", "ep": 1}


def broken(problem: Problem, **changes) -> dict[str, tuple[str, str]]:
    """Message and legal values of each broken rule."""
    return {
        one.violation.rule: (one.violation.message, one.violation.legal)
        for one in problem.check(problem.strategy.replace(**changes))
    }


@pytest.mark.parametrize(
    ("changes", "rule", "message", "legal"),
    [
        ({"pp": 7}, "pipeline-ranks", "pp = 7 does not divide 256 GPUs", "pp in 1, 2, 4, 8, 16, 32, 64, 128, 256"),
        (
            {"ep": 64},
            "expert-ranks",
            "etp*ep*pp = 512 does not divide 256 GPUs: a stage has 32 ranks for ep*etp = 64",
            "ep in 1, 2, 4, 8, 16, 32",
        ),
        ({"etp": 2}, "expert-ranks", "a stage has 32 ranks for ep*etp = 64", "ep in 1, 2, 4, 8, 16"),
        ({"etp": 3}, "expert-ranks", "a stage has 32 ranks for ep*etp = 96", "etp in 1"),
        (
            {"pp": 1, "ep": 256, "vpp": 1, "schedule": "none", "overlap_p2p": False},
            "experts",
            "ep = 256 does not divide 128 experts",
            "ep in 1, 2, 4, 8, 16, 32, 64, 128",
        ),
        ({"etp": 32, "ep": 1, "tp": 1}, "", "", ""),
        ({"etp": 5, "ep": 1}, "expert-width", "etp = 5 does not divide the expert width 1536", "etp in 1, 2, 3, 4, 6,"),
        ({"tp": 3}, "heads", "tp = 3 does not divide 64 attention heads", "tp in 1, 2, 4, 8, 16, 32, 64"),
        ({"tp": 3}, "sequence", "tp*cp = 3 does not divide sequences of 4096", "tp in 1, 2, 4"),
        (
            {"tp": 3},
            "ranks",
            "tp*cp*pp = 24 does not divide 256 GPUs: a stage has 32 ranks for tp*cp = 3",
            "tp in 1, 2",
        ),
        (
            {"micro_batch": 3},
            "batch",
            "a global batch of 2048 does not divide by dp*micro_batch = 16*3",
            "micro_batch in",
        ),
        ({"cp": 2}, "", "", ""),
        ({"cp": 32}, "ranks", "a stage has 32 ranks for tp*cp = 64", "tp in 1"),
        ({"cp": 3}, "sequence", "tp*cp = 6 does not divide sequences of 4096", "cp in 1, 2, 4,"),
        ({"cp": 16, "cp_kind": "ulysses"}, "", "", ""),
        (
            PLAIN | {"tp": 4, "cp": 32, "cp_kind": "ulysses"},
            "ulysses-heads",
            "ulysses exchanges heads: tp*cp = 128 does not divide 64 attention heads",
            "cp in 1, 2, 4, 8, 16",
        ),
        ({"cp_kind": "ulyses"}, "known-cp_kind", "no cp_kind 'ulyses'", "did you mean 'ulysses'?"),
        (
            {"sequence_parallel": False},
            "experts-without-sequence-parallelism",
            "tp = 2 without sequence parallelism routes every token 2 times",
            "sequence_parallel: true",
        ),
        ({"overlap_tp": True}, "", "", ""),
        (
            {"overlap_tp": True, "sequence_parallel": False},
            "overlap-tp-without-sequence-parallelism",
            "all-gather and reduce-scatter of sequence parallelism",
            "sequence_parallel: true",
        ),
        (
            {"overlap_shared_expert": True},
            "overlap-shared-expert",
            "needs shared experts",
            "overlap_shared_expert: false",
        ),
        ({"routing": "capacity"}, "capacity", "needs a capacity_factor", "1.0 or more"),
        ({"routing": "natural", "capacity_factor": 1.2}, "", "", ""),
        ({"capacity_factor": 0.0}, "capacity-factor", "leaves the experts no rows", "more than 0"),
        ({"rank_imbalance": 0.9}, "imbalance", "rank_imbalance = 0.9", "1.0 or more"),
        ({"reshard_after_forward": False}, "reshard", "zero1 keeps whole weights", "dp_sharding: fsdp"),
        ({"precision": "mxfp8"}, "precision-of-the-gpu", "no rate for precision mxfp8", "precision in bf16, fp16"),
        ({"precision": "nvfp4"}, "precision-of-the-gpu", "no rate for precision nvfp4", "precision in bf16, fp16"),
        ({"precision": "fp8-blockwise"}, "", "", ""),
        ({"fp8_params": True}, "fp8-params", "precision bf16, which casts nothing", "FP8 precision"),
        ({"overlap_ep": True, "recompute": ("moe",)}, "overlap-ep-recompute", "not modelled", "recompute without"),
        ({"recompute": ("full", "moe")}, "recompute-full-alone", "repeats the rest of full, moe", "full alone"),
        ({"recompute": ("full:2", "moe")}, "recompute-full-alone", "repeats the rest of full:2, moe", "full alone"),
        ({"recompute": ("full:2",)}, "", "", ""),
        ({"recompute": ("full:two",)}, "known-recompute", "'full:two'", "did you mean 'full'?"),
        ({"dp_sharding": "ddp"}, "param-gather-unsharded", "ddp gathers no parameters", "overlap_param_gather: false"),
        (
            {"dp_sharding": "fsdp"},
            "param-gather-unsharded",
            "fsdp gathers no parameters",
            "overlap_param_gather: false",
        ),
        ({"layout": "even"}, "layers-per-stage", "94 layers do not divide over 32 stages", "count-embedding-and-loss"),
        ({"schedule": "1f1b"}, "1f1b-vpp", "one chunk a rank, not vpp=4", "vpp=1"),
        ({"schedule": "zero-buble"}, "known-schedule", "no pipeline schedule 'zero-buble'", "known: 1f1b"),
        ({"transport": "depep"}, "known-transport", "no transport 'depep'", "did you mean 'deepep'?"),
        ({"recompute": ("layernrm",)}, "known-recompute", "'layernrm'", "did you mean 'layernorm'?"),
        ({"precision": "fp8"}, "known-precision", "no precision 'fp8'", "known: bf16, fp16, fp8-blockwise, "),
        (
            {"cuda_graph": "everything"},
            "known-cuda_graph",
            "no cuda_graph 'everything'",
            "known: attn, full, mlp, moe, moe-router, none",
        ),
        (
            {"cuda_graph": "attn+full"},
            "cuda-graph-alone",
            "attn+full: 'none' and 'full' stand alone",
            "cuda_graph: none",
        ),
        (
            {"cuda_graph": "mlp"},
            "cuda-graph-scopes",
            "cuda_graph mlp names a part that no layer",
            "attn, moe-router, moe",
        ),
        (
            {"cuda_graph": "full"},
            "cuda-graph-syncs",
            "row counts that transport deepep has",
            "hybridep, nvshmem-rowwise",
        ),
        ({"routing": "naturl"}, "known-routing", "no routing 'naturl'", "did you mean 'natural'?"),
        ({"dp_sharding": "zero3"}, "known-dp_sharding", "'zero3'", "did you mean 'zero2'?"),
        (
            {"tp": 8},
            "megatron-core: kv-heads-divide-by-tp",
            "4 KV heads are not a multiple of tp 8",
            "tp a divisor of 4",
        ),
        (
            {"micro_batch": 32},
            "megatron-core: interleaving-needs-micro-batches-by-pp",
            "4 micro-batches are not a multiple of pp 8",
            "multiple of 8",
        ),
    ],
)
def test_a_broken_rule_names_the_numbers_and_the_way_out(qwen, changes, rule, message, legal):
    found = broken(qwen, **changes)
    if not rule:
        assert not found
        return
    assert rule in found
    assert message in found[rule][0]
    assert found[rule][1].startswith(legal) or legal in found[rule][1]


@pytest.mark.parametrize(
    "changes",
    [{"pp": 7}, {"ep": 64}, {"micro_batch": 3}, {"tp": 8}, {"cp": 32}, {"rank_imbalance": 0.5}, {"precision": "nvfp4"}],
)
def test_one_mistake_is_one_line(qwen, changes):
    """What only follows from another rule being broken is not said again."""
    lines = broken(qwen, **changes)
    own = [rule for rule in lines if not rule.startswith("megatron-core: param") and "overlap" not in rule]
    assert len(own or lines) == 1, lines


def test_two_mistakes_are_two_lines(qwen):
    assert set(broken(qwen, ep=64, micro_batch=3)) == {"expert-ranks", "batch"}
    assert set(broken(qwen, schedule="gpip", transport="nccl")) == {"known-schedule", "known-transport"}


def test_the_legal_values_are_legal(qwen):
    for changes in ({"ep": 64}, {"micro_batch": 3}, {"cp": 3}, {"pp": 7}, {"etp": 3}):
        for rule, (_, legal) in broken(qwen, **changes).items():
            if rule not in LEGAL_OF:
                continue
            field, _, values = legal.partition(" in ")
            for value in values.replace(", ...", "").split(", "):
                assert rule not in broken(qwen, **{**changes, field: int(value)}), (rule, field, value)


def test_a_global_batch_that_no_micro_batch_divides(qwen):
    odd = qwen.with_changes({"global_batch": 2047})
    assert broken(odd)["batch"] == (
        "a global batch of 2047 does not divide by dp*micro_batch = 16*1",
        "global_batch a multiple of 16",
    )


def test_the_mask_of_a_batch_agrees_with_the_messages(small):
    pick = random.Random(11)
    draws = [
        small.strategy.replace(
            tp=pick.choice((1, 2, 3, 4, 8, 16)),
            ep=pick.choice((1, 2, 5, 8, 32, 64)),
            etp=pick.choice((1, 2, 3, 16)),
            cp=pick.choice((1, 1, 1, 2)),
            micro_batch=pick.choice((1, 2, 3, 8, 64)),
        )
        for _ in range(400)
    ]
    stacked = small.strategy.replace(
        **{name: np.array([float(getattr(one, name)) for one in draws]) for name in DEGREES}
    )
    mask = legal_mask(small.candidate(stacked))
    assert mask.tolist() == [not small.check(one) for one in draws]
    assert 0.05 < mask.mean() < 0.9


def test_a_rule_speaks_of_fields_that_exist():
    for rule in ALL_RULES:
        assert set(rule.fields) <= {*FIELDS, "global_batch"}
        assert set(rule.needs) <= {other.name for other in ALL_RULES}
    assert len({rule.name for rule in ALL_RULES}) == len(ALL_RULES)
    assert set(CHOICES) <= set(FIELDS)


def test_the_rules_that_a_rule_needs_come_before_it():
    names = [rule.name for rule in ALL_RULES]
    assert all(names.index(need) < names.index(rule.name) for rule in ALL_RULES for need in rule.needs)


def test_the_shape_of_a_strategy_is_that_of_its_degrees():
    assert Strategy().shape == ()
    assert Strategy(tp=np.array([1.0, 2.0]), ep=np.array([4.0, 8.0])).shape == (2,)


def test_every_rule_of_the_core_has_a_source():
    assert set(RULE_SOURCES) == {rule.name for rule in ALL_RULES}
    assert set(RULE_SOURCES.values()) - {ARITHMETIC, SCOPE} <= set(sources())
