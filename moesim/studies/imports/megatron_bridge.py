"""Megatron-Bridge: the YAML of a ``ConfigContainer``, whole or the part that a recipe overrides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.spec.yaml_file import display_name, read_document
from moesim.studies.imports.imported import Imported
from moesim.studies.imports.megatron import from_settings
from moesim.studies.imports.settings import OFF, Setting, Settings

SECTIONS = ("model", "optimizer", "ddp", "comm_overlap", "mixed_precision", "dataset", "train")
"""Sections that cost time or memory; where two say the same, the later one is what runs."""
RENAMED = {"sequence_length": "seq_length", "mock": "mock_data"}
NEVER = {"dataset": ("data_parallel_size", "context_parallel_size", "sequence_parallel_size")}


def read(path: Path, model: str | None = None) -> Imported:
    """The run that a configuration describes.

    Parameters
    ----------
    path
        YAML with the sections of ``ConfigContainer``, at the top or under that name.
    model
        Name of a model to take instead of the architecture in the file.
    """
    where = display_name(path)
    document = read_document(path)
    data: Any = document.data
    at: tuple[str, ...] = ()
    if isinstance(data, Mapping) and isinstance(data.get("ConfigContainer"), Mapping):
        data, at = data["ConfigContainer"], ("ConfigContainer",)
    if not isinstance(data, Mapping) or not any(section in data for section in SECTIONS):
        raise SpecError.single(where, "", "has none of the sections of a ConfigContainer", ", ".join(SECTIONS))
    given: dict[str, Setting] = {}
    for section in SECTIONS:
        for name, value in (data.get(section) or {}).items():
            if name == "_target_" or name in NEVER.get(section, ()):
                continue
            plain = value.get("_target_", value) if isinstance(value, Mapping) else value
            key = RENAMED.get(name, name)
            if key not in given or plain not in OFF or isinstance(plain, bool):
                given[key] = Setting(f"{section}.{name}", plain, document.line((*at, section, name)))
    return from_settings(Settings(where, given), "megatron-bridge", model)
