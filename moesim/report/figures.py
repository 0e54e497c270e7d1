"""Pictures of answers: where steps go, memory of each rank, curves of scaling, what is uncertain.

They need matplotlib, the extra ``plot``. Timelines are in ``gantt``, rooflines in ``roofline``, fronts in ``front``.
"""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from moesim.base.errors import SpecError
from moesim.report.estimate import NAMES, seconds
from moesim.report.palette import BAD, CLASS_COLOURS, TERM_COLOURS, class_name
from moesim.report.sensitivity import swings
from moesim.result import Estimate
from moesim.studies.scaling import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0
"""Width of a picture. [inch]"""
LABELLED = 0.055
"""Share of the longest bar from which a part carries its number."""
GREY = "#8c8c8c"
T = TypeVar("T")


@dataclass(frozen=True)
class Picture:
    """A figure that notebooks show and that can be saved."""

    figure: Figure

    def __post_init__(self) -> None:
        """Place everything once, so that every copy has it at the same place."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")

    def _repr_png_(self) -> bytes:
        page = io.BytesIO()
        self._draw(page, "png")
        return page.getvalue()

    def save(self, path: str | Path) -> None:
        """Write it as the ending says: .svg, .png or .pdf; the same picture is the same file."""
        self._draw(path, Path(path).suffix.removeprefix("."))

    def _draw(self, where: str | Path | io.BytesIO, kind: str) -> None:
        import matplotlib as mpl

        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        with mpl.rc_context({"svg.hashsalt": "moesim", "svg.fonttype": "none"}):
            self.figure.savefig(where, format=kind, dpi=130, metadata=metadata)


def breakdown(answers: Mapping[str, Estimate]) -> Picture:
    """Steps as stacked bars of their terms, with their intervals, and what was measured."""
    figure, axes = _axes(0.5 * len(answers) + 1.9)
    longest = max(answer.high_s for answer in answers.values())
    terms = [name for name in TERM_COLOURS if any(answer.breakdown_s.get(name) for answer in answers.values())]
    for place, answer in enumerate(answers.values()):
        left = 0.0
        for name in terms:
            value = answer.breakdown_s.get(name, 0.0)
            _part(axes, place, left, value, TERM_COLOURS[name], f"{value:.3g}", value > LABELLED * longest)
            left += value
        step = answer.step_time_s
        ends = [[step - answer.low_s], [answer.high_s - step]]
        axes.errorbar(step, place + 0.42, xerr=ends, color="black", capsize=3, linewidth=1, zorder=3)
        if answer.measured:
            axes.plot(
                answer.measured["step_time_s"], place + 0.42, "D", color="white", markeredgecolor="black", zorder=4
            )
    _rows(axes, [name if answer.feasible else f"{name} (no fit)" for name, answer in answers.items()])
    axes.set_xlim(0, longest * 1.02)
    notes = ["line: 90 % interval"] + ["diamond: measured"] * any(answer.measured for answer in answers.values())
    axes.set_xlabel(f"time of a step [s]; {', '.join(notes)}")
    _legend(figure, {NAMES[name]: TERM_COLOURS[name] for name in terms})
    return Picture(figure)


def memory(answer: Estimate) -> Picture:
    """Peak memory of each pipeline rank as a stack of classes, beside what a GPU has."""
    stages = answer.memory.stages
    figure, axes = _axes(0.34 * len(stages) + 1.9)
    names = [name for name in CLASS_COLOURS if any(stage.get(f"{name}_bytes") for stage in stages)]
    widest = max(answer.memory.capacity_bytes, answer.memory.peak_bytes) / 2**30
    for rank, stage in enumerate(stages):
        left = 0.0
        for name in names:
            value = stage[f"{name}_bytes"] / 2**30
            _part(axes, rank, left, value, CLASS_COLOURS[name], f"{value:.3g}", value > LABELLED * widest)
            left += value
        over = left * 2**30 > answer.memory.capacity_bytes
        axes.annotate(
            f"{left:.1f}",
            (left, rank),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=BAD if over else "black",
            fontweight="bold" if rank == answer.memory.peak_stage else "normal",
        )
    capacity = answer.memory.capacity_bytes / 2**30
    axes.axvline(capacity, color="black", linewidth=1.2, linestyle="--")
    axes.annotate(
        f"{capacity:.2f} GiB", (capacity, 1), (3, 2), xycoords=("data", "axes fraction"), textcoords="offset points"
    )
    _rows(axes, [f"rank {rank}" for rank in range(len(stages))])
    axes.set_xlim(0, widest * 1.1)
    axes.set_xlabel("peak memory [GiB]")
    _legend(figure, {class_name(name): CLASS_COLOURS[name] for name in names})
    return Picture(figure)


def scaling(points: Sequence[Point]) -> Picture:
    """Throughput of the whole job beside the ideal, and the efficiency with what binds at each size."""
    able = [(point, point.answer) for point in points if point.answer is not None]
    figure = blank(WIDTH, 3.9)
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    left, right = figure.subplots(1, 2)
    gpus = [point.gpus for point, _ in able]
    rates = [answer.tokens_per_s_per_gpu * point.gpus for point, answer in able]
    lows = [rate * (1 - answer.step_time_s / answer.high_s) for rate, (_, answer) in zip(rates, able, strict=True)]
    highs = [rate * (answer.step_time_s / answer.low_s - 1) for rate, (_, answer) in zip(rates, able, strict=True)]
    left.plot(gpus, [rates[0] * one / gpus[0] for one in gpus], "--", color=GREY, label="in proportion")
    blue = TERM_COLOURS["gemm"]
    left.errorbar(gpus, rates, yerr=[lows, highs], fmt="o-", color=blue, capsize=3, label="estimate, 90 % interval")
    left.set_yscale("log")
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    left.set_ylabel("tokens/s of the whole job")
    left.legend(frameon=False, fontsize=9)
    right.plot(gpus, [100 * (point.efficiency or 0.0) for point, _ in able], "o-", color=blue)
    for point, answer in able:
        place = (point.gpus, 100 * (point.efficiency or 0.0))
        words = answer.binding["resource"] + ("" if answer.feasible else ", no fit")
        right.annotate(words, place, (0, -14), textcoords="offset points", ha="center", fontsize=9)
    right.set_ylim(0, 110)
    right.set_ylabel("efficiency [%], and what binds")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlim(min(gpus) / 1.5, max(gpus) * 1.5)
        axes.set_xticks(gpus, [f"{one:,}" for one in gpus])
        axes.minorticks_off()
        axes.set_xlabel("GPUs")
        axes.grid(visible=True, color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return Picture(figure)


def tornado(answer: Estimate, top: int = 12) -> Picture:
    """The step at both ends of the 90 % interval of each thing that is uncertain, the widest first."""
    found = [one for one in swings(answer, top) if one[2] > one[1]]
    step = answer.step_time_s
    figure, axes = _axes(0.34 * len(found) + 1.3)
    for place, (what, low, high) in enumerate(found):
        _part(axes, place, low, step - low, TERM_COLOURS["grouped_gemm"], "", False)
        _part(axes, place, step, high - step, TERM_COLOURS["tp"], "", False)
        axes.annotate(
            what.evidence, (high, place), (5, 0), textcoords="offset points", va="center", fontsize=8, color="#555555"
        )
    axes.axvline(step, color="black", linewidth=1)
    _rows(axes, [what.name for what, _, _ in found])
    axes.set_xlabel("step time [s] at both ends of the 90 % interval of each, the others held")
    axes.set_title(f"{answer.name}: {seconds(step)}", loc="left", fontsize=10)
    least, most = min([low for _, low, _ in found], default=0.0), max([high for _, _, high in found], default=1.0)
    axes.set_xlim(least - 0.06 * (most - least), most + 0.14 * (most - least))
    return Picture(figure)


def blank(width: float, height: float) -> Figure:
    """An empty figure; a `SpecError` where matplotlib is missing. [inch]"""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SpecError.single("--plot", "", "needs matplotlib", "pip install 'moesim[plot]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = blank(WIDTH, height)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _part(axes: Axes, place: float, left: float, width: float, colour: str, text: str, told: bool) -> None:
    """A part of a bar, with its number where there is room."""
    axes.barh(place, width, left=left, height=0.68, color=colour, edgecolor="white", linewidth=0.6)
    if told:
        red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
        ink = "black" if math.sqrt(0.3 * red**2 + 0.59 * green**2 + 0.11 * blue**2) > 0.6 else "white"
        axes.text(left + width / 2, place, text, ha="center", va="center", fontsize=8, color=ink)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)


def _legend(figure: Figure, colours: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=9)


@dataclass(frozen=True)
class Drawing:
    """A drawing for a notebook."""

    png: bytes = field(repr=False)

    def _repr_png_(self) -> bytes:
        return self.png


def drawn(draw: Callable[[T, Path], None], found: T) -> Drawing:
    """What a function draws into a file, such as ``roofline.draw`` or ``fabric_drawing.draw``, for a notebook."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawing.png"
        draw(found, path)
        return Drawing(path.read_bytes())
