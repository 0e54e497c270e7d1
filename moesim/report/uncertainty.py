"""What is not known of a step: percentiles, what is to blame, a histogram, the draws as rows."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.estimate import seconds
from moesim.report.figures import Picture, blank
from moesim.report.frames import write_frame
from moesim.report.palette import BLUES, ORANGES, TERM_COLOURS
from moesim.studies.uncertainty import Uncertainty

LEAST = 0.0005
"""Share of the variance below which an input is not listed."""

CHANCE = 0.01
"""What shares may add up to beyond one before that is told. [-]"""


def uncertainty_table(found: Uncertainty, top: int = 12) -> RenderableType:
    """Percentiles beside the analytic interval, then the inputs by their share of the variance."""
    answer, ends = found.answer, found.percentiles_s
    head = Table.grid(padding=(0, 2))
    head.add_row("estimate", Text(seconds(answer.step_time_s), style="bold"))
    head.add_row("sampled", f"P5 {seconds(ends['p5'])}, P50 {seconds(ends['p50'])}, P95 {seconds(ends['p95'])}")
    head.add_row("analytic", f"90 % interval {seconds(answer.low_s)} to {seconds(answer.high_s)}")
    head.add_row("agreement", agreement(found))
    head.title, head.title_justify = Text(f"{answer.name}: {len(found.steps):,} samples", style="bold"), "left"
    table = Table(title="what makes the variance of the logarithm of the step", title_justify="left")
    for name in ("", "share", "analytic", "standard error", "follows from"):
        table.add_column(name, justify="left" if name in ("", "follows from") else "right", overflow="fold")
    for one in [one for one in found.inputs if one.share >= LEAST][:top]:
        spread = "by kernel or message" if one.spread is None else f"{one.spread:.1%}"
        table.add_row(Text(one.name), f"{one.share:.1%}", f"{one.analytic_share:.1%}", spread, one.follows)
    table.add_row("several at once", f"{found.unexplained:.1%}", "", "", "maxima and products of what is not known")
    few = []
    if found.added_up >= 1 + CHANCE:
        told = f"the shares of {len(found.steps):,} samples added up to {found.added_up:.0%} and are scaled to 100 %"
        few.append(Text(f"{told}: draw more to tell them apart from chance"))
    told = f"holds {answer.interval.holds}; not {answer.interval.lacks}"
    return Group(head, table, *few, Text(told, style="dim"))


def agreement(found: Uncertainty) -> str:
    """How the sampled ends stand to the analytic ones, and why they may differ."""
    low, high = (f"{ratio - 1:+.1%}" for ratio in (found.ratios["low"], found.ratios["high"]))
    middle = found.percentiles_s["p50"] / found.answer.step_time_s - 1
    told = f"low end {low}, high end {high} beside the analytic ones"
    if found.agrees:
        return f"yes: {told}"
    why = (
        "where two things run beside each other the step takes the longer one, so that errors either way make it longer"
        if middle > 0
        else "large errors do not move the step as small ones do"
    )
    return f"no: {told}; the median is {middle:+.1%} of the estimate: {why}"


def histogram(found: Uncertainty) -> Picture:
    """The samples with the percentiles and the analytic interval."""
    answer, figure = found.answer, blank(7.5, 3.6)
    axes = figure.subplots()
    axes.hist(found.steps, bins=60, color=BLUES[0])
    axes.axvspan(answer.low_s, answer.high_s, color=ORANGES[0], alpha=0.15, label="analytic 90 % interval")
    axes.axvline(answer.step_time_s, color="black", label="estimate")
    for name, value in found.percentiles_s.items():
        axes.axvline(value, color=TERM_COLOURS["optimizer"], linestyle="--", linewidth=1)
        axes.annotate(name.upper(), (value, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom")
    axes.set_xlabel("step time [s]")
    axes.set_ylabel(f"of {len(found.steps):,} samples")
    axes.set_title(answer.name, loc="left", pad=18)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return Picture(figure)


def write_samples(path: Path, found: Uncertainty) -> None:
    """Write a row for each sample: its step, and its draws in standard errors."""
    write_frame(path, {"step_time_s": found.steps} | dict(found.draws))
