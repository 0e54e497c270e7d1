"""YAML as plain data that remembers on which line each value stands."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.resolver import VersionedResolver

from moesim.base.errors import Collector, SpecError

KeyPath = tuple[str | int, ...]
"""Keys and indices that lead to a value, such as ``("strategy", "ep")``."""


@dataclass(frozen=True)
class Document:
    """Plain data and where each part of it was written.

    Parameters
    ----------
    name
        What messages call the file.
    data
        Dicts, lists, strings, numbers.
    lines
        Line of each path, counted from 1.
    origins
        Paths that were not written in the file but given by an option, with the option.
    """

    name: str
    data: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int | None:
        """Return the line of a path or of the closest thing around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None

    def origin(self, path: KeyPath) -> str | None:
        """Return the option that set a value, if one did."""
        ends = range(len(path), 0, -1)
        return next((self.origins[path[:end]] for end in ends if path[:end] in self.origins), None)

    def where(self, path: KeyPath) -> str:
        """Return ``file:line``, or the option that set the value."""
        origin = self.origin(path)
        if origin:
            return origin
        line = self.line(path)
        return f"{self.name}:{line}" if line else self.name

    def with_value(self, path: KeyPath, value: Any, origin: str) -> Document:
        """Return a copy with one value replaced or added; missing mappings on the way are made."""
        data = copy.deepcopy(self.data)
        target = data
        for key in path[:-1]:
            if not isinstance(target.get(key), dict):
                target[key] = {}
            target = target[key]
        target[path[-1]] = value
        return Document(self.name, data, self.lines, {**self.origins, path: origin})


def read_document(path: Path) -> Document:
    """Return the contents of a YAML file, or raise a `SpecError` with the line."""
    return parse_document(read_text(path), display_name(path))


def read_text(path: Path) -> str:
    """Return a text file, or raise a `SpecError` that names it."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError.single(display_name(path), "", "there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError.single(display_name(path), "", f"cannot be read as text: {_reason(error)}") from None


def display_name(path: Path) -> str:
    """Return a path as messages show it: relative where it lies below the working directory."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def parse_document(text: str, name: str) -> Document:
    """Return the data of a YAML text; its top must be a mapping."""
    try:
        node = _reader().compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        what = " ".join(part for part in (error.problem, error.context) if part)
        raise SpecError.single(place, "", f"not valid YAML: {what}", _SYNTAX_FIX) from None
    except YAMLError as error:
        raise SpecError.single(name, "", f"not valid YAML: {_reason(error)}", _SYNTAX_FIX) from None
    if node is None or (isinstance(node, ScalarNode) and node.tag == _NULL):
        raise SpecError.single(name, "", "the file is empty", "start it with 'schema: 1'")
    if not isinstance(node, MappingNode):
        raise SpecError.single(f"{name}:1", "", "the file is not a mapping", "write 'key: value' lines")
    problems = Collector()
    lines: dict[KeyPath, int] = {(): 1}
    data = _plain(node, (), name, lines, problems)
    problems.raise_if_any()
    return Document(name, data, lines)


def parse_value(text: str) -> Any:
    """Return an option's text as YAML reads it: a number, a flag, a list, or the text itself.

    Examples
    --------
    >>> parse_value("16"), parse_value("true"), parse_value("[layernorm, moe_act]"), parse_value("4 TB/s")
    (16, True, ['layernorm', 'moe_act'], '4 TB/s')
    """
    try:
        node = _reader().compose(text)
    except YAMLError:
        return text
    if node is None or isinstance(node, MappingNode):
        return text
    return _plain(node, (), "", {}, Collector())


class _Resolver(VersionedResolver):
    """Rules of plain values; those of the version are looked up once for a text, not for every value."""

    @cached_property
    def versioned_resolver(self) -> Any:
        """Rules by the first character of a value."""
        return super().versioned_resolver


def _reader() -> YAML:
    """A reader of one text."""
    yaml = YAML(typ="safe")
    yaml.Resolver = _Resolver
    return yaml


_NULL = "tag:yaml.org,2002:null"
_SYNTAX_FIX = "check brackets, quotes, colons and indentation up to there"


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _plain(node: Node, path: KeyPath, name: str, lines: dict[KeyPath, int], problems: Collector) -> Any:
    """Return a node as plain data; note lines, duplicate keys and keys that are not text."""
    if isinstance(node, MappingNode):
        result: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                problems.add(f"{name}:{line}", dotted(path), "a key must be a word", "quote it")
                continue
            key = str(key_node.value)
            if key in result:
                problems.add(f"{name}:{line}", dotted((*path, key)), "the key stands twice", "keep one")
            lines[(*path, key)] = line
            result[key] = _plain(value_node, (*path, key), name, lines, problems)
        return result
    if isinstance(node, SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            lines[(*path, index)] = item.start_mark.line + 1
            items.append(_plain(item, (*path, index), name, lines, problems))
        return items
    return _scalar(node)


def _scalar(node: Node) -> Any:
    text = str(node.value)
    match str(node.tag).rsplit(":", 1)[-1]:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _whole_number(text)
        case "float":
            return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan").replace(".NaN", "nan"))
    return text


def _whole_number(text: str) -> int | str:
    try:
        return int(text.replace("_", ""), 10) if text[:2].lower() not in ("0x", "0o", "0b") else int(text, 0)
    except ValueError:  # forms of YAML 1.1 that nobody means, such as 12:30
        return text


def dotted(path: Sequence[str | int]) -> str:
    """Return a path as messages show it.

    Examples
    --------
    >>> dotted(("rules", 2, "when"))
    'rules[2].when'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")
