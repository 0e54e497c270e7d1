"""Fill the tables of docs/accuracy_ablations.md: ``python docs/make_accuracy_ablations.py``.

Published ablations beside the estimates of their pairs, from scenarios/tables/ablation_pairs.csv. Each table stands
between ``<!-- NAME -->`` and ``<!-- end -->``; the text around is written by hand. A miss without a cause in
`CAUSES` stops it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from ablation_causes import CAUSES
from accuracy_stamp import ABLATIONS, stamp
from refresh import signed, table

from moesim.report.ablations import effect, verdict
from moesim.studies.ablation_table import REASONS, read_pairs, shipped_pairs
from moesim.studies.ablations import Scored, grouped, omissions, scored, summary

PAGE = Path(__file__).with_name("accuracy_ablations.md")
OFF = 0.4
"""Error of a size from which a pair is a miss. [-]"""


def is_miss(row: Scored) -> bool:
    """Whether a pair has the wrong direction, or a size that is far off."""
    return row.right is not None and (not row.right or (row.size_error or 0.0) > OFF)


def cause(name: str) -> str | None:
    """Cause of a miss."""
    return next((text for pattern, text in CAUSES.items() if re.fullmatch(pattern, name)), None)


def real(text: str) -> str:
    """Per cent with a real minus."""
    return text.replace("-", "\u2212").replace("%", " %")


def share(value: float | None) -> str:
    """Per cent, without a sign."""
    return "" if value is None else signed(value).removeprefix("+")


def summary_table(rows: Sequence[Scored]) -> str:
    """Directions and sizes, by kind of method and by where the runs come from."""
    head = ["", "pairs", "above 3 %", "right direction", "share", "median error of the size"]

    def line(name: str, found: dict[str, object]) -> list[str]:
        counts = [str(found[key]) for key in ("pairs", "counted", "right")]
        return [name, *counts, share(found["right_share"]), share(found["size_error"])]

    lines = [line(str(group["group"]), group) for group in grouped(rows)[:-1]]
    lines += [line(f"both sides: {group['shared']}", group) for group in grouped(rows, ("shared",))[:-1]]
    slots = [row for row in rows if row.metric.startswith("slot_")]
    lines += [line("of these, schedules in slots", summary(slots))]
    lines += [line("**all**", summary([row for row in rows if row.status == "estimated"]))]
    return table(head, lines)


def pair_table(rows: Sequence[Scored]) -> str:
    """Every pair."""
    head = ["pair", "method", "metric", "what moves", "published", "predicted", "error of the size", "direction"]
    lines = [
        [
            f"`{row.pair_id}`" + (" *" if row.shared_with_runs else ""),
            row.method,
            row.metric.replace("_", " "),
            real(row.moves),
            real(effect(row.published_effect)),
            real(effect(row.predicted_effect)),
            "" if row.right is None else share(row.size_error),
            "**wrong**" if row.right is False else verdict(row),
        ]
        for row in rows
        if row.status == "estimated"
    ]
    return table(head, lines, left=4) + "\n\n\\* two rows of the run table."


def miss_table(rows: Sequence[Scored]) -> str:
    """Misses with their causes, pairs of one cause together."""
    by_cause: dict[str, list[str]] = {}
    unnamed = []
    for row in filter(is_miss, rows):
        text = cause(row.pair_id)
        unnamed += [] if text else [row.pair_id]
        effects = real(f"{effect(row.predicted_effect)} for {effect(row.published_effect)}")
        by_cause.setdefault(text or "?", []).append(f"`{row.pair_id}` {effects}")
    if unnamed:
        raise SystemExit(f"no cause is named for {', '.join(unnamed)}: add it to CAUSES")
    return table(
        ["pairs, predicted for published", "cause"],
        [["; ".join(names), text] for text, names in by_cause.items()],
        left=2,
    )


def omission_table(rows: Sequence[Scored]) -> str:
    """Rows that are no pairs, by reason."""
    lines = []
    for reason, count in omissions(rows).items():
        names = [row.pair_id for row in rows if row.status == "left out" and row.reason == reason]
        lines.append([reason, REASONS[reason], str(count), " ".join(names)])
    return table(["reason", "", "rows", ""], lines, left=2)


def main() -> None:
    """Fill the page."""
    rows = list(scored(list(read_pairs(shipped_pairs())), os.cpu_count() or 1))
    refused = [f"{row.pair_id}: {row.reason}" for row in rows if row.status == "refused"]
    if refused:
        raise SystemExit("refused: " + "; ".join(refused))
    parts = {
        "date": f"Tables of {date.today():%Y-%m-%d}, made by `make accuracy` for `stamp {stamp(ABLATIONS)}`.",
        "summary": summary_table(rows),
        "pairs": pair_table(rows),
        "misses": miss_table(rows),
        "left out": omission_table(rows),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, content in parts.items():
        whole = f"<!-- {name} -->\n{content}\n<!-- end -->"
        text, count = re.subn(rf"<!-- {name} -->.*?<!-- end -->", lambda _, new=whole: new, text, flags=re.S)
        assert count == 1, name
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
