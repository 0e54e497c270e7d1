"""What frameworks refuse, each as its maintainers say, and profiles that differ by rules alone."""

import pytest

from moesim.problem import from_names
from moesim.spec import library, steps


def broken(software, model="qwen3-30b-a3b", cluster="hgx-h100:1", **changes):
    changed = {name: str(value) for name, value in changes.items()} | {"software": software}
    return {one.violation.rule: one.violation for one in from_names(model, cluster).with_changes(changed).check()}


@pytest.mark.parametrize(
    ("software", "changes", "rule", "message", "legal"),
    [
        ("torchtitan", {"tp": 8, "ep": 8}, "kv-heads-divide-by-tp", "4 KV heads are not a multiple of tp 8", "tp a divisor of 4"),
        ("torchtitan", {"ep": 3}, "ep-divides-the-sparse-mesh", "ep 3 does not divide dp_shard*cp*tp = 8*1*1", "dp_shard"),
        ("torchtitan", {"ep": 3}, "experts-divide-by-ep", "128 experts are not a multiple of ep 3", "a divisor of 128"),
        ("automodel", {"tp": 2, "ep": 2}, "no-tp-with-experts", "tp 2 with 128 routed experts", "tp 1; or another"),
        ("automodel", {"ep": 3}, "ep-divides-dp-and-cp", "ep 3 does not divide dp*cp = 8*1", "a divisor of dp*cp"),
        ("automodel", {"pp": 4, "global_batch": 4}, "micro-batches-fill-the-pipeline", "2 micro-batches of 1", "4*2*1"),
        ("deepspeed", {"ep": 16}, "ep-size-within-the-world", "no whole group of 16 fits in 8 ranks", "a divisor of 8"),
        ("trl", {"pp": 2}, "no-pipeline", "pp 2", "pp 1"),
        ("trl", {"cp": 2, "sequence_length": 4098}, "sequences-divide-by-twice-cp", "of 4098 tokens", "2*2"),
        ("trl", {"cp": 2, "cp_kind": "ulysses"}, "context-parallel-rings", "cp_kind ulysses", "cp_kind ring"),
        ("megatron-core-2026", {"tp": 3}, "kv-heads-or-multiples", "neither a divisor nor a multiple of 4", "a multiple"),
        ("megatron-bridge-qwen35", {"tp": 8, "ep": 8}, "no-more-tp-than-kv-heads", "the model itself allows it", "here"),
    ],
)  # fmt: skip
def test_refused(software, changes, rule, message, legal):
    found = broken(software, **changes)[f"{software}: {rule}"]
    assert message in found.message
    assert legal in found.legal


@pytest.mark.parametrize(
    ("software", "changes"),
    [
        ("megatron-core-2026", {"tp": 8, "ep": 8}),
        ("megatron-core", {"tp": 2, "ep": 4}),
        ("automodel", {"pp": 4, "global_batch": 8}),
        ("deepspeed", {"ep": 8}),
        ("trl", {"cp": 4}),
        ("torchtitan", {"ep": 8, "tp": 2}),
    ],
)
def test_accepted(software, changes):
    assert broken(software, **changes) == {}


def test_a_ring_cuts_sequences_into_two_pieces_a_rank():
    found = broken("megatron-core", cp=4, ep=8, sequence_length=4100)["ring-pieces"]
    assert "2*cp = 8 does not divide sequences of 4100; padded to 4,104 tokens, 4 of them empty" in found.message
    assert "ring-pieces" not in broken("megatron-core", cp=4, ep=8, sequence_length=4100, cp_kind="ulysses")


@pytest.mark.parametrize(
    ("software", "family"),
    [
        ("megatron-core-2026", "megatron-core"),
        ("megatron-swift", "megatron-core"),
        ("megatron-bridge-qwen35", "megatron-bridge"),
        ("megatron-bridge", "megatron-bridge"),
        ("zero-bubble", None),
        ("nobody", None),
    ],
)
def test_profiles_that_differ_by_rules_share_the_factors_of_their_base(software, family):
    assert steps.family_of(software) == family


def test_prices_of_such_a_profile_are_those_of_its_base():
    base, own = (library.get("software", name) for name in ("megatron-core", "megatron-core-2026"))
    assert all(getattr(base, part) == getattr(own, part) for part in steps.PRICED)
    assert [rule.name for rule in own.rules] != [rule.name for rule in base.rules]
