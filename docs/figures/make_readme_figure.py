"""Draw the figure of the README from three estimates: ``python docs/figures/make_readme_figure.py [FILE]``.

Above: where the step goes, predicted, beside the published step time. Below: the start and the end of the step on every
pipeline rank of the first run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

import moesim
from moesim.timeline.tasks import KINDS, SM

RUNS = {
    "qwen3-235b-h100x256": "ZOO-001\nPP 8, EP 32\nDeepEP",
    "zoo-002": "ZOO-002\nPP 8, EP 32\nDeepEP, overlapped",
    "zoo-004": "ZOO-004\nPP 32, EP 8\nNCCL all-to-all",
}
PARTS = {
    "expert GEMM": (("grouped_gemm",), "#1f4e79"),
    "dense GEMM": (("gemm",), "#3f7fb5"),
    "attention": (("attention",), "#8dbbe0"),
    "memory-bound, optimizer": (("memory_bound", "optimizer"), "#c9c3e0"),
    "expert exchange": (("ep",), "#d9722e"),
    "TP, PP, DP": (("tp", "cp", "pp", "dp"), "#f2b37c"),
    "host": (("host", "other"), "#7a7a7a"),
    "bubble": (("bubble",), "#e6e6e6"),
}
"""What is drawn as one piece: the keys of ``breakdown_s`` in it, and its colour."""

FORWARD, BACKWARD, REST = "Blues", "Oranges", "#5b8c5a"


def draw_breakdowns(axes: Axes, estimates: list[moesim.Estimate]) -> None:
    """One pair of bars a run: predicted, in pieces, and measured. A long bubble says who keeps the rank waiting."""
    for row, estimate in enumerate(estimates):
        left = 0.0
        for keys, colour in PARTS.values():
            width = sum(estimate.breakdown_s[key] for key in keys)
            axes.barh(row - 0.17, width, 0.34, left, color=colour, edgecolor="white", linewidth=0.6)
            left += width
            if keys == ("bubble",) and width > 5:
                waits = f"busiest: rank {int(np.argmax(estimate.busy_s))}"
                axes.text(left - width / 2, row - 0.17, waits, ha="center", va="center", fontsize=8.5, color="#555555")
        measured = estimate.measured or {}
        time, error = measured["step_time_s"], measured["error"]
        axes.barh(row + 0.2, time, 0.26, color="white", edgecolor="#444444", linewidth=0.9, hatch="////", alpha=0.75)
        axes.text(
            left + 0.25,
            row - 0.17,
            f"{left:.1f} s predicted ({error:+.0%})".replace("-", "\u2212"),
            va="center",
            fontsize=9,
            weight="bold",
        )
        axes.text(time + 0.25, row + 0.2, f"{time:.1f} s measured", va="center", fontsize=9, color="#444444")
    axes.set_yticks(range(len(RUNS)), RUNS.values(), fontsize=9, linespacing=1.25)
    axes.invert_yaxis()
    axes.set_xlim(0, 31)
    axes.set_xticks(range(0, 26, 5))
    axes.set_xlabel("seconds of one step, on the rank that finishes last", fontsize=9, loc="left")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_bounds(0, 25)
    patches = [Patch(color=colour, label=name) for name, (_, colour) in PARTS.items()]
    axes.legend(
        handles=patches, ncols=len(PARTS), loc="lower left", bbox_to_anchor=(-0.005, 1.0), frameon=False, fontsize=8.5,
        handlelength=0.9, handleheight=0.9, columnspacing=0.95, handletextpad=0.4,
    )  # fmt: skip


def draw_pipeline(axes: Axes, estimate: moesim.Estimate, start: float, end: float) -> None:
    """Tasks of every pipeline rank between two times: forwards blue, backwards orange, darker for a later chunk."""
    graph, run = estimate.timeline.graph, estimate.timeline.run
    chunks = graph.num_stages // graph.num_ranks
    shades = {
        "F": mpl.colormaps[FORWARD](np.linspace(0.35, 0.85, chunks)),
        "BW": mpl.colormaps[BACKWARD](np.linspace(0.3, 0.75, chunks)),
    }
    for rank in range(graph.num_ranks):
        spans: dict[tuple[float, ...], list[tuple[float, float]]] = {}
        for task in graph.tasks_of(rank, SM):
            low, high = max(run.start[task], start), min(run.end[task], end)
            if low < high:
                kind, stage = KINDS[graph.tasks.kind[task]], graph.tasks.stage[task]
                colour = shades[kind][stage // graph.num_ranks] if kind in shades else REST
                spans.setdefault(tuple(mpl.colors.to_rgba(colour)), []).append((low, high - low))
        for colour, pieces in spans.items():
            axes.broken_barh(pieces, (rank - 0.42, 0.84), facecolor=colour, edgecolor="white", linewidth=0.4)
    axes.set_xlim(start, end)
    axes.set_ylim(graph.num_ranks - 0.5, -0.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(labelsize=9)


def main() -> None:
    """Draw the figure and write it."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("readme.svg")
    mpl.rcParams |= {"svg.hashsalt": "moesim", "font.family": "DejaVu Sans", "hatch.linewidth": 0.5}
    estimates = [moesim.estimate(moesim.load(name)) for name in RUNS]
    figure = plt.figure(figsize=(10.6, 6.6))
    grid = figure.add_gridspec(2, 2, height_ratios=[1.25, 1], width_ratios=[1.9, 1], hspace=0.5, wspace=0.04)
    figure.suptitle(
        "One training step of Qwen3-235B-A22B on 256 H100", x=0.127, y=0.965, ha="left", fontsize=12, weight="bold"
    )
    draw_breakdowns(figure.add_subplot(grid[0, :]), estimates)

    first, step = estimates[0], estimates[0].step_time_s
    opening, closing = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    draw_pipeline(opening, first, 0.0, 1.15)
    draw_pipeline(closing, first, step - 0.6, step + 0.005)
    opening.set_yticks(range(8), [f"rank {rank}" for rank in range(8)])
    closing.set_yticks([])
    closing.set_xticks(np.arange(np.ceil(5 * step - 2.9) / 5, step, 0.2).round(1))
    opening.set_title("ZOO-001 on its 8 pipeline ranks: filling the pipeline", fontsize=9.5, loc="left")
    closing.set_title("... and draining it", fontsize=9.5, loc="left")
    opening.set_xlabel(
        "seconds; blue: forward, orange: backward, darker: a later chunk of the rank; green: optimizer",
        fontsize=9,
        loc="left",
    )
    figure.savefig(target, bbox_inches="tight", dpi=150, metadata={"Date": None} if target.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
