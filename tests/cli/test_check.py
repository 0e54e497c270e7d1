"""``moesim check``: legal or not, all broken rules at once, another framework."""

import pytest

from moesim.spec.lookup import software_pinned


def test_a_legal_scenario(moesim):
    found = moesim("check", "zoo-002")
    assert (found.code, found.err) == (0, "")
    assert found.out.strip() == "zoo-002: legal for megatron-core"
    answer = moesim("check", "zoo-002", "--json").json
    version = answer.pop("software_version")
    assert version.startswith("main")
    assert answer == {"name": "zoo-002", "software": "megatron-core", "legal": True, "violations": []}


def test_every_broken_rule_has_a_line_with_what_is_legal(moesim):
    changes = ("--set", "ep=48", "--set", "grad_compression=powersgd:4", "--set", "activation_offload=2")
    lines = moesim("check", "qwen3-235b-h100x256", *changes).lines
    rules = {"experts", "expert-ranks", "compression-reduction", "activation-offload"}
    assert {rule for rule in rules if any(f"[{rule}]" in line for line in lines)} == rules
    assert all("legal: " in line for line in lines)
    assert any("ep in 1, 2, 4, 8" in line for line in lines)


def test_broken_rules_as_data(moesim):
    found = moesim("check", "qwen3-235b-h100x256", "--set", "ep=48", "--json")
    assert found.code == 2
    assert '"rule": "experts"' in found.out
    assert '"legal": false' in found.out


def test_another_framework_has_its_own_rules(moesim):
    changes = ("--set", "schedule=1f1b", "--set", "vpp=1", "--set", "overlap_p2p=true")
    (line, *_) = moesim("check", "qwen3-235b-h100x256", *changes).lines
    assert "megatron-core: p2p-overlap-needs-interleaving" in line
    other = moesim("check", "qwen3-235b-h100x256", *changes, "--framework", "torchtitan")
    assert "p2p-overlap-needs-interleaving" not in other.err


def test_a_version_has_its_own_rules(moesim):
    changes = ("--set", "tp=8", "--set", "ep=8")
    older = moesim("check", "qwen3-235b-h100x256", *changes, "--framework", "megatron-core")
    assert any("kv-heads-divide-by-tp" in line for line in older.lines)
    newer = moesim("check", "qwen3-235b-h100x256", *changes, "--framework", "megatron-core==0.16", "--json").json
    assert (newer["software"], newer["software_version"]) == ("megatron-core-2026", "0.16")
    assert not any("kv-heads" in one["rule"] for one in newer["violations"])


@pytest.mark.parametrize(
    ("pin", "software"),
    [
        ("megatron-bridge==26.06", "megatron-bridge-2606"),
        ("megatron-bridge==26.02", "megatron-bridge"),
        ("megatron-bridge==0.4.1", "megatron-bridge-qwen35"),
        ("torchtitan==2024", "torchtitan-2024"),
        ("olmo-core==3.0.0", "olmo-core"),
    ],
)
def test_a_pin_names_a_profile(pin, software):
    assert software_pinned(pin, "--framework") == software


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "what to estimate is missing"),
        (("zoo-002", "--framework", "megatrom"), "no software 'megatrom'"),
        (("zoo-002", "--framework", "megatron==0.15"), "no rules of megatron-core '0.15' were read"),
        (("zoo-002", "--framework", "megatron==0.15"), "megatron-core-2026 (0.16)"),
        (("zoo-002", "--framework", "megatron=="), "no rules of megatron-core ''"),
        (("zoo-002", "--framework", "megatrom==0.16"), "no software 'megatrom'"),
        (("zoo-002", "--framework", "megatron-core==26.04"), "no rules of megatron-core '26.04'"),
        (("zoo-002", "--framework", "megatron-core==0.4.1"), "no rules of megatron-core '0.4.1'"),
        (("zoo-002", "--framework", "torchtitan", "--set", "software=olmo-core"), "write one of them"),
    ],
)
def test_bad_input(moesim, arguments, line):
    assert any(line in one for one in moesim("check", *arguments).lines)
