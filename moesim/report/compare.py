"""A comparison as a table: a row a term, a column a case."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.estimate import NAMES, gibibytes, seconds
from moesim.studies.compare import Comparison


def comparison_table(found: Comparison) -> RenderableType:
    """Seconds of the first case, and what the others add or save."""
    base = found.base
    columns = [case for case in found.cases if case.answer is not None]
    varied, names = headings([case.name for case in columns])
    title = "terms of the step: the first case, then what each other one adds" + (f" by {varied}" if varied else "")
    table = Table(title=title, title_justify="left")
    add_cases(table, names)
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
    table.add_row("outside products", *(f"{case.share_outside_products:.1%}" for case in columns))
    table.add_row("peak memory, GiB", *memory)
    table.add_row("binding", *(answer.binding["resource"] for answer in others))
    if columns[0].price is not None:
        table.add_row("tokens per currency", *(f"{case.tokens_per_dollar:,.0f}" for case in columns))
    for name in columns[0].layout:
        told = (case.layout[name] for case in columns)
        table.add_row(name, *(", ".join(one) or "none" if isinstance(one, list | tuple) else str(one) for one in told))
    refused = (Text(f"refused {case.name}: {line}", style="red") for case in found.cases for line in case.refused)
    warned = (Text(f"note: {line}", style="yellow") for line in found.warnings)
    return Group(table, *refused, *warned)


def add_cases(table: Table, names: Sequence[str]) -> None:
    """Columns of a term and of each case, a change a line."""
    table.add_column("")
    for name in names:
        table.add_column(Text(name.replace(", ", "\n")), justify="right", overflow="fold")


def headings(names: Sequence[str]) -> tuple[str, list[str]]:
    """What all columns but the first vary, where it is one thing, and their names without it.

    Examples
    --------
    >>> headings(["mine", "cluster.fabric=rail", "cluster.fabric=fat-tree:2"])
    ('cluster.fabric', ['mine', 'rail', 'fat-tree:2'])
    """
    first, *others = names
    paths = {name.partition("=")[0] for name in others}
    if len(paths) != 1 or any("=" not in name or " " in name for name in others):
        return "", list(names)
    path = paths.pop()
    return path, [first.removeprefix(f"{path}="), *(name.partition("=")[2] for name in others)]


def change(value: float) -> str:
    """Difference of a time with its sign."""
    return "0" if abs(value) < 1e-9 else ("+" if value > 0 else "-") + seconds(abs(value))
