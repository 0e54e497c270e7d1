"""A comparison as a table: a row a term, a column a case."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.estimate import NAMES, gibibytes, seconds
from moesim.studies.compare import Comparison


def comparison_table(found: Comparison) -> RenderableType:
    """Seconds of the first case, and what the others add or save."""
    base = found.base
    table = Table(title="terms of the step: the first case, then what each other one adds", title_justify="left")
    table.add_column("")
    columns = [case for case in found.cases if case.answer is not None]
    for case in columns:
        table.add_column(Text(case.name.replace(", ", "\n")), justify="right", overflow="fold")
    others = [case.answer for case in columns if case.answer is not None]
    deltas = [found.deltas_s(answer) for answer in others]
    for name in dict.fromkeys(name for delta in deltas for name in delta):
        value, changes = base.breakdown_s.get(name, 0.0), [delta.get(name, 0.0) for delta in deltas]
        if value or any(changes):
            table.add_row(NAMES[name], seconds(value), *map(change, changes[1:]))
    table.add_section()
    steps = [answer.step_time_s for answer in others]
    table.add_row("step", seconds(steps[0]), *(change(step - steps[0]) for step in steps[1:]), style="bold")
    table.add_row("step", *map(seconds, steps))
    table.add_row("speed-up", "", *(f"{steps[0] / step:.3f}x" for step in steps[1:]))
    table.add_row("tokens/s per GPU", *(f"{answer.tokens_per_s_per_gpu:,.0f}" for answer in others))
    table.add_row("MFU", *(f"{answer.mfu:.1%}" for answer in others))
    fits = ("" if answer.feasible else " DOES NOT FIT" for answer in others)
    memory = (gibibytes(answer.memory.peak_bytes) + told for answer, told in zip(others, fits, strict=True))
    table.add_row("peak memory, GiB", *memory)
    table.add_row("binding", *(answer.binding["resource"] for answer in others))
    refused = (Text(f"refused {case.name}: {line}", style="red") for case in found.cases for line in case.refused)
    return Group(table, *refused)


def change(value: float) -> str:
    """Difference of a time with its sign."""
    return "0" if abs(value) < 1e-9 else ("+" if value > 0 else "-") + seconds(abs(value))
