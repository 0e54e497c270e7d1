"""Megatron-LM: the arguments of a launch script, or of a YAML file of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.spec import library
from moesim.spec.yaml_file import display_name, read_document, read_text
from moesim.studies.imports import shell
from moesim.studies.imports.ignored import costs_nothing, left_to_profile
from moesim.studies.imports.imported import Imported
from moesim.studies.imports.megatron_model import architecture
from moesim.studies.imports.megatron_strategy import strategy
from moesim.studies.imports.settings import Setting, Settings

DROPOUTS = ("attention_dropout", "hidden_dropout")


def read(path: Path, defined: Mapping[str, str], model: str | None = None) -> Imported:
    """The run that a launch script, or a YAML file of its arguments, describes.

    Parameters
    ----------
    path
        A shell script with the options of ``pretrain_gpt.py``, or YAML with ``--option: value`` at the top or under
        ``MODEL_ARGS``.
    defined
        Variables that the file takes from its surroundings.
    model
        Name of a model to take instead of the architecture in the file.
    """
    where = display_name(path)
    yaml = path.suffix in (".yaml", ".yml")
    found, notes = (_from_yaml(path, defined), []) if yaml else _from_script(path, defined)
    given: dict[str, Setting] = {}
    for setting in found:
        given[setting.name.lstrip("-").replace("-", "_")] = setting
    if not given:
        raise SpecError.single(
            where, "", "holds no option of a training run", "give a script or YAML with --num-layers ..."
        )
    return from_settings(Settings(where, given, notes=notes), "megatron-core", model)


def from_settings(settings: Settings, software: str, model: str | None = None) -> Imported:
    """The run that settings in the names of Megatron-Core describe."""
    for name, setting in settings.given.items():
        if left_to_profile(name):
            continue
        if isinstance(setting.value, str) and "$" in setting.value and not costs_nothing(name):
            settings.refuse(name, f"'{setting.value}' is not set in the file", "give it with --define NAME=VALUE")
    settings.problems.raise_if_any()
    described = architecture(settings) if model is None else _instead(settings, model)
    for name in DROPOUTS:
        if float(settings.number(name, float) or 0):
            settings.notes.append(f"{name}: dropout is not modelled")
    chosen = strategy(settings, described)
    sequence = settings.number("seq_length") or settings.number("encoder_seq_length")
    batch = settings.number("global_batch_size")
    if sequence is None:
        settings.refuse("seq_length", "is missing", "add it, in tokens")
    settings.problems.raise_if_any()
    profiled = [name for name in settings.given if left_to_profile(name) and name not in settings.understood]
    if profiled:
        settings.notes.append(f"left to the profile {software}: {', '.join(sorted(profiled))}")
        settings.understood.update(profiled)
    unknown, ignored = settings.rest(costs_nothing)
    return Imported(
        where=settings.where,
        model=model or described,
        strategy=chosen,
        software=software,
        sequence_length=int(sequence),
        global_batch=batch,
        not_understood=tuple(setting.shown for setting in unknown),
        notes=tuple(settings.notes),
        ignored=len(ignored),
    )


def _instead(settings: Settings, model: str) -> dict[str, Any]:
    """What a strategy depends on of a model that stands in for the architecture in the file."""
    probe = Settings(settings.where, settings.given)
    with suppress(SpecError):
        architecture(probe)
    settings.understood.update(probe.understood)
    settings.notes.append(f"the architecture in the file is not read: {model} was asked for")
    spec = library.get("models", model)
    return {"num_layers": spec.num_layers, "moe": spec.moe}


def _from_script(path: Path, defined: Mapping[str, str]) -> tuple[list[Setting], list[str]]:
    found, variables, branches = shell.arguments(read_text(path), defined)
    told = []
    if branches:
        lines = ", ".join(map(str, branches))
        told.append(f"the script branches at line {lines}: every branch was read as if it held, and the last one wins")
    return [_filled(setting, variables) for setting in found], told


def _filled(setting: Setting, variables: Mapping[str, str]) -> Setting:
    if isinstance(setting.value, str) and "$" in setting.value:
        return Setting(setting.name, shell.expand(setting.value, variables), setting.line)
    return setting


def _from_yaml(path: Path, defined: Mapping[str, str]) -> list[Setting]:
    document = read_document(path)
    data: Any = document.data
    at: tuple[str, ...] = ()
    if isinstance(data, Mapping) and isinstance(data.get("MODEL_ARGS"), Mapping):
        data, at = data["MODEL_ARGS"], ("MODEL_ARGS",)
    if not isinstance(data, Mapping):
        raise SpecError.single(
            display_name(path), "", "is not a mapping of arguments", "write --num-layers: 61 and so on"
        )
    settings = [Setting(str(name), value, document.line((*at, name))) for name, value in data.items()]
    return [_filled(setting, dict(defined)) for setting in settings]
