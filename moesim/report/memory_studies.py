"""What recomputation frees, and how long a sequence may be, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.words import changes_in_words
from moesim.report.compare import change
from moesim.report.estimate import gibibytes, seconds
from moesim.studies.longest import Longest
from moesim.studies.recomputing import Ranking


def ranking_table(found: Ranking) -> RenderableType:
    """Modules in the order of what they free for their time."""
    base = found.base
    kept = ", ".join(base.strategy["recompute"]) or "none"
    title = f"recomputed now: {kept}; step {seconds(base.step_time_s)}, peak {gibibytes(base.memory.peak_bytes)} GiB"
    table = Table(title=title, title_justify="left")
    for column in ("module", "frees, GiB", "step", "step, %", "GiB per % of the step"):
        table.add_column(column, justify="left" if column == "module" else "right")
    for one in (module for module in found.modules if not module.refused):
        share = one.added_s / base.step_time_s
        worth = f"{one.freed_bytes / 2**30 / (100 * share):.2f}" if share > 1e-6 and one.freed_bytes > 0 else "-"
        table.add_row(one.name, f"{one.freed_bytes / 2**30:.2f}", change(one.added_s), f"{share:+.2%}", worth)
    lines = [Text(f"refused {one.name}: {'; '.join(one.refused)}", "red") for one in found.modules if one.refused]
    if found.target_bytes is not None:
        wanted = f"{found.target_bytes / 2**30:.2f} GiB"
        if found.chosen is None or found.chosen_estimate is None:
            lines.append(Text(f"to free {wanted}: no set of modules frees that much", "red"))
        else:
            after = found.chosen_estimate
            told = f"step {change(after.step_time_s - base.step_time_s)}, peak {gibibytes(after.memory.peak_bytes)} GiB"
            lines.append(Text(f"to free {wanted}: add {', '.join(found.chosen) or 'nothing'}; {told}"))
    return Group(table, *lines)


def longest_table(found: Sequence[Longest]) -> RenderableType:
    """A row a variant."""
    table = Table(title="longest sequence that fits, the global batch in sequences as it is", title_justify="left")
    for column in ("variant", "tokens", "step", "tokens/s per GPU", "slowdown per token", "GiB", "what stops the next"):
        table.add_column(column, justify="left" if column in ("variant", "what stops the next") else "right")
    for one in found:
        name = changes_in_words(one.changes) or "as it stands"
        if one.answer is None:
            table.add_row(name, "none", "", "", "", "", one.next_refused)
            continue
        table.add_row(
            name,
            f"{one.sequence_length:,}",
            seconds(one.answer.step_time_s),
            f"{one.answer.tokens_per_s_per_gpu:,.0f}",
            f"{one.slowdown:.2f}x",
            gibibytes(one.answer.memory.peak_bytes),
            one.next_refused,
        )
    return table
