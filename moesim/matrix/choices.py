"""What a method fixes beside the strategy: how it is implemented where a step's price does not depend on it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class Choices:
    """Settings of an implementation that no field of a strategy names.

    Attributes
    ----------
    reduction
        ``scatter``: a sharded optimizer reduce-scatters gradients; ``all-reduce``: it keeps the all-reduce and gathers
        weights on top, as OLMo-core does.
    rank_order
        ``mapped``: expert groups innermost, so that they fill NVLink domains; ``arbitrary``: ranks lie anywhere.
    offsets
        Where a grouped product reads the rows of each expert: ``device``, or ``host`` after a copy.
    tails
        Spare rows of buffers of a fixed size: ``skipped``, ``touched`` by element-wise kernels, or ``multiplied`` too.
    metadata
        Where a persistent expert kernel gets its row counts: ``device`` or ``host``.
    scales
        How MXFP8 scales get their layout: ``fused`` with the cast, or in a pass of their own (``swizzled``).
    copy_engine
        Collectives move by copy engines, without SMs.
    movement
        Routed rows are ``sent``, or are where they are needed: ``ideal``.
    checkpoint
        Files hold tensors by ``global`` keys, or by ``layout`` of the ranks that wrote them.
    writer
        What a rank brings together to write: a copy of its ``own`` state, or ``whole`` tensors gathered from others.
    restart
        A job comes back on the ``same`` parallel layout or on an ``other`` one.
    saved_caches
        Whether files hold the low-precision weights too, which otherwise are rebuilt from the main weights.
    """

    reduction: str = "scatter"
    rank_order: str = "mapped"
    offsets: str = "device"
    tails: str = "skipped"
    metadata: str = "device"
    scales: str = "fused"
    copy_engine: bool = False
    movement: str = "sent"
    checkpoint: str = "global"
    writer: str = "own"
    restart: str = "same"
    saved_caches: bool = False

    def replace(self, **changes: Any) -> Choices:
        """Return a copy with some choices changed."""
        return replace(self, **changes)


CHOICES = frozenset(field.name for field in fields(Choices))
"""Names of the choices."""
