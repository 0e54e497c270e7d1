"""The specs that come with moesim, by kind and name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, overload

from moesim.base.errors import Issue, SpecError, did_you_mean
from moesim.spec.fabric import FabricSpec
from moesim.spec.hardware import GpuSpec, NicSpec, NodeSpec
from moesim.spec.model import ModelSpec
from moesim.spec.refused import refusal
from moesim.spec.scenario import ScenarioSpec
from moesim.spec.software import SoftwareSpec
from moesim.spec.transport import TransportSpec
from moesim.spec.validation import NamedSpec, validate
from moesim.spec.yaml_file import display_name, read_document

KINDS: dict[str, tuple[str, type[NamedSpec], str]] = {
    "gpus": ("hardware_specs/gpus", GpuSpec, "GPU"),
    "nics": ("hardware_specs/nics", NicSpec, "NIC"),
    "nodes": ("hardware_specs/nodes", NodeSpec, "node"),
    "fabrics": ("hardware_specs/fabrics", FabricSpec, "fabric"),
    "software": ("hardware_specs/software", SoftwareSpec, "software"),
    "transports": ("hardware_specs/transports", TransportSpec, "expert transport"),
    "models": ("scenarios/models", ModelSpec, "model"),
    "scenarios": ("scenarios", ScenarioSpec, "scenario"),
    "runs": ("scenarios/runs", ScenarioSpec, "run"),
}
"""Folder, type and word of each kind of spec."""


@dataclass(frozen=True)
class Summary:
    """One line about a spec."""

    name: str
    summary: str
    aliases: tuple[str, ...]
    file: str


def root() -> Path:
    """Return the folder that holds ``hardware_specs`` and ``scenarios``: in the wheel, or in the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_data"
    return installed if installed.is_dir() else package.parent


def names(kind: str) -> list[str]:
    """Return the names of one kind, sorted."""
    return sorted(path.stem for path in folder(kind).glob("*.yaml"))


def folder(kind: str) -> Path:
    """Return the folder of one kind."""
    if kind not in KINDS:
        raise SpecError.single("", "", f"no kind of spec '{kind}'", did_you_mean(kind, KINDS))
    return root() / KINDS[kind][0]


def file(kind: str, name: str) -> Path:
    """Return the file of a spec, named by its name or an alias; raises a `SpecError` for an unknown name."""
    path = folder(kind) / f"{name}.yaml"
    if _is_plain(name) and path.is_file():
        return path
    known = {alias: other for other in names(kind) for alias in (other, *_aliases(kind, other))}
    if name in known:
        return folder(kind) / f"{known[name]}.yaml"
    refused = refusal(root(), kind, name)
    if refused:
        raise SpecError.single("", "", refused)
    raise SpecError.single("", "", f"no {KINDS[kind][2]} '{name}'", did_you_mean(name, known))


@overload
def get(kind: Literal["gpus"], name: str) -> GpuSpec: ...
@overload
def get(kind: Literal["nics"], name: str) -> NicSpec: ...
@overload
def get(kind: Literal["nodes"], name: str) -> NodeSpec: ...
@overload
def get(kind: Literal["fabrics"], name: str) -> FabricSpec: ...
@overload
def get(kind: Literal["software"], name: str) -> SoftwareSpec: ...
@overload
def get(kind: Literal["transports"], name: str) -> TransportSpec: ...
@overload
def get(kind: Literal["models"], name: str) -> ModelSpec: ...
@overload
def get(kind: Literal["scenarios", "runs"], name: str) -> ScenarioSpec: ...
@overload
def get(kind: str, name: str) -> NamedSpec: ...
def get(kind: str, name: str) -> NamedSpec:
    """Return a spec by kind and name or alias; raises a `SpecError` that suggests a name."""
    return read(kind, file(kind, name))


def read(kind: str, path: Path) -> NamedSpec:
    """Return the spec in a file; a file is read again only when it has changed."""
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        changed = 0
    return _read(kind, path, changed)


@lru_cache(maxsize=1024)
def _read(kind: str, path: Path, _changed: int) -> NamedSpec:
    document = read_document(path)
    spec = validate(KINDS[kind][1], document)
    if spec.name != path.stem:
        where = document.where(("name",))
        what = f"the name is '{spec.name}' but the file is '{path.name}'"
        raise SpecError([Issue(where, "name", what, f"write 'name: {path.stem}'")])
    if isinstance(spec, ScenarioSpec):
        spec.bind(document, path.parent)
    return spec


def summary(kind: str) -> list[Summary]:
    """Return one line for each spec of a kind."""
    result = []
    for name in names(kind):
        spec = get(kind, name)
        result.append(Summary(name, spec.summary, spec.aliases, display_name(file(kind, name))))
    return result


def _aliases(kind: str, name: str) -> tuple[str, ...]:
    try:
        return get(kind, name).aliases
    except SpecError:  # a broken neighbour is reported by `check`, not when something else is looked up
        return ()


def _is_plain(name: str) -> bool:
    return bool(name) and not set(name) & set("/\\") and not name.startswith(".")
