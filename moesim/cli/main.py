"""The entry point: verbs, and errors as single lines with exit code 2."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

import moesim.cli.budget as budget
import moesim.cli.calibrate_collectives as calibrate_collectives
import moesim.cli.calibrate_kernels as calibrate_kernels
import moesim.cli.calibrate_runs as calibrate_runs
import moesim.cli.calibrate_trace as calibrate_trace
import moesim.cli.calibrate_transport as calibrate_transport
import moesim.cli.check as check
import moesim.cli.checkpoint as checkpoint
import moesim.cli.collective as collective
import moesim.cli.compare as compare
import moesim.cli.diagnose as diagnose
import moesim.cli.estimate as estimate
import moesim.cli.explain as explain
import moesim.cli.fabric as fabric
import moesim.cli.fit as fit
import moesim.cli.importing as importing
import moesim.cli.kernel as kernel
import moesim.cli.matrix as matrix
import moesim.cli.memory_studies as memory_studies
import moesim.cli.min_gpus as min_gpus
import moesim.cli.pareto as pareto
import moesim.cli.place as place
import moesim.cli.report as report
import moesim.cli.roofline as roofline
import moesim.cli.scale as scale
import moesim.cli.schedule as schedule
import moesim.cli.search as search
import moesim.cli.sensitivity as sensitivity
import moesim.cli.specs as specs
import moesim.cli.sweep as sweep
import moesim.cli.trace as trace
import moesim.cli.trace_model as trace_model
import moesim.cli.uncertainty as uncertainty
import moesim.cli.validate as validate
import moesim.cli.whatif as whatif
from moesim.base.errors import SpecError

app = typer.Typer(
    name="moesim",
    help="How long one training step of an MoE model takes on a cluster, whether it fits, and what binds it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("estimate", help=estimate.HELP)(estimate.command)
app.command("budget", help=budget.HELP)(budget.command)
app.command("compare", help=compare.HELP)(compare.command)
app.command("check", help=check.HELP)(check.command)
app.command("checkpoint", help=checkpoint.HELP)(checkpoint.command)
app.command("diagnose", help=diagnose.HELP)(diagnose.command)
app.command("explain", help=explain.HELP)(explain.command)
app.command("fit", help=fit.HELP)(fit.command)
app.add_typer(fabric.app, name="fabric")
app.command("max-seq", help=memory_studies.LONGEST_HELP)(memory_studies.longest)
trace_model.register(trace.app)
app.add_typer(trace.app, name="trace")
app.command("matrix", help=matrix.HELP)(matrix.command)
app.command("min-gpus", help=min_gpus.HELP)(min_gpus.command)
app.command("pareto", help=pareto.HELP)(pareto.command)
app.command("place", help=place.HELP)(place.command)
app.command("recompute", help=memory_studies.RECOMPUTE_HELP)(memory_studies.recompute)
app.command("report", help=report.HELP)(report.command)
app.command("scale", help=scale.HELP)(scale.command)
app.command("schedule", help=schedule.HELP)(schedule.command)
app.command("search", help=search.HELP)(search.command)
app.command("sensitivity", help=sensitivity.HELP)(sensitivity.command)
app.command("specs", help=specs.HELP)(specs.command)
app.command("sweep", help=sweep.HELP)(sweep.command)
app.command("validate", help=validate.HELP)(validate.command)
app.command("uncertainty", help=uncertainty.HELP)(uncertainty.command)
app.command("whatif", help=whatif.HELP)(whatif.command)
app.command("roofline", help=roofline.HELP)(roofline.command)
app.command("collective", help=collective.HELP)(collective.command)
kernel_app = typer.Typer(help=kernel.HELP, no_args_is_help=True, rich_markup_mode=None)
kernel.register(kernel_app)
app.add_typer(kernel_app, name="kernel")
import_app = typer.Typer(help=importing.HELP, no_args_is_help=True, rich_markup_mode=None)
importing.register(import_app)
app.add_typer(import_app, name="import")
calibrate_app = typer.Typer(help="Fit constants to measurements.", no_args_is_help=True, rich_markup_mode=None)
calibrate_kernels.register(calibrate_app)
calibrate_app.command("collectives", help=calibrate_collectives.HELP)(calibrate_collectives.command)
calibrate_app.command("runs", help=calibrate_runs.HELP)(calibrate_runs.command)
calibrate_app.command("transport", help=calibrate_transport.HELP)(calibrate_transport.command)
calibrate_app.command("trace", help=calibrate_trace.HELP)(calibrate_trace.command)
app.add_typer(calibrate_app, name="calibrate")


def _print_version(wanted: bool) -> None:
    if wanted:
        import moesim

        typer.echo(f"moesim {moesim.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. Bad input prints one line per problem and exits with 2."""
    try:
        code = app(standalone_mode=False)
    except SpecError as error:
        _fail(str(error))
    except TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # a bare "moesim" asks for help
            print(message, file=sys.stderr)
            sys.exit(2)
        _fail(message.replace("\n", " "))
    except typer.Abort:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'input/output'}: {error.strerror}")
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    print(message, file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
