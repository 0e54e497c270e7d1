"""Fabrics and groups of ranks as tables."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.base.units import format_quantity
from moesim.base.words import counted
from moesim.report.estimate import seconds
from moesim.studies.fabric_groups import FabricGroups
from moesim.studies.fabric_view import FabricView
from moesim.studies.placement import Placement, Placements


def bandwidth(value: float) -> str:
    """Bandwidth as people read it."""
    return "-" if math.isinf(value) else format_quantity(value, "bandwidth") if value else "0"


def fabric_tables(view: FabricView) -> RenderableType:
    """Headline, tiers, and the effects of a fault."""
    network = view.network
    head = Table.grid(padding=(0, 2))
    head.add_row("fabric", Text(f"{view.name}, {network.kind}", style="bold"))
    nodes = f"{network.shape.num_nodes:,} node{'s' * (network.shape.num_nodes > 1)}"
    head.add_row("joins", f"{network.shape.num_gpus:,} GPUs in {nodes} of {view.node}")
    share = f"{view.full_bisection_share:.0%} of what one half can send"
    head.add_row("bisection", f"{bandwidth(view.bisection)} each way, {share}")
    head.add_row("diameter", f"{network.reduced.diameter} links between GPUs")
    if network.has_parallel_links:
        head.add_row("parallel links", f"{network.path_efficiency:.0%} used by the protocol's choice of paths")
        head.add_row("congestion", network.congestion)
    tiers = Table(title="tiers", title_justify="left")
    tiers.add_column("tier")
    for name in ("GPUs joined", "per GPU, each way", "oversubscription", "one way"):
        tiers.add_column(name, justify="right")
    for tier in view.tiers:
        ratio = f"{tier.oversubscription:.3g}"
        tiers.add_row(
            tier.name, f"{tier.size:,}", bandwidth(tier.bandwidth), ratio, seconds(network.message_latency(tier))
        )
    tiers.caption = "bandwidth where all GPUs cross into the tier at once; latency of a small message, without software"
    tiers.caption_justify = "left"
    return Group(head, tiers, *([_effects(view)] if view.fault_rows else []))


def _effects(view: FabricView) -> Table:
    table = Table(title=f"with {view.fault}: the slowest group, all groups at once", title_justify="left")
    for name in ("groups of", "pattern"):
        table.add_column(name)
    for name in ("before", "after", "groups that suffer"):
        table.add_column(name, justify="right")
    for row in view.fault_rows:
        suffering = f"{row.suffering:,} of {row.groups:,}"
        table.add_row(row.layout, row.pattern, bandwidth(row.before), bandwidth(row.after), suffering)
    return table


def group_table(groups: FabricGroups) -> RenderableType:
    """One row for each axis and pattern of traffic."""
    table = Table(title=f"{groups.name}: {groups.num_gpus:,} GPUs on {groups.fabric}", title_justify="left")
    for name in ("axis", "pattern"):
        table.add_column(name, no_wrap=True)
    for name in ("ranks", "stride"):
        table.add_column(name, justify="right")
    for name in ("per rank", "contention", "sent in a step", "alone"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("tiers and bytes into them", no_wrap=True)
    for row in groups.rows:
        by_tier = "\n".join(f"{tier} {format_quantity(value, 'bytes', 3)}" for tier, value in row.tier_bytes.items())
        table.add_row(
            row.axis,
            row.pattern,
            f"{row.ranks:,}",
            f"{row.stride:,}",
            f"{bandwidth(row.bandwidth)} ({row.binding})",
            f"{row.contention:.2f}",
            format_quantity(row.num_bytes, "bytes", 3),
            seconds(row.seconds),
            by_tier,
        )
    table.caption = (
        "bandwidth with all sibling groups running; 'alone': bytes over bandwidth, without latency or overlap"
    )
    table.caption_justify = "left"
    return table


def placement_table(found: Placements, top: int) -> RenderableType:
    """The fastest orders and the usual one, with the seconds of the traffic of each axis."""
    title = f"{found.name} on {found.fabric}: {counted(len(found.ranked), 'order')}, innermost axis first"
    table = Table(title=title, title_justify="left")
    for name in ("", "attention\nexperts"):
        table.add_column(name, no_wrap=True)
    axes = list(found.usual.seconds)
    for name in ("step", "traffic", *axes):
        table.add_column(name, justify="right", no_wrap=True)
    shown = list(enumerate(found.ranked[:top], 1))
    if found.usual not in found.ranked[:top]:
        shown.append((found.ranked.index(found.usual) + 1, found.usual))
    for place, one in shown:
        table.add_row(*_placement(place, one, axes), style="bold" if one is found.usual else "")
    saved = found.usual.step_s - found.best.step_s
    verdict = f"the best saves {seconds(saved)} of the step" if saved > 1e-9 * found.usual.step_s else "none is faster"
    table.caption = f"traffic: bytes over bandwidth, one axis after the other; bold: the usual order; {verdict}"
    table.caption_justify = "left"
    return table


def _placement(place: int, one: Placement, axes: list[str]) -> tuple[str, ...]:
    held = f" ({one.experts_per_domain} a domain)" if any(axis.startswith("ep") for axis in one.expert) else ""
    orders = ("-".join(one.attention) or "-", ("-".join(one.expert) or "-") + held)
    return (
        str(place),
        "\n".join(orders),
        seconds(one.step_s),
        seconds(one.total),
        *(seconds(one.seconds[axis]) for axis in axes),
    )
