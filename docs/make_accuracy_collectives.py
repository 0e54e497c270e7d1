"""Write docs/accuracy_collectives.md: ``python docs/make_accuracy_collectives.py COLLECTIVES.csv``.

Needs the package aiconfigurator-core, and a CSV of measured collectives with the columns that the page names.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from moesim.calibrate.collective_overlay import FOLDS, NODE_SCOPES, PACKAGE, links_of, read_measured
from moesim.calibrate.collectives import NODE_TERMS, fit_collectives, predicted, rows_of
from moesim.calibrate.transports import CONGESTED, Legs, fit_leg, fold_errors, read_deepep, wire_bandwidth
from moesim.cost.machine import Links
from moesim.spec import library
from moesim.spec.spellings import gpu_of
from moesim.studies.collective_tables import priced_collectives
from moesim.traces.collective_table import OPERATIONS, Measured, MeasuredTable, flags, read_collective_csv

PAGE = Path(__file__).with_name("accuracy_collectives.md")
NODES = (("hgx-h100", "H100"), ("hgx-h200", "H200"), ("hgx-b200", "B200"), ("dgx-a100", "A100"))
MIB = 2.0**20
TEN_NODES = "xxrjun_h100_c1_10n"
"""Source of most of the rows that the fabric was fitted on."""


def held_out_errors(
    rows: Sequence[Measured], links: Links, scopes: Sequence[str], kinds: Iterable[Callable[[Measured], bool]]
) -> list[tuple[Measured, float]]:
    """Rows with the relative error of a fit that saw none of their kind."""
    bare = replace(links, fits={name: value for name, value in links.fits.items() if name.startswith("net-eager")})
    found = []
    for held in kinds:
        fits = fit_collectives([row for row in rows if not held(row)], bare, scopes)
        for name in NODE_TERMS:
            left = [row for row in rows if held(row) and row.collective == name]
            if left:
                times = predicted(rows_of(left, name), bare, fits)
                found += [(row, float(time / (row.time or np.nan) - 1)) for row, time in zip(left, times, strict=True)]
    return found


SWITCH = "sizes where NCCL changes protocol: the jump in the rate of the size held out is in no other row"
CAUSES = {
    "B200": "LL128 is left for Simple between 8 and 16 MiB, which costs a factor of two; with one of the two sizes held out, "
    "nothing tells where. " + SWITCH,
    "A100": SWITCH,
    "H100": SWITCH,
    "H200": SWITCH,
    "together": "B200, see there",
    "10 nodes": "small messages of 8 GPUs a node, fitted on 1, 2 and 4",
    "GH200": "from 64 KiB to 1 MiB on 2-8 nodes NCCL stays on LL, and around 1-2 MiB a rank it takes slow rings: up to ten "
    "times slower than the other choice; the price takes the fastest. Choosing as NCCL's own model does explains the change on 2 and "
    "8 nodes, but comes one size late on 32 and 64, and is no better over all",
    "in a node": "one form for 1 to 22 experts a token: 64 to 1,024 tokens come out 5-10 % too fast",
    "held out nodes": "two node counts: each is predicted from the other alone, so what a node costs is a prior",
    "congested": "the network of the table is congested there: a property of that fabric, not of the transport",
    "elsewhere": "networks of other makes and states, which the fit knows nothing of",
    "num_sms": "dispatches on 2 nodes: with 12 SMs the table is 14-27 % slower than between 8 and 16 SMs, with 4 SMs 10-14 % faster",
}
"""What limits a line that misses its target."""


@dataclass(frozen=True)
class Part:
    """Rows of one line: their sizes or tokens, and relative errors of a fit that did not see them."""

    what: str
    split: str
    sizes: Sequence[float]
    errors: Sequence[float]
    target: str
    cause: str = ""

    @property
    def met(self) -> bool | None:
        """Whether median and 90 % quantile are within the target; None where there is none."""
        if not self.target:
            return None
        limits = [float(part) / 100 for part in self.target.split(" / ")]
        found = np.quantile(np.abs(self.errors), [0.5, 0.9])
        return bool(found[0] <= limits[0] and found[1] <= limits[1])

    def line(self) -> str:
        """Line of the table; a cause stands where the target is missed."""
        values = np.array(self.errors)
        median, p90 = np.quantile(np.abs(values), [0.5, 0.9])
        target = f"{self.target} %" if self.target else ""
        told = f"{median:.1%} / {p90:.1%} | {np.median(values):+.1%} | {target}"
        cause = "" if self.met else CAUSES[self.cause]
        met = {True: "yes", False: "no", None: ""}[self.met]
        return f"| {self.what} | {self.split} | {len(values):,} | {told} | {met} | {cause} |"


def one_node() -> list[Part]:
    """8 GPUs of one node, every fifth size held out."""
    parts: list[Part] = []
    for node, name in NODES:
        gpu = library.get("nodes", node).gpu
        rows = [row for row in read_measured(PACKAGE, gpu).rows if row.ranks == 8]
        sizes = {size: index % FOLDS for index, size in enumerate(sorted({row.size for row in rows}))}
        kinds = [lambda row, fold=fold, sizes=sizes: sizes[row.size] == fold for fold in range(FOLDS)]
        found = held_out_errors(rows, links_of(node), NODE_SCOPES[:1], kinds)
        parts.append(_part(f"NCCL, 8 {name} of one node, 1 MiB and more", "size", found, MIB, "3.5 / 10", name))
    sizes, errors = ([value for part in parts for value in getattr(part, name)] for name in ("sizes", "errors"))
    return [*parts, Part("the four together", "size", sizes, errors, "3.5 / 10", "together")]


def _part(
    what: str, split: str, found: Sequence[tuple[Measured, float]], least: float, target: str, cause: str
) -> Part:
    kept = [(row.size, error) for row, error in found if row.size >= least]
    return Part(what, split, [size for size, _ in kept], [error for _, error in kept], target, cause)


def across(table: MeasuredTable) -> list[Part]:
    """Ten nodes of H100, and GH200."""
    ten = [row for row in table.rows if row.source.startswith(TEN_NODES)]
    collectives = [row for row in ten if row.collective != "send-recv"]
    kinds = [lambda row, kind=kind: row.per_node == kind for kind in (1.0, 2.0, 4.0, 8.0)]
    found = held_out_errors(collectives, links_of("hgx-h100"), ("net",), kinds)
    parts = [_part("NCCL, 10 nodes of H100, 64 MiB and more", "GPUs a node", found, 64e6, "10 / 25", "10 nodes")]
    messages = [row for row in ten if row.collective == "send-recv" and not row.flagged]
    found = held_out_errors(messages, links_of("hgx-h100"), ("net",), kinds)
    parts.append(_part("NCCL send-recv, the same", "GPUs a node", found, 64e6, "10 / 25", "10 nodes"))
    parts.append(elsewhere(table))
    alps = [row for row in table.rows if gpu_of(row.gpu) == "gh200"]
    nodes = sorted({row.nodes for row in alps if row.nodes > 1})
    kinds = [lambda row, kind=kind: row.nodes == kind for kind in nodes]
    found = held_out_errors(alps, links_of("gh200-slingshot"), ("net", "two"), kinds)
    parts.append(_part("GH200 all-reduce, 2-512 nodes", "nodes", found, 0, "15 / 35", "GH200"))
    return parts


def elsewhere(table: MeasuredTable) -> Part:
    """All-reduce between H100 nodes of other clusters than the one that the fabric was fitted on, by the shipped fit."""
    rows = [
        row
        for row in priced_collectives(table)["rows"]
        if row["error"] is not None
        and "ANOMALY" not in row["notes"]
        and not row["source_id"].startswith(TEN_NODES)
        and OPERATIONS.get(row["op"]) == "all-reduce"
        and gpu_of(row["gpu"]) == "h100-sxm-80gb"
        and float(row["nranks"]) > float(row["gpus_per_node"] or 8)
        and float(row["size_bytes"]) >= 64e6
    ]
    sizes, errors = ([float(row[name]) for row in rows] for name in ("size_bytes", "error"))
    return Part("NCCL all-reduce between H100 nodes, other clusters", "all rows", sizes, errors, "", "elsewhere")


def deepep() -> list[Part]:
    """DeepEP on H100."""
    constants = {name: one.value for name, one in library.uncalibrated_transport("deepep").constants.items()}
    wires = wire_bandwidth("h100-sxm-80gb")
    inside, between = read_deepep("h100-sxm-80gb", False), read_deepep("h100-sxm-80gb", True)
    congested = between[between.nodes >= CONGESTED].reset_index(drop=True)
    between = between[between.nodes < CONGESTED].reset_index(drop=True)
    parts = []
    for what, rows, by, cause in (
        ("DeepEP in a node", inside, ("hidden", "top_k"), "in a node"),
        ("DeepEP across 2 and 4 nodes", between, ("nodes",), "held out nodes"),
        ("DeepEP across 2 and 4 nodes", between, ("num_sms",), "num_sms"),
    ):
        held, times = fold_errors(rows, by, what != "DeepEP in a node", constants, wires)
        errors = (times / held.time_s.to_numpy() - 1).tolist()
        parts.append(Part(what, ", ".join(by), held.tokens.tolist(), errors, "5 / 12", cause))
    errors, tokens = [], []
    for direction, held in congested.groupby("direction"):
        fit = fit_leg(between[between.direction == direction], True, constants, wires)
        times = Legs(held.reset_index(drop=True)).seconds({**constants, **fit.values})
        errors += (times / held.time_s.to_numpy() - 1).tolist()
        tokens += held.tokens.tolist()
    parts.append(Part("DeepEP across 8 nodes", "fit on 2 and 4 nodes", tokens, errors, "", "congested"))
    return parts


def draw(parts: Sequence[Part], path: Path) -> None:
    """Errors over size, one panel a line of the table; those that miss their target in red."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "moesim", "font.size": 8}):
        columns = 3
        rows = -(-len(parts) // columns)
        figure = Figure(figsize=(11, 2.4 * rows), layout="constrained")
        for axes, part in zip(figure.subplots(rows, columns).flat, parts, strict=False):
            colour = {True: "#1f77b4", False: "#d62728", None: "#7f7f7f"}[part.met]
            jitter = np.random.default_rng(0).uniform(0.9, 1.1, len(part.sizes))
            axes.plot(
                np.array(part.sizes) * jitter,
                100 * np.array(part.errors),
                ".",
                color=colour,
                markersize=2,
                rasterized=True,
            )
            axes.axhline(0, color="black", linewidth=0.6)
            axes.set_xscale("log")
            axes.set_ylim(-100, 100)
            axes.set_title(f"{part.what}, by {part.split}", fontsize=8)
            axes.set_xlabel("tokens" if part.what.startswith("DeepEP") else "size [B]")
            axes.set_ylabel("error [%]")
        for axes in figure.axes[len(parts) :]:
            axes.remove()
        figure.savefig(path, dpi=120, metadata={"Date": None})


def coverage() -> list[str]:
    """Share of held-out rows inside the 90 % interval of each shipped calibration."""
    lines = []
    for name in library.names("calibrations"):
        one = library.get("calibrations", name)
        if one.family in ("collectives", "transport"):
            lines += [
                f"| {name} | {rows} | {found.count:,} | {found.coverage:.1%} |"
                for rows, found in one.scores.items()
                if found.coverage is not None and "1 MiB" not in rows
            ]
    return lines


def slow_cases(table: MeasuredTable) -> list[str]:
    """Lines on how many slow runs are called sick; flags are about a rate where they speak of no wrong data."""
    rows = [row for row in priced_collectives(table)["rows"] if row["error"] is not None]
    share = {id(row): row["predicted_time_s"] / (float(row["time_us"]) * 1e-6) for row in rows}
    flagged = [row for row in rows if flags(row["notes"], OPERATIONS[row["op"]]) and "wrong" not in row["notes"]]
    slow = [row for row in flagged if share[id(row)] <= 0.7]
    plain = [row for row in rows if "ANOMALY" not in row["notes"] and "FAILED" not in row["notes"]]
    caught, alarms = (sum(row["slow"] for row in some) for some in (slow, plain))
    runs = Counter(row["source_id"] for row in slow if not row["slow"]).most_common()
    told_of = ", ".join(f"{count} of {run}" for run, count in runs)
    unsure = sum(row["verdict"] == "cannot tell" for row in rows)
    wrong = [row for row in rows if "#wrong" in row["notes"] and "#wrong N/A" not in row["notes"]]
    told = sum(row["verdict"] == "corrupt" for row in wrong)
    return [
        f"* flagged rows at 70 % of the expected rate and less that are called sick: {caught} of {len(slow)}"
        f" ({caught / max(len(slow), 1):.0%}; target 80 %)",
        f"* the others get 'cannot tell' with the causes: {told_of}",
        f"* rows without a flag that are called sick: {alarms} of {len(plain):,} ({alarms / len(plain):.1%}; target 5 %)",
        f"* rows much slower than expected of which nothing more can be told: {unsure} of {len(rows):,}",
        f"* rows flagged for wrong data that are reported corrupt: {told} of {len(wrong)}",
    ]


HEAD = """\
# Accuracy of collectives and expert transports

Errors of time on rows that the fit did not see: median and 90 % quantile of the absolute relative error; the bias is the median of
the signed one, predicted over measured minus one. Written by `docs/make_accuracy_collectives.py`; rows used for fitting are
not counted. The shipped calibrations use all rows of the same tables, so those rows are no validation of them.

| what | held out by | rows | median / p90 | bias | target | met | what limits it |
| --- | --- | ---: | ---: | ---: | ---: | --- | --- |
"""


COVERAGE = """\

![Errors of the rows over their size](figures/collective_residuals.svg)

Errors over size: blue where the target is met, red where it is missed, grey where there is none.

## Coverage of the 90 % intervals

| calibration | rows | count | inside |
| --- | --- | ---: | ---: |
"""


def main() -> None:
    """Write the page and the picture of the errors."""
    table = read_collective_csv(Path(sys.argv[1]))
    health = slow_cases(table)
    parts = [*one_node(), *across(table), *deepep()]
    draw(parts, PAGE.parent / "figures" / "collective_residuals.svg")
    lines = "\n".join(part.line() for part in parts)
    text = HEAD + lines + "\n" + COVERAGE + "\n".join(coverage()) + "\n\n## Slow runs\n\n" + "\n".join(health) + "\n"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
