"""Constants of a GPU and its links from traces: the families of `moesim calibrate`, fed with the kernels of a run."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from moesim.base.errors import SpecError
from moesim.calibrate import collective_overlay as collective
from moesim.calibrate.families import FAMILIES
from moesim.calibrate.family import calibrate
from moesim.calibrate.overlay import Overlay
from moesim.spec import library
from moesim.spec.spellings import node_of
from moesim.studies.trace_samples import Samples, collective_samples, kernel_samples
from moesim.traces.collective_table import Measured, MeasuredTable
from moesim.traces.ranks import Across
from moesim.traces.summary import Work

KINDS = ("gemm", "attention", "memory", "collectives")


@dataclass(frozen=True)
class TraceCalibration:
    """Overlays that the traces could make, and why the others could not be made."""

    overlays: tuple[Overlay, ...]
    refused: dict[str, str]


def trace_calibration(
    works: Sequence[Work],
    beside: Across | None,
    gpu: str,
    command: str,
    kinds: Sequence[str] = KINDS,
) -> TraceCalibration:
    """Fit what the traces tell; constants start from those that the GPU has so far, and few rows move them little.

    Parameters
    ----------
    works
        GPU work of the traces, all of one kind of GPU.
    beside
        Their ranks beside each other, for collectives without waiting.
    gpu, command
        Spec of the GPU; command line to write into the overlays.
    kinds
        What to fit.

    Raises
    ------
    SpecError
        With a line for each kind where none can be fitted.
    """
    samples = kernel_samples(works, library.get("gpus", gpu))
    source = ", ".join(dict.fromkeys(Path(work.table.source).name for work in works))
    made: list[Overlay] = []
    refused: dict[str, str] = {}
    fixes: dict[str, str] = {}
    for kind in kinds:
        try:
            if kind == "collectives":
                made.append(_collectives(beside, gpu, command, source))
            else:
                made.append(_kernels(kind, samples[kind], gpu, command, source))
        except SpecError as error:
            refused[kind] = "; ".join(str(issue.what) for issue in error.issues)
            fixes[kind] = error.issues[0].fix or "give traces with shapes (record_shapes=True)"
    if not made:
        raise SpecError(SpecError.single(kind, "", what, fixes[kind]).issues[0] for kind, what in refused.items())
    return TraceCalibration(tuple(made), refused)


def _kernels(kind: str, samples: Samples, gpu: str, command: str, source: str) -> Overlay:
    """Overlay of a family of kernels."""
    told = "".join(f"; {count:,}: {reason}" for reason, count in sorted(samples.dropped.items()))
    if not samples.rows:
        raise SpecError.single(source, "", f"none of {samples.read:,} kernels is a sample{told}", "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(samples.rows[0]))
            writer.writeheader()
            writer.writerows(samples.rows)
        try:
            made = calibrate(FAMILIES[kind], gpu, str(path), command).overlay
        except SpecError as error:
            raise SpecError.single(source, "", f"{error.issues[0].what}{told}", error.issues[0].fix) from None
    dropped = {**made.dropped, **{f"kernels: {reason}": count for reason, count in samples.dropped.items()}}
    note = f"Rows are shapes, each the median of its kernels: {samples.read:,} kernels in all. {made.note}".strip()
    return replace(made, source=source, dropped=dropped, note=note)


def _collectives(beside: Across | None, gpu: str, command: str, source: str) -> Overlay:
    """Overlay of the links of the usual node of a GPU."""
    node = node_of(gpu)
    if node is None:
        raise SpecError.single(source, "", f"no node of {gpu} is known", "")
    if beside is None:
        raise SpecError.single(source, "", "one rank does not tell waiting from transfer", "give all ranks")
    found, dropped = collective_samples(beside, float(library.get("nodes", node).gpus_per_node), source)
    rows = [Measured(**row, gpu="") for row in found]
    table = collective.chosen_rows(MeasuredTable(tuple(rows), dropped), gpu, collective.NODE_SCOPES)
    if not table.rows:
        told = ", ".join(f"{reason} ({count})" for reason, count in table.refused.items()) or "no collective"
        raise SpecError.single(source, "", f"no sample in one node: {told}", "")
    links = collective.links_of(node, None)
    return collective.collective_overlay(node, gpu, links, table, collective.NODE_SCOPES, command, source)
