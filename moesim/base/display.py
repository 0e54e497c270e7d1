"""Late binding of data to its pictures, so that results carry data only and start-up stays fast."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PAGES: dict[str, str] = {}


def bind(type_name: str, module: str) -> None:
    """Say which module shows values of a type: it has ``html(value)`` and ``renderable(value)``."""
    _PAGES[type_name] = module


def html(value: Any) -> str | None:
    """HTML of a value, or None where nothing shows its type."""
    module = _PAGES.get(type(value).__name__)
    return None if module is None else str(import_module(module).html(value))


class Shown:
    """A value that notebooks and ``rich.print`` show by what its type is bound to.

    Examples
    --------
    >>> class Unbound(Shown):
    ...     pass
    >>> Unbound()._repr_html_() is None
    True
    """

    def _repr_html_(self) -> str | None:
        return html(self)

    def __rich__(self) -> Any:
        module = _PAGES.get(type(self).__name__)
        return repr(self) if module is None else import_module(module).renderable(self)
