"""Tables of docs/accuracy.md about the published runs that come with moesim, from one validation of all of them."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from accuracy_causes import TARGET_CAUSES
from refresh import signed, table

from moesim.report.validate import VERDICTS, scatter
from moesim.spec import steps
from moesim.studies.targets import Line, ratios, targets
from moesim.studies.validate import Row, grouped, orders, shipped_table, validated

GIB = 2**30
FIGURES = Path(__file__).with_name("figures")


def validation(jobs: int) -> tuple[list[Row], list[Line]]:
    """Every published run with its estimate and its error budget, and the lines of the targets; timed without budgets."""
    started = time.perf_counter()
    list(validated(shipped_table(), jobs))
    elapsed = time.perf_counter() - started
    rows = list(validated(shipped_table(), jobs, budget=True))
    return rows, targets(rows, elapsed)


def run_parts(rows: Sequence[Row], lines: Sequence[Line]) -> dict[str, str]:
    """Content of each table by its name."""
    scatter(rows, FIGURES / "accuracy_runs.svg")
    estimated = [row for row in rows if row.status == "estimated"]
    return {
        "targets": target_table(lines),
        "families": family_table(rows),
        "ratios": ratio_table(rows),
        "orders": order_table(rows),
        "fitted": fitted_table(),
        "coverage": coverage_table(rows),
        "fit": verdict_table(estimated),
        "medians": stack_table(error_frame(estimated)),
        "weakest": weakest_table(error_frame(estimated)),
    }


def percent(value: float | None) -> str:
    """Per cent with one decimal; nothing for nothing."""
    return "" if value is None else f"{value:.1%}".replace("%", " %")


def spaced(text: str) -> str:
    """Text with a space before each per cent sign and a real minus."""
    return re.sub(r"(?<=\d)%", " %", re.sub(r"(?<!\d)-(?=[\d.]+ ?%)", "\u2212", text))


def target_table(lines: Sequence[Line]) -> str:
    """What was asked, what is reached, and the cause of each miss."""
    rows, unnamed = [], []
    for line in lines:
        cause = next((text for start, text in TARGET_CAUSES.items() if line.name.startswith(start)), "")
        if line.met is False and not cause:
            unnamed.append(line.name)
        told = f"**missed**: {cause}" if line.met is False else VERDICTS[line.met]
        rows.append([line.name, spaced(line.target), spaced(line.reached), str(line.count), told])
    if unnamed:
        raise SystemExit(f"no cause is named for: {'; '.join(unnamed)}: add it to TARGET_CAUSES")
    return table(["what", "target", "reached", "n", ""], rows, left=3)


def family_table(rows: Sequence[Row]) -> str:
    """Errors by family, with the guess of a constant MFU beside them."""
    cells = []
    for group in grouped(rows):
        time_, memory = group["time"] or {}, group["memory"] or {}
        tau = "" if group["kendall"] is None else f"{group['kendall']:.2f} ({group['kendall_groups']})"
        cells.append(
            [
                str(group["family"]),
                str(time_.get("count", "")),
                *(percent(time_.get(name)) for name in ("median", "p90")),
                signed(time_["bias"]) if time_ else "",
                *(percent(value) for value in (time_.get("within_10"), time_.get("within_20"))),
                *(percent(value) for value in (group["floor"], group["coverage"])),
                tau,
                str(memory.get("count", "")),
                *(percent(memory.get(name)) for name in ("median", "p90")),
            ]
        )
    head = ["family", "timed", "median", "p90", "bias", "within 10 %", "within 20 %", "constant MFU", "in interval"]
    return table([*head, "tau (groups)", "with memory", "median", "p90"], cells)


def ratio_table(rows: Sequence[Row]) -> str:
    """Pairs of the Olmo-core report."""
    cells = [
        [
            one.ratio.name,
            f"`{one.ratio.before}` to `{one.ratio.after}`",
            signed(one.measured - 1),
            signed(one.predicted - 1),
            ("right" if one.right else "**wrong**") + (", sign only" if one.ratio.only_sign else ""),
        ]
        for one in ratios(rows)
    ]
    return table(["what changes", "runs", "measured", "predicted", ""], cells, left=2)


def order_table(rows: Sequence[Row]) -> str:
    """Rank correlation of every four and more layouts of one job."""
    found = sorted(orders(rows), key=lambda one: one.tau)
    return table(["job", "layouts", "tau"], [[one.group, str(one.count), f"{one.tau:+.2f}"] for one in found])


def fitted_table() -> str:
    """What the shipped calibration of steps says of each family."""
    one = steps.shipped()
    if one is None:
        return "None is shipped."
    families: dict[str, dict[str, str]] = {}
    for name, value in one.values().items():
        family, _, path = name.partition(".")
        families.setdefault(family, {})[path] = f"{value:.2f}"
    paths = [number.path for number in steps.step_fits().parameters]
    cells = []
    for family in steps.step_fits().families:
        before, after = one.scores.get(f"{family}, as sourced"), one.scores.get(f"{family}, cross-validated")
        if before is None:
            continue
        told = [
            f"{score.median:.1%} / {score.p90:.1%}".replace("%", " %") if score else "" for score in (before, after)
        ]
        factors = families.get(family, {})
        cells.append([family, str(before.count), *told, *(factors.get(path, "1") for path in paths)])
    return table(["family", "runs", "as sourced", "cross-validated", *(f"`{path}`" for path in paths)], cells)


def coverage_table(rows: Sequence[Row]) -> str:
    """Rows of the run table: estimated, or refused by reason."""
    reasons: Counter[str] = Counter()
    for row in rows:
        if row.status == "refused":
            rule, _, why = row.reason.partition(": ")
            plain = re.sub(r" \(.*|^unsupported:", "", why)
            reasons[plain if rule == "not-modelled-yet" else f"{rule}: {row.run_id}, {why}"] += 1
    cells = [["rows", str(len(rows))], ["estimated", str(sum(row.status == "estimated" for row in rows))]]
    cells += [[f"refused: {reason}", str(count)] for reason, count in reasons.most_common()]
    return table(["", "rows"], cells)


def verdict_table(rows: Sequence[Row]) -> str:
    """Rows that fitted and are predicted not to, and the other way round."""
    cells = [
        [
            row.run_id,
            f"{row.model}, {row.gpu}",
            "out of memory" if row.measured_oom else "fits",
            f"{(row.predicted_peak_bytes or 0.0) / GIB:.1f} {row.memory_kind}",
        ]
        for row in rows
        if row.predicted_oom != row.measured_oom
    ]
    return table(["row", "", "status", "predicted, GiB"], cells, left=3)


def error_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Signed errors of every estimated row."""
    return pd.DataFrame(
        {
            "stack": row.stack,
            "GPU": row.gpu,
            "model": row.model,
            "kind": "mixture of experts" if row.is_moe else "dense",
            "time": np.nan if row.time_error is None else row.time_error,
            "memory": np.nan if row.memory_error is None else row.memory_error,
        }
        for row in rows
    )


def medians(frame: pd.DataFrame, by: list[str]) -> list[list[str]]:
    """Medians of the signed and of the absolute errors, by some columns."""
    rows = []
    for key, part in frame.groupby(by):
        cells = [str(len(part))]
        for column in ("time", "memory"):
            values = part[column].dropna()
            two = [signed(values.median()), percent(values.abs().median())] if len(values) else ["", ""]
            cells += two if column == "time" else [str(len(values)) if len(values) else "", *two]
        rows.append([*map(str, key), *cells])
    return rows


def stack_table(frame: pd.DataFrame) -> str:
    """Errors by stack and GPU, and over all."""
    rows = medians(frame, ["stack", "GPU"])
    rows += medians(frame.assign(all="all rows"), ["all", "kind"])
    rows += medians(frame.assign(all="all rows", any=""), ["all", "any"])
    head = ["stack", "GPU", "rows", "time, median", "absolute", "with memory", "memory, median", "absolute"]
    return table(head, rows, left=2)


def weakest_table(frame: pd.DataFrame, number: int = 12) -> str:
    """Families of rows with the largest median error of the step time."""
    by = ["stack", "GPU", "model"]
    timed = frame.dropna(subset="time").groupby(by)["time"].agg(["size", "median"])
    timed = timed[timed["size"] > 1]
    worst = timed.reindex(np.abs(np.log1p(timed["median"])).sort_values(ascending=False).index).head(number)
    rows = [[*map(str, key), f"{row['size']:.0f}", signed(row["median"])] for key, row in worst.iterrows()]
    return table([*by, "rows", "time, median"], rows, left=3)
