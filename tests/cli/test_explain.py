"""``moesim explain``: operations, memory by phase, constants; the grammar of every verb."""

import json

import pytest

from moesim.studies.explain import explain


def test_the_tables_for_people(moesim, scenario, qwen):
    shown = moesim("explain", scenario)
    assert (shown.code, shown.err) == (0, "")
    found = explain(qwen)
    for words in (
        "operations on pipeline rank",
        "memory of pipeline rank",
        "constants by their elasticity on the step",
    ):
        assert words in shown.out
    for words in ("expert-up", "attention-core", "dispatch", "tensor-cores", "moe fwd", "FLOP", "calls", "optimizer"):
        assert words in shown.out
    longest = max(found.ops, key=lambda row: row.seconds * row.calls)
    first = next(line for line in shown.out.splitlines() if line.startswith("│"))
    assert longest.name in first
    strongest = found.estimate.constants[0]
    assert f"{strongest.elasticity:+.3f}" in shown.out
    assert "\x1b" not in shown.out
    assert max(map(len, shown.out.splitlines())) <= 140


def test_json(moesim, scenario, qwen):
    answer = moesim("explain", scenario, "--json").json
    assert answer == explain(qwen).to_dict()
    assert set(answer["ops"][0]) == {
        "where",
        "name",
        "lane",
        "category",
        "flop",
        "hbm_bytes",
        "message_bytes",
        "seconds",
        "host_s",
        "calls",
        "bound",
    }
    assert set(answer["constants"][0]) == {"path", "setting", "value", "elasticity", "kind", "source", "by_hand"}
    assert len(answer["memory_phases"]) == answer["estimate"]["strategy"]["pp"]
    for phases, stage in zip(answer["memory_phases"], answer["estimate"]["memory"]["stages"], strict=True):
        assert all(name.endswith("_bytes") for classes in phases.values() for name in classes)
        assert max(sum(classes.values()) for classes in phases.values()) == pytest.approx(stage["peak_bytes"])


def test_a_setting_of_a_constant_is_one_that_set_takes(moesim, scenario):
    constants = moesim("explain", scenario, "--json").json["constants"]
    for constant in constants[:12]:
        if constant["setting"].startswith("software.host"):
            continue  # a part of the launch
        changed = moesim("estimate", scenario, "--set", f"{constant['setting']}={_text(constant)}", "--json")
        assert changed.code == 0, constant["setting"]


def _text(constant):
    """A larger value of the constant, with a unit where it needs one."""
    units = {"bandwidth": "B/s", "peak_flop_rate": "FLOP/s", "token": "s", "latency": "s", "onset": "FLOP", "base": "s"}
    unit = next((unit for word, unit in units.items() if word in constant["setting"]), "")
    return f"{constant['value'] * 0.9} {unit}".strip()


def test_set_and_names(moesim, scenario):
    answer = moesim("explain", scenario, "--set", "ep=16", "--set", "recompute=full", "--json").json
    assert answer["estimate"]["strategy"]["ep"] == 16
    assert any(row["name"].endswith(" again") for row in answer["ops"])
    named = moesim("explain", "--model", "llama3-8b", "--cluster", "hgx-h100:1", "--json").json
    assert named["estimate"]["name"] == "llama3-8b on hgx-h100:1"


def test_into_a_file(moesim, scenario):
    quiet = moesim("explain", scenario, "-o", "why.json")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    answer = json.loads((scenario.parent / "why.json").read_text())
    assert answer == moesim("explain", scenario, "--json").json
    moesim("explain", scenario, "-o", "why.txt")
    assert "operations on pipeline rank" in (scenario.parent / "why.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "what to estimate is missing; give SCENARIO, or --model M --cluster NODE:COUNT"),
        (["s.yaml", "--set", "ep=33"], "--set ep: etp*ep*pp = 264 does not divide 256 GPUs"),
        (["s.yaml", "--set", "eep=8"], "--set eep: nothing is called 'eep'; did you mean 'ep'?"),
        (["other.yaml"], "other.yaml: there is no such file"),
        (["s.yaml", "--vary", "ep=8,16"], "No such option: --vary"),
        (["s.yaml", "-o", "nowhere/x.json"], "--out: there is no folder 'nowhere'; make it, or name another"),
    ],
)
def test_bad_input_is_one_line_a_problem(moesim, scenario, arguments, line):
    assert moesim("explain", *arguments).lines[0].startswith(line)
    assert [path.name for path in scenario.absolute().parent.iterdir()] == ["s.yaml"]


def test_help(moesim):
    page = moesim("explain", "--help")
    assert page.code == 0
    for option in ("--model", "--cluster", "--set", "--json", "--output"):
        assert option in page.out
    assert "explain" in moesim("--help").out
