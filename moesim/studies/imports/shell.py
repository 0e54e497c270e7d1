"""Arguments of a launch script: its options, with the variables that the script itself sets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from moesim.studies.imports.settings import Setting

ASSIGNMENT = re.compile(r"^\s*(?:export\s+|local\s+|readonly\s+)?([A-Za-z_]\w*)=(.*)$")
PREFIXED = re.compile(r"([A-Za-z_]\w*)=(\S+)\s+(?=\S)")
VARIABLE = re.compile(r"\$\{(\w+)(?::?[-=]([^{}]*))?\}|\$(\w+)")
ARITHMETIC = re.compile(r"\$\(\(([^()]*)\)\)")
CONDITIONS = re.compile(r"^\s*(if|elif|else|fi|for|while|done|case|esac|function)\b")


def arguments(text: str, defined: Mapping[str, str]) -> tuple[list[Setting], dict[str, str], list[int]]:
    """The options of a shell script in the order of their lines, its variables, and the lines at which it branches.

    Parameters
    ----------
    text
        The script. Arrays, continued lines, ``export``, ``${NAME:-default}`` and ``$((...))`` are understood; what runs
        under a condition counts as if it held.
    defined
        Variables given from outside; they win over those of the script.
    """
    variables = dict(defined)
    found: list[Setting] = []
    branches: list[int] = []
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw).rstrip()
        start = start if pending else number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        line, pending = pending + line, ""
        if CONDITIONS.match(line):
            if " --" not in line and line.split()[0] in ("if", "elif", "case"):
                branches.append(start)
            continue
        _read(line, start, variables, defined, found)
    if pending:
        _read(pending, start, variables, defined, found)
    return found, variables, branches


def _read(line: str, number: int, variables: dict[str, str], defined: Mapping[str, str], found: list[Setting]) -> None:
    assigned = ASSIGNMENT.match(line)
    if assigned and not assigned[2].startswith("(") and " --" not in assigned[2].split('"')[0]:
        words = PREFIXED.findall(line + " ") if not line.lstrip().startswith("export") else []
        if len(words) > 1:  # NAME=value NAME=value command
            for name, value in words:
                _assign(name, value, variables, defined)
        else:
            _assign(assigned[1], assigned[2], variables, defined)
    words_of = _words(expand(line, variables))
    found.extend(options(words_of, number))


def _assign(name: str, value: str, variables: dict[str, str], defined: Mapping[str, str]) -> None:
    if name not in defined:
        parts = _words(expand(value, variables))
        variables[name] = parts[0] if len(parts) == 1 else expand(value, variables).strip("\"' ")


def options(words: list[str], line: int | None) -> list[Setting]:
    """Options among words, each with the words behind it up to the next one; without any it is a switch."""
    found: list[Setting] = []
    name, values = "", list[str]()

    def close() -> None:
        if name:
            found.append(Setting(name, True if not values else values[0] if len(values) == 1 else list(values), line))

    for word in words:
        if word.startswith("--") and len(word) > 2:
            close()
            name, equals, value = word.partition("=")
            values = [value] if equals else []
        elif name and word not in (")", "(", "\\") and not word.startswith(("|", ">", "&", ";")):
            values.append(word.rstrip(")"))
        else:
            close()
            name, values = "", []
    close()
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Put in the variables that are known, and work out arithmetic."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        if variables.get(name):
            return variables[name]
        return match[2].strip("\"'") if match[2] is not None else match[0]

    for _ in range(8):  # defaults hold variables in turn
        expanded = VARIABLE.sub(value, text)
        if expanded == text:
            break
        text = expanded
    return ARITHMETIC.sub(lambda match: _sum(match[1], variables), text)


def _sum(expression: str, variables: Mapping[str, str]) -> str:
    """A product or quotient of whole numbers; as it stands where it is anything else."""
    filled = re.sub(r"[A-Za-z_]\w*", lambda match: variables.get(match[0], match[0]), expression)
    parts = re.split(r"([*/])", filled.replace(" ", ""))
    if not all(part.isdigit() for part in parts[::2]):
        return f"$(({expression}))"
    total = int(parts[0])
    for sign, part in zip(parts[1::2], parts[2::2], strict=True):
        total = total * int(part) if sign == "*" else total // max(int(part), 1)
    return str(total)


def _words(line: str) -> list[str]:
    try:
        return [word for part in shlex.split(line) for word in (part.split() if " --" in part else [part])]
    except ValueError:  # a quote that another line closes
        return line.replace('"', " ").replace("'", " ").split()


def _without_comment(line: str) -> str:
    return re.sub(r"(^|\s)#.*$", "", line)
