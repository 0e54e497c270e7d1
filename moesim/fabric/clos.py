"""Levels of switches by their ports: the arithmetic that fat-trees and rails share."""

from __future__ import annotations

from dataclasses import dataclass

from moesim.base.errors import SpecError
from moesim.fabric.hierarchy import Hierarchy, Level
from moesim.fabric.shape import Shape, refuse

NAMES = ("leaf", "spine", "core", "super-core", "top")
"""Levels of switches from the hosts up."""


def down_ports(radix: int, ratio: float) -> int:
    """Ports of a switch that lead down, where down over up is `ratio`. [-]"""
    return int(radix * ratio / (1 + ratio) + 1e-9)


def clos(shape: Shape, *, rails: bool, joined: bool = True) -> Hierarchy:
    """Return the levels of a folded Clos network; as few as join all GPUs where the shape names no number.

    Parameters
    ----------
    rails
        A leaf holds the GPUs of one place in their nodes, each on a rail of its own.
    joined
        The rails meet above the leaves.

    Notes
    -----
    A switch of radix R and oversubscription o has R o / (1 + o) ports down; the top level has all of them down. Up-links
    of a unit carry the bandwidth of its ports down over o. With o = 1 and L levels it joins 2 (R/2)^L ports.

    References
    ----------
    leiserson1985; alfares2008, section 3.
    """
    lanes = shape.gpus_per_node if rails else 1
    domain = shape.nvlink_domain
    if shape.num_gpus <= domain:
        return one_domain(shape)
    if domain % lanes and not (joined and domain == 1):
        what = f"an NVLink domain of {domain} does not hold a GPU of each of {lanes} rails"
        raise refuse("kind", what, "a fat-tree, or nodes whose GPUs share NVLink")
    kind = _Kind(shape, rails, joined)
    levels = [Level("nic", NAMES[0], domain, domain, shape.nic_bandwidth, 1, shape.hop_latency)]
    while True:
        height = len(levels) - 1
        reach = kind.block(levels[-1], height, shape.radix)
        last = height + 1 == shape.levels or height + 1 == len(NAMES)
        enough = reach >= shape.num_gpus and height + 1 >= kind.least_levels
        if last or (shape.levels is None and enough):
            break
        ratio = shape.ratio(height)
        down = down_ports(shape.radix, ratio)
        block = kind.block(levels[-1], height, down)
        if not (1 <= down < shape.radix and block):
            raise _too_small(shape, height + 2, 0)
        capacity = down * levels[-1].capacity / ratio
        apart = lanes if height == 0 or not joined else 1
        up = shape.radix - down
        levels.append(Level(NAMES[height], NAMES[height + 1], block, apart, capacity, up, shape.hop_latency))
    if reach < shape.num_gpus:
        raise _too_small(shape, len(levels), reach)
    meet = joined and len(levels) > 1
    return Hierarchy(
        shape.num_gpus,
        domain,
        shape.nvlink_bandwidth,
        shape.nvlink_latency,
        tuple(levels),
        1 if meet else lanes,
        rails and domain > 1 and (shape.rails_forward or not meet),
    )


def one_domain(shape: Shape) -> Hierarchy:
    """GPUs of one NVLink domain, or a single GPU: no network."""
    return Hierarchy(
        shape.num_gpus, min(shape.nvlink_domain, shape.num_gpus), shape.nvlink_bandwidth, shape.nvlink_latency
    )


@dataclass(frozen=True)
class _Kind:
    shape: Shape
    rails: bool
    joined: bool

    @property
    def least_levels(self) -> int:
        """Rails that meet need switches above the leaves to do so. [-]"""
        return 2 if self.rails and self.joined and self.shape.gpus_per_node > 1 else 1

    def block(self, below: Level, height: int, down: int) -> int:
        """GPUs, over all rails, below one unit whose switches have `down` ports down. [-]"""
        per_node, domain = self.shape.gpus_per_node, self.shape.nvlink_domain
        if height == 0 and self.rails:  # a domain has a port on each rail for each of its nodes
            whole = max(domain, per_node)
            return down // (whole // per_node) * whole
        if height == 0:  # a leaf takes whole nodes where it can
            return down // per_node * per_node or down
        if height == 1 and self.rails and self.joined:  # a block of nodes has a leaf on each rail
            return below.block * (down // per_node)
        return below.block * down


def _too_small(shape: Shape, levels: int, reach: int) -> SpecError:
    plural = "s" if levels > 1 else ""
    what = f"{levels} level{plural} of switches with {shape.radix} ports join {reach} GPUs, not {shape.num_gpus}"
    return refuse("radix", what, "more levels, a larger radix, or fewer nodes")
