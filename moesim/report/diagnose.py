"""A measured step beside its estimate, as people read it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.report.estimate import NAMES, seconds
from moesim.studies.diagnose import Diagnosis
from moesim.studies.trace_match import TraceMatch

STYLES = {"normal": "bold green", "slow": "bold red", "fast": "bold yellow"}
LISTED = 8
"""Suspects that are listed."""


def diagnosis_table(found: Diagnosis) -> RenderableType:
    """The verdict, what is missing, terms, gaps that are priced, terms by their errors, conventions, references."""
    answer = found.estimate
    where = "inside" if found.inside else "outside"
    error = answer.step_time_s / found.measured_s - 1
    head = Text(
        f"{answer.name}: measured {seconds(found.measured_s)}, predicted {seconds(answer.step_time_s)} ({error:+.1%}), "
        f"{where} of the 90 % interval {seconds(answer.low_s)} to {seconds(answer.high_s)}"
    )
    parts: list[RenderableType] = [head, Text(_verdict(found), style=STYLES[found.verdict])]
    if found.top:
        parts.append(_gaps(found))
    parts += [_suspects(found), _terms(found), _conventions(found)]
    if found.references:
        parts.append(_references(found))
    return Group(*parts)


def trace_line(found: TraceMatch) -> Text:
    """What a trace names as missing."""
    name = found.missing
    told = "nothing more than the estimate" if name is None else f"most more in {NAMES.get(name, name)}"
    return Text(f"the traced step spends {told}", style="bold")


def _verdict(found: Diagnosis) -> str:
    if found.inside:
        return "verdict: normal; the interval holds it, and no term has to be off"
    told = "nothing alone makes the measured step: several things at once, or something that is not modelled"
    return f"verdict: {found.verdict}; missing: {found.missing or told}"


def _gaps(found: Diagnosis) -> Table:
    table = Table(title="what the run may do otherwise, priced: the nearest to the measured step", title_justify="left")
    for name in ("if", "step", "of the gap", "what to check"):
        table.add_column(name, justify="right" if name in ("step", "of the gap") else "left", overflow="fold")
    for one in found.top:
        table.add_row(one.name, seconds(one.step_time_s), f"{one.explains:.0%}", one.look)
    return table


def _suspects(found: Diagnosis) -> RenderableType:
    table = Table(title="what explains the gap alone, the likeliest first", title_justify="left")
    for name in ("term", "times its price or constant", "standard errors", "likely", "where to look"):
        table.add_column(name)
    for one in found.suspects[:LISTED]:
        factor = "no factor does" if one.factor is None else f"x {one.factor:.2f}"
        table.add_row(one.name, factor, f"{one.errors:.1f}", "yes" if one.likely else "", one.look)
    if any(one.likely for one in found.suspects):
        return table
    told = "No term explains the gap alone within its error: several are off, or the run does what is not modelled."
    return Group(table, Text(told))


def _terms(found: Diagnosis) -> RenderableType:
    table = Table(title="terms of the predicted step: a healthy run shows these", title_justify="left")
    for name in ("term", "predicted", "share", "if it had all of the gap"):
        table.add_column(name, justify="left" if name == "term" else "right")
    for one in found.terms:
        needed = "" if one.needed is None else f"x {one.needed:.2f}"
        table.add_row(NAMES[one.name], seconds(one.predicted_s), f"{one.share:.1%}", needed)
    return table


def _conventions(found: Diagnosis) -> Table:
    table = Table(title="model FLOPs in every convention, of the dense BF16 peak", title_justify="left")
    for name in ("convention", "TFLOP/s predicted", "MFU", "TFLOP/s measured", "MFU", "counts"):
        table.add_column(name, justify="left" if name in ("convention", "counts") else "right", overflow="fold")
    for one in found.utilisations:
        rates = [(one.predicted_flop_rate, one.predicted_mfu), (one.measured_flop_rate, one.measured_mfu)]
        cells = [text for rate, share in rates for text in (f"{rate / 1e12:,.1f}", f"{share:.1%}")]
        table.add_row(one.convention, *cells, one.counts)
    return table


def _references(found: Diagnosis) -> Table:
    own = found.estimate.tokens_per_s_per_gpu
    title = (
        f"published runs of the model; this one: predicted {own:,.0f}, measured "
        f"{own * found.estimate.step_time_s / found.measured_s:,.0f} tokens/s per GPU"
    )
    table = Table(title=title, title_justify="left")
    for name in (
        "run",
        "GPUs",
        "sequence",
        "batch",
        "precision",
        "layout",
        "tokens/s per GPU",
        "estimate of it",
        "source",
    ):
        table.add_column(name, overflow="fold")
    for one in found.references:
        other = one.predicted_tokens_per_s_per_gpu
        table.add_row(
            one.run_id,
            f"{one.num_gpus:,} {one.gpu}",
            f"{one.sequence_length:,}",
            f"{one.global_batch:,}",
            one.precision,
            one.layout,
            f"{one.tokens_per_s_per_gpu:,.0f}",
            "" if other is None else f"{other:,.0f} ({other / one.tokens_per_s_per_gpu - 1:+.0%})",
            one.source.partition(" | ")[0],
        )
    return table
