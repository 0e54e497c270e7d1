"""Write docs/accuracy_collectives.md: ``python docs/make_accuracy_collectives.py COLLECTIVES.csv``.

Needs the package aiconfigurator-core, and a CSV of measured collectives with the columns that the page names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from moesim.calibrate.collective_overlay import FOLDS, NODE_SCOPES, PACKAGE, links_of, read_measured
from moesim.calibrate.collectives import NODE_TERMS, fit_collectives, predicted, rows_of
from moesim.calibrate.transports import fold_errors, read_deepep
from moesim.cost.machine import Links
from moesim.spec import library
from moesim.spec.spellings import gpu_of
from moesim.studies.collective_tables import priced_collectives
from moesim.traces.collective_table import Measured, MeasuredTable, read_collective_csv

PAGE = Path(__file__).with_name("accuracy_collectives.md")
NODES = (("hgx-h100", "H100"), ("hgx-h200", "H200"), ("hgx-b200", "B200"), ("dgx-a100", "A100"))
MIB = 2.0**20


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


def line(what: str, split: str, errors: Sequence[float], target: str, cause: str = "") -> str:
    """One line of the table."""
    values = np.array(errors)
    median, p90 = np.quantile(np.abs(values), [0.5, 0.9])
    limits = [float(part) / 100 for part in target.split(" / ")]
    met = "yes" if median <= limits[0] and p90 <= limits[1] else "no"
    told = f"{median:.1%} / {p90:.1%} | {np.median(values):+.1%} | {target} %"
    return f"| {what} | {split} | {len(values):,} | {told} | {met} | {cause} |"


def one_node() -> list[str]:
    """Lines of 8 GPUs of one node, every fifth size held out."""
    lines, everything = [], []
    for node, name in NODES:
        gpu = library.get("nodes", node).gpu
        rows = [row for row in read_measured(PACKAGE, gpu).rows if row.ranks == 8]
        sizes = {size: index % FOLDS for index, size in enumerate(sorted({row.size for row in rows}))}
        kinds = [lambda row, fold=fold, sizes=sizes: sizes[row.size] == fold for fold in range(FOLDS)]
        errors = [
            error for row, error in held_out_errors(rows, links_of(node), NODE_SCOPES[:1], kinds) if row.size >= MIB
        ]
        everything += errors
        cause = "LL128 is left for Simple between sizes that the fit saw: 8 to 32 MiB" if name == "B200" else ""
        lines.append(line(f"NCCL, 8 {name} of one node, 1 MiB and more", "size", errors, "3.5 / 10", cause))
    return [*lines, line("the four together", "size", everything, "3.5 / 10")]


def across(table: MeasuredTable) -> list[str]:
    """Lines of ten nodes of H100 and of GH200."""
    ten = [row for row in table.rows if row.source.startswith("xxrjun_h100_c1_10n") and row.collective != "send-recv"]
    kinds = [lambda row, kind=kind: row.per_node == kind for kind in (1.0, 2.0, 4.0, 8.0)]
    found = held_out_errors(ten, links_of("hgx-h100"), ("net",), kinds)
    lines = [
        line(
            "NCCL, 10 nodes of H100, 64 MiB and more", "GPUs a node", [e for r, e in found if r.size >= 64e6], "10 / 25"
        )
    ]
    alps = [row for row in table.rows if gpu_of(row.gpu) == "gh200"]
    nodes = sorted({row.nodes for row in alps if row.nodes > 1})
    kinds = [lambda row, kind=kind: row.nodes == kind for kind in nodes]
    found = held_out_errors(alps, links_of("gh200-slingshot"), ("net", "two"), kinds)
    cause = (
        "64 KiB to 1 MiB on 2-8 nodes NCCL stays on LL, and around 1-2 MiB a rank it takes slow rings: up to ten times "
        "slower than the other choice; the price takes the fastest"
    )
    lines.append(line("GH200 all-reduce, 2-512 nodes", "nodes", [error for _, error in found], "15 / 35", cause))
    return lines


def deepep() -> list[str]:
    """Lines of DeepEP on H100."""
    constants = {name: one.value for name, one in library.uncalibrated_transport("deepep").constants.items()}
    inside, between = read_deepep("h100-sxm-80gb", False), read_deepep("h100-sxm-80gb", True)
    between = between[between.nodes < 8].reset_index(drop=True)
    lines = []
    for what, rows, by, cause in (
        ("DeepEP in a node", inside, ("hidden", "top_k"), "few experts a token, hidden size 2048"),
        ("DeepEP across 2 and 4 nodes", between, ("nodes",), "one node count is all that the fit sees"),
        ("DeepEP across 2 and 4 nodes", between, ("num_sms",), "12 SMs of the table are out of line"),
    ):
        held, times = fold_errors(rows, by, what != "DeepEP in a node", constants)
        errors = (times / held.time_s.to_numpy() - 1).tolist()
        lines.append(line(what, ", ".join(by), errors, "5 / 12", cause))
    return lines


def slow_cases(table: MeasuredTable) -> list[str]:
    """Lines on how many slow runs are called sick; flags are about a rate where they speak of no wrong data."""
    rows = [row for row in priced_collectives(table)["rows"] if row["error"] is not None]
    share = {id(row): row["predicted_time_s"] / (float(row["time_us"]) * 1e-6) for row in rows}
    flagged = [row for row in rows if "ANOMALY" in row["notes"] and "wrong" not in row["notes"]]
    slow = [row for row in flagged if share[id(row)] <= 0.7]
    plain = [row for row in rows if "ANOMALY" not in row["notes"] and "FAILED" not in row["notes"]]
    caught, alarms = (sum(row["slow"] for row in some) for some in (slow, plain))
    wrong = [row for row in rows if "#wrong" in row["notes"]]
    told = sum(row["verdict"] == "corrupt" for row in wrong)
    return [
        f"* flagged rows at 70 % of the expected rate and less that are called sick: {caught} of {len(slow)}"
        f" ({caught / max(len(slow), 1):.0%}; target 80 %)",
        f"* rows without a flag that are called sick: {alarms} of {len(plain):,} ({alarms / len(plain):.1%}; target 5 %)",
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


def main() -> None:
    """Write the page, part by part."""
    table = read_collective_csv(Path(sys.argv[1]))
    health = slow_cases(table)
    lines: list[str] = []
    for part in (one_node, lambda: across(table), deepep):
        lines += part()
        text = HEAD + "\n".join(lines) + "\n\n## Slow runs\n\n" + "\n".join(health) + "\n"
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
