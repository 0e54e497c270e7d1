"""From measured collectives to an overlay: which rows, how they are held out, what is kept of the residuals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from moesim.base.errors import SpecError
from moesim.calibrate.collectives import ACROSS, FEWEST, NODE_TERMS, fit_collectives, predicted, rows_of, scope_of
from moesim.calibrate.overlay import Overlay
from moesim.calibrate.score import interval, score, spreads
from moesim.cost.machine import Links
from moesim.spec import library
from moesim.spec.spellings import gpu_of
from moesim.traces.aiconfigurator_nccl import PACKAGE, read_nccl_table
from moesim.traces.collective_files import read_collective_file
from moesim.traces.collective_table import Measured, MeasuredTable

FOLDS = 5
LARGE, FAR = 2.0**25, 1.6
"""Size from which links decide, and the ratio of expected and measured time beyond which rows are doubted: sizes in elements of
two bytes are off by 2; the medians of all tables at hand lie between 0.8 and 1.1. [B, -]"""
NODE_SCOPES, NET_SCOPES = ("node", "quad", "pair"), ("net", "two")


def read_measured(source: str, gpu: str, *, collective: str | None = None) -> MeasuredTable:
    """Read rows from the package, a CSV, or a log of nccl-tests."""
    if source == PACKAGE:
        return read_nccl_table(gpu)
    return read_collective_file(Path(source), collective=collective)


def chosen_rows(table: MeasuredTable, gpu: str, scopes: Sequence[str], match: str = "") -> MeasuredTable:
    """Rows of a GPU in the scopes, whose source starts with ``match``; the others counted by reason."""
    rows: list[Measured] = []
    refused = Counter(table.refused)
    for row in table.rows:
        spelled = gpu_of(row.gpu) if row.gpu else gpu
        if not row.source.startswith(match):
            refused["another source"] += 1
        elif spelled is None:
            refused["unknown GPU"] += 1
        elif spelled != gpu:
            refused["another GPU"] += 1
        elif scope_of(row) not in scopes:
            refused["another scope"] += 1
        elif row.time is None:
            refused["no time"] += 1
        elif row.wrong:
            refused["data came out wrong"] += 1
        elif row.flagged:
            refused["flagged as an anomaly"] += 1
        else:
            rows.append(row)
    return MeasuredTable(tuple(rows), refused)


def folds(rows: Sequence[Measured], scopes: Sequence[str]) -> tuple[str, list[Callable[[Measured], bool]]]:
    """How rows are held out: by GPUs a node or by nodes where there are three kinds of them, else every fifth size."""
    if scopes[0] in ACROSS:
        many = [row for row in rows if row.nodes > 2]
        shares = sorted({row.per_node for row in many})
        if (
            len(shares) > 2
        ):  # pairs of nodes have corrections of their own; without one they would be judged by another's
            pairs = [row for row in rows if row.nodes == 2]
            fewest = min(Counter(row.collective for row in pairs).values(), default=0)
            pairs_held = _size_folds(pairs, 2.0) if fewest >= 2 * FEWEST else []
            return "per_node", [partial(_is, "per_node", share) for share in shares] + pairs_held
        kinds = sorted({row.nodes for row in rows})
        if len(kinds) > 2:
            return "nodes", [partial(_is, "nodes", kind) for kind in kinds]
    return "size", _size_folds(rows)


def _size_folds(rows: Sequence[Measured], nodes: float | None = None) -> list[Callable[[Measured], bool]]:
    """Every fifth size, of rows on so many nodes where that is told."""
    sizes = sorted({round(np.log2(row.size)) for row in rows})
    places = {size: index % FOLDS for index, size in enumerate(sizes)}
    return [partial(_in_fold, places, fold, nodes) for fold in range(min(FOLDS, len(sizes)))]


def _is(name: str, kind: float, row: Measured) -> bool:
    return bool(getattr(row, name) == kind and (name == "nodes" or row.nodes > 2))


def _in_fold(places: Mapping[int, int], fold: int, nodes: float | None, row: Measured) -> bool:
    return nodes in (None, row.nodes) and places[round(np.log2(row.size))] == fold


def held_out_predictions(
    rows: Sequence[Measured], links: Links, scopes: Sequence[str]
) -> Iterator[tuple[list[Measured], np.ndarray]]:
    """Predictions of rows by fits that did not see them, with the rows."""
    _, parts = folds(rows, scopes)
    for held in parts:
        fits = fit_collectives([row for row in rows if not held(row)], links, scopes)
        for collective in NODE_TERMS:
            left = [row for row in rows if held(row) and row.collective == collective]
            if left:
                yield left, predicted(rows_of(left, collective), links, fits)


def plausible(rows: Sequence[Measured], links: Links, source: str) -> str:
    """A remark where large messages take far longer than the links need; empty otherwise.

    Raises
    ------
    SpecError
        Where they are faster than the links can be: the units are others, or the hardware is.
    """
    ratios: list[float] = []
    for collective in NODE_TERMS:
        large = [row for row in rows if row.collective == collective and row.size >= LARGE]
        if large:
            times = np.array([row.time for row in large], dtype=float)
            ratios += (predicted(rows_of(large, collective), replace(links, fits={})) / times).tolist()
    ratio = float(np.median(ratios)) if ratios else 1.0
    if ratio > FAR:
        what = f"messages are {ratio:.1f} times as fast as the links of the node can carry them"
        raise SpecError.single(source, "", what, "sizes in bytes and times in us, and the node they were measured on")
    if ratio < 1 / FAR:
        return f"messages take {1 / ratio:.1f} times as long as the links need: sizes in elements, slow runs or other links"
    return ""


def bare(links: Links) -> Links:
    """Links without corrections, as a fit from nothing sees them."""
    return replace(links, fits={name: value for name, value in links.fits.items() if name.startswith("net-eager")})


def checked(overlay: Overlay, rows: Sequence[Measured], links: Links, what: str) -> Overlay:
    """Return an overlay with its errors on rows that it did not see.

    Where their times lie in the 90 % intervals as often as they should, the sizes of these rows are covered too.
    """
    fits = {name: value for name, (value, _) in overlay.constants.items()}
    left: list[Measured] = []
    found: list[np.ndarray] = []
    for collective in NODE_TERMS:
        part = [row for row in rows if row.collective == collective and regime(row) in overlay.residuals]
        if part:
            left, found = [*left, *part], [*found, predicted(rows_of(part, collective), links, fits)]
    if not left:
        raise SpecError.single("--check", "", f"no row of {what} is like those that were fitted")
    predictions, measured = np.concatenate(found), np.array([row.time for row in left], dtype=float)
    low, high = interval(predictions, np.array([regime(row) for row in left]), overlay.residuals)
    told = score(predictions, measured, low, high)
    covered = dict(overlay.covered)
    if told.coverage is not None and told.coverage >= HELD:
        least, most = covered["size_bytes"]
        sizes = [row.size for row in left]
        covered["size_bytes"] = (min(least, *sizes), max(most, *sizes))
    return replace(overlay, covered=covered, scores={**overlay.scores, f"not fitted: {what}": told})


HELD = 0.85
"""Share of rows inside their 90 % intervals that says the intervals hold there. [-]"""


def collective_overlay(
    target: str, gpu: str, links: Links, table: MeasuredTable, scopes: Sequence[str], command: str, source: str
) -> Overlay:
    """Corrections of a node or a fabric, with the errors on rows that no fit saw.

    The corrections that the links have are where the fit starts from; it holds those only that the rows change.
    """
    rows = table.rows
    note = plausible(rows, links, command)
    fits = fit_collectives(rows, links, scopes)
    if max(Counter((row.collective, scope_of(row)) for row in rows).values()) < FEWEST:
        told = f"{len(rows)} usable rows of {gpu} hold no correction of {target}"
        raise SpecError.single(command, "", told, f"give at least {FEWEST} rows of one collective")
    if not fits:
        note = note or "the rows agree with the corrections so far: none is changed"
    left: list[Measured] = []
    found: list[np.ndarray] = []
    for part, times in held_out_predictions(rows, links, scopes):
        left, found = [*left, *part], [*found, times]
    predictions, measured = np.concatenate(found), np.array([row.time for row in left], dtype=float)
    regimes = np.array([regime(row) for row in left])
    known = spreads(np.log(predictions / measured), regimes)
    low, high = interval(predictions, regimes, known)
    how, _ = folds(rows, scopes)
    large = np.array([row.size >= 2**20 for row in left])
    sizes = [row.size for row in rows]
    return Overlay(
        name=f"{target}-collectives",
        gpu=target,
        family="collectives",
        source=source,
        version=", ".join(sorted({row.source for row in rows}))[:200] if source == PACKAGE_KEY else "",
        command=command,
        constants={name: (value, dimension(name)) for name, value in fits.items()},
        rows={"read": len(rows) + sum(table.refused.values()), "used": len(rows)},
        dropped=table.refused,
        covered={
            "size_bytes": (min(sizes), max(sizes)),
            "ranks": (min(row.ranks for row in rows), max(row.ranks for row in rows)),
            "nodes": measured_nodes(rows),
        },
        residuals=known,
        scores={
            f"held out by {how.replace('_', ' ')}": score(predictions, measured, low, high),
            f"held out by {how.replace('_', ' ')}, 1 MiB and more": score(
                predictions[large], measured[large], low[large], high[large]
            ),
        },
        summary=f"collectives of {target}: ratios to what NCCL predicts, fitted to measurements",
        note=note,
    )


def measured_nodes(rows: Sequence[Measured]) -> tuple[float, float]:
    """Range of nodes that every collective was measured on; the widest of one collective where they have none in common."""
    ranges = []
    for collective in sorted({row.collective for row in rows}):
        nodes = [row.nodes for row in rows if row.collective == collective]
        ranges.append((min(nodes), max(nodes)))
    low, high = max(one for one, _ in ranges), min(one for _, one in ranges)
    return (low, high) if low <= high else max(ranges, key=lambda one: one[1] - one[0])


PACKAGE_KEY = "aiconfigurator-tables"


def dimension(name: str) -> str:
    """Dimension of a correction; most are ratios."""
    return "bytes" if name.endswith("-most") else ""


def regime(row: Measured) -> str:
    """Regime whose residuals give a row its interval: scope and size."""
    size = "small" if row.size < 2**20 else "large"
    return f"{row.collective}-{'net' if row.nodes > 1 else 'node'}-{size}"


def links_of(node: str, fabric: str | None = None) -> Links:
    """Return the links of a node and of its usual or another fabric."""
    from moesim.cost.from_spec import build_links

    spec = library.get("nodes", node)
    return build_links(spec, library.get("nics", spec.nic), library.get("fabrics", fabric or spec.default_fabric), True)
