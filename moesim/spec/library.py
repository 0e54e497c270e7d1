"""The specs that come with moesim, by kind and name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from moesim.base.errors import Issue, SpecError, did_you_mean
from moesim.spec.calibration import KERNEL_FAMILIES, CalibrationSpec
from moesim.spec.fabric import FabricSpec
from moesim.spec.hardware import GpuSpec, NicSpec, NodeSpec
from moesim.spec.inherit import with_inherited, with_profile
from moesim.spec.model import ModelSpec
from moesim.spec.protocol import ProtocolSpec
from moesim.spec.refused import refusal
from moesim.spec.scenario import ScenarioSpec
from moesim.spec.software import SoftwareSpec
from moesim.spec.storage import StorageSpec
from moesim.spec.transport import TransportSpec
from moesim.spec.validation import NamedSpec, validate
from moesim.spec.yaml_file import Document, display_name, read_document

KINDS: dict[str, tuple[str, type[NamedSpec], str]] = {
    "gpus": ("hardware_specs/gpus", GpuSpec, "GPU"),
    "nics": ("hardware_specs/nics", NicSpec, "NIC"),
    "nodes": ("hardware_specs/nodes", NodeSpec, "node"),
    "fabrics": ("hardware_specs/fabrics", FabricSpec, "fabric"),
    "protocols": ("hardware_specs/protocols", ProtocolSpec, "link protocol"),
    "software": ("hardware_specs/software", SoftwareSpec, "software"),
    "transports": ("hardware_specs/transports", TransportSpec, "expert transport"),
    "storage": ("hardware_specs/storage", StorageSpec, "storage"),
    "calibrations": ("hardware_specs/calibrations", CalibrationSpec, "calibration"),
    "models": ("scenarios/models", ModelSpec, "model"),
    "scenarios": ("scenarios", ScenarioSpec, "scenario"),
    "runs": ("scenarios/runs", ScenarioSpec, "run"),
}
"""Folder, type and word of each kind of spec."""

INHERITING = frozenset({"gpus", "nics", "nodes", "fabrics", "protocols", "software"})
"""Kinds whose specs may take values from each other."""


LINKED = ("nodes", "fabrics", "transports")
"""Kinds whose links or legs calibrations correct."""

T = TypeVar("T")
_looked: ContextVar[dict[Any, Any] | None] = ContextVar("looked", default=None)


@contextmanager
def unchanging() -> Iterator[None]:
    """Within it every file is looked at once: what is written to the library meanwhile is not seen."""
    if _looked.get() is not None:
        yield
        return
    token = _looked.set({})
    try:
        yield
    finally:
        _looked.reset(token)


def once(key: tuple[Any, ...], look: Callable[[], T]) -> T:
    """Return what a look at the library gives; within :func:`unchanging` it is looked for once."""
    known = _looked.get()
    if known is None:
        return look()
    if key not in known:
        known[key] = look()
    found: T = known[key]
    return found


@dataclass(frozen=True)
class Summary:
    """One line about a spec."""

    name: str
    summary: str
    aliases: tuple[str, ...]
    file: str


@cache
def root() -> Path:
    """Return the folder that holds ``hardware_specs`` and ``scenarios``: in the wheel, or in the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_data"
    return installed if installed.is_dir() else package.parent


def names(kind: str) -> list[str]:
    """Return the names of one kind, sorted; profiles of a software stand beside it."""
    found = [path.stem for path, _ in _files(folder(kind))]
    if kind == "software":
        found += [profile for stem in tuple(found) for profile in _profiles(folder(kind) / f"{stem}.yaml")]
    return sorted(found)


def folder(kind: str) -> Path:
    """Return the folder of one kind."""
    if kind not in KINDS:
        raise SpecError.single("", "", f"no kind of spec '{kind}'", did_you_mean(kind, KINDS))
    return root() / KINDS[kind][0]


def find(kind: str, name: str) -> str:
    """Return the name that a name or an alias stands for; raises a `SpecError` for an unknown one."""
    return once(("find", kind, name, root()), lambda: _find(kind, name))


def _find(kind: str, name: str) -> str:
    if _is_plain(name) and (folder(kind) / f"{name}.yaml").is_file():
        return name
    known: dict[str, str] = {}
    for path, _ in _files(folder(kind)):
        known |= _called(path)
    if name in known:
        return known[name]
    refused = refusal(root(), kind, name)
    if refused:
        raise SpecError.single("", "", refused)
    raise SpecError.single("", "", f"no {KINDS[kind][2]} '{name}'", did_you_mean(name, known))


def file(kind: str, name: str) -> Path:
    """Return the file that a spec stands in, named by its name or an alias; a profile stands in its software's."""
    found = find(kind, name)
    path = folder(kind) / f"{found}.yaml"
    if path.is_file():
        return path
    return next(other for other, _ in _files(folder(kind)) if found in _profiles(other))


def document(kind: str, name: str) -> Document:
    """Return what a spec says in full: with what it takes from other specs, and as a profile changes it."""
    found, path = find(kind, name), file(kind, name)
    written = _written(path, _changed(path))
    if found != path.stem:
        written = with_profile(written, found)
    if kind == "gpus":
        written = _calibrated(written, found)
    if kind in LINKED:
        written = _linked(written, kind, found)
    return with_inherited(written, lambda other: document(kind, other))


def calibrations(gpu: str) -> dict[str, CalibrationSpec]:
    """Return the calibrations of the kernels of a GPU, by family."""
    found = (get("calibrations", path.stem) for path, _ in _files(folder("calibrations")) if path.match(f"{gpu}-*"))
    return {one.family: one for one in found if one.gpu == gpu and one.family in KERNEL_FAMILIES}


def _link_file(kind: str, name: str) -> Path:
    return folder("calibrations") / f"{name}-{'transport' if kind == 'transports' else 'collectives'}.yaml"


def _linked(written: Document, kind: str, name: str) -> Document:
    """Return a node, a fabric or a transport with what its calibration has."""
    path = _link_file(kind, name)
    if not path.is_file():
        return written
    return with_links(written, kind, [get("calibrations", path.stem)])


def with_links(written: Document, kind: str, used: Iterable[CalibrationSpec]) -> Document:
    """Return a node, a fabric or a transport with the constants of calibrations over those that it has."""
    fits = {name: entry for one in used for name, entry in one.entries().items()}
    if kind == "transports":
        constants = written.data | {"constants": written.data.get("constants", {}) | fits}
        return Document(written.name, constants, written.lines, written.origins)
    links = written.data.get("links", {}) if kind == "nodes" else written.data
    links = links | {"fits": links.get("fits", {}) | fits}
    data = written.data | {"links": links} if kind == "nodes" else links
    return Document(written.name, data, written.lines, written.origins)


def link_calibration(kind: Literal["nodes", "fabrics", "transports"], name: str) -> CalibrationSpec | None:
    """Return the calibration of the links of a node or a fabric, or of a transport; else of the one that it is like."""
    path = _link_file(kind, name)
    if path.is_file():
        return get("calibrations", path.stem)
    data = _data(file(kind, name))
    like = (data.get("links", {}).get("like") if kind == "nodes" else None) or data.get("like")
    return link_calibration(kind, like["spec"]) if like else None


def calibrations_like(gpu: str) -> dict[str, CalibrationSpec]:
    """Return the calibrations that a GPU has, or takes from the GPU that its kernels are like."""
    own = calibrations(gpu)
    data = _data(folder("gpus") / f"{gpu}.yaml")
    like = data.get("kernels", {}).get("like") or data.get("like")
    return (calibrations_like(like["spec"]) if like else {}) | own


def uncalibrated_gpu(name: str, family: str) -> GpuSpec:
    """Return a GPU without its own calibration of a family: where another fit of it starts."""
    found = find("gpus", name)
    path = file("gpus", found)
    written = _calibrated(_written(path, _changed(path)), found, skip=family)
    return validate(GpuSpec, with_inherited(written, lambda other: document("gpus", other)))


def uncalibrated_transport(name: str) -> TransportSpec:
    """Return a transport without its calibration: where another fit of it starts."""
    path = file("transports", name)
    return validate(TransportSpec, _written(path, _changed(path)))


def _calibrated(written: Document, gpu: str, skip: str = "") -> Document:
    """Return a GPU with the constants of its calibrations in place of those that its file has."""
    return calibrated(written, [one for family, one in calibrations(gpu).items() if family != skip])


def calibrated(written: Document, used: Iterable[CalibrationSpec]) -> Document:
    """Return a GPU with the kernel constants of calibrations in place of its own."""
    entries = {name: entry for one in used for name, entry in one.entries().items()}
    if not entries:
        return written
    data = written.data | {"kernels": written.data.get("kernels", {}) | entries}
    return Document(written.name, data, written.lines, written.origins)


@overload
def get(kind: Literal["calibrations"], name: str) -> CalibrationSpec: ...
@overload
def get(kind: Literal["gpus"], name: str) -> GpuSpec: ...
@overload
def get(kind: Literal["nics"], name: str) -> NicSpec: ...
@overload
def get(kind: Literal["nodes"], name: str) -> NodeSpec: ...
@overload
def get(kind: Literal["fabrics"], name: str) -> FabricSpec: ...
@overload
def get(kind: Literal["protocols"], name: str) -> ProtocolSpec: ...
@overload
def get(kind: Literal["software"], name: str) -> SoftwareSpec: ...
@overload
def get(kind: Literal["transports"], name: str) -> TransportSpec: ...
@overload
def get(kind: Literal["storage"], name: str) -> StorageSpec: ...
@overload
def get(kind: Literal["models"], name: str) -> ModelSpec: ...
@overload
def get(kind: Literal["scenarios", "runs"], name: str) -> ScenarioSpec: ...
@overload
def get(kind: str, name: str) -> NamedSpec: ...
def get(kind: str, name: str) -> NamedSpec:
    """Return a spec by kind and name or alias; raises a `SpecError` that suggests a name.

    A file is read again only when it, or one that it may take values from, has changed.
    """
    return once(("get", kind, name, root()), lambda: _get(kind, name))


def _get(kind: str, name: str) -> NamedSpec:
    found = find(kind, name)
    stamp = _stamp(folder(kind)) if kind in INHERITING else (_changed(file(kind, found)),)
    if kind in ("gpus", *LINKED):
        stamp += _stamp(folder("calibrations"))
    return _read(kind, found, root(), stamp)


@lru_cache(maxsize=2048)
def _read(kind: str, name: str, _root: Path, _stamp: tuple[int, ...]) -> NamedSpec:
    path = file(kind, name)
    written = document(kind, name)
    spec = validate(KINDS[kind][1], written)
    if spec.name != name:
        where = written.where(("name",))
        what = f"the name is '{spec.name}' but the file is '{path.name}'"
        raise SpecError([Issue(where, "name", what, f"write 'name: {name}'")])
    if isinstance(spec, ScenarioSpec):
        spec.bind(written, path.parent)
    return spec


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _stamp(where: Path) -> tuple[int, ...]:
    """When each spec of a folder was written."""
    return once(("stamp", where), lambda: tuple(changed for _, changed in _files(where)))


def _files(where: Path) -> tuple[tuple[Path, int], ...]:
    """Files of the specs in a folder, sorted, and when each was written."""
    return once(("files", where), lambda: _list(where))


def _list(where: Path) -> tuple[tuple[Path, int], ...]:
    try:
        with os.scandir(where) as entries:
            found = sorted((entry.name, entry.stat().st_mtime_ns) for entry in entries if entry.name.endswith(".yaml"))
    except OSError:
        return ()
    return tuple((where / name, changed) for name, changed in found)


@lru_cache(maxsize=4096)
def _written(path: Path, _changed: int) -> Document:
    return read_document(path)


def _profiles(path: Path) -> tuple[str, ...]:
    profiles = _data(path).get("profiles")
    return tuple(profiles) if isinstance(profiles, dict) else ()


def _called(path: Path) -> dict[str, str]:
    """Return the names and aliases of what stands in a file, with the name that each stands for."""
    data = _data(path)
    called = dict.fromkeys((path.stem, *_aliases(data)), path.stem)
    for profile in _profiles(path):
        called |= dict.fromkeys((profile, *_aliases(data["profiles"][profile])), profile)
    return called


def _aliases(data: Any) -> list[str]:
    aliases = data.get("aliases") if isinstance(data, dict) else None
    return [str(alias) for alias in aliases] if isinstance(aliases, list) else []


def _data(path: Path) -> dict[str, Any]:
    try:
        return dict(_written(path, _changed(path)).data)
    except SpecError:  # a broken neighbour is reported by `check`, not when something else is looked up
        return {}


def summary(kind: str) -> list[Summary]:
    """Return one line for each spec of a kind."""
    result = []
    for name in names(kind):
        spec = get(kind, name)
        result.append(Summary(name, spec.summary, spec.aliases, display_name(file(kind, name))))
    return result


def _is_plain(name: str) -> bool:
    return bool(name) and not set(name) & set("/\\") and not name.startswith(".")
