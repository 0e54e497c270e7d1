"""Layout and methods in the settings of Megatron-Core, as the strategy of a scenario."""

from __future__ import annotations

from typing import Any

from moesim.studies.imports.settings import Settings, names
from moesim.workload.stages import expand_layout

DEGREES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "micro_batch_size": "micro_batch",
}
SWITCHES = {
    "sequence_parallel": "sequence_parallel",
    "overlap_grad_reduce": "overlap_grad_reduce",
    "overlap_param_gather": "overlap_param_gather",
    "tp_comm_overlap": "overlap_tp",
    "overlap_moe_expert_parallel_comm": "overlap_ep",
    "moe_shared_expert_overlap": "overlap_shared_expert",
    "delay_wgrad_compute": "delay_wgrad",
}
FP8_RECIPES = {
    "delayed": "fp8-delayed",
    "tensorwise": "fp8-current",
    "blockwise": "fp8-blockwise",
    "mxfp8": "mxfp8",
}
DTYPES = {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"}
RECOMPUTE = ("core_attn", "layernorm", "moe_act", "mlp", "moe", "mla_up_proj", "shared_experts")
FSDP = {"no_shard": "ddp", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "fsdp"}
GRAPHS = {"attn": "attn", "mlp": "mlp", "moe": "moe", "moe_router": "moe-router", "moe_preprocess": "moe-router"}


def strategy(settings: Settings, model: dict[str, Any]) -> dict[str, Any]:
    """The fields of a strategy that the settings say, with Megatron-Core's own defaults where those differ from none."""
    found: dict[str, Any] = {}
    for theirs, ours in DEGREES.items():
        if (degree := settings.number(theirs)) is not None:
            found[ours] = degree
    for theirs, ours in SWITCHES.items():
        if (on := settings.flag(theirs)) is not None:
            found[ours] = on
    etp = settings.number("expert_tensor_parallel_size")
    if model.get("moe"):
        found["etp"] = etp if etp is not None else found.get("tp", 1)
    _pipeline(settings, model, found)
    _replicas(settings, found)
    _precision(settings, found)
    _optimizer(settings, found)
    _recompute(settings, found)
    _graphs(settings, found)
    if kind := settings.take("cp_comm_type"):
        if kind in ("p2p", "a2a"):
            found["cp_kind"] = {"p2p": "ring", "a2a": "ulysses"}[kind]
        elif found.get("cp", 1) > 1:
            settings.notes.append(f"cp_comm_type = {kind}: not modelled, ring stands in")
    if model.get("moe"):
        _experts(settings, found)
    return found


def _pipeline(settings: Settings, model: dict[str, Any], found: dict[str, Any]) -> None:
    pp, layers = found.get("pp", 1), model["num_layers"]
    each = settings.number("num_layers_per_virtual_pipeline_stage")
    chunks = settings.number("virtual_pipeline_model_parallel_size") or settings.number(
        "num_virtual_stages_per_pipeline_rank"
    )
    layout = settings.take("pipeline_model_parallel_layout")
    if each:
        chunks = layers // (pp * each)
    if layout is not None and pp > 1:
        count = expand_layout(str(layout)).count("|") + 1
        if count % pp:
            fix = f"a layout of {pp}, {2 * pp}, ... chunks"
            settings.refuse(
                "pipeline_model_parallel_layout", f"has {count} chunks, no multiple of {pp} pipeline ranks", fix
            )
        chunks = max(count // pp, 1)
        found["layout"] = str(layout)
    if chunks and pp > 1:
        found["vpp"] = chunks
    no_overlap, overlap = settings.flag("no_overlap_p2p_communication"), settings.flag("overlap_p2p_comm")
    if pp > 1 and found.get("vpp", 1) > 1:
        found["overlap_p2p"] = overlap if overlap is not None else not no_overlap
    counts_ends = [settings.flag(f"account_for_{end}_in_pipeline_split") for end in ("embedding", "loss")]
    if all(counts_ends):
        found["layout"] = "count-embedding-and-loss"
    elif any(counts_ends):
        settings.notes.append("account_for_embedding/loss_in_pipeline_split: only one of the two, not expressed")
    _uneven(settings, layers, pp * found.get("vpp", 1), found)


def _uneven(settings: Settings, layers: int, stages: int, found: dict[str, Any]) -> None:
    """Layers of the first and last pipeline rank, where they are given."""
    first = settings.number("decoder_first_pipeline_num_layers") or settings.number(
        "num_layers_in_first_pipeline_stage"
    )
    last = settings.number("decoder_last_pipeline_num_layers") or settings.number("num_layers_in_last_pipeline_stage")
    if not (first or last) or stages < 2:
        return
    if found.get("vpp", 1) > 1:
        settings.notes.append("layers of the first and last pipeline rank with virtual stages: not expressed")
        return
    middle = stages - bool(first) - bool(last)
    left = layers - (first or 0) - (last or 0)
    if middle < 1 or left % middle:
        settings.notes.append(f"{left} layers do not divide over {middle} middle stages: layout not expressed")
        return
    counts = [left // middle] * middle
    found["layout"] = ([first] if first else []) + counts + ([last] if last else [])


def _replicas(settings: Settings, found: dict[str, Any]) -> None:
    sharded = settings.flag("use_distributed_optimizer")
    kind = settings.take("data_parallel_sharding_strategy")
    fsdp = [settings.flag(name) for name in ("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")]
    if any(fsdp):
        found["dp_sharding"] = FSDP.get(str(kind), "fsdp") if not fsdp[2] else "fsdp"
    else:
        found["dp_sharding"] = "zero1" if sharded else "ddp"
    if found["dp_sharding"] == "ddp" or (found.get("overlap_param_gather") and not found.get("overlap_grad_reduce")):
        if found.get("overlap_param_gather"):
            settings.notes.append("overlap_param_gather without a distributed optimizer and overlap_grad_reduce: off")
        found["overlap_param_gather"] = False


def _precision(settings: Settings, found: dict[str, Any]) -> None:
    bf16, fp16 = settings.flag("bf16"), settings.flag("fp16")
    kind = settings.take("fp8_format") or settings.take("fp8")
    recipe = settings.take("fp8_recipe") or "delayed"
    fp4 = settings.take("fp4_format") or settings.take("fp4")
    settings.take("fp4_recipe")
    if fp4:
        found["precision"] = "nvfp4"
    elif kind and recipe in FP8_RECIPES:
        found["precision"] = FP8_RECIPES[recipe]
    elif bf16 or fp16:
        found["precision"] = "bf16" if bf16 else "fp16"
        if kind:
            settings.notes.append(f"fp8_recipe = {recipe}: not known, priced in {found['precision']}")
    else:
        found["precision"] = "bf16"
        settings.notes.append(
            "neither bf16 nor fp16 is set: Megatron would compute in FP32, which is not modelled; bf16 stands in"
        )
    if any(settings.flag(name) for name in ("fp8_param_gather", "fp8_param")):
        found["fp8_params"] = True
    if settings.flag("grad_reduce_in_bf16") or settings.flag("grad_reduce_in_fp32") is False:
        found["grad_dtype"] = "bf16"
    settings.flag("accumulate_allreduce_grads_in_fp32")


def _optimizer(settings: Settings, found: dict[str, Any]) -> None:
    if name := settings.take("optimizer"):
        if name in ("adam", "muon", "sgd"):
            found["optimizer"] = name
        else:
            settings.notes.append(f"optimizer = {name}: not modelled, adam stands in")
    aware = settings.flag("use_precision_aware_optimizer")
    kinds = {
        "main_grads_dtype": "grad_dtype",
        "main_params_dtype": "main_param_dtype",
        "exp_avg_dtype": "optimizer_state_dtype",
    }
    second = settings.take("exp_avg_sq_dtype")
    for theirs, ours in kinds.items():
        value = settings.take(theirs)
        dtype = DTYPES.get(str(value).removeprefix("torch."))
        if value is None or not aware:
            continue
        if dtype is None or (ours == "main_param_dtype" and dtype == "fp16"):
            settings.notes.append(f"{theirs} = {value}: not modelled")
        else:
            found[ours] = dtype
    if aware and second is not None and DTYPES.get(str(second)) != found.get("optimizer_state_dtype", "fp32"):
        settings.notes.append(f"exp_avg_sq_dtype = {second}: both moments are priced alike")
    if settings.flag("optimizer_cpu_offload"):
        found["optimizer_offload"] = settings.number("optimizer_offload_fraction", float) or 1.0


def _recompute(settings: Settings, found: dict[str, Any]) -> None:
    granularity = settings.take("recompute_granularity")
    if granularity is None and settings.flag("recompute_activations"):
        granularity = "selective"
    method, count = settings.take("recompute_method"), settings.number("recompute_num_layers")
    modules = settings.take("recompute_modules")
    if granularity == "full":
        found["recompute"] = [f"full:{count}"] if method == "block" and count else ["full"]
        if method == "uniform" and count and count > 1:
            settings.notes.append(f"recompute_num_layers = {count} with method uniform: priced as one layer a segment")
    elif granularity == "selective":
        chosen = names(modules) if modules else ["core_attn"]
        known = [name for name in chosen if name in RECOMPUTE]
        settings.notes.extend(f"recompute_modules {name}: not known" for name in chosen if name not in RECOMPUTE)
        found["recompute"] = known
    else:
        found["recompute"] = []
    if fraction := settings.number("cpu_offloading_num_layers"):
        settings.notes.append(f"cpu_offloading_num_layers = {fraction}: give activation_offload as a share")


def _graphs(settings: Settings, found: dict[str, Any]) -> None:
    on = settings.take("cuda_graph_impl") or settings.flag("enable_cuda_graph") or settings.flag("external_cuda_graph")
    scopes = settings.take("cuda_graph_scope") or settings.take("cuda_graph_modules")
    if not on:
        return
    given = names(scopes) if scopes else ["full"]
    if any(name in ("full", "full_iteration") for name in given):
        found["cuda_graph"] = "full"
        return
    known = list(dict.fromkeys(GRAPHS[name] for name in given if name in GRAPHS))
    settings.notes.extend(f"cuda_graph_scope {name}: not known" for name in given if name not in GRAPHS)
    if known:
        found["cuda_graph"] = "+".join(known)


def _experts(settings: Settings, found: dict[str, Any]) -> None:
    dispatcher = settings.take("moe_token_dispatcher_type") or "allgather"
    backend = settings.take("moe_flex_dispatcher_backend") or "deepep"
    deepep = settings.flag("moe_enable_deepep")
    if dispatcher == "flex" or deepep:
        found["transport"] = backend if backend in ("deepep", "hybridep") else "deepep"
    else:
        found["transport"] = "nccl-alltoall"
        if dispatcher == "allgather" and found.get("ep", 1) > 1:
            settings.notes.append(
                "moe_token_dispatcher_type allgather, Megatron's default: not modelled, nccl-alltoall stands in"
            )
    if settings.flag("moe_router_force_load_balancing"):
        found["routing"] = "balanced"
    capacity = settings.number("moe_expert_capacity_factor", float)
    if capacity is not None and capacity > 0:
        found["capacity_factor"] = capacity
        if settings.flag("moe_pad_expert_input_to_capacity"):
            found["routing"] = "capacity"
    grouped = settings.flag("moe_grouped_gemm")
    if grouped is None or grouped is False:
        found["expert_gemm"] = "loop"
    fused = [
        name for name, key in (("permute", "moe_permute_fusion"), ("router", "moe_router_fusion")) if settings.flag(key)
    ]
    if fused:
        found["fusions"] = fused
    if devices := settings.number("moe_router_topk_limited_devices"):
        settings.notes.append(f"moe_router_topk_limited_devices: where a device is a node, write node_limit: {devices}")
