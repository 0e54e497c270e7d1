"""Rules of the methods that change training state: optimizer, adapters, offload, and how gradients are reduced."""

from __future__ import annotations

from moesim.rules import Candidate, Rule
from moesim.workload.adapters import adapters, parse_adapter
from moesim.workload.compression import Compression, compressions, parse_compression
from moesim.workload.optimizers import optimizers
from moesim.workload.precision import recipes


def _adapts(c: Candidate) -> bool:
    return c.strategy.adapter != "none"


def _quantised(c: Candidate) -> bool:
    return _adapts(c) and adapters.get(parse_adapter(c.strategy.adapter)[0]).frozen_bytes is not None


def _share(field: str, what: str) -> Rule:
    return Rule(
        field.replace("_", "-"),
        (field,),
        lambda c: 0 <= getattr(c.strategy, field) <= 1,
        lambda c: f"{field} = {getattr(c.strategy, field):g} is no share of {what}",
        lambda c: f"{field} from 0 to 1",
    )


def _once_a_step(c: Candidate) -> bool:
    return c.strategy.dp_sharding in ("ddp", "zero1")


def _compresses(c: Candidate) -> Compression | None:
    name = parse_compression(c.strategy.grad_compression)[0]
    return None if name == "none" else compressions.get(name)


def _needs_one_reduction(name: str, field: str, off: object) -> Rule:
    return Rule(
        name,
        (field, "dp_sharding"),
        lambda c: getattr(c.strategy, field) == off or _once_a_step(c),
        lambda c: (
            f"{field} speaks of one reduction of whole gradients a step; dp_sharding {c.strategy.dp_sharding} reduces "
            "each block after each micro-batch"
        ),
        lambda c: f"dp_sharding: ddp or zero1, or no {field}",
    )


STATE_RULES = (
    _needs_one_reduction("bucket-sharding", "grad_bucket_bytes", None),
    _needs_one_reduction("compression-sharding", "grad_compression", "none"),
    _needs_one_reduction("stale-sharding", "stale_gradients", False),
    Rule(
        "bucket-size",
        ("grad_bucket_bytes",),
        lambda c: c.strategy.grad_bucket_bytes is None or c.strategy.grad_bucket_bytes >= 1,
        lambda c: f"a bucket of {c.strategy.grad_bucket_bytes:g} B holds no gradient",
        lambda c: "grad_bucket_bytes: 25 MiB, or another size",
    ),
    Rule(
        "compression-rank",
        ("grad_compression",),
        lambda c: (
            (chosen := _compresses(c)) is None
            or (chosen.low_rank and bool(parse_compression(c.strategy.grad_compression)[1]))
            or (not chosen.low_rank and parse_compression(c.strategy.grad_compression)[1] is None)
        ),
        lambda c: (
            f"grad_compression {c.strategy.grad_compression}: a rank from 1 goes with powersgd, and with it alone"
        ),
        lambda c: "grad_compression: fp16, bf16 or powersgd:R",
    ),
    Rule(
        "compression-reduction",
        ("dp_sharding", "grad_compression"),
        lambda c: (chosen := _compresses(c)) is None or not chosen.low_rank or c.strategy.dp_sharding == "ddp",
        lambda c: (
            f"factors of a low rank are summed by all-reduce; dp_sharding {c.strategy.dp_sharding} scatters the sum"
        ),
        lambda c: "dp_sharding: ddp, or grad_compression: fp16 or bf16",
        needs=("compression-sharding",),
    ),
    Rule(
        "compression-dtype",
        ("grad_compression", "grad_dtype"),
        lambda c: (chosen := _compresses(c)) is None or chosen.wire_bytes is None or c.strategy.grad_dtype == "fp32",
        lambda c: f"grad_compression {c.strategy.grad_compression} of {c.strategy.grad_dtype} gradients saves nothing",
        lambda c: "grad_dtype: fp32, or grad_compression: none",
    ),
    Rule(
        "compression-adapter",
        ("grad_compression", "adapter"),
        lambda c: (chosen := _compresses(c)) is None or not chosen.low_rank or not _adapts(c),
        lambda c: "the matrices of an adapter are of a low rank already; factors of them are not modelled",
        lambda c: "grad_compression: fp16, bf16 or none",
    ),
    _share("activation_offload", "the activations that a chunk keeps"),
    _share("optimizer_offload", "the optimizer state of a rank"),
    _share("expert_offload", "the weights of the experts of a rank"),
    Rule(
        "expert-offload-model",
        ("expert_offload", "dp_sharding"),
        lambda c: not c.strategy.expert_offload or (c.moe is not None and _once_a_step(c)),
        lambda c: (
            f"expert_offload keeps whole weights of routed experts on the host: model {c.model.name}, dp_sharding "
            f"{c.strategy.dp_sharding}"
        ),
        lambda c: "a model with experts, and dp_sharding: ddp or zero1",
    ),
    Rule(
        "expert-offload-adapter",
        ("expert_offload", "adapter"),
        lambda c: not c.strategy.expert_offload or not c.strategy.adapter.startswith("qlora"),
        lambda c: (
            "expert_offload copies weights as they are computed with; experts of 4 bits on the host are not modelled"
        ),
        lambda c: "expert_offload: 0, or an adapter of another kind",
    ),
    Rule(
        "optimizer-offload-products",
        ("optimizer_offload", "optimizer"),
        lambda c: not c.strategy.optimizer_offload or not optimizers.get(c.strategy.optimizer).newton_schulz_steps,
        lambda c: f"the matrix products of optimizer {c.strategy.optimizer} on the CPUs are not modelled",
        lambda c: "optimizer_offload: 0, or another optimizer",
    ),
    Rule(
        "adapter-rank",
        ("adapter",),
        lambda c: not _adapts(c) or 1 <= (parse_adapter(c.strategy.adapter)[1] or 0) <= c.model.hidden,
        lambda c: f"adapter {c.strategy.adapter} has no rank from 1 to the hidden width {c.model.hidden}",
        lambda c: f"adapter: {parse_adapter(c.strategy.adapter)[0].partition(':')[0]}:8, or another rank",
    ),
    Rule(
        "adapter-targets",
        ("adapter_targets", "adapter"),
        lambda c: (
            c.strategy.adapter_targets == "attention"
            or (_adapts(c) and adapters.get(parse_adapter(c.strategy.adapter)[0]).beside)
        ),
        lambda c: (
            f"adapter_targets {c.strategy.adapter_targets} says beside which matrices adapters stand; adapter "
            f"{c.strategy.adapter} stands beside none"
        ),
        lambda c: "adapter_targets: attention, or adapter lora:R or qlora:R",
    ),
    Rule(
        "adapter-optimizer",
        ("optimizer", "adapter"),
        lambda c: not _adapts(c) or not optimizers.get(c.strategy.optimizer).newton_schulz_steps,
        lambda c: f"optimizer {c.strategy.optimizer} on the narrow matrices of an adapter is not modelled",
        lambda c: "optimizer in " + ", ".join(e.name for e in optimizers.entries() if not e.item.newton_schulz_steps),
    ),
    Rule(
        "adapter-overlap-tp",
        ("overlap_tp", "adapter"),
        lambda c: not _adapts(c) or not c.strategy.overlap_tp,
        lambda c: "overlap_tp cuts a product into pieces; adapters beside the pieces are not modelled",
        lambda c: "overlap_tp: false, or adapter: none",
    ),
    Rule(
        "adapter-precision",
        ("precision", "adapter"),
        lambda c: not _quantised(c) or not recipes.get(c.strategy.precision).casts,
        lambda c: (
            f"adapter {c.strategy.adapter} keeps weights in 4 bits and brings them back to BF16; precision "
            f"{c.strategy.precision} would cast them again"
        ),
        lambda c: "precision: bf16, or adapter lora:R",
    ),
)
