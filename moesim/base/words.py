"""Values and changes as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def word(value: Any) -> str:
    """A value of a field as a cell of a table.

    Examples
    --------
    >>> word(("layernorm", "moe_act")), word([]), word(8)
    ('layernorm,moe_act', 'none', '8')
    """
    return ",".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


def counted(number: int, noun: str) -> str:
    """A number of things.

    Examples
    --------
    >>> counted(1, "plan"), counted(0, "plan"), counted(2000, "plan")
    ('1 plan', '0 plans', '2,000 plans')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def changes_in_words(changes: Mapping[str, Any], joint: str = ", ") -> str:
    """Changes as ``--set`` takes them; empty where nothing is changed.

    Examples
    --------
    >>> changes_in_words({"ep": "16", "recompute": ["full"]})
    'ep=16, recompute=full'
    """
    return joint.join(f"{path}={word(value)}" for path, value in changes.items())
