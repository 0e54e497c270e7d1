"""Whether a job fits, as people read it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.words import changes_in_words
from moesim.report.estimate import gibibytes, memory_table, seconds
from moesim.studies.fit import MOST_CHANGES, Fit

LISTED = 12
"""Remedies that are listed."""


def fit_table(found: Fit) -> RenderableType:
    """The verdict, the tightest rank, memory by rank, and what would help."""
    answer, tightest = found.answer, found.tightest
    verdict = "fits" if found.fits else "DOES NOT FIT"
    left = tightest["headroom_bytes"]
    room = f"{gibibytes(left)} GiB left" if left >= 0 else f"{gibibytes(-left)} GiB too much"
    lines = [
        f"peak of a GPU: {gibibytes(answer.memory.peak_bytes)} of {gibibytes(answer.memory.capacity_bytes)} GiB, {room}",
        f"tightest: pipeline rank {tightest['stage']} in {tightest['phase']}; the most are {tightest['class']}, "
        f"{gibibytes(tightest['class_bytes'])} GiB",
        _host(found),
    ]
    style = "bold green" if found.fits else "bold red"
    parts: list[RenderableType] = [Text(f"{answer.name}: {verdict}", style=style), Text("\n".join(filter(None, lines)))]
    parts.append(memory_table(answer))
    if not found.fits:
        parts.append(_remedies(found))
    return Group(*parts)


def _host(found: Fit) -> str:
    need = found.answer.memory.host_bytes_per_node
    if not need:
        return ""
    told = f"host memory of a node: {gibibytes(need)} GiB, pinned"
    if found.host_memory_bytes is None:
        return f"{told} (--host-memory says whether that fits)"
    return f"{told}, of {gibibytes(found.host_memory_bytes)}{'' if found.fits_host else ': TOO MUCH'}"


def _remedies(found: Fit) -> RenderableType:
    if not found.remedies:
        return Text(
            f"no {MOST_CHANGES} changes make it fit ({found.tried:,} sets tried): moesim search, moesim min-gpus"
        )
    table = Table(title="the fewest changes with which it fits, the fastest first", title_justify="left")
    for name in ("change", "GiB", "host GiB", "step", "time a token"):
        table.add_column(name, justify="left" if name == "change" else "right", overflow="fold")
    for one in found.remedies[:LISTED]:
        memory = one.answer.memory
        table.add_row(
            Text(changes_in_words(one.changes, " ")),
            gibibytes(memory.peak_bytes),
            gibibytes(memory.host_bytes_per_node) if memory.host_bytes_per_node else "",
            seconds(one.answer.step_time_s),
            f"{one.slowdown:.3f}x",
        )
    return table
