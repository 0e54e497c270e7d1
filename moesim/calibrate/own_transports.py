"""Constants of a transport from a user's own table of dispatches and combines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from moesim.base.errors import SpecError
from moesim.calibrate.overlay import Overlay
from moesim.calibrate.score import Score, Spread, interval, score, spreads
from moesim.calibrate.transports import fit_leg, fold_errors, parameters, usual_node, wire_bandwidth
from moesim.cost.from_spec import link_scales, transport_constants
from moesim.cost.transports import distinct_groups
from moesim.spec import library
from moesim.traces.collective_table import csv_rows
from moesim.traces.exchange_table import EXCHANGE_COLUMNS, Exchange, exchange_of

FEWEST, FOLDS = 9, 3
"""Rows of one direction that a fit and its held-out thirds need."""
LOSSLESS, WORST = 1.15, 0.5
"""How much faster than its links a row may be; median error on rows held out above which no fit is handed over. [-]"""


def read_exchanges(path: Path, transport: str, gpu: str, num_sms: float) -> tuple[pd.DataFrame, Counter[str]]:
    """Return the rows of a transport on a GPU, and how many were left out by reason.

    Parameters
    ----------
    num_sms
        SMs of rows that do not tell theirs. [-]
    """
    dropped: Counter[str] = Counter()
    rows = []
    for line in csv_rows(path, (*EXCHANGE_COLUMNS, "time_us")):
        row = exchange_of(line)
        reason = row if isinstance(row, str) else _unfit(row, transport, gpu)
        if isinstance(row, str) or reason:
            dropped[str(reason)] += 1
            continue
        values = {name: getattr(row, name) for name in ("direction", "ranks", "per_node", "hidden", "top_k")}
        values |= {name: getattr(row, name) for name in ("num_experts", "tokens", "row_bytes")}
        nodes = float(np.ceil(row.ranks / row.per_node))
        rows.append(values | {"nodes": nodes, "num_sms": row.num_sms or num_sms, "time_s": row.time})
    return pd.DataFrame(rows), dropped


def _unfit(row: Exchange, transport: str, gpu: str) -> str:
    if row.transport != transport:
        return "another transport"
    if row.gpu != gpu:
        return "another GPU"
    if row.time is None:
        return "no time"
    if "ANOMALY" in row.columns.get("notes", ""):
        return "flagged as an anomaly"
    copies = float(distinct_groups(row.per_node, row.top_k, row.num_experts)) * (1 - 1 / row.per_node)
    wires = row.tokens * row.row_bytes * copies / library.get("gpus", gpu).nvlink_bandwidth.value
    return "faster than NVLink: another unit of time, or of tokens" if row.time < wires / LOSSLESS else ""


def own_transport_overlay(transport: str, gpu: str, path: Path, command: str) -> Overlay:
    """Constants of a transport from a CSV, starting from those that it has, with errors on thirds held out.

    Raises
    ------
    SpecError
        Where the rows are too few, or no fit of them foretells the others.
    """
    spec, node = library.get("transports", transport), usual_node(gpu)
    hardware = library.get("gpus", gpu), library.get("nodes", node), library.get("nics", library.get("nodes", node).nic)
    constants, wires = transport_constants(spec, *hardware), wire_bandwidth(gpu)
    table, dropped = read_exchanges(path, transport, gpu, constants["num_sms"])
    values: dict[str, tuple[float, str]] = {}
    residuals: dict[str, Spread] = {}
    scores: dict[str, Score] = {}
    used = []
    for where, across in (("intra", False), ("inter", True)):
        for direction in ("dispatch", "combine"):
            if table.empty:
                continue
            rows = table[(table.direction == direction) & ((table.nodes > 1) == across)]
            rows = rows.sort_values(["tokens", "hidden", "top_k"], kind="stable").reset_index(drop=True)
            if len(rows) < FEWEST:
                if len(rows):
                    dropped[f"fewer than {FEWEST} of {direction} ({where})"] += len(rows)
                continue
            inner = {name: value for name, (value, _) in values.items() if across and name.startswith("intra")}
            fit = fit_leg(rows, across, constants | inner, wires)
            dimensions = {one.name: one.dimension for one in parameters(direction, across, constants, wires)}
            values |= {name: (fit.values[name], dimensions[name]) for name in fit.free}
            folds = rows.assign(fold=np.arange(len(rows)) % FOLDS)
            held, times = fold_errors(folds, ["fold"], across, constants | inner, wires)
            measured = held.time_s.to_numpy()
            regimes = np.full(len(held), f"{where}-{direction}")
            known = spreads(np.log(times / measured), regimes)
            found = score(times, measured, *interval(times, regimes, known))
            if found.median > WORST:
                what = f"{direction} ({where}): a fit is {found.median:.0%} off on rows held out"
                raise SpecError.single(str(path), "", what, "check the units, and that the rows are of one transport")
            residuals |= {name: one for name, one in known.items() if name != "all"}
            scores[f"{where} {direction}, every third row held out"] = found
            used.append(rows)
    if not used:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in sorted(dropped.items()))
        what = f"no rows of {transport} on {gpu} to fit: {reasons}"
        raise SpecError.single(str(path), "", what, f"give at least {FEWEST} of one direction")
    for word, scale in link_scales(spec, *hardware).items():
        values |= {name: (one / scale, what) for name, (one, what) in values.items() if name.endswith(word)}
    rows = pd.concat(used)
    return Overlay(
        name=f"{transport}-transport",
        gpu=transport,
        family="transport",
        source=path.name,
        version="",
        command=command,
        constants=values,
        rows={"read": len(rows) + sum(dropped.values()), "used": len(rows)},
        dropped=dropped,
        covered={name: (float(rows[name].min()), float(rows[name].max())) for name in COVERED},
        residuals=residuals,
        scores=scores,
        summary=f"dispatch and combine of {transport} on {gpu}, fitted to measurements",
    )


COVERED = ("tokens", "hidden", "num_sms", "nodes")
