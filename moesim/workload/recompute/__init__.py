"""Recompute policies: one file each, found by name.

A policy names the recompute module that it repeats; operations and saved tensors carry the modules they belong to. A
policy that works below modules lists shares of single operations and tensors instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moesim.base.registry import Registry


@dataclass(frozen=True)
class RecomputePolicy:
    """What a policy repeats in the backward.

    Attributes
    ----------
    module
        The tag on operations and saved tensors.
    whole_layer
        Only the layer input is kept; excludes every other policy.
    segments
        Only the input of the first layer of each segment is kept; a stage of n layers has segments of ceil(sqrt(n)).
    again, dropped
        Shares of single operations that are repeated, and of single saved tensors that are not kept, by name. [-]
    """

    module: str = ""
    whole_layer: bool = False
    segments: bool = False
    again: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, float] = field(default_factory=dict)


policies: Registry[RecomputePolicy] = Registry(
    "recompute policy", package="moesim.workload.recompute", entry_points="moesim.recompute"
)


def whole_layers(names: tuple[str, ...]) -> bool:
    """Whether one of these policies repeats whole layers; names that are unknown do not."""
    bases = [parse(name)[0] for name in names]
    return any(policies.get(base).whole_layer for base in bases if base in policies)


def parse(name: str) -> tuple[str, int | None]:
    """Name of a policy and, for ``full:N``, the layers of each stage that it applies to.

    Examples
    --------
    >>> parse("full:5"), parse("moe_act")
    (('full', 5), ('moe_act', None))
    """
    base, colon, count = name.partition(":")
    return (base, int(count)) if colon and count.isdigit() else (name, None)
