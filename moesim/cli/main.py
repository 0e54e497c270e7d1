"""The entry point: verbs, and errors as single lines with exit code 2."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NamedTuple

import typer
from typer.exceptions import TyperException

from moesim.base.errors import SpecError
from moesim.cli.grammar import INTERRUPTED


class Verb(NamedTuple):
    """Where a verb stands: the module below ``moesim.cli``, its function and the name of its help."""

    module: str
    command: str = "command"
    help: str = "HELP"


VERBS = {
    "estimate": Verb("estimate"),
    "budget": Verb("budget"),
    "compare": Verb("compare"),
    "check": Verb("check"),
    "checkpoint": Verb("checkpoint"),
    "diagnose": Verb("diagnose"),
    "dispatch": Verb("dispatch"),
    "explain": Verb("explain"),
    "fit": Verb("fit"),
    "matrix": Verb("matrix"),
    "max-seq": Verb("memory_studies", "longest", "LONGEST_HELP"),
    "min-gpus": Verb("min_gpus"),
    "offload": Verb("offload"),
    "pareto": Verb("pareto"),
    "place": Verb("place"),
    "recompute": Verb("memory_studies", "recompute", "RECOMPUTE_HELP"),
    "report": Verb("report"),
    "scale": Verb("scale"),
    "schedule": Verb("schedule"),
    "search": Verb("search"),
    "sensitivity": Verb("sensitivity"),
    "specs": Verb("specs"),
    "sweep": Verb("sweep"),
    "uncertainty": Verb("uncertainty"),
    "validate": Verb("validate"),
    "whatif": Verb("whatif"),
    "roofline": Verb("roofline"),
    "collective": Verb("collective"),
    "exchange": Verb("exchange"),
}
"""Verbs of one command, in the order of the help."""
GROUPS = {
    "fabric": "fabric",
    "trace": "trace_group",
    "kernel": "kernel",
    "import": "importing",
    "calibrate": "calibrate",
}
"""Verbs with verbs of their own: modules below ``moesim.cli`` that have an ``app``."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Return the application for the words of a command line; a verb that starts them is all that is imported."""
    app = typer.Typer(
        name="moesim",
        help="How long one training step of an MoE model takes on a cluster, whether it fits, and what binds it.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    first = words[0] if words else ""
    wanted = [first] if first in VERBS or first in GROUPS else [*VERBS, *GROUPS]
    for name in wanted:
        verb = VERBS.get(name)
        module = import_module(f"moesim.cli.{verb.module if verb else GROUPS[name]}")
        if verb is None:
            app.add_typer(module.app, name=name)
        else:
            app.command(name, help=getattr(module, verb.help))(getattr(module, verb.command))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        import moesim

        typer.echo(f"moesim {moesim.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


OBJECTS = 100_000
"""Objects more than before at which a command looks for circles of them; it makes few of those."""


def main() -> None:
    """Run the command line. Bad input prints one line per problem and exits with 2."""
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # nor at the end, when everything goes
    try:
        code = application(sys.argv[1:])(standalone_mode=False)
    except SpecError as error:
        _fail(str(error))
    except TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # a bare "moesim" asks for help
            print(message, file=sys.stderr)
            sys.exit(2)
        _fail(message.replace("\n", " "))
    except typer.Abort:
        sys.exit(INTERRUPTED)
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
