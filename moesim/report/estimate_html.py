"""An estimate as HTML: headline, where the step goes, memory; the report takes its parts from here."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from moesim.report.estimate import NAMES, gibibytes, interval_line, marks, power_line, seconds, summary
from moesim.report.html import fragment
from moesim.report.palette import CLASS_COLOURS, TERM_COLOURS, class_name
from moesim.result import Estimate

RESOURCES = {
    "tensor-cores": "the tensor cores",
    "hbm": "HBM bandwidth",
    "power": "power",
    "nic": "the network cards",
    "nvlink": "NVLink",
    "transport-sms": "the SMs that move data",
    "pcie": "PCIe",
    "cpu": "the CPU",
    "host": "the host",
}
"""What binds, as people say it."""


def html(estimate: Estimate) -> str:
    """The answer for a notebook."""
    return fragment("estimate", **parts(estimate))


def renderable(estimate: Estimate) -> RenderableType:
    """The answer for a terminal."""
    return summary(estimate)


def parts(estimate: Estimate) -> dict[str, Any]:
    """What the templates of an answer need."""
    memory = estimate.memory
    return {
        "name": estimate.name,
        "facts": facts(estimate),
        "misfits": [violation.message for violation in estimate.violations],
        "terms": terms(estimate),
        "terms_note": terms_note(estimate),
        "memory": stages(estimate),
        "memory_note": (
            f"The line is the {gibibytes(memory.capacity_bytes)} GiB of a GPU. "
            f"The peak is on rank {memory.peak_stage}, {memory.peak_phase}."
        ),
        "notes": [f"90 % interval: {interval_line(estimate)}", *marks(estimate)],
    }


def facts(estimate: Estimate) -> list[tuple[str, str, str]]:
    """Label, value and note of what is asked first."""
    memory, resource = estimate.memory, estimate.binding["resource"]
    found = [
        ("step time", seconds(estimate.step_time_s), f"90 %: {seconds(estimate.low_s)} to {seconds(estimate.high_s)}"),
        (
            "tokens/s per GPU",
            f"{estimate.tokens_per_s_per_gpu:,.0f}",
            f"{estimate.tflop_per_s_per_gpu:,.0f} TFLOP/s per GPU, MFU {estimate.mfu:.1%}",
        ),
        (
            "memory",
            f"{gibibytes(memory.peak_bytes)} GiB",
            f"of {gibibytes(memory.capacity_bytes)}: {'fits' if estimate.feasible else 'does not fit'}",
        ),
        (
            "what binds",
            RESOURCES.get(resource, resource),
            f"{estimate.binding['share']:.0%} of the step scales with it",
        ),
    ]
    if estimate.measured:
        error = estimate.measured["error"]
        found.insert(1, ("measured", seconds(estimate.measured["step_time_s"]), f"predicted {error:+.1%}"))
    if (line := power_line(estimate)) is not None:
        found.append(("power", f"{estimate.sustained_clock:.2f}", line))
    return found


def terms(estimate: Estimate) -> list[dict[str, Any]]:
    """Rows of the breakdown, the longest bar as wide as its column."""
    step, longest = estimate.step_time_s, max(estimate.breakdown_s.values())
    return [
        {
            "name": NAMES[name],
            "colour": TERM_COLOURS[name],
            "width": 100 * value / longest,
            "time": seconds(value),
            "share": f"{value / step:.1%}",
            "exposed": seconds(estimate.exposed_s[name]) if name in estimate.exposed_s else "",
        }
        for name, value in sorted(estimate.breakdown_s.items(), key=lambda one: -one[1])
        if value or estimate.exposed_s.get(name)
    ]


def terms_note(estimate: Estimate) -> str:
    """Whose time the breakdown is, and how evenly the ranks work."""
    note = f"On pipeline rank {estimate.walked_stage}, which finishes last; the parts add up to the step."
    if len(estimate.busy_s) > 1:
        shares = [busy / estimate.step_time_s for busy in estimate.busy_s]
        note += f" Ranks compute {min(shares):.0%} to {max(shares):.0%} of it."
    return note + " Exposed: what the step would lose without it."


def stages(estimate: Estimate) -> dict[str, Any]:
    """Rows of memory by pipeline rank, each a stack of classes, beside the capacity. [per cent of the widest]"""
    memory = estimate.memory
    widest = max(memory.capacity_bytes, memory.peak_bytes) * 1.02
    names = [name for name in CLASS_COLOURS if any(stage.get(f"{name}_bytes") for stage in memory.stages)]
    rows = []
    for rank, stage in enumerate(memory.stages):
        stack = [
            {
                "name": class_name(name),
                "colour": CLASS_COLOURS[name],
                "width": 100 * stage[f"{name}_bytes"] / widest,
                "size": f"{gibibytes(stage[f'{name}_bytes'])} GiB",
            }
            for name in names
        ]
        peak = stage["peak_bytes"]
        over = " over" if peak > memory.capacity_bytes else ""
        shown = f"{gibibytes(peak)} GiB{over}"
        rows.append({"name": f"rank {rank}", "parts": stack, "size": shown, "peak": rank == memory.peak_stage})
    return {
        "rows": rows,
        "capacity": 100 * memory.capacity_bytes / widest,
        "legend": [(class_name(name), CLASS_COLOURS[name]) for name in names],
    }
