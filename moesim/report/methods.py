"""A strategy in words: every choice, what it means, and whether somebody made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from moesim.base.registry import Registry
from moesim.cost.expert_gemms import expert_gemms
from moesim.cost.transports import transports
from moesim.timeline.schedules import schedules
from moesim.workload.adapters import adapters
from moesim.workload.compression import compressions
from moesim.workload.fusions import fusions
from moesim.workload.optimizers import optimizers
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies
from moesim.workload.routing import routings

REGISTRIES: dict[str, Registry[Any]] = {
    "schedule": schedules,
    "transport": transports,
    "routing": routings,
    "recompute": policies,
    "precision": recipes,
    "expert_gemm": expert_gemms,
    "fusions": fusions,
    "optimizer": optimizers,
    "adapter": adapters,
    "grad_compression": compressions,
}
"""Where the names of a field are explained."""
DEGREES = {
    "tp": "ranks that share each matrix",
    "cp": "ranks that share each sequence",
    "pp": "pipeline ranks",
    "vpp": "chunks of layers a pipeline rank",
    "ep": "ranks that share the experts",
    "etp": "ranks that share each expert",
    "micro_batch": "sequences that go through together",
}
"""What the numbers of a strategy count."""
FIELDS = {
    "sequence_parallel": "norms and residuals are split over the ranks of tp",
    "layout": "how layers are placed on pipeline ranks",
    "cp_kind": "how the ranks of a sequence share attention",
    "dp_sharding": "what replicas split: optimizer state, gradients, weights",
    "reshard_after_forward": "gathered weights are freed behind each block",
    "fp8_params": "weights are kept in the format of the recipe",
    "param_dtype": "format of the weights that are multiplied",
    "main_param_dtype": "format of the copy that the optimizer updates",
    "grad_dtype": "format in which gradients are added up",
    "optimizer_state_dtype": "format of both moments",
    "overlap_grad_reduce": "gradients are reduced beside the backward",
    "overlap_param_gather": "weights are gathered beside the forward",
    "overlap_tp": "tensor-parallel messages beside their product",
    "overlap_ep": "the exchange of one micro-batch beside the computation of another",
    "overlap_shared_expert": "shared experts beside the exchange",
    "overlap_p2p": "pipeline transfers beside the next chunk",
    "cuda_graph": "which kernels are replayed as a graph",
    "rank_imbalance": "rows of the hottest rank over the mean",
    "capacity_factor": "rows of a rank are capped at this many times the mean",
}
"""What other fields say."""


class MethodRow(NamedTuple):
    """A field, its value, what that is, and whether the software chose it."""

    field: str
    value: str
    meaning: str
    default: bool


def method_rows(strategy: Mapping[str, Any], assumed: Sequence[str]) -> list[MethodRow]:
    """Rows of a strategy as an estimate tells it; degrees of one and what is off are left out."""
    rows = []
    for name, value in strategy.items():
        if value is False or value is None or value == [] or (name in DEGREES and value == 1):
            continue
        shown = ", ".join(map(str, value)) if isinstance(value, list) else "yes" if value is True else str(value)
        rows.append(MethodRow(name, shown, _meaning(name, value), f"strategy.{name}" in assumed))
    return rows


def meaning(name: str) -> str:
    """What a field says; empty where its name does.

    Examples
    --------
    >>> meaning("tp"), meaning("schedule")
    ('ranks that share each matrix', '')
    """
    return DEGREES.get(name) or FIELDS.get(name, "")


def _meaning(name: str, value: Any) -> str:
    if name in DEGREES:
        return DEGREES[name]
    if name not in REGISTRIES:
        return FIELDS.get(name, "")
    summaries = {entry.name: entry.summary for entry in REGISTRIES[name].entries()}
    words = value if isinstance(value, list) else [value]
    return "; ".join(filter(None, (summaries.get(str(word).partition(":")[0], "").rstrip(".") for word in words)))
