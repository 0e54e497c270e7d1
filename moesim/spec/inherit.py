"""Specs that take values from another spec, and profiles of a software.

``like: {spec: h100-sxm-80gb, kind: assumed, note: why}`` in a mapping takes every entry that the mapping does not write
from the same place in another spec of the same kind. Numbers that are taken over say so: they get the kind given here
and name where they come from, so that nobody mistakes them for a measurement of this part.

A profile is what a software does in one release or with one set of recipes. It writes only what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from moesim.base.errors import SpecError, did_you_mean
from moesim.spec.provenance import KINDS
from moesim.spec.yaml_file import Document, KeyPath, dotted

LIKE = "like"
WITHOUT_RULES = "without_rules"
OWN_KEYS = frozenset({"schema", "name", "summary", "aliases", "profiles", "preferred", LIKE})
"""Keys that a spec never takes from another one."""

Reader = Callable[[str], Document]


def with_inherited(document: Document, read: Reader) -> Document:
    """Return a document without ``like``: what it takes from other specs stands in it.

    Parameters
    ----------
    document
        As written.
    read
        Gives the complete document of another spec of the same kind by name.
    """
    for path, like in list(_likes(document.data, ())):
        document = _take(document, path, _checked(document, path, like), read)
    return document


def _likes(data: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(data, dict):
        if LIKE in data:
            yield path, data[LIKE]
        for key, value in data.items():
            if key != LIKE:
                yield from _likes(value, (*path, key))


def _checked(document: Document, path: KeyPath, like: Any) -> dict[str, str]:
    where = document.where((*path, LIKE))
    example = "write like: {spec: h100-sxm-80gb, kind: assumed, note: no measurement at hand}"
    if not isinstance(like, dict) or set(like) != {"spec", "kind", "note"}:
        raise SpecError.single(where, dotted((*path, LIKE)), "needs spec, kind and note", example)
    if like["kind"] not in KINDS:
        raise SpecError.single(
            where, dotted((*path, LIKE)), f"no kind '{like['kind']}'", did_you_mean(like["kind"], KINDS)
        )
    return like


def _take(document: Document, path: KeyPath, like: dict[str, str], read: Reader) -> Document:
    base = read(like["spec"]).data
    for key in path:
        base = base[key]
    own = document.data
    for key in path:
        own = own[key]
    taken = {
        key: _adapted(value, like)
        for key, value in base.items()
        if key not in own and not (path == () and key in OWN_KEYS)
    }
    merged = {key: value for key, value in own.items() if key != LIKE}
    for key, value in own.items():  # a mapping that both write is filled up
        if key in base and _is_group(value) and _is_group(base[key]) and not (path == () and key in OWN_KEYS):
            merged[key] = {name: _adapted(item, like) for name, item in base[key].items() if name not in value} | value
    line = document.lines.get((*path, LIKE))
    lines = dict(document.lines)
    if line:
        lines |= {(*path, key): line for key in taken}
    return Document(document.name, _replaced(document.data, path, merged | taken), lines, document.origins)


def _adapted(value: Any, like: Mapping[str, str]) -> Any:
    """Return a value as another spec states it: sourced numbers get the weaker of both kinds."""
    if not isinstance(value, dict):
        return value
    if not _is_sourced(value):
        return {key: _adapted(item, like) for key, item in value.items()}
    kind = KINDS[max(KINDS.index(value["kind"]), KINDS.index(like["kind"]))]
    told = [f"as {like['spec']}", like["note"], value.get("note")]
    return {**value, "kind": kind, "note": "; ".join(part for part in told if part)}


def _is_sourced(value: Mapping[str, Any]) -> bool:
    return "kind" in value and ("value" in value or "cases" in value)


def _is_group(value: Any) -> bool:
    return isinstance(value, dict) and not _is_sourced(value)


def _replaced(data: Any, path: KeyPath, value: Any) -> Any:
    """Return data with the part at a path replaced."""
    if not path:
        return value
    return {key: _replaced(item, path[1:], value) if key == path[0] else item for key, item in data.items()}


def with_profile(document: Document, name: str) -> Document:
    """Return the document of a profile: the software, changed by the profiles it builds on and by itself."""
    profiles = document.data.get("profiles", {})
    data = {key: value for key, value in document.data.items() if key not in ("profiles", "aliases", "versions")}
    lines = dict(document.lines)
    for step in _lineage(document, profiles, name):
        profile = {key: value for key, value in profiles[step].items() if key not in ("base", "rules", WITHOUT_RULES)}
        data = _merged(data, profile)
        kept = _rules_left(document, step, data.get("rules", []), profiles[step].get(WITHOUT_RULES, []))
        data["rules"] = [*kept, *profiles[step].get("rules", [])]
        prefix: KeyPath = ("profiles", step)
        lines |= {path[2:]: line for path, line in document.lines.items() if path[:2] == prefix and len(path) > 2}
    own = profiles[name]
    data["profile_of"] = own.get("base", document.data["name"])
    data |= {"name": name, "aliases": own.get("aliases", []), "versions": own.get("versions", [])}
    return Document(document.name, data, lines, document.origins)


def _rules_left(document: Document, step: str, rules: list[Any], dropped: list[str]) -> list[Any]:
    """Return the rules without those that a profile does not have."""
    known = [rule["name"] for rule in rules]
    for name in dropped:
        if name not in known:
            where = document.where(("profiles", step, WITHOUT_RULES))
            raise SpecError.single(where, WITHOUT_RULES, f"no rule '{name}'", did_you_mean(name, known))
    return [rule for rule in rules if rule["name"] not in dropped]


def _lineage(document: Document, profiles: Mapping[str, Any], name: str) -> list[str]:
    """Return a profile and those it builds on, the outermost first."""
    chain: list[str] = []
    step: str | None = name
    while step is not None:
        where = document.where(("profiles", chain[-1] if chain else name, "base"))
        if step in chain:
            raise SpecError.single(where, "base", f"profile '{step}' builds on itself", "name another base")
        if step not in profiles:
            raise SpecError.single(where, "base", f"no profile '{step}'", did_you_mean(step, profiles))
        chain.append(step)
        step = profiles[step].get("base")
    return chain[::-1]


def _merged(data: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return groups joined key by key; numbers, defaults and lists are replaced as a whole."""
    joined = dict(data)
    for key, value in change.items():
        old = joined.get(key)
        joined[key] = _merged(old, value) if isinstance(old, dict) and _is_group(old) and _is_group(value) else value
    return joined
