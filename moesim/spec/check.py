"""Checks over every spec and scenario that comes with moesim; ``moesim specs --check``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from moesim.base.errors import Collector, Issue, SpecError, did_you_mean
from moesim.spec import library
from moesim.spec.hardware import NicSpec, NodeSpec
from moesim.spec.load import load_specs
from moesim.spec.provenance import SpecModel
from moesim.spec.refused import refused
from moesim.spec.scenario import ScenarioSpec
from moesim.spec.validation import validate
from moesim.spec.yaml_file import Document, KeyPath, dotted, read_document

Text = Annotated[str, BeforeValidator(str)]


class Source(SpecModel):
    """Where a number comes from."""

    title: str
    url: str | None = None
    version: Text | None = None
    date: Text | None = None
    license: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _dated(self) -> Source:
        if not (self.version or self.date):
            raise ValueError("a source needs a version or a date; add date: when it was read")
        return self


class SourceList(SpecModel):
    """The contents of ``sources.yaml``."""

    schema_version: int = Field(alias="schema", ge=1, le=1)
    sources: dict[str, Source]


def sources() -> dict[str, Source]:
    """Return every source by its key."""
    return validate(SourceList, read_document(library.root() / "hardware_specs" / "sources.yaml")).sources


def check() -> list[Issue]:
    """Return every problem in the library: files that do not load, sources and names that do not resolve."""
    problems = Collector()
    known: dict[str, Source] = {}
    try:
        known = sources()
    except SpecError as error:
        problems.extend(error.issues)
    with library.unchanging():
        for kind in library.KINDS:
            taken: dict[str, str] = {}
            for name in library.names(kind):
                _check_file(kind, name, known, taken, problems)
            _check_refused(kind, taken, problems)
    return problems.issues


def _check_file(kind: str, name: str, known: dict[str, Source], taken: dict[str, str], problems: Collector) -> None:
    try:
        spec = library.get(kind, name)
        file = library.file(kind, name)
        document = read_document(file)
    except SpecError as error:
        problems.extend(issue for issue in error.issues if issue not in problems.issues)
        return
    is_profile = file.stem != name  # its sources were looked at in the software that it belongs to
    for path, key in _source_keys(document.data, ()):
        if key not in known and not is_profile:
            problems.add(document.where(path), dotted(path), f"no source '{key}'", did_you_mean(key, known))
    for alias in (name, *spec.aliases):
        if alias in taken:
            problems.add(document.where(("aliases",)), "aliases", f"'{alias}' is also a name of {taken[alias]}")
        taken[alias] = name
    if isinstance(spec, NodeSpec):
        for field, target in (("gpu", "gpus"), ("nic", "nics"), ("default_fabric", "fabrics")):
            _check_reference(document, field, target, getattr(spec, field), problems)
    if isinstance(spec, NicSpec):
        _check_reference(document, "protocol", "protocols", spec.protocol, problems)
    if isinstance(spec, ScenarioSpec):
        try:
            load_specs(spec)
        except SpecError as error:
            problems.extend(error.issues)


def _check_refused(kind: str, taken: dict[str, str], problems: Collector) -> None:
    file = library.root() / "hardware_specs" / "refused.yaml"
    try:
        reasons = refused(library.root()).of(kind)
    except SpecError as error:
        problems.extend(issue for issue in error.issues if issue not in problems.issues)
        return
    if not reasons:
        return
    document = read_document(file)
    answered = {alias.lower(): name for alias, name in taken.items()}
    for name in reasons:
        if name in answered:
            problems.add(document.where((kind, name)), f"{kind}.{name}", f"is also a name of {answered[name]}")
        if name != name.lower():
            problems.add(document.where((kind, name)), f"{kind}.{name}", "never matches", f"write '{name.lower()}'")


def _check_reference(document: Document, field: str, kind: str, name: str, problems: Collector) -> None:
    try:
        library.file(kind, name)
    except SpecError as error:
        issue = error.issues[0]
        problems.add(document.where((field,)), field, issue.what, issue.fix)


def _source_keys(data: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield every ``source:`` below, wherever it stands."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "source" and isinstance(value, str):
                yield (*path, key), value
            yield from _source_keys(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _source_keys(value, (*path, index))
