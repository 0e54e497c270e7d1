"""Nsight Compute: CSV of ``ncu --csv``, with its own lines and those of the program before it.

The details page has a row for each metric of a kernel; the raw page a row for each kernel, with units under the header.
Kernels are measured alone, with cold caches and at base clocks unless asked otherwise: their times are not those of a
timeline.

References
----------
Nsight Compute CLI user guide
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.traces.collective_table import number
from moesim.traces.damage import Damage
from moesim.traces.opening import READERS, Reader
from moesim.traces.records import Records
from moesim.traces.stream import whole

UNITS = {
    **dict.fromkeys(("ns", "nsecond"), 1e-9),
    **dict.fromkeys(("us", "usecond"), 1e-6),
    **dict.fromkeys(("ms", "msecond"), 1e-3),
    **dict.fromkeys(("s", "second"), 1.0),
}
DURATION = ("Duration", "gpu__time_duration.sum")
HEADER = re.compile(r'^"ID",.*"Kernel Name"')
NO_NUMBER = "metric without a number"
CUT_ROW = "row without a kernel"


def _sniffed(head: bytes) -> bool:
    text = head.decode("utf-8", errors="replace")
    return any(HEADER.match(line) for line in text.splitlines()) or text.startswith("==PROF==")


def read_ncu(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> Records:
    """Read a CSV: a record for each kernel, with its metrics and their units."""
    damage = Damage()
    lines = whole(path, damage.note).decode("utf-8", errors="replace").splitlines()
    start = next((place for place, line in enumerate(lines) if HEADER.match(line)), None)
    if start is None:
        raise SpecError.single(str(path), "", "has no header of Nsight Compute", "write it with ncu --csv")
    rows = [row for row in csv.reader(line for line in lines[start:] if not line.startswith("==")) if row]
    header, rows = rows[0], rows[1:]
    long = "Metric Name" in header
    kernels = _long(header, rows, damage) if long else _wide(header, rows, damage)
    metrics = sum(len(one["metrics"]) for one in kernels)
    counts = {"kernels": len(kernels), "metrics": metrics}
    return Records(str(path), "ncu", tuple(kernels), counts, damage.counts, damage.first)


def _long(header: Sequence[str], rows: Sequence[Sequence[str]], damage: Damage) -> list[dict[str, Any]]:
    """One row a metric; rows of rules have no metric."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        line = dict(zip(header, row, strict=False))  # empty cells at the end are left out
        if not line.get("Kernel Name"):
            damage.note(CUT_ROW)
            continue
        kernel = found.setdefault(line["ID"], _kernel(line))
        name = line.get("Metric Name")
        if name:
            _add(kernel, name, line.get("Metric Unit", ""), line.get("Metric Value", ""), damage)
    return list(found.values())


def _wide(header: Sequence[str], rows: Sequence[Sequence[str]], damage: Damage) -> list[dict[str, Any]]:
    """One row a kernel; the first row holds units."""
    units: dict[str, str] = {}
    if rows and not rows[0][0].strip():
        units, rows = dict(zip(header, rows[0], strict=False)), rows[1:]
    kernels = []
    for row in rows:
        line = dict(zip(header, row, strict=False))
        if not line.get("Kernel Name"):
            damage.note(CUT_ROW)
            continue
        kernel = _kernel(line)
        for name in header[header.index("Kernel Name") + 1 :]:
            if "__" in name or name in DURATION:
                _add(kernel, name, units.get(name, ""), line.get(name, ""), damage)
        kernels.append(kernel)
    return kernels


def _kernel(line: dict[str, str]) -> dict[str, Any]:
    return {
        "id": line.get("ID", ""),
        "kernel": line["Kernel Name"],
        "grid": line.get("Grid Size", ""),
        "block": line.get("Block Size", ""),
        "compute_capability": line.get("CC", ""),
        "time_s": None,
        "metrics": {},
    }


def _add(kernel: dict[str, Any], name: str, unit: str, text: str, damage: Damage) -> None:
    value = number(text.replace(",", ""))
    if value is None:
        damage.note(NO_NUMBER)
        return
    kernel["metrics"][name] = {"value": value, "unit": unit}
    if name in DURATION and unit in UNITS:
        kernel["time_s"] = value * UNITS[unit]


READERS.add(
    "ncu",
    Reader(_sniffed, read_ncu),
    summary="Nsight Compute: CSV, details or raw page",
    source="ncu-cli",
)
