"""From plain data to a spec, with every problem of a file in one go and in words that help."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Field, StrictInt, ValidationError
from pydantic_core import ErrorDetails

from moesim.base.errors import Issue, SpecError, closest, did_you_mean
from moesim.spec.provenance import Sourced, SpecModel
from moesim.spec.yaml_file import Document, KeyPath, dotted

SpecT = TypeVar("SpecT", bound=BaseModel)

Count = Annotated[StrictInt, Field(ge=1, le=10**15)]
"""A whole number of at least one, and of a size that something can have."""


class NamedSpec(SpecModel):
    """A spec that is a file of its own; the name is that of the file."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    summary: str = ""
    aliases: tuple[str, ...] = ()


def validate(kind: type[SpecT], document: Document) -> SpecT:
    """Return the spec in a document, or raise a `SpecError` with one issue for each problem."""
    try:
        return kind.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    misspelt = {_intended(kind, detail) for detail in details if detail["type"] == "extra_forbidden"}
    told = (detail for detail in details if detail["type"] != "missing" or detail["loc"] not in misspelt)
    issues = (_issue(kind, document, detail) for detail in told)
    raise SpecError(sorted(dict.fromkeys(issues), key=lambda issue: _line_number(issue.where)))


def _intended(kind: type[BaseModel], detail: ErrorDetails) -> KeyPath:
    """Return the path that an unknown key probably stands for, so that it is not called missing as well."""
    parent, key = detail["loc"][:-1], str(detail["loc"][-1])
    return (*parent, closest(key, _keys(_type_at(kind, parent))) or key)


def _line_number(where: str) -> int:
    tail = where.rpartition(":")[2]
    return int(tail) if tail.isdigit() else 0


def _issue(kind: type[BaseModel], document: Document, detail: ErrorDetails) -> Issue:
    path = _written_path(document.data, detail["loc"])
    what, fix = _words(kind, path, detail)
    shown = "" if document.origin(path) else dotted(path)  # an option names its path itself
    return Issue(document.where(path), shown, what, fix)


def _written_path(data: Any, location: tuple[str | int, ...]) -> KeyPath:
    """Return a location without the parts that only the validator knows, such as a member of a union."""
    path: list[str | int] = []
    for position, part in enumerate(location):
        if isinstance(data, dict):
            if part not in data and position < len(location) - 1:
                continue
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part] if part < len(data) else None
        else:
            continue
        path.append(part)
    return tuple(path)


def _words(kind: type[BaseModel], path: KeyPath, detail: ErrorDetails) -> tuple[str, str]:
    """Return what is wrong and what to write."""
    given = detail.get("input")
    match detail["type"]:
        case "extra_forbidden":
            return "unknown key", did_you_mean(str(path[-1]), _keys(_type_at(kind, path[:-1])))
        case "missing":
            return "is missing", _missing_fix(_type_at(kind, path), str(path[-1]))
        case "model_type" | "model_attributes_type":
            target = _type_at(kind, path)
            if isinstance(target, type) and issubclass(target, Sourced):
                shown = "3.35 TB/s" if given is None or isinstance(given, list) else given
                return f"{given!r} has no source", f"write {{value: {shown}, source: KEY, kind: datasheet}}"
            return f"must be a mapping, not {given!r}", "known keys: " + ", ".join(_keys(target))
        case "literal_error":
            allowed = detail.get("ctx", {}).get("expected", "")
            if path == ("schema",):
                return f"schema {given!r} is not known to this version", "write 'schema: 1'"
            return f"{given!r} is not allowed", f"write {allowed}"
        case "value_error" | "assertion_error":
            what, _, fix = str(detail.get("ctx", {}).get("error", detail["msg"])).partition("; ")
            return what, fix
    message = detail["msg"].replace("Input should be", "must be").replace("greater than or equal to", "at least")
    return f"{message}, not {given!r}", ""


def _missing_fix(target: Any, name: str) -> str:
    if name == "schema":
        return "write 'schema: 1'"
    if isinstance(target, type) and issubclass(target, Sourced):
        return f"add {name}: {{value: ..., source: KEY, kind: datasheet}}"
    return f"add {name}: ..."


def _keys(target: Any) -> list[str]:
    """Return the keys that a spec type knows."""
    if isinstance(target, type) and issubclass(target, BaseModel):
        return [field.alias or name for name, field in target.model_fields.items()]
    return []


def _type_at(kind: Any, path: KeyPath) -> Any:
    """Return the type that belongs at a path below a spec type."""
    target = kind
    for part in path:
        if isinstance(target, type) and issubclass(target, BaseModel):
            fields = {field.alias or name: field for name, field in target.model_fields.items()}
            target = fields[str(part)].annotation if str(part) in fields else None
        else:
            arguments = get_args(target)
            target = arguments[-1 if get_origin(target) is dict else 0] if arguments else None
        target = _plain_type(target)
    return target


def _plain_type(target: Any) -> Any:
    """Return a type without ``Annotated`` and ``| None``; of a union, its first mapping type."""
    while get_origin(target) is Annotated:
        target = get_args(target)[0]
    if get_origin(target) in (Union, types.UnionType):
        members = [_plain_type(member) for member in get_args(target) if member is not type(None)]
        specs = [member for member in members if isinstance(member, type) and issubclass(member, BaseModel)]
        return (specs or members)[0]
    return target
