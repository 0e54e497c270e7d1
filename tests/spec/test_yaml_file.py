from pathlib import Path
from typing import Any

import pytest

from moesim.base.errors import SpecError
from moesim.spec.yaml_file import display_name, parse_document, parse_value


def test_scalars_as_yaml_1_2_reads_them() -> None:
    text = (
        "a: 12\nb: 1.5\nc: 1e3\nd: true\ne: no\nf: 2024-01-02\ng: 12:30\nh: ~\ni: '12'\nj: 0x10\nk: 1_000\n"
        "l: -.inf\nm: [1, {n: x}]\n"
    )
    assert parse_document(text, "t").data == {
        "a": 12,
        "b": 1.5,
        "c": 1000.0,
        "d": True,
        "e": "no",
        "f": "2024-01-02",
        "g": "12:30",
        "h": None,
        "i": "12",
        "j": 16,
        "k": 1000,
        "l": float("-inf"),
        "m": [1, {"n": "x"}],
    }


def test_lines_of_everything() -> None:
    document = parse_document("a:\n  - 1\n  - b: 2\n    c: {d: 3}\n", "t")
    assert [document.line(path) for path in [("a",), ("a", 1, "c"), ("a", 1, "c", "d"), ("a", 0), ("x",)]] == [
        1,
        4,
        4,
        2,
        1,
    ]
    changed = document.with_value(("e", "f"), 5, "--set e.f")
    assert changed.data["e"] == {"f": 5}
    assert changed.where(("e", "f", "g")) == "--set e.f"
    assert changed.where(("a",)) == "t:1"
    assert "e" not in document.data


@pytest.mark.parametrize(
    "text", ["a: *nowhere\n", "a: 1\n---\nb: 2\n", "a: 'open\n", "a: [1\nb: 2\n", "? [1]\n: 2\n", "a: \x01\n"]
)
def test_what_is_no_yaml_for_a_spec(text: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_document(text, "t")
    assert all(str(issue).startswith("t") for issue in error.value.issues)


@pytest.mark.parametrize(
    ("text", "value"), [("", ""), ("a: 1", "a: 1"), ("[1", "[1"), ("4 TB/s", "4 TB/s"), ("0.5", 0.5)]
)
def test_values_of_options(text: str, value: Any) -> None:
    assert parse_value(text) == value


def test_paths_are_shown_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert display_name(tmp_path / "a" / "b.yaml") == "a/b.yaml"
    assert display_name(Path("/nowhere/b.yaml")) == "/nowhere/b.yaml"
