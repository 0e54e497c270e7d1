"""``moesim specs``: lists, single specs, the check."""

import json

import pytest

from moesim.cli.specs import kinds, registries
from moesim.spec import library

EXPECTED = [
    "adapters",
    "calibrations",
    "collectives",
    "compressions",
    "expert-gemms",
    "fabrics",
    "fusions",
    "gpus",
    "kernel-rules",
    "models",
    "nics",
    "nodes",
    "optimizers",
    "precisions",
    "protocols",
    "recompute",
    "routings",
    "runs",
    "scenarios",
    "schedules",
    "software",
    "storage",
    "topologies",
    "trace-formats",
    "transports",
]


def test_the_kinds():
    assert kinds() == EXPECTED


def test_everything_that_can_be_named(moesim):
    listing = moesim("specs", "--json").json
    assert list(listing) == EXPECTED
    assert all(listing.values())
    assert listing["schedules"] == [
        "1f1b",
        "1f1b-v",
        "1f1b-v-ahead",
        "dualpipe",
        "dualpipev",
        "gpipe",
        "interleaved-1f1b",
        "none",
        "v-half",
        "v-min",
        "zb-h1",
        "zb-h2",
        "zb-v",
    ]
    assert {"h100-sxm-80gb", "a100-sxm-80gb", "b200-sxm", "gb300"} <= set(listing["gpus"])
    assert set(listing["precisions"]) >= {"bf16", "fp8-delayed", "mxfp8", "nvfp4"}
    shown = moesim("specs")
    assert shown.code == 0
    assert "interleaved-1f1b" in shown.out


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_kind(moesim, kind):
    rows = moesim("specs", kind, "--json").json
    names = [row["name"] for row in rows]
    assert names == sorted(names)
    shown = moesim("specs", kind)
    assert shown.code == 0
    for row in rows:
        assert row["summary"]
        assert row["name"] in shown.out


CASES = [
    (kind, name)
    for kind in EXPECTED
    for name in (registries()[kind].names() if kind in registries() else library.names(kind))
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_one_spec(moesim, kind, name):
    spec = moesim("specs", kind, name, "--json").json
    assert spec["name"] == name
    assert spec["summary"]
    shown = moesim("specs", kind, name)
    assert shown.code == 0
    assert name in shown.out


def test_a_model_shows_its_parameters(moesim):
    model = moesim("specs", "models", "qwen3-235b", "--json").json
    assert model["total_params"] == 235_093_610_496
    assert model["active_params"] == 22_190_739_456
    shown = moesim("specs", "models", "qwen3-235b-a22b")
    assert "235,093,610,496" in shown.out
    assert "22,190,739,456" in shown.out


def test_a_number_shows_its_source(moesim):
    gpu = moesim("specs", "gpus", "h100", "--json").json
    assert gpu["memory_capacity"]["value"] == 81_559 * 2**20
    assert gpu["memory_bandwidth"]["source"] == "nvidia-h100"
    shown = moesim("specs", "gpus", "h100").out
    assert "[datasheet: nvidia-h100]" in shown


def test_into_a_file(moesim, tmp_path):
    target = tmp_path / "gpu.json"
    assert moesim("specs", "gpus", "h100", "-o", target).out == ""
    assert json.loads(target.read_text())["name"] == "h100-sxm-80gb"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["gpu"], "no kind of spec 'gpu'; did you mean 'gpus'?"),
        (["gpus", "h201"], "no GPU 'h201'; did you mean 'h20'?"),
        (["gpus", "mi300x"], "mi300x is not modelled: an AMD GPU; "),
        (["schedules", "1f"], "no pipeline schedule '1f'; did you mean '1f1b'? (known: 1f1b, 1f1b-v, "),
        (["models", "gpt"], "no model 'gpt'; did you mean 'gpt-1t'?"),
        (["gpus", "--check"], "--check: checks everything, not only 'gpus'; leave the kind out"),
        (["gpus", "h100", "more"], "Got unexpected extra argument"),
    ],
)
def test_what_is_not_there(moesim, arguments, line):
    (found,) = moesim("specs", *arguments).lines
    assert found.startswith(line)


def test_everything_shipped_is_sound(moesim):
    checked = moesim("specs", "--check")
    assert checked.code == 0
    assert checked.out.startswith("all sound: ")
    counts = moesim("specs", "--check", "--json").json["counts"]
    assert counts == {kind: len(library.names(kind)) for kind in library.KINDS}


def test_the_check_finds_what_is_broken(moesim, tmp_path, monkeypatch):
    for folder in ("hardware_specs", "scenarios"):
        (tmp_path / folder).symlink_to(library.root() / folder)
    monkeypatch.setattr(library, "root", lambda: tmp_path)
    assert moesim("specs", "--check").code == 0
    (tmp_path / "scenarios").unlink()
    runs = tmp_path / "scenarios" / "runs"
    runs.mkdir(parents=True)
    source = library.__file__ and (tmp_path / "hardware_specs").resolve().parent / "scenarios"
    assert source
    (tmp_path / "scenarios" / "models").symlink_to(source / "models")
    text = (source / "runs" / "zoo-002.yaml").read_text()
    (runs / "zoo-002.yaml").write_text(text.replace("source: megatron-moe-modelzoo", "source: hearsay"))
    (runs / "zoo-003.yaml").write_text(text.replace("name: zoo-002", "name: zoo-003").replace("ep: 32", "ep: 24"))
    (runs / "zoo-005.yaml").write_text(text)
    lines = moesim("specs", "--check").lines
    assert len([line for line in lines if "zoo-002.yaml" in line]) == 1
    assert any("no source 'hearsay'" in line for line in lines)
    assert any("zoo-003.yaml:16: strategy.ep" in line and "[experts]" in line for line in lines)
    assert any("the name is 'zoo-002' but the file is 'zoo-005.yaml'" in line for line in lines)


def test_the_check_finds_a_fabric_of_no_known_kind(moesim, tmp_path, monkeypatch):
    (tmp_path / "hardware_specs").mkdir()
    for path in (library.root() / "hardware_specs").iterdir():
        if path.name != "fabrics":
            (tmp_path / "hardware_specs" / path.name).symlink_to(path)
    (tmp_path / "scenarios").symlink_to(library.root() / "scenarios")
    fabrics = tmp_path / "hardware_specs" / "fabrics"
    fabrics.mkdir()
    for path in library.folder("fabrics").iterdir():
        (fabrics / path.name).write_text(path.read_text().replace("kind: dragonfly\n", "kind: dragonflies\n"))
    monkeypatch.setattr(library, "root", lambda: tmp_path)
    (line,) = moesim("specs", "--check").lines
    assert line.endswith("dragonfly.yaml: kind: no kind of fabric 'dragonflies'; did you mean 'dragonfly'? "
                         "(known: " + ", ".join(registries()["topologies"].names()) + ")")  # fmt: skip
