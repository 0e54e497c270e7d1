"""Pages and fragments of pages from templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Column:
    """A column of a table; numbers stand to the right."""

    name: str
    number: bool = True


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    cells: Sequence[str]
    strong: bool = False


def page(template: str, **data: Any) -> str:
    """Fill in a template; what it is given is text, not markup.

    Examples
    --------
    >>> "&lt;b&gt;" in fragment("table", title="<b>", columns=[Column("a", number=False)], rows=[Row(["1"])], notes=[])
    True
    """
    return _environment().get_template(f"{template}.html.j2").render(**data)


def fragment(template: str, **data: Any) -> str:
    """Fill in a template of a part, with the style that it needs around it."""
    return page("fragment", part=f"{template}.html.j2", **data)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("moesim.report", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
