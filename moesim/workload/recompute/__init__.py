"""Recompute policies: one file each, found by name.

A policy names the recompute modules that it repeats; operations and saved tensors carry the modules they belong to.
"""

from dataclasses import dataclass

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
    """

    module: str
    whole_layer: bool = False


policies: Registry[RecomputePolicy] = Registry(
    "recompute policy", package="moesim.workload.recompute", entry_points="moesim.recompute"
)
