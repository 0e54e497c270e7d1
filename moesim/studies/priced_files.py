"""Files of measured collectives and expert exchanges, whichever form they have."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.spec import library
from moesim.spec.spellings import gpu_of
from moesim.studies.collective_tables import group_of, priced_collectives
from moesim.studies.collectives import Setting
from moesim.studies.exchange_tables import priced_exchanges
from moesim.traces.collective_files import read_collective_file
from moesim.traces.collective_table import Measured


def priced_table(
    path: Path,
    cluster: Setting | None = None,
    *,
    collective: str | None = None,
    ranks: int | None = None,
    per_node: int | None = None,
) -> dict[str, Any]:
    """Rows and summary of measured collectives (CSV or log), or of a CSV of expert exchanges, by its columns.

    Parameters
    ----------
    cluster
        Where it was measured; by default what each row says.
    collective, ranks, per_node
        What a log does not say itself. [-]

    Raises
    ------
    SpecError
        Where no row can be priced, with the reasons.
    """
    if _is_exchange(path):
        if cluster is not None:
            raise SpecError.single("--cluster", "", f"'{path}' names the GPU of each exchange", "leave it out")
        found = priced_exchanges(path)
    else:
        table = read_collective_file(path, collective=collective, ranks=ranks, per_node=per_node)
        found = priced_collectives(table, cluster)
    if not found["rows"]:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in found["summary"]["refused"].items())
        raise SpecError.single(str(path), "", f"no row can be priced: {reasons}")
    return found


def rows_like(path: Path, collective: str, where: Setting) -> list[Measured]:
    """Measured rows of one collective on as many ranks and nodes of the same GPU.

    Raises
    ------
    SpecError
        Where there is none, with what the rows are instead.
    """
    gpu = library.get("nodes", where.node).gpu
    others: Counter[str] = Counter()
    found = []
    for row in read_collective_file(path).rows:
        if row.collective != collective:
            others["another collective"] += 1
        elif gpu_of(row.gpu) != gpu:
            others["another GPU"] += 1
        elif (row.ranks, group_of(row, where.node).nodes) != (where.group.size, where.group.nodes):
            others["other ranks or nodes"] += 1
        elif row.time is None:
            others["no time"] += 1
        else:
            found.append(row)
    if not found:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in others.items())
        what = f"no row of {collective} on {where.group.size:.0f} {gpu} in {where.group.nodes:.0f} domains: {reasons}"
        raise SpecError.single(str(path), "", what)
    return found


def _is_exchange(path: Path) -> bool:
    if not path.is_file() or path.suffix != ".csv":
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return "tokens_per_rank" in file.readline()
