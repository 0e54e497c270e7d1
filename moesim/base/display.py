"""Late binding of data to its pictures, so that results carry data only and start-up stays fast."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PAGES: dict[str, str] = {}


def bind(type_name: str, module: str) -> None:
    """Say which module shows values of a type; it has a function ``html(value)``."""
    _PAGES[type_name] = module


def html(value: Any) -> str | None:
    """HTML of a value, or None where nothing shows its type."""
    module = _PAGES.get(type(value).__name__)
    return None if module is None else str(import_module(module).html(value))
