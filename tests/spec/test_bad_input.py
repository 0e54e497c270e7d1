"""Every problem is one line that names the place and the way out."""

from collections.abc import Callable
from pathlib import Path

import pytest

from moesim.base.errors import SpecError
from moesim.spec.hardware import GpuSpec
from moesim.spec.library import root
from moesim.spec.load import load_scenario, load_specs
from moesim.spec.validation import validate
from moesim.spec.yaml_file import read_document

Edit = Callable[[str, str], Path]


def problems(path: Path) -> list[str]:
    with pytest.raises(SpecError) as error:
        load_specs(load_scenario(path))
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("tp: 2", "ttp: 2", "small.yaml:8: strategy.ttp: unknown key; did you mean 'tp'?"),
        ("model:", "modle:", "small.yaml:3: modle: unknown key; did you mean 'model'? (known: *)"),
        ("tp: 2", "tp: two", "small.yaml:8: strategy.tp: must be a valid integer, not 'two'"),
        ("tp: 2", "tp: 0", "small.yaml:8: strategy.tp: must be at least 1, not 0"),
        ("tp: 2", "tp: true", "small.yaml:8: strategy.tp: must be a valid integer, not True"),
        ("tp: 2", "tp: 2\n  tp: 4", "small.yaml:9: strategy.tp: the key stands twice; keep one"),
        ("true", "1", "small.yaml:9: strategy.sequence_parallel: must be a valid boolean, not 1"),
        ("schema: 1", "schema: 2", "small.yaml:1: schema: schema 2 is not known to this version; write 'schema: 1'"),
        ("schema: 1\n", "", "small.yaml:1: schema: is missing; write 'schema: 1'"),
        ("count: 4", "conut: 4", "small.yaml:4: cluster.conut: unknown key; did you mean 'count'? (known: *)"),
        ("{node: hgx-h100, count: 4}", "hgx-h100", "small.yaml:4: cluster: 'hgx-h100' is not NODE:count; write *"),
        ("{node: hgx-h100, count: 4}", "[1]", "small.yaml:4: cluster: must be a mapping, not [1]; known keys: node, *"),
        ("hgx-h100", "hgx-h10", "small.yaml:4: cluster.node: no node 'hgx-h10'; did you mean 'hgx-h100'?*"),
        ("qwen3-235b-a22b", "qwen4", "small.yaml:3: model: no model 'qwen4'; did you mean 'qwen3-14b'?"),
        (
            "qwen3-235b-a22b",
            "own.yaml",
            "small.yaml:3: model: there is no file 'own.yaml'; paths start at the folder of the scenario",
        ),
        ("model:", "software: megatron-cor\nmodel:", "small.yaml:3: software: no software 'megatron-cor'; did you *"),
        ("count: 4}", "count: 4", "small.yaml:*: not valid YAML: *; check brackets, quotes, colons and indentation *"),
        ("ep: 16", "\tep: 16", "small.yaml:*: not valid YAML: *"),
        (
            "strategy:",
            "measured: {step_time: 19.7, source: x}\nstrategy:",
            "small.yaml:7: measured.step_time: '19.7' has no unit; write for example '14 us'",
        ),
        (
            "strategy:",
            "measured: {step_time: 19.7 GB, source: x}\nstrategy:",
            "small.yaml:7: measured.step_time: '19.7 GB' is not a time [s]; write for example '14 us'",
        ),
    ],
)
def test_one_problem_is_one_line(edit: Edit, old: str, new: str, line: str) -> None:
    found = problems(edit(old, new))
    assert matches(found[0], line), found
    assert len(found) == 1, found


def matches(text: str, pattern: str) -> bool:
    position = 0
    for part in pattern.split("*"):
        position = text.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return text.startswith(pattern.split("*")[0]) and (pattern.endswith("*") or position == len(text))


def test_two_problems_are_two_lines_in_order(edit: Edit) -> None:
    edit("ep: 16", "eps: 16")
    path = edit("sequence_length: 4096", "sequence_length: long")
    assert problems(path) == [
        "small.yaml:5: sequence_length: must be a valid integer, not 'long'",
        "small.yaml:10: strategy.eps: unknown key; did you mean 'ep'?",
    ]


def test_two_unknown_names_are_two_lines(edit: Edit) -> None:
    edit("qwen3-235b-a22b", "qwen4")
    assert [line.split(":")[1] for line in problems(edit("hgx-h100", "hgx-h10"))] == ["3", "4"]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing but a comment\n", "~\n"])
def test_an_empty_file(small: Path, text: str) -> None:
    small.write_text(text)
    assert problems(small) == ["small.yaml: the file is empty; start it with 'schema: 1'"]


def test_a_file_that_is_no_mapping(small: Path) -> None:
    small.write_text("- a\n- b\n")
    assert problems(small) == ["small.yaml:1: the file is not a mapping; write 'key: value' lines"]


def test_a_file_that_is_not_text(small: Path) -> None:
    small.write_bytes(b"\xff\xfe\x00\x01")
    assert problems(small)[0].startswith("small.yaml: cannot be read as text: ")


def test_no_file(small: Path) -> None:
    assert problems(Path("other.yaml")) == ["other.yaml: there is no such file"]
    assert problems(Path()) == [".: cannot be read as text: [Errno 21] Is a directory: '.'"]


GPU = (root() / "hardware_specs" / "gpus" / "h100-sxm-80gb.yaml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            '{value: 3.35 TB/s, source: nvidia-h100, kind: datasheet, quote: "3.35TB/s"}',
            "3.35 TB/s",
            "memory_bandwidth: '3.35 TB/s' has no source; write {value: 3.35 TB/s, source: KEY, kind: datasheet}",
        ),
        ("value: 3.35 TB/s", "value: 3.35", "memory_bandwidth.value: '3.35' has no unit; write for example '400 Gb/s'"),
        ("value: 3.35 TB/s", "value: 3.35 TB", "memory_bandwidth.value: '3.35 TB' is not a bandwidth [B/s]; write *"),
        ("value: 3.35 TB/s", "value: [3]", "memory_bandwidth.value: must be a number, not [3]; write for *"),
        (
            "value: 3.35 TB/s, source: nvidia-h100",
            "value: 3.35 TB/s",
            "memory_bandwidth: a datasheet number needs a source; add *",
        ),
        (
            "value: 3.35 TB/s, source: nvidia-h100, kind: datasheet",
            "value: 3.35 TB/s, kind: assumed",
            "memory_bandwidth: an assumed number needs a reason; add note: *",
        ),
        (
            "value: 3.35 TB/s, source: nvidia-h100, kind: datasheet",
            "value: 3.35 TB/s, source: nvidia-h100, kind: rumour",
            "memory_bandwidth.kind: 'rumour' is not allowed; write 'measured', *",
        ),
        (
            "value: 0.84, source: cudnn-frontend-sdpa",
            "value: high, source: cudnn-frontend-sdpa",
            "kernels.attention_backward_rate.value: 'high' is not a plain number; write for example 0.9",
        ),
        ("  gemm_norm:", "  other:", "kernels.gemm_norm: is missing; add gemm_norm: {value: *"),
        ("  bf16: {value: 989", "  bf17: {value: 989", "peak_flop_rate has no bf16; MFU is reported against it"),
        (
            "    bf16: {value: 0",
            "    bf17: {value: 0",
            "energy.per_flop has no bf16; a type that is left out costs as much",
        ),
        ("power: {value: 700 W", "power: {value: 90 W", "power 90 W is no more than the 140 W drawn idle; write *"),
    ],
)
def test_numbers_and_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert GPU.count(old) == 1
    path = Path("gpu.yaml")
    path.write_text(GPU.replace(old, new))
    with pytest.raises(SpecError) as error:
        validate(GpuSpec, read_document(path))
    written = GPU[: GPU.index(old)].count("\n") + 1
    found = [str(issue) for issue in error.value.issues]
    place = next(issue.where for issue in error.value.issues)
    assert any(matches(text.split(": ", 1)[1], line) for text in found), found
    assert place in (f"gpu.yaml:{written}", "gpu.yaml:1") or "missing" in line
