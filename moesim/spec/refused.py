"""Names that are known and cannot be answered, each with its reason; ``hardware_specs/refused.yaml``."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from moesim.spec.provenance import SpecModel
from moesim.spec.validation import validate
from moesim.spec.yaml_file import read_document

_WORDS = {"models": "cannot be expressed", "gpus": "is not modelled"}
_ASKED_AS = {"models": ("models",), "gpus": ("gpus",), "nodes": ("gpus",)}


class RefusedList(SpecModel):
    """The contents of ``refused.yaml``: a reason for each name, by kind of spec."""

    schema_version: Literal[1] = Field(alias="schema")
    models: dict[str, str] = Field(default_factory=dict)
    gpus: dict[str, str] = Field(default_factory=dict)

    def of(self, kind: str) -> dict[str, str]:
        """Return the reasons of one kind by name; a node may be asked for by the name of its GPU."""
        reasons: dict[str, str] = {}
        for section in _ASKED_AS.get(kind, ()):
            named: dict[str, str] = getattr(self, section)
            reasons |= {name: f"{_WORDS[section]}: {reason}" for name, reason in named.items()}
        return reasons


def refused(root: Path) -> RefusedList:
    """Return every refused name below the folder of the specs; a file is read again only when it has changed."""
    file = root / "hardware_specs" / "refused.yaml"
    return _read(file, file.stat().st_mtime_ns) if file.exists() else RefusedList.model_validate({"schema": 1})


@lru_cache(maxsize=4)
def _read(file: Path, _changed: int) -> RefusedList:
    return validate(RefusedList, read_document(file))


def refusal(root: Path, kind: str, name: str) -> str | None:
    """Return what to tell somebody who asks for a refused name, or None for any other name."""
    reason = refused(root).of(kind).get(name.lower())
    return f"{name} {reason}" if reason else None
