"""Measured collectives: one row a message size, whatever file it came from, and what had to be left out."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moesim.base.errors import SpecError, did_you_mean

OPERATIONS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "all_to_all": "all-to-all",
    "sendrecv": "send-recv",
    "send_recv": "send-recv",
}
"""Names of nccl-tests and of the project."""
ELEMENTS = "message_size counts elements: write size_bytes, that times the bytes of an element"
AGREE = 1.2
"""Ratio up to which size over time and the rate of the same row agree. [-]"""
RAGGED = "more cells than the header has"
NEEDED = ("gpu", "op", "size_bytes", "nranks")
CORRUPT = ("corruption", "#wrong is non-zero", "wrong elements")


FLAG = re.compile(r"\bANOMALY\b[^:;]*:?\s*(\w+)")
"""How a note flags a row, and the word behind: an operation where the flag is about that one of the run only."""


@dataclass(frozen=True)
class Measured:
    """One measured collective.

    Attributes
    ----------
    collective
        As the project names it.
    size
        As nccl-tests count it. [B]
    ranks, per_node
        Ranks of the communicator, and how many of them one NVLink domain holds.
    time
        None where the row has none. [s]
    gpu, network
        As the file spells them.
    source
        Run or file.
    note
        What the file says beside.
    wrong
        Whether the data came out wrong.
    columns
        The row as it stands.
    """

    collective: str
    size: float
    ranks: float
    per_node: float
    time: float | None
    gpu: str = ""
    network: str = ""
    source: str = ""
    note: str = ""
    wrong: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def flagged(self) -> bool:
        """Whether the note calls it an anomaly; a flag that names one operation of a run is about that one."""
        return flags(self.note, self.collective)

    @property
    def nodes(self) -> float:
        """NVLink domains. [-]"""
        return float(math.ceil(self.ranks / self.per_node))


@dataclass(frozen=True)
class MeasuredTable:
    """Rows that can be used, and how many could not, by reason; ``lines``: results in a log, used or not."""

    rows: tuple[Measured, ...]
    refused: Counter[str]
    lines: int = 0


def read_collective_csv(path: Path) -> MeasuredTable:
    """Read a CSV with the columns ``gpu op size_bytes nranks`` and, where known, ``gpus_per_node time_us ...``.

    Raises
    ------
    SpecError
        Where the file has no header with the needed columns.
    """
    refused: Counter[str] = Counter()
    rows = []
    for line in csv_rows(path, NEEDED):
        row = _row(line)
        if isinstance(row, str):
            refused[row] += 1
        else:
            rows.append(row)
    return MeasuredTable(tuple(rows), refused)


def csv_rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a CSV whose header has the needed columns; a `SpecError` with one line for a file that is none."""
    where = str(path)
    if path.is_dir():
        raise SpecError.single(where, "", "is a folder", "name a CSV")
    if not path.is_file():
        raise SpecError.single(where, "", "there is no such file", "name a CSV")
    text = path.read_bytes()
    if not text.strip():
        raise SpecError.single(where, "", "is empty", f"a CSV has a header with {', '.join(needed)}")
    try:
        reader = csv.DictReader(text.decode("utf-8-sig").splitlines(), restkey=RAGGED, restval="")
        header, rows = tuple(reader.fieldnames or ()), list(reader)
    except (UnicodeDecodeError, csv.Error):
        raise SpecError.single(where, "", "is no text", f"give a CSV with {', '.join(needed)}") from None
    lacking = [name for name in needed if name not in header]
    if lacking:
        meant = f"; {ELEMENTS}" if "size_bytes" in lacking and "message_size" in header else ""
        what = f"no column {', '.join(lacking)}"
        raise SpecError.single(where, "", what, f"the header needs {', '.join(needed)}{meant}")
    if not rows:
        raise SpecError.single(where, "", "has a header and no rows")
    return rows


def _row(line: dict[str, str]) -> Measured | str:
    if RAGGED in line:
        return RAGGED
    collective = OPERATIONS.get(line["op"].strip().lower().replace("-", "_"))
    if collective is None:
        return f"operation '{line['op']}' is not priced"
    size, ranks = number(line["size_bytes"]), number(line["nranks"])
    if size is None:
        return "no size"
    if size <= 0:
        return "size is zero"
    if ranks is None or ranks < 2:
        return "no ranks to talk to"
    if odd := _odd_counts(line, ranks):
        return odd
    time = number(line.get("time_us"))
    if time is not None and time <= 0:
        return "time is zero"
    rate = number(line.get("algbw_gbps"))
    if time is not None and rate and rate > 1 and not 1 / AGREE < size * 1e-3 / time / rate < AGREE:
        return "size_bytes over time_us is not algbw_gbps: sizes in elements, or another unit of time"
    note = line.get("notes") or ""
    per_node = number(line.get("gpus_per_node")) or 8.0
    wrong = (number(line.get("wrong")) or 0) > 0 or any(word in note.lower() for word in CORRUPT)
    network = " ".join(line.get(name) or "" for name in ("interconnect", "nic"))
    return Measured(
        collective,
        size,
        ranks,
        min(per_node, ranks),
        None if time is None else time * 1e-6,
        line["gpu"],
        network,
        line.get("source_id") or "",
        note,
        wrong,
        dict(line),
    )


def flags(note: str, collective: str) -> bool:
    """Whether a note flags the rows of a collective.

    Examples
    --------
    >>> flags("ANOMALY: sendrecv 15 GB/s", "all-gather"), flags("ANOMALY: 46 GB/s", "all-gather")
    (False, True)
    """
    return any(OPERATIONS.get(word.lower(), collective) == collective for word in FLAG.findall(note))


def _odd_counts(line: Mapping[str, str], ranks: float) -> str:
    """What is wrong with the counts of ranks, GPUs a node and nodes; empty where they go together."""
    per_node, nodes = number(line.get("gpus_per_node")), number(line.get("num_nodes"))
    for name, count in (("nranks", ranks), ("gpus_per_node", per_node), ("num_nodes", nodes)):
        if count is not None and (count < 1 or count != int(count)):
            return f"{name} is no whole number above zero"
    if per_node and nodes and math.ceil(ranks / per_node) != nodes:
        return "nranks is not num_nodes times gpus_per_node"
    return ""


def operation_named(text: str, option: str) -> str:
    """Collective that a spelling means, with or without strokes: ``allreduce``, ``all_reduce``, ``all-reduce``."""
    known = {name.replace("_", ""): collective for name, collective in OPERATIONS.items()}
    found = known.get(text.lower().replace("-", "").replace("_", ""))
    if found is None:
        raise SpecError.single(option, "", f"no collective '{text}'", did_you_mean(text, OPERATIONS))
    return found


def number(text: str | None) -> float | None:
    """Return a finite number in a cell; None for a cell that holds none (empty, ``N/A``, ``nan``).

    Examples
    --------
    >>> number("1e+06"), number("N/A"), number(" 35.0 ")
    (1000000.0, None, 35.0)
    """
    try:
        value = float((text or "").strip())
    except ValueError:
        return None
    return value if math.isfinite(value) else None
