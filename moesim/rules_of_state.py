"""Rules of the methods that change training state: optimizer, adapters."""

from __future__ import annotations

from moesim.rules import Candidate, Rule
from moesim.workload.adapters import adapters, parse_adapter
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


STATE_RULES = (
    _share("activation_offload", "the activations that a chunk keeps"),
    _share("optimizer_offload", "the optimizer state of a rank"),
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
