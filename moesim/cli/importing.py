"""``moesim import``: a scenario from the configuration of a training framework, a model from that of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moesim.base.errors import SpecError
from moesim.base.files import write_atomically
from moesim.cli import grammar

if TYPE_CHECKING:
    from moesim.studies.imports.imported import Imported

HELP = """Make a scenario of a training framework's configuration, or a model of a config.json.

What is not understood becomes a comment in the file; nothing is dropped silently.
"""
File = Annotated[Path, typer.Argument(metavar="FILE", help="The configuration.")]
Cluster = Annotated[str, typer.Option("--cluster", metavar="NODE:COUNT", help="Where it runs, such as hgx-h100:32.")]
Model = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="This model, instead of the architecture in the file.")
]
Define = Annotated[
    list[str] | None, typer.Option("--define", metavar="NAME=VALUE", help="A variable of the file; may be repeated.")
]
Vocabulary = Annotated[int | None, typer.Option("--vocab-size", min=1, help="Where the file names only a tokenizer.")]
Batch = Annotated[int | None, typer.Option("--global-batch", min=1, help="Where the file does not say. [sequences]")]


def register(app: typer.Typer) -> None:
    """Add a command for each framework."""
    app.command("megatron", help="A launch script of Megatron-LM, or its arguments as YAML.")(_megatron)
    app.command("torchtitan", help="A job configuration of torchtitan in TOML.")(_torchtitan)
    app.command("megatron-bridge", help="The YAML of a ConfigContainer.")(_bridge)
    app.command("hf", help="The config.json of a Hugging Face model: becomes a model file.")(_huggingface)


def _megatron(
    file: File,
    cluster: Cluster,
    model: Model = None,
    define: Define = None,
    vocab_size: Vocabulary = None,
    global_batch: Batch = None,
    output: grammar.OutputOption = None,
) -> None:
    from moesim.studies.imports.megatron import read

    _deliver(read(file, grammar.assignments(define, "--define"), model), cluster, vocab_size, global_batch, output)


def _bridge(
    file: File,
    cluster: Cluster,
    model: Model = None,
    vocab_size: Vocabulary = None,
    global_batch: Batch = None,
    output: grammar.OutputOption = None,
) -> None:
    from moesim.studies.imports.megatron_bridge import read

    _deliver(read(file, model), cluster, vocab_size, global_batch, output)


def _torchtitan(
    file: File,
    cluster: Cluster,
    model: Model = None,
    global_batch: Batch = None,
    output: grammar.OutputOption = None,
) -> None:
    from moesim.studies.imports.imported import gpus_of
    from moesim.studies.imports.torchtitan import read

    _deliver(read(file, gpus_of(cluster), model), cluster, None, global_batch, output)


def _huggingface(
    file: File,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="What to call the model.")] = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    from moesim.spec.huggingface import model_data, yaml_text

    grammar.writable(out=output)
    data = model_data(file, name or (output.stem if output is not None else None))
    if as_json or (output is not None and output.suffix == ".json"):
        grammar.deliver(data, None, True, output)
    elif output is not None:
        write_atomically(output, yaml_text(data))
    else:
        typer.echo(yaml_text(data), nl=False)


def _deliver(
    imported: Imported, cluster: str, vocab_size: int | None, global_batch: int | None, output: Path | None
) -> None:
    from moesim.spec.huggingface import yaml_text
    from moesim.studies.imports.imported import model_spec_data, shipped_model

    grammar.writable(out=output)
    name = output.stem if output is not None else "imported"
    beside: tuple[Path, dict[str, Any]] | None = None
    if isinstance(imported.model, str):
        model = imported.model
    else:
        described = imported.model | ({"vocab_size": vocab_size} if vocab_size else {})
        found = shipped_model(described)
        if found is None:
            data = model_spec_data(described, f"{name}-model", imported.where)
            if output is None:
                raise SpecError.single(
                    imported.where,
                    "",
                    "no shipped model has its architecture, so it needs a file of its own",
                    "give -o FILE",
                )
            beside = (output.with_name(f"{name}-model.yaml"), data)
        model = found or f"{name}-model.yaml"
    text = imported.text(imported.scenario(name, cluster, model, global_batch))
    if output is None:
        typer.echo(text, nl=False)
        return
    if beside is not None:
        write_atomically(beside[0], yaml_text(beside[1]))
    write_atomically(output, text)


app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
register(app)
