"""One estimate, or several beside each other, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.units import format_quantity
from moesim.base.words import changes_in_words
from moesim.result import Estimate

NAMES = {
    "gemm": "dense GEMM",
    "grouped_gemm": "expert (grouped) GEMM",
    "attention": "attention core",
    "memory_bound": "memory-bound kernels",
    "ep": "expert exchange (EP)",
    "tp": "tensor parallel (TP)",
    "cp": "context parallel (CP)",
    "pp": "pipeline transfers (PP)",
    "dp": "data parallel (DP)",
    "optimizer": "optimizer",
    "host": "host (launches, syncs)",
    "bubble": "pipeline bubble",
    "other": "other",
    "pcie": "copies to and from the host (PCIe)",
}


def seconds(value: float) -> str:
    """Time as people read it."""
    return format_quantity(value, "time") if value else "0"


def gibibytes(value: float) -> str:
    """Memory in GiB, two decimals, so that columns line up."""
    return f"{value / 2**30:.2f}"


def summary(estimate: Estimate) -> RenderableType:
    """The whole answer: headline, where the time goes, memory by stage, what it rests on."""
    return Group(_headline(estimate), _breakdown(estimate), memory_table(estimate), _footnotes(estimate))


def interval_line(estimate: Estimate) -> str:
    """Ends of the interval and what contributes most to it."""
    found = estimate.interval
    most = ", ".join(f"{one.name} {one.share:.0%}" for one in found.contributions[:3])
    ends = f"{seconds(found.low_s)} to {seconds(found.high_s)}"
    return f"{ends}   mostly {most} of the variance" if most else ends


def marks(estimate: Estimate) -> list[str]:
    """Lines on prices that no measurements stand behind."""
    found = estimate.interval
    lines = []
    if found.uncalibrated:
        lines.append(f"not measured on this machine: {', '.join(found.uncalibrated)}")
    if found.outside:
        names = dict.fromkeys(one.operation for one in found.outside)
        few = ", ".join(list(names)[:4]) + (", ..." if len(names) > 4 else "")
        lines.append(f"outside of what was measured: {few} (moesim explain lists why)")
    return lines


LIMITED = 0.995
"""Clock below which an answer says that power limits it."""


def power_line(estimate: Estimate) -> str | None:
    """What the power limit does to the clock; None where nothing to speak of."""
    clock = estimate.sustained_clock
    if clock is None or clock >= LIMITED:
        return None
    return f"power-limited: clock {clock:.2f} of the one that kernels are measured at"


def _headline(estimate: Estimate) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("step time", Text(seconds(estimate.step_time_s), style="bold"))
    table.add_row("90 % interval", interval_line(estimate))
    if estimate.measured:
        error = estimate.measured["error"]
        table.add_row("measured", f"{seconds(estimate.measured['step_time_s'])}   predicted {error:+.1%}")
    table.add_row("throughput", f"{estimate.tokens_per_s_per_gpu:,.0f} tokens/s per GPU")
    rate = f"{estimate.tflop_per_s_per_gpu:,.1f} TFLOP/s per GPU, MFU {estimate.mfu:.1%} of the dense BF16 peak"
    table.add_row("model FLOPs", f"{rate} ({estimate.flops_convention} attention, no recomputation)")
    table.add_row(
        "binding", f"{estimate.binding['resource']}: {estimate.binding['share']:.0%} of the step scales with it"
    )
    if (line := power_line(estimate)) is not None:
        table.add_row("power", line)
    if estimate.routing and estimate.routing["hottest_rank_load"] != 1:
        load, dropped = estimate.routing["hottest_rank_load"], estimate.routing["dropped_share"]
        lost = f", {dropped:.1%} of all rows dropped" if dropped else ""
        table.add_row("routing", f"the hottest rank works on {load:.2f} times the mean of rows{lost}")
    fits = f"{gibibytes(estimate.memory.peak_bytes)} of {gibibytes(estimate.memory.capacity_bytes)} GiB"
    if estimate.feasible:
        table.add_row(
            "memory", f"fits: {fits} on pipeline rank {estimate.memory.peak_stage}, {estimate.memory.peak_phase}"
        )
    for violation in estimate.violations:
        table.add_row("memory", Text(f"DOES NOT FIT: {violation.message}", style="bold red"))
    if estimate.memory.host_bytes_per_node:
        table.add_row("host memory", f"{gibibytes(estimate.memory.host_bytes_per_node)} GiB of a node, pinned")
    table.title = Text(estimate.name, style="bold")
    table.title_justify = "left"
    return table


def _breakdown(estimate: Estimate) -> RenderableType:
    table = Table(
        title=f"where the step goes, on pipeline rank {estimate.walked_stage}, which finishes last",
        title_justify="left",
    )
    table.add_column("part")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("exposed", justify="right")
    for name, value in estimate.breakdown_s.items():
        exposed = estimate.exposed_s.get(name, 0.0)
        if value or exposed:
            shown = seconds(exposed) if name in estimate.exposed_s else ""
            table.add_row(NAMES[name], seconds(value), f"{value / estimate.step_time_s:.1%}", shown)
    table.add_row("step", seconds(estimate.step_time_s), "100.0%", "", style="bold")
    busiest = max(range(len(estimate.busy_s)), key=lambda rank: estimate.busy_s[rank])
    least = min(range(len(estimate.busy_s)), key=lambda rank: estimate.busy_s[rank])
    shares = [f"{estimate.busy_s[rank] / estimate.step_time_s:.0%}" for rank in (busiest, least)]
    spread = (
        f" Rank {busiest} computes {shares[0]} of it, rank {least} {shares[1]}." if len(estimate.busy_s) > 1 else ""
    )
    note = f"exposed: what the step would lose without it. Idle over all ranks: {estimate.bubble_fraction:.1%} of the step."
    return Group(table, Text(note + spread, style="dim"))


def memory_table(estimate: Estimate) -> Table:
    """Memory by class, a row a pipeline rank."""
    stages = estimate.memory.stages
    names = [name for name in stages[0] if any(stage[name] for stage in stages)]
    table = Table(title="memory of each pipeline rank, GiB", title_justify="left")
    table.add_column("rank", justify="right")
    for name in names:
        table.add_column(name.removesuffix("_bytes"), justify="right")
    for index, stage in enumerate(stages):
        style = "bold" if index == estimate.memory.peak_stage else ""
        table.add_row(str(index), *(gibibytes(stage[name]) for name in names), style=style)
    return table


def _footnotes(estimate: Estimate) -> Text:
    strongest = ", ".join(f"{c.setting or c.path} {c.elasticity:+.2f} ({c.kind})" for c in estimate.constants[:4])
    lines = [f"layers placed by: {estimate.layout}", f"evidence: {estimate.evidence}; strongest constants: {strongest}"]
    lines += marks(estimate)
    lines.append(f"the interval holds {estimate.interval.holds}; not {estimate.interval.lacks}")
    if estimate.assumed:
        lines.append("assumed: " + ", ".join(estimate.assumed))
    return Text("\n".join(lines), style="dim")


def variants(rows: Sequence[tuple[Mapping[str, str], Estimate | str]]) -> RenderableType:
    """Several estimates below each other, a column per varied path; what was refused follows with its reason."""
    table = Table()
    paths = list(rows[0][0])
    for path in paths:
        table.add_column(path.removeprefix("strategy."), no_wrap=True)
    for name in ("step", "tokens/s", "TFLOP/s", "MFU", "idle", "EP exp.", "peak GiB"):
        table.add_column(name, justify="right", no_wrap=True)
    measured = any(not isinstance(result, str) and result.measured for _, result in rows)
    if measured:
        table.add_column("against measured", justify="right")
    table.add_column("binding", no_wrap=True)
    refused = []
    for case, result in rows:
        if isinstance(result, str):
            refused.append(f"{changes_in_words(case, ' ')}: {result}")
            continue
        style = "" if result.feasible else "red"
        table.add_row(
            *map(Text, case.values()),  # as it stands: brackets are no markup
            seconds(result.step_time_s),
            f"{result.tokens_per_s_per_gpu:,.0f}",
            f"{result.tflop_per_s_per_gpu:,.0f}",
            f"{result.mfu:.1%}",
            f"{result.bubble_fraction:.1%}",
            seconds(result.exposed_s["ep"]),
            gibibytes(result.memory.peak_bytes),
            *([f"{result.measured['error']:+.1%}" if result.measured else ""] if measured else []),
            result.binding["resource"] if result.feasible else "DOES NOT FIT",
            style=style,
        )
    table.caption = "tokens/s and TFLOP/s per GPU"
    table.caption_justify = "left"
    return Group(table, *(Text(f"refused {line}", style="red") for line in refused))
