"""A strategy: every choice that a user makes about how a model is trained on a cluster."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from moesim.base.numeric import Numeric

Layout = str | tuple[int, ...]


@dataclass(frozen=True)
class Strategy:
    """Parallel degrees, schedule and methods of one training run.

    Degrees (``tp cp ep etp micro_batch rank_imbalance``) may be arrays: then the strategy stands for a batch of runs that share the
    pipeline shape and the methods. The defaults are the neutral setting of each method; a scenario takes what it
    leaves out from its software spec, or, for an optional method (:data:`moesim.spec.methods.METHODS`), stays at the neutral setting.
    """

    tp: Numeric = 1
    cp: Numeric = 1
    pp: int = 1
    vpp: int = 1
    ep: Numeric = 1
    etp: Numeric = 1
    micro_batch: Numeric = 1
    sequence_parallel: bool = False
    schedule: str = "none"
    layout: Layout = "even"
    cp_kind: str = "ring"
    transport: str = "nccl-alltoall"
    dp_sharding: str = "ddp"
    reshard_after_forward: bool = True
    recompute: tuple[str, ...] = ()
    precision: str = "bf16"
    fp8_params: bool = False
    param_dtype: str = "bf16"
    main_param_dtype: str = "fp32"
    grad_dtype: str = "fp32"
    optimizer_state_dtype: str = "fp32"
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    overlap_tp: bool = False
    overlap_ep: bool = False
    overlap_shared_expert: bool = False
    overlap_p2p: bool = False
    cuda_graph: str = "none"
    routing: str = "balanced"
    rank_imbalance: Numeric = 1.0
    capacity_factor: float | None = None
    capacity_per: str = "rank"
    replicated_experts: int = 0
    node_limit: int | None = None
    expert_gemm: str = "grouped"
    expert_kernel: str = "separate"
    sync_free: bool = False
    dispatch_precision: str = "bf16"
    two_batch_overlap: bool = False
    expert_waves: int = 1
    delay_wgrad: bool = False
    fusions: tuple[str, ...] = ()
    optimizer: str = "adam"
    adapter: str = "none"
    adapter_targets: str = "attention"
    activation_offload: float = 0.0
    optimizer_offload: float = 0.0
    expert_offload: float = 0.0
    grad_bucket_bytes: float | None = None
    grad_compression: str = "none"
    stale_gradients: bool = False

    def replace(self, **changes: Any) -> "Strategy":
        """Return a copy with some fields changed."""
        if unknown := changes.keys() - OFF.keys():
            raise TypeError(f"a strategy has no {', '.join(sorted(unknown))}")
        copy = object.__new__(type(self))  # dataclasses.replace looks at every field, which takes ten times as long
        own = vars(self)
        vars(copy).update({name: own[name] for name in FIELDS} | changes)
        return copy

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the batch that the degrees span; ``()`` for one run."""
        return np.broadcast_shapes(*(np.shape(getattr(self, name)) for name in DEGREES))


DEGREES = ("tp", "cp", "ep", "etp", "micro_batch", "rank_imbalance")
"""Fields that may be arrays inside one batch."""

OFF = {field.name: field.default for field in fields(Strategy)}
"""The neutral setting of each field."""
FIELDS = tuple(field.name for field in fields(Strategy))
FLAGS = tuple(field.name for field in fields(Strategy) if field.type in (bool, "bool"))
COUNTS = ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch")
DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
