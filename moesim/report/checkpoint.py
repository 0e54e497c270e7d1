"""A checkpoint as a table: bytes, writers, times, intervals, goodput, watchdog."""

from __future__ import annotations

from rich.table import Table

from moesim.base.units import format_quantity
from moesim.base.words import counted
from moesim.studies.checkpoint import CheckpointAnswer, Shrunk
from moesim.studies.resharding import Resharded

FORMS = {"young": "lost time", "daly": "lost time, higher order", "availability": "availability"}
"""The forms of the best interval, in words."""


def duration(seconds: float) -> str:
    """Time as people say it: hours and days where it is long."""
    for size, word in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {word}"
    return format_quantity(seconds, "time", 3)


def _steps(found: CheckpointAnswer) -> str:
    if found.step_time_s is None:
        return "   (the strategy is not legal, so the step is not known: moesim estimate says why)"
    return f", {counted(found.interval_steps or 0, 'step')} of {duration(found.step_time_s)}"


def _moved(moved: Resharded) -> list[tuple[str, str]]:
    if moved.refused:
        return [("on that layout", f"not with this strategy: {'; '.join(moved.refused)}")]
    size, largest = (format_quantity(value, "bytes") for value in (moved.read_bytes, moved.read_bytes_per_gpu))
    differs = f" ({', '.join(moved.differs)} differ)" if moved.differs else " (as it was written)"
    how = "read as it is" if moved.direct else f"converted first, {duration(moved.conversion_s)}"
    files = "one file" if moved.files_per_rank == 1 else f"{moved.files_per_rank} files"
    parts = f"{size} in all, {largest} of {files} by one GPU"
    staged = format_quantity(moved.host_bytes, "bytes")
    return [
        ("on that layout", f"{moved.format}: {how}{differs}"),
        ("load there", f"{duration(moved.total_s)}: {parts}; {staged} in the memory of a host"),
    ]


def checkpoint_table(
    found: CheckpointAnswer, contents: str = "", smaller: Shrunk | None = None, moved: Resharded | None = None
) -> Table:
    """A row for each part of the answer.

    Parameters
    ----------
    found
        The answer.
    contents
        What is saved of a parameter, in words; left out, its bytes alone.
    smaller, moved
        Going on with fewer nodes, and loading on another layout, where that was asked.
    """
    table = Table(title=found.name, title_justify="left", show_header=False)
    size = format_quantity(found.num_bytes, "bytes")
    told = f" ({contents})" if contents else ""
    rows = [
        ("checkpoint", f"{size}: {found.params:,} parameters x {found.bytes_per_param:g} B{told}"),
        (
            "written by",
            f"{found.writers:,} writer{'s' * (found.writers > 1)}, {format_quantity(found.write_bandwidth, 'bandwidth')} together",
        ),
        ("largest part", _largest(found)),
        ("bound by", _limits(found)),
        (
            "one save",
            f"{duration(found.save_time_s)} at that rate, up to {duration(found.slow_save_time_s)} as real saves go",
        ),
        ("the job stands still", f"{duration(found.blocking_s)} a save, {found.overhead:.2%} of the time"),
    ]
    if found.host_bytes:
        rows.append(("host memory of a node", format_quantity(found.host_bytes, "bytes")))
    intervals = ", ".join(
        f"{FORMS[name]} {duration(value)}{_rate(found, name)}" for name, value in found.intervals_s.items()
    )
    shares = ", ".join(f"{name} {value:.2%}" for name, value in found.wasted.items())
    lost = "" if found.survives_node_loss else "   (lost with a node: keep a second place)"
    rows += [
        ("a failure every", duration(found.mtbf_s)),
        ("restart", f"{duration(found.restart_s)}, of it {duration(found.load_time_s)} to load{lost}"),
        ("best interval", intervals),
        ("interval", duration(found.interval_s) + _steps(found)),
        ("goodput", f"{found.goodput:.2%}   (wasted, to first order: {shares})"),
    ]
    if found.trips_watchdog is not None:
        rows.append((f"watchdog of {duration(found.timeout_s or 0.0)}", _watchdog(found)))
    if smaller is not None:
        told = f"{smaller.throughput:.1%} of the throughput" if smaller.throughput else "not with this strategy: "
        size = format_quantity(smaller.reshard_bytes_per_gpu, "bytes")
        rows.append(
            (f"with {smaller.nodes} nodes", f"{told}{'; '.join(smaller.refused)}; a GPU reads {size} to reshard")
        )
    if found.assumed:
        rows.append(("assumed", ", ".join(found.assumed)))
    for row in (*rows, *(_moved(moved) if moved else ())):
        table.add_row(*row)
    return table


def _largest(found: CheckpointAnswer) -> str:
    one = found.saving
    size, mean = format_quantity(one.heaviest_bytes, "bytes"), format_quantity(one.mean_bytes, "bytes")
    return f"{size} of one writer, {mean} in the mean: imbalance {one.imbalance:.3f}"


def _limits(found: CheckpointAnswer) -> str:
    limits = sorted(found.saving.limits_s.items(), key=lambda one: -one[1])
    return ", ".join(f"{name} ({duration(value)})" for name, value in limits)


def _rate(found: CheckpointAnswer, name: str) -> str:
    rate = found.goodputs.get(name)
    return " (shorter than a save)" if rate is None else f" ({rate:.2%})"


def _watchdog(found: CheckpointAnswer) -> str:
    told = f"trips: {found.trips_watchdog}; a rank waits up to {duration(found.waits_s)}"
    if found.trips_watchdog == "no":
        return told
    needed = found.bandwidth_for_timeout
    more = "" if needed is None else f", or write {format_quantity(needed, 'bandwidth')} together"
    return f"{told}: set it to more{more}"
