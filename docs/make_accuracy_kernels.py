"""Write docs/accuracy_kernels.md and the extracts in tests/published: errors of kernel prices on rows no fit saw.

Needs the extra ``measurements``. Run from the root of the checkout: ``python docs/make_accuracy_kernels.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from moesim.base.errors import SpecError
from moesim.calibrate.experts import tiles_column
from moesim.calibrate.families import FAMILIES
from moesim.calibrate.score import Score, interval, score
from moesim.calibrate.split import held_out, sample
from moesim.cost.from_spec import build_gpu
from moesim.cost.grouped import HEIGHTS
from moesim.cost.machine import Gpu
from moesim.spec import library

ROOT = Path(__file__).resolve().parents[1]
EXTRACT_ROWS = 300
LARGE = 5e7
"""Size from which the HBM decides. [B]"""
TARGETS = {
    "GEMM bf16 H100": "3.5 / 11",
    "GEMM bf16 H100, fit scored on vllm": "5 / 16",
    "GEMM bf16 H100, fit scored on sglang": "5 / 16",
    "GEMM fp8 H100": "5 / 16",
    "GEMM bf16 B200": "5 / 16",
    "GEMM bf16 A100": "5 / 16",
    "GEMM bf16, H100 fit carried to H200": "8 / 22",
    "grouped GEMM H100, balanced and skewed": "4.5 / 16",
    "attention forward H100": "5 / 14",
}


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    name: str
    split: str
    score: Score


def source_of(family: str, gpu: str) -> str:
    """What a shipped overlay was fitted on, as an option."""
    return library.calibrations(gpu)[family].command.rpartition("--from ")[2].partition(" --out")[0]


def priced(family: str, gpu_name: str, source: str, gpu: Gpu | None = None) -> pd.DataFrame:
    """Rows of a table with predicted times and intervals; ``held`` marks those that the fit did not see."""
    kind = FAMILIES[family]
    overlay = library.calibrations(gpu_name if gpu is None else gpu.name)[family]
    frame = kind.read(source, gpu_name).frame
    held = held_out(frame, kind.split)
    staged = np.any([np.asarray(stage.keep(frame)) for stage in kind.stages], axis=0)
    machine = gpu or build_gpu(library.get("gpus", gpu_name))
    predicted = kind.predict(frame, machine, overlay.values("extra"))
    regimes = kind.regimes(frame, machine)
    low, high = interval(predicted, regimes, overlay.residuals)
    scored = np.asarray(kind.scored(frame)) & staged
    frame = frame.assign(predicted_s=predicted, low_s=low, high_s=high, regime=regimes, held=held)
    kept: pd.DataFrame = frame[scored]
    return kept.reset_index(drop=True)


def scored(frame: pd.DataFrame) -> Score:
    """Errors of a table."""
    columns = ("predicted_s", "time_s", "low_s", "high_s")
    return score(*(frame[name].to_numpy(dtype=float) for name in columns))


def lines() -> Iterator[Line]:
    """Every line of the table of targets."""
    shape, other = "shape, 30 % held out", "shapes held out, another framework"
    dense = priced("gemm", "h100-sxm-80gb", source_of("gemm", "h100-sxm-80gb"))
    extract(dense[dense["held"]], "gemm", ["rate", "m", "n", "k", "time_s"])
    wide = dense[dense["held"] & (dense["rate"] == "bf16")]
    yield Line("GEMM bf16 H100", shape, scored(wide))
    for framework in ("vllm", "sglang"):
        rows = priced("gemm", "h100-sxm-80gb", f"aiconfigurator:{framework}")
        yield Line(
            f"GEMM bf16 H100, fit scored on {framework}", other, scored(rows[rows["held"] & (rows["rate"] == "bf16")])
        )
    for rate, word in (("fp8", "fp8"), ("fp8-blockwise", "fp8 blockwise")):
        yield Line(f"GEMM {word} H100", shape, scored(dense[dense["held"] & (dense["rate"] == rate)]))
    for gpu, word in (
        ("b200-sxm", "B200"),
        ("a100-sxm-80gb", "A100"),
        ("h200-sxm-141gb", "H200"),
        ("b300", "B300"),
        ("gb200", "GB200"),
        ("gb300", "GB300"),
    ):
        rows = priced("gemm", gpu, source_of("gemm", gpu))
        yield Line(f"GEMM bf16 {word}", shape, scored(rows[rows["held"] & (rows["rate"] == "bf16")]))
    hopper, newer = (build_gpu(library.get("gpus", name)) for name in ("h100-sxm-80gb", "h200-sxm-141gb"))
    carried = replace(hopper, memory_bandwidth=newer.memory_bandwidth)
    rows = priced("gemm", "h200-sxm-141gb", "aiconfigurator", carried)
    yield Line("GEMM bf16, H100 fit carried to H200", "another GPU, all rows", scored(rows[rows["rate"] == "bf16"]))
    group = "(hidden, inter, experts, top-k)"
    for gpu, word in (("h100-sxm-80gb", "H100"), ("h200-sxm-141gb", "H200"), ("b200-sxm", "B200")):
        experts = priced("grouped-gemm", gpu, source_of("grouped-gemm", gpu))
        held = experts[experts["held"] & (experts["rate"] == "bf16")]
        if word == "H100":
            columns = ["rate", "tokens", "hidden", "inter", "top_k", "experts", "tp", "ep", "distribution", "groups"]
            columns += ["m", "uneven", "width", "active", *(tiles_column(high) for high in HEIGHTS), "time_s"]
            extract(experts[experts["held"]], "grouped", columns)
            yield Line("grouped GEMM H100, balanced and skewed", group, scored(held))
        yield Line(f"grouped GEMM {word}, balanced", group, scored(held[~held["uneven"]]))
        one = held["ep"] == 1
        yield Line(f"grouped GEMM {word}, skewed, all experts on one rank", group, scored(held[held["uneven"] & one]))
        yield Line(f"grouped GEMM {word}, skewed, hottest of several ranks", group, scored(held[held["uneven"] & ~one]))
        if (experts["rate"] == "fp8").any():
            narrow = experts[experts["held"] & (experts["rate"] == "fp8")]
            yield Line(f"grouped GEMM {word} fp8", group, scored(narrow))
    for gpu, word in (
        ("h100-sxm-80gb", "H100"),
        ("h200-sxm-141gb", "H200"),
        ("a100-sxm-80gb", "A100"),
        ("b200-sxm", "B200"),
    ):
        rows = priced("attention", gpu, source_of("attention", gpu))
        rows = rows[rows["held"]]
        if word == "H100":
            extract(
                rows,
                "attention",
                ["batch", "length", "heads", "kv_heads", "query_dim", "value_dim", "backward", "cached", "time_s"],
            )
        yield Line(f"attention forward {word}", "(heads, kv heads, head_dim), from 512 tokens", scored(rows))
    for gpu, word in (
        ("h100-sxm-80gb", "H100"),
        ("h200-sxm-141gb", "H200"),
        ("b200-sxm", "B200"),
        ("gb200", "GB200"),
        ("b300", "B300"),
        ("gb300", "GB300"),
    ):
        rows = priced("memory", gpu, source_of("memory", gpu))
        if word == "H100":
            extract(rows[rows["held"]], "memory", ["bytes", "cast", "time_s"])
        yield Line(f"cast to FP8 {word}", "size, 30 % held out", scored(rows[rows["held"]]))
        large = rows[rows["held"] & (rows["bytes"] > LARGE)]
        yield Line(f"cast to FP8 {word}, more than 50 MB", "size, 30 % held out", scored(large))


def extract(frame: pd.DataFrame, name: str, columns: list[str]) -> None:
    """Keep a few hundred held-out rows for the tests."""
    rows = sample(frame[columns], EXTRACT_ROWS, [column for column in columns if frame[column].notna().all()])
    rows.to_csv(ROOT / "tests" / "published" / f"kernels_{name}_held_out.csv", index=False, float_format="%.10g")


PANELS = {
    "gemm": ("dense GEMM, bf16", "rate == 'bf16'", lambda rows: 2 * rows["m"] * rows["n"] * rows["k"], "FLOP"),
    "grouped-gemm": ("grouped GEMM, bf16", "rate == 'bf16'", lambda rows: rows["m"], "rows per expert"),
    "attention": ("attention forward", "length >= 512", lambda rows: rows["length"], "tokens of a sequence"),
    "memory": ("cast to FP8", "bytes > 0", lambda rows: rows["bytes"], "bytes"),
}
"""Title, rows, and what the errors of a family are drawn against."""
DRAWN_ROWS = 600


def plot(gpu: str = "h100-sxm-80gb") -> None:
    """Draw the errors of held-out rows of one GPU, thinned by hash, with the median and the 90 % band of each decade."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "kernel residuals", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(8, 5.6), layout="constrained")
        for axes, (family, (title, query, size, unit)) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
            rows = priced(family, gpu, source_of(family, gpu)).query(f"held and {query}").reset_index(drop=True)
            rows = rows.assign(size=size(rows), error=100 * (rows["predicted_s"] / rows["time_s"] - 1))
            groups = [("#4477aa", "balanced" if family == "grouped-gemm" else "", rows)]
            if family == "grouped-gemm":
                groups = [("#cc6677", "skewed", rows[rows["uneven"]]), ("#4477aa", "balanced", rows[~rows["uneven"]])]
            for colour, label, part in groups:
                drawn = sample(part, DRAWN_ROWS // len(groups), [*FAMILIES[family].keys])
                axes.plot(drawn["size"], drawn["error"], ".", ms=2.5, alpha=0.45, color=colour, mew=0, label=label)
            steps = np.log10(rows["size"]).mul(2).round() / 2
            low, middle, high = (rows.groupby(steps)["error"].quantile(share) for share in (0.05, 0.5, 0.95))
            axes.fill_between(10**low.index, low, high, color="0.5", alpha=0.18, lw=0)
            axes.plot(10**middle.index, middle, color="black", lw=1.2)
            axes.axhline(0, color="0.4", lw=0.6)
            axes.set(
                xscale="log",
                ylim=(-60, 60),
                xlabel=unit,
                ylabel="error of time [%]",
                title=f"{title}, {len(rows):,} rows",
            )
            if len(groups) > 1:
                axes.legend(frameon=False, markerscale=3, loc="upper left")
        figure.savefig(ROOT / "docs" / "figures" / "kernel_residuals.svg", metadata={"Date": None})


def table(rows: list[Line]) -> str:
    """Lines as Markdown."""
    told = [
        "| kernels | held out by | rows | median / p90 [%] | bias [%] | inside 90 % interval | target |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        target = TARGETS.get(one.name, "")
        if target:
            median, p90 = (float(part) for part in target.split("/"))
            target += " met" if 100 * one.score.median <= median and 100 * one.score.p90 <= p90 else " **missed**"
        inside = "" if one.score.coverage is None else f"{one.score.coverage:.0%}"
        errors = f"{100 * one.score.median:.1f} / {100 * one.score.p90:.1f}"
        told.append(
            f"| {one.name} | {one.split} | {one.score.count:,} | {errors} | {100 * one.score.bias:+.1f} | {inside} | {target} |"
        )
    return "\n".join(told)


def counts() -> str:
    """Rows read, used and dropped by every overlay."""
    told = ["| overlay | source | read | used | held out | dropped |", "|---|---|---|---|---|---|"]
    for path in sorted(library.folder("calibrations").glob("*.yaml")):
        one = library.get("calibrations", path.stem)
        if one.family not in FAMILIES:
            continue
        dropped = "; ".join(f"{count:,} {reason}" for reason, count in one.dropped.items())
        held = one.rows.get("held_out", 0)
        told.append(
            f"| {one.name} | {one.source}, {one.version} | {one.rows['read']:,} | {one.rows['used']:,} | {held:,} | {dropped} |"
        )
    return "\n".join(told)


def main() -> None:
    """Write the page."""
    try:
        rows = list(lines())
    except SpecError as error:
        raise SystemExit(str(error)) from None
    plot()
    text = (Path(__file__).with_name("accuracy_kernels.template.md")).read_text(encoding="utf-8")
    page = text.replace("{{table}}", table(rows)).replace("{{counts}}", counts())
    (ROOT / "docs" / "accuracy_kernels.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
