"""Methods that no software has on by default: a scenario that leaves one out does without it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from moesim.spec.provenance import SpecModel


def _names(value: Any) -> Any:
    """Return a list of names, also from ``a, b``, ``a;b`` and ``none``."""
    if isinstance(value, str):
        value = [part.strip() for part in value.replace(";", ",").split(",")]
    if isinstance(value, list):
        return tuple(part for part in value if part not in ("none", ""))
    return value


Names = Annotated[tuple[StrictStr, ...], BeforeValidator(_names)]
"""Names of methods that go together."""
Whole = Annotated[StrictInt, Field(ge=1, le=10**6)]
"""A count of at least one."""


class ExpertMethods(SpecModel):
    """Methods around the routed experts."""

    capacity_per: StrictStr | None = None
    replicated_experts: Annotated[StrictInt, Field(ge=0, le=10**6)] | None = None
    node_limit: Whole | None = None
    expert_gemm: StrictStr | None = None
    expert_kernel: StrictStr | None = None
    sync_free: StrictBool | None = None
    dispatch_precision: StrictStr | None = None
    two_batch_overlap: StrictBool | None = None
    expert_waves: Annotated[StrictInt, Field(ge=1, le=64)] | None = None
    delay_wgrad: StrictBool | None = None
    fusions: Names | None = None


STATE_METHODS = (
    "optimizer",
    "adapter",
    "adapter_targets",
    "activation_offload",
    "optimizer_offload",
    "expert_offload",
    "grad_bucket_bytes",
    "grad_compression",
    "stale_gradients",
)
"""Methods around training state; off, the optimizer is AdamW."""

METHODS = (*ExpertMethods.model_fields, *STATE_METHODS)
"""Strategy fields that need no default of the software: off is the default of :class:`moesim.Strategy`."""
