"""``moesim checkpoint``: bytes, time of a save, interval and goodput."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from moesim.base.errors import SpecError, blamed
from moesim.cli import grammar

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
    writer_bw: Annotated[
        str | None, typer.Option("--writer-bw", metavar="RATE", help="Of one writer; takes --writers.")
    ] = None,
    writers: Annotated[
        int | None, typer.Option("--writers", min=1, help="Ranks that write equal parts; else by the layout.")
    ] = None,
    save: Annotated[str, typer.Option("--save", help="Who writes: sharded, first-replica or gathered.")] = "sharded",
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
    given = {
        name: grammar.positive(name, text, "time", "10 min") for name, text in (times | {"--timeout": timeout}).items()
    }
    bandwidth = grammar.positive("--save-bw", save_bw, "bandwidth")
    of_writer = grammar.positive("--writer-bw", writer_bw, "bandwidth")
    layout = grammar.assignments(onto, "--onto")
    if form != "logical" and not layout:
        raise SpecError.single("--format", "", "says how a checkpoint loads elsewhere", "give --onto as well")
    grammar.writable(output=output)
    problem = grammar.changed_problem(scenario, model, cluster, changes)
    beside = grammar.measured_step(measured, problem)

    from moesim.report.checkpoint import checkpoint_table
    from moesim.spec import library
    from moesim.studies import checkpoint as study
    from moesim.studies import resharding

    with blamed("--storage"):
        library.find("storage", storage)
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
        save,
        of_writer,
    )
    found = study.checkpoint(problem, plan)
    smaller = study.shrunk(problem, lose, contents) if lose else None
    moved = resharding.reshard(problem, layout, storage, contents, form) if layout else None
    plain = found.to_dict() | ({"shrunk": smaller.to_dict()} if smaller else {})
    plain |= {"resharded": moved.to_dict()} if moved else {}
    shown: Any = checkpoint_table(found, study.CONTENTS[contents][1], smaller, moved)
    if found.step_time_s is not None:
        from moesim.estimator import estimate

        plain, shown = grammar.with_basis(plain, shown, estimate(problem), beside)
    elif measured is not None:
        raise SpecError.single(
            "--measured", "", "the strategy is not legal, so that no step is beside it", "leave it out"
        )
    grammar.deliver(plain, shown, as_json, output)
