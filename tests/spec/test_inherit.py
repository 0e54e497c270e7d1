"""Values taken from another spec, and profiles."""

import re
from pathlib import Path
from typing import Any

import pytest

from moesim.base.errors import SpecError
from moesim.spec import library
from moesim.spec.inherit import with_inherited, with_profile
from moesim.spec.yaml_file import Document, parse_document

BASE = parse_document(
    """
name: big
aliases: [large]
speed: {value: 3, kind: measured, source: somebody}
guess: {value: 1, kind: assumed, note: a guess}
parts:
  one: {value: 10, kind: datasheet, source: maker, note: printed}
  two: {value: 20, kind: datasheet, source: maker}
  table: {a: {value: 1, kind: paper, source: author}}
""",
    "big.yaml",
)


def read(name: str) -> Document:
    assert name == "big"
    return BASE


def resolved(text: str) -> dict[str, Any]:
    data: dict[str, Any] = with_inherited(parse_document(text, "small.yaml"), read).data
    return data


def test_a_whole_spec_fills_up_what_is_not_written() -> None:
    small = resolved(
        """
name: small
like: {spec: big, kind: derived, note: same thing}
parts:
  two: {value: 2, kind: measured, source: us}
"""
    )
    assert "like" not in small
    assert "aliases" not in small
    assert small["name"] == "small"
    assert small["speed"] == {"value": 3, "kind": "derived", "source": "somebody", "note": "as big; same thing"}
    assert small["parts"]["one"]["note"] == "as big; same thing; printed"
    assert small["parts"]["two"] == {"value": 2, "kind": "measured", "source": "us"}
    assert small["parts"]["table"]["a"]["kind"] == "derived"


def test_a_guess_stays_a_guess() -> None:
    small = resolved("name: small\nlike: {spec: big, kind: derived, note: same thing}\n")
    assert small["guess"]["kind"] == "assumed"


def test_one_part_is_taken() -> None:
    small = resolved("name: small\nparts:\n  like: {spec: big, kind: assumed, note: not measured}\n")
    assert set(small) == {"name", "parts"}
    assert small["parts"]["one"]["kind"] == "assumed"


@pytest.mark.parametrize(
    ("like", "problem"),
    [
        ("big", "small.yaml:2: like: needs spec, kind and note; write like: {spec:"),
        ("{spec: big, kind: guessed, note: why}", "small.yaml:2: like: no kind 'guessed'"),
    ],
)
def test_a_bad_like_names_its_line(like: str, problem: str) -> None:
    with pytest.raises(SpecError, match=re.escape(problem)):
        resolved(f"name: small\nlike: {like}\n")


SOFTWARE = parse_document(
    """
name: frame
aliases: [f]
host: {launch: {value: 5 us, kind: assumed, note: a}, sync: {value: 20 us, kind: assumed, note: b}}
defaults:
  tp: {value: 1, kind: assumed, note: one}
profiles:
  new:
    date: 2026-01
    summary: the new one
    aliases: [n]
    host: {sync: {value: 1 us, kind: assumed, note: c}}
  newer:
    base: new
    date: 2026-02
    summary: the newer one
    defaults: {tp: {cases: [{value: 2}], kind: assumed, note: two}}
  loop: {base: loop, date: 2026-03, summary: itself}
""",
    "frame.yaml",
)


def test_a_profile_changes_what_it_writes() -> None:
    data = with_profile(SOFTWARE, "new").data
    assert (data["name"], data["aliases"], data["profile_of"]) == ("new", ["n"], "frame")
    assert data["host"]["launch"]["value"] == "5 us"
    assert data["host"]["sync"]["value"] == "1 us"
    assert "profiles" not in data


def test_a_profile_builds_on_another_and_keeps_its_lines() -> None:
    document = with_profile(SOFTWARE, "newer")
    assert document.data["host"]["sync"]["value"] == "1 us"
    assert document.data["defaults"]["tp"] == {"cases": [{"value": 2}], "kind": "assumed", "note": "two"}
    assert document.data["profile_of"] == "new"
    assert document.line(("host", "sync")) == 12
    assert document.line(("host", "launch")) == 4


def test_a_profile_cannot_build_on_itself() -> None:
    with pytest.raises(SpecError, match="profile 'loop' builds on itself"):
        with_profile(SOFTWARE, "loop")


def test_a_changed_base_changes_those_that_take_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    shutil.copytree(library.root() / "hardware_specs", tmp_path / "hardware_specs")
    monkeypatch.setattr(library, "root", lambda: tmp_path)
    assert library.get("gpus", "gh200").num_sms.value == 132
    path = tmp_path / "hardware_specs" / "gpus" / "h100-sxm-80gb.yaml"
    path.write_text(path.read_text().replace("num_sms: {value: 132", "num_sms: {value: 114"))
    assert library.get("gpus", "gh200").num_sms.value == 114
