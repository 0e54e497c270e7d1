"""``moesim calibrate``: one verb for each kind of measurement."""

import typer

from moesim.cli import calibrate_collectives, calibrate_kernels, calibrate_runs, calibrate_trace, calibrate_transport

app = typer.Typer(help="Fit constants to measurements.", no_args_is_help=True, rich_markup_mode=None)
calibrate_kernels.register(app)
app.command("collectives", help=calibrate_collectives.HELP)(calibrate_collectives.command)
app.command("runs", help=calibrate_runs.HELP)(calibrate_runs.command)
app.command("transport", help=calibrate_transport.HELP)(calibrate_transport.command)
app.command("trace", help=calibrate_trace.HELP)(calibrate_trace.command)
