"""The timeline of an estimate as a file for Perfetto."""

from __future__ import annotations

from pathlib import Path

from moesim.result import Estimate
from moesim.timeline.perfetto import write
from moesim.timeline.walk import events


def write_timeline(path: Path, estimate: Estimate) -> None:
    """Write the step as Chrome trace JSON: a process per pipeline rank, its lanes, arrows between stages."""
    drawn, flows = events(estimate.timeline.graph, estimate.timeline.run)
    names = {rank: f"pipeline rank {rank}" for rank in range(estimate.timeline.graph.num_ranks)}
    write(path, drawn, flows, names)
