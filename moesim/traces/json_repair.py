"""Single JSON objects that are not quite JSON: what profilers write into names and log lines without escaping it.

Each repair is tried only after the object could not be read, one after the other, until it can.

References
----------
Defects reported for Kineto files: HolisticTraceAnalysis issues and pull requests 226, 324, 325; kineto issue 109
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

UTF8 = "invalid UTF-8 replaced"
CONTROL = "control characters in a string"
BARE = "bare words (N/A, inf, nan) read as null"
COMMA = "trailing comma"
BACKSLASH = "unescaped backslash"
QUOTE = "unescaped quote"
NUMBER = "number of another type or beyond its range"

_WORDS = re.compile(r"([:\[,]\s*)(?:N/A|n/a|[-+]?(?:[iI]nf(?:inity)?|INF|[nN]a[nN])|None|undefined)(?=\s*[,}\]])")
_COMMA = re.compile(r",(\s*[}\]])")
_BACKSLASH = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_CLOSES = re.compile(r'\s*(?::|,\s*(?:["\[{\d-]|true|false|null)|\}|\]|$)')


def repaired_object(raw: bytes) -> tuple[dict[str, Any], list[str]] | None:
    """Read one object; the repairs that it took, or None where none helps.

    Examples
    --------
    >>> repaired_object(b'{"name": "a "b" c", "args": {"rank": N/A,}}')
    ({'name': 'a "b" c', 'args': {'rank': None}}, ['bare words (N/A, inf, nan) read as null', ...])
    """
    done: list[str] = []
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", errors="replace")
        done.append(UTF8)
    found = _loaded(text)
    for name, repair in REPAIRS:
        if found is not None:
            break
        changed = repair(text)
        if changed != text:
            text = changed
            done.append(name)
            found = _loaded(text)
    if found is None:
        return None
    if _loaded(text, strict=True) is None:
        done.append(CONTROL)
    return found, done or [NUMBER]


def _loaded(text: str, *, strict: bool = False) -> dict[str, Any] | None:
    """Object in a text; without `strict`, strings may hold control characters."""
    try:
        found = json.loads(text, parse_float=str, parse_constant=str, strict=strict)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _quotes_escaped(text: str) -> str:
    """Escape quotes inside strings: one that closes a string stands before a colon, a comma with a value, or an end."""
    parts: list[str] = []
    inside, start, place = False, 0, 0
    while (place := text.find('"', place)) >= 0:
        backslashes = 0
        while place - backslashes > 0 and text[place - backslashes - 1] == "\\":
            backslashes += 1
        if not inside:
            inside = True
        elif backslashes % 2 == 0:
            if _CLOSES.match(text, place + 1):
                inside = False
            else:
                parts.append(text[start:place] + "\\")
                start = place
        place += 1
    return "".join(parts) + text[start:]


REPAIRS: Sequence[tuple[str, Callable[[str], str]]] = (
    (BARE, lambda text: _WORDS.sub(r"\1null", text)),
    (COMMA, lambda text: _COMMA.sub(r"\1", text)),
    (BACKSLASH, lambda text: _BACKSLASH.sub(r"\\\\", text)),
    (QUOTE, _quotes_escaped),
)
