"""``moesim checkpoint``: bytes, time of a save, interval and goodput."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moesim.base.errors import SpecError
from moesim.base.units import format_quantity
from moesim.cli import grammar

if TYPE_CHECKING:
    from rich.table import Table

    from moesim.studies.checkpoint import CheckpointAnswer, Shrunk
    from moesim.studies.resharding import Resharded

HELP = """Say how large a checkpoint is, how long a save takes, how often to save, and the goodput that failures leave.

Times take s, min, h or d. Without --mtbf-gpu, failures come as often as in the training of Llama 3.
"""


def command(
    scenario: grammar.Scenario = None,
    model: grammar.ModelOption = None,
    cluster: grammar.ClusterOption = None,
    changes: grammar.SetOption = None,
    storage: Annotated[str, typer.Option("--storage", help="Where to: moesim specs storage.")] = "parallel-filesystem",
    contents: Annotated[str, typer.Option("--contents", help="What is saved of a parameter.")] = "fp32-adam",
    save_bw: Annotated[
        str | None, typer.Option("--save-bw", metavar="RATE", help="Of all writers, such as 100GB/s.")
    ] = None,
    writers: Annotated[int | None, typer.Option("--writers", min=1, help="Nodes, or ranks, that write.")] = None,
    asynchronous: Annotated[
        bool, typer.Option("--async", help="Copy to host memory, write in the background.")
    ] = False,
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="TIME", help="Computing time between saves.")
    ] = None,
    mtbf_gpu: Annotated[
        str | None, typer.Option("--mtbf-gpu", metavar="TIME", help="Of one GPU, such as 50000h.")
    ] = None,
    mtbf_node: Annotated[str | None, typer.Option("--mtbf-node", metavar="TIME", help="Of the rest of a node.")] = None,
    restart: Annotated[
        str | None, typer.Option("--restart", metavar="TIME", help="Before the load, such as 10min.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Of the watchdog, such as 600s.")
    ] = None,
    lose: Annotated[
        int | None, typer.Option("--lose", min=1, metavar="NODES", help="Go on with so many fewer.")
    ] = None,
    onto: Annotated[
        list[str] | None, typer.Option("--onto", metavar="PATH=VALUE", help="Load it on a layout changed so, as --set.")
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="How it is written: logical, layout-bound or gathered.")
    ] = "logical",
    measured: grammar.MeasuredOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    times = {"--interval": interval, "--mtbf-gpu": mtbf_gpu, "--mtbf-node": mtbf_node, "--restart": restart}
    given = {name: grammar.positive(name, text, "time") for name, text in (times | {"--timeout": timeout}).items()}
    bandwidth = grammar.positive("--save-bw", save_bw, "bandwidth")
    layout = grammar.assignments(onto, "--onto")
    if form != "logical" and not layout:
        raise SpecError.single("--format", "", "says how a checkpoint loads elsewhere", "give --onto as well")
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)

    from moesim.studies import checkpoint as study
    from moesim.studies import resharding

    plan = study.Plan(
        storage,
        contents,
        asynchronous,
        writers,
        bandwidth,
        given["--interval"],
        given["--mtbf-gpu"] or study.GPU_MTTF_S,
        given["--mtbf-node"],
        study.RESTART_S if given["--restart"] is None else given["--restart"],
        given["--timeout"],
    )
    found = study.checkpoint(problem, plan)
    smaller = study.shrunk(problem, lose, contents) if lose else None
    moved = resharding.reshard(problem, layout, storage, contents, form) if layout else None
    plain = found.to_dict() | ({"shrunk": smaller.to_dict()} if smaller else {})
    plain |= {"resharded": moved.to_dict()} if moved else {}
    table = _table(found, study.CONTENTS[contents][1], smaller)
    for row in _moved(moved) if moved else ():
        table.add_row(*row)
    shown: Any = table
    if found.step_time_s is not None:
        from moesim.estimator import estimate

        plain, shown = grammar.with_basis(plain, table, estimate(problem), grammar.measured_step(measured, problem))
    grammar.deliver(plain, shown, as_json, output)


def duration(seconds: float) -> str:
    """Time as people say it: hours and days where it is long."""
    for size, word in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {word}"
    return format_quantity(seconds, "time", 3)


def _steps(found: CheckpointAnswer) -> str:
    if found.step_time_s is None:
        return "   (the strategy is not legal, so the step is not known: moesim estimate says why)"
    return f", {found.interval_steps:,} steps of {duration(found.step_time_s)}"


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


def _table(found: CheckpointAnswer, contents: str, smaller: Shrunk | None) -> Table:
    from rich.table import Table

    table = Table(title=found.name, title_justify="left", show_header=False)
    size = format_quantity(found.num_bytes, "bytes")
    rows = [
        ("checkpoint", f"{size}: {found.params:,} parameters x {found.bytes_per_param:g} B ({contents})"),
        ("written by", f"{found.writers} writers, {format_quantity(found.write_bandwidth, 'bandwidth')} together"),
        (
            "one save",
            f"{duration(found.save_time_s)} at that rate, up to {duration(found.slow_save_time_s)} as real saves go",
        ),
        ("the job stands still", duration(found.blocking_s)),
    ]
    if found.host_bytes:
        rows.append(("host memory of a node", format_quantity(found.host_bytes, "bytes")))
    intervals = ", ".join(f"{name} {duration(value)}" for name, value in found.intervals_s.items())
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
        rows.append((f"watchdog of {duration(found.timeout_s or 0.0)}", f"trips: {found.trips_watchdog}"))
    if smaller is not None:
        told = f"{smaller.throughput:.1%} of the throughput" if smaller.throughput else "not with this strategy: "
        size = format_quantity(smaller.reshard_bytes_per_gpu, "bytes")
        rows.append(
            (f"with {smaller.nodes} nodes", f"{told}{'; '.join(smaller.refused)}; a GPU reads {size} to reshard")
        )
    if found.assumed:
        rows.append(("assumed", ", ".join(found.assumed)))
    for row in rows:
        table.add_row(*row)
    return table
