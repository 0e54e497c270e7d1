"""What one rank computes, moves and keeps: the operations of a layer, free of hardware.

An :class:`Op` carries its work as one of a few shapes; the cost layer has one price per shape. Counts are per rank and
per micro-batch. A multiply-add is 2 FLOP.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric

CATEGORIES = ("gemm", "grouped_gemm", "attention", "memory_bound", "ep", "tp", "cp", "pp", "dp", "optimizer")
"""Breakdown categories that operations carry (``host``, ``bubble`` and ``other`` come from the timeline)."""

SCOPES = ("attn", "mlp", "moe-router", "moe")
"""Parts of a layer that a CUDA graph may capture: attention, dense feed-forward, router with shared experts that run
before the exchange, and the rest of the experts with their exchange (Megatron-Core ``--cuda-graph-scope``)."""


@dataclass(frozen=True)
class Gemm:
    """``groups`` products of an (m, k) by a (k, n) matrix.

    ``accumulate`` adds into an FP32 output (wgrad). ``rate`` is the key of the GPU's GEMM rate, ``operand_bytes`` the
    size of an operand value with its scales. ``spread``: rows of each group over their mean ``m``, where they differ. ``kind``:
    how the products of experts are made, by its name.
    """

    m: Numeric
    n: Numeric
    k: Numeric
    groups: Numeric = 1
    accumulate: bool = False
    rate: str = "bf16"
    operand_bytes: float = 2.0
    spread: NDArray[np.float64] | None = None
    kind: str = "grouped"

    @property
    def flop(self) -> Numeric:
        """Multiply-adds, 2 FLOP each."""
        return 2 * self.groups * self.m * self.n * self.k

    @property
    def hbm_bytes(self) -> Numeric:
        """Operands read once, result written; an accumulated FP32 result is read and written. [B]"""
        result = 8 if self.accumulate else 2
        operands = self.operand_bytes * (self.m * self.k + self.k * self.n)
        return self.groups * (operands + result * self.m * self.n)


@dataclass(frozen=True)
class AttentionCore:
    """Causal softmax attention of ``batch`` sequences with ``heads`` query heads on this rank.

    ``queries`` of each sequence are on this rank, each of which sees ``columns`` keys on average. ``balanced``: all of them
    see as many, as without a mask or in a window. ``kernel``: ``fused``, ``latest``, ``fp8``, ``flash1``
    or ``flash2``.
    """

    batch: Numeric
    heads: Numeric
    kv_heads: Numeric
    queries: Numeric
    columns: Numeric
    query_dim: int
    value_dim: int
    backward: bool = False
    kernel: str = "fused"
    balanced: bool = False

    @property
    def flop(self) -> Numeric:
        """QK^T and PV, forward; the backward counts twice that (model FLOPs, without the recomputed QK^T)."""
        forward = 2 * self.batch * self.heads * self.queries * self.columns * (self.query_dim + self.value_dim)
        return forward * (2 if self.backward else 1)

    @property
    def hbm_bytes(self) -> Numeric:
        """Q, K, V and the output, once; twice that with their gradients. [B]"""
        rows = self.batch * self.queries
        tensors = rows * (self.heads + self.kv_heads) * (self.query_dim + self.value_dim) * 2
        return tensors * (2 if self.backward else 1)


@dataclass(frozen=True)
class Traffic:
    """A memory-bound kernel: bytes read plus written, and its (few) FLOPs are not counted.

    ``cast``: it changes the number format, which reaches a little less than a plain copy. ``plain``: element by element, as
    an addition or a cast by a known scale does it; else it reduces, gathers or computes beside. ``slowdown``: how many
    times longer it takes than such bytes usually do.
    """

    hbm_bytes: Numeric
    cast: bool = False
    plain: bool = False
    slowdown: float = 1.0
    flop: Numeric = 0


@dataclass(frozen=True)
class Message:
    """A collective over one mesh axis.

    ``size`` as in nccl-tests: all-reduce buffer; all-gather total received; reduce-scatter total sent; send-recv
    payload. [B]
    """

    collective: str
    axis: str
    size: Numeric
    flop: Numeric = 0
    hbm_bytes: Numeric = 0


@dataclass(frozen=True)
class ExpertLeg:
    """One leg (``dispatch`` or ``combine``) of the expert exchange over the axis ``ep``.

    ``tokens`` on this rank, each with ``top_k`` routes of ``row_bytes``; experts are balanced over the group.
    ``counts``: the ranks do not know yet how many rows they will receive (forward dispatch). ``load``: rows of the
    hottest rank over the mean. ``node_limit``: NVLink domains that a token's routes may reach; else they
    stay in ``token_groups`` of ``groups`` equal groups of experts.
    ``return_bytes``: of a row on its way back. ``weighted``: rows are multiplied by their router weights as they leave.
    """

    direction: str
    tokens: Numeric
    top_k: int
    num_experts: int
    row_bytes: Numeric
    counts: bool = False
    load: Numeric = 1.0
    node_limit: int | None = None
    groups: int = 1
    token_groups: int = 1
    return_bytes: Numeric = 0.0
    weighted: bool = False
    flop: Numeric = 0
    hbm_bytes: Numeric = 0

    @property
    def busy_tokens(self) -> Numeric:
        """Tokens of the rank that the others wait for. [-]"""
        return self.tokens * self.load


@dataclass(frozen=True)
class FusedExperts:
    """Dispatch, products and combine of a rank's experts in one persistent kernel."""

    dispatch: ExpertLeg
    combine: ExpertLeg
    products: tuple[Gemm, ...]

    @property
    def rate(self) -> str:
        """Key of the GPU's GEMM rate for its operands."""
        return self.products[0].rate

    @property
    def flop(self) -> Numeric:
        """Multiply-adds of the products, 2 FLOP each."""
        return sum((product.flop for product in self.products), 0.0)

    @property
    def hbm_bytes(self) -> Numeric:
        """Operands and results of the products. [B]"""
        return sum((product.hbm_bytes for product in self.products), 0.0)


Work = FusedExperts | Gemm | AttentionCore | Traffic | Message | ExpertLeg


@dataclass(frozen=True)
class Op:
    """One operation of one rank.

    Attributes
    ----------
    name, category
        For people; the breakdown key.
    work
        What it does.
    kernels
        Kernels that the host launches for it. [-]
    segment
        Part of the layer it belongs to (``attention``, ``dispatch``, ``experts``, ``combine``, ``head``): the unit
        that an overlap of forward and backward interleaves.
    modules
        Recompute modules (Megatron-Core names) whose recomputation repeats this op.
    needs
        Names of earlier ops of the same list that must be finished; empty means the one before.
    calls
        Further launches inside the op, without the framework around them: a product for each expert, a slice for each. [-]
    host_sync
        Behind the launch of this op the host waits for what the op itself waits for, as it has to read it: the counts that
        the router made.
    beside
        It waits for what the op before it waited for, so that the two run side by side.
    prefetch
        It may start one block early: it waits for the end of the block before the last one.
    detached
        Nothing waits for it inside the chunk; the chunk ends after it.
    scope
        Part of a layer that a CUDA graph may capture (see :data:`SCOPES`); empty at the ends of the model.
    held_bytes
        Of what makes a weight gradient, which a split backward may put off: bytes that wait for it. None for what the
        input gradient needs. [B]
    """

    name: str
    category: str
    work: Work
    kernels: Numeric = 1
    segment: str = "attention"
    modules: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()
    host_sync: bool = False
    beside: bool = False
    prefetch: bool = False
    detached: bool = False
    scope: str = ""
    held_bytes: Numeric | None = None
    calls: Numeric = 0


@dataclass(frozen=True)
class Saved:
    """A tensor kept from forward to backward. [B per micro-batch]

    ``modules``: recomputing any of them drops it.
    """

    name: str
    num_bytes: Numeric
    modules: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Block:
    """Forward and backward operations of one piece of a model, and what it keeps between them."""

    forward: tuple[Op, ...]
    backward: tuple[Op, ...]
    saved: tuple[Saved, ...]
    recompute: tuple[Op, ...] = ()
