"""torchtitan: a job configuration in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.spec.yaml_file import display_name, read_text
from moesim.studies.imports.ignored import costs_nothing
from moesim.studies.imports.imported import Imported
from moesim.studies.imports.settings import Setting, Settings, names

FLAVORS = {
    ("llama3", "8b"): "llama3-8b",
    ("llama3", "70b"): "llama3-70b",
    ("llama3", "405b"): "llama3.1-405b",
    ("deepseek_v3", "16b"): "deepseek-v3-16b-torchtitan",
    ("deepseek_v3", "671b"): "deepseek-v3-no-mtp",
    ("llama4", "17bx16e"): "llama4-scout",
    ("qwen3", "8b"): "qwen3-8b",
    ("qwen3", "14b"): "qwen3-14b",
    ("qwen3", "32b"): "qwen3-32b",
    ("qwen3", "30b-a3b"): "qwen3-30b-a3b",
    ("qwen3", "235b-a22b"): "qwen3-235b-a22b",
}
"""Models of the framework, by family and flavor, under the names that they have here."""
SCHEDULES = {"1f1b": "1f1b", "interleaved1f1b": "interleaved-1f1b", "gpipe": "gpipe", "zbvzerobubble": "zb-v"}
SCHEDULES |= {"interleavedzerobubble": "", "dualpipev": "dualpipev"}
FLOAT8 = {"tensorwise": "fp8-tensorwise", "rowwise": "fp8-rowwise", "rowwise_with_gw_hp": "fp8-rowwise"}
SECTIONS = (
    "profiling",
    "metrics",
    "lr_scheduler",
    "checkpoint",
    "validation",
    "debug",
    "experimental",
    "memory_estimation",
)


def read(path: Path, num_gpus: int, model: str | None = None) -> Imported:
    """The run that a job configuration describes on a number of GPUs.

    Parameters
    ----------
    path
        The TOML file.
    num_gpus
        GPUs of the job: the sharding degree -1 takes what the other degrees leave.
    model
        Name of a model to take instead of that of the file.
    """
    settings = Settings(display_name(path), _flat(path))
    for name in list(settings.given):
        if name.partition(".")[0] in SECTIONS or name.startswith("job.") or costs_nothing(name.rpartition(".")[2]):
            settings.understood.add(name)
    before = len(settings.understood)
    chosen = model or _model(settings)
    settings.understood.update(("model.name", "model.flavor"))  # --model stands in for them
    settings.problems.raise_if_any()
    found, replicas = _degrees(settings, num_gpus)
    sequence = settings.number("training.seq_len") or 2048
    local = settings.number("training.local_batch_size") or settings.number("training.batch_size") or 1
    batch = settings.number("training.global_batch_size")
    settings.problems.raise_if_any()
    batch = batch if batch and batch > 0 else local * replicas
    found["micro_batch"] = (
        (settings.number("parallelism.pipeline_parallel_microbatch_size") or 1) if found["pp"] > 1 else local
    )
    found["recompute"] = _recompute(settings)
    compiled = _compiled(settings)
    _precision(settings, found)
    optimizer = str(settings.take("optimizer.name") or "AdamW").lower()
    if (kind := settings.take("optimizer.implementation")) not in (None, "fused"):
        settings.notes.append(f"optimizer.implementation = {kind}: priced as fused")
    if optimizer not in ("adamw", "adam"):
        settings.notes.append(f"optimizer.name = {optimizer}: not modelled, adam stands in")
    settings.problems.raise_if_any()
    unknown, _ = settings.rest(lambda _name: False)
    return Imported(
        where=settings.where,
        model=chosen,
        strategy=found,
        software="torchtitan" if compiled else "torchtitan-eager",
        sequence_length=int(sequence),
        global_batch=int(batch),
        not_understood=tuple(setting.shown for setting in unknown),
        notes=tuple(settings.notes),
        ignored=before,
    )


def _flat(path: Path) -> dict[str, Setting]:
    where = display_name(path)
    text = read_text(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError.single(where, "", f"not valid TOML: {error}") from None
    lines: dict[str, int] = {}
    section = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("["):
            section = line.strip("[]# ").split("]")[0]
        elif "=" in line and not line.startswith("#"):
            lines[f"{section}.{line.partition('=')[0].strip()}"] = number
    return {name: Setting(name, value, lines.get(name)) for name, value in _leaves(data, "")}


def _leaves(data: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in data.items():
        found += _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return found


def _model(settings: Settings) -> str:
    family, flavor = str(settings.take("model.name")), str(settings.take("model.flavor"))
    name = FLAVORS.get((family.lower(), flavor.lower()))
    if name is None:
        known = ", ".join(f"{family} {flavor}" for family, flavor in FLAVORS)
        settings.refuse(
            "model.flavor", f"no model '{family} {flavor}' is known", f"one of {known}; or give --model NAME"
        )
    return name or ""


def _degrees(settings: Settings, num_gpus: int) -> tuple[dict[str, Any], int]:
    names_of = {
        "tp": "tensor_parallel_degree",
        "cp": "context_parallel_degree",
        "pp": "pipeline_parallel_degree",
        "ep": "expert_parallel_degree",
        "etp": "expert_tensor_parallel_degree",
    }
    found: dict[str, Any] = {ours: settings.number(f"parallelism.{name}") or 1 for ours, name in names_of.items()}
    replicate = settings.number("parallelism.data_parallel_replicate_degree") or 1
    shard = settings.number("parallelism.data_parallel_shard_degree")
    shard = -1 if shard is None else shard
    rest = found["tp"] * found["cp"] * found["pp"]
    if num_gpus % (rest * replicate):
        settings.refuse(
            "parallelism.tensor_parallel_degree",
            f"degrees {rest * replicate} (tp cp pp and replicas) do not divide {num_gpus} GPUs",
            "name another --cluster",
        )
        return found, 1
    left = num_gpus // (rest * replicate)
    if shard not in (-1, left):
        settings.refuse(
            "parallelism.data_parallel_shard_degree",
            f"{shard} shards by {rest * replicate} of the other degrees are not {num_gpus} GPUs",
            f"name a --cluster of {shard * rest * replicate} GPUs",
        )
    sharded = left * found["cp"]
    found["dp_sharding"] = "ddp" if sharded == 1 else "hsdp" if replicate > 1 else "fsdp"
    reshard = settings.take("parallelism.fsdp_reshard_after_forward")
    if reshard in ("always", "never"):
        found["reshard_after_forward"] = reshard == "always"
    if settings.flag("parallelism.enable_async_tensor_parallel"):
        found["overlap_tp"] = True
    schedule = settings.take("parallelism.pipeline_parallel_schedule")
    if found["pp"] > 1 and schedule is not None:
        named = SCHEDULES.get(str(schedule).lower())
        if not named:
            settings.refuse(
                "parallelism.pipeline_parallel_schedule", f"'{schedule}' is not modelled", "moesim specs schedules"
            )
        else:
            found["schedule"] = named
            if named in ("interleaved-1f1b", "zb-v", "dualpipev"):
                found["vpp"] = 2
                settings.notes.append(f"{schedule}: two chunks a rank, the default of the framework")
    return found, left * replicate


def _recompute(settings: Settings) -> list[str]:
    mode = settings.take("activation_checkpoint.mode") or "selective"
    option = str(settings.take("activation_checkpoint.selective_ac_option") or "2")
    if mode == "none":
        return []
    if mode == "full":
        return ["full"]
    if option == "op":
        return ["op-selective"]
    settings.notes.append(f"selective_ac_option = {option}: every layer is priced with option op")
    return ["op-selective"]


def _compiled(settings: Settings) -> bool:
    on = settings.flag("compile.enable")
    components = settings.take("compile.components")
    old = settings.flag("training.compile")
    return bool(old) or (bool(on) and (components is None or "model" in names(components)))


def _precision(settings: Settings, found: dict[str, Any]) -> None:
    converters = names(settings.take("model.converters") or [])
    recipe = settings.take("float8.recipe_name") or settings.take("quantize.linear.float8.recipe_name") or "tensorwise"
    for name in ("float8.filter_fqns", "quantize.linear.float8.filter_fqns"):
        if (left := settings.take(name)) and names(left) != ["output"]:
            settings.notes.append(f"{name} = {left}: every linear layer but the output is priced in float8")
    settings.take("float8.precompute_float8_dynamic_scale_for_fsdp")
    gathers = settings.flag("float8.enable_fsdp_float8_all_gather")
    dtype = str(settings.take("training.dtype") or "float32")
    reduce = str(settings.take("training.mixed_precision_reduce") or "float32")
    if (kept := settings.take("training.mixed_precision_param")) not in (None, "bfloat16"):
        settings.notes.append(f"training.mixed_precision_param = {kept}: not modelled, bfloat16 stands in")
    if any("mx" in name for name in converters):
        found["precision"] = "mxfp8"
    elif any("float8" in name for name in converters):
        found["precision"] = FLOAT8.get(str(recipe), "fp8-tensorwise")
        if gathers:
            found["fp8_params"] = True
    else:
        found["precision"] = "bf16"
    if reduce == "bfloat16":
        found["grad_dtype"] = "bf16"
    if dtype == "bfloat16":
        found |= {"main_param_dtype": "bf16", "optimizer_state_dtype": "bf16"}
