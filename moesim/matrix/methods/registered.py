"""Schedules, transports and precisions that no method of its own stands for: each a column of the second set."""

from __future__ import annotations

from typing import Any

from moesim.base.registry import Registry
from moesim.cost.transports import transports
from moesim.matrix.methods import Method, Pair, methods
from moesim.matrix.situation import Own
from moesim.timeline.schedules import schedules
from moesim.workload.precision import recipes

STAGES = Own("pp", 4)
OWN = {
    "none",
    "1f1b",
    "interleaved-1f1b",
    "1f1b-v",
    "nccl-alltoall",
    "nvshmem-rowwise",
    "nccl-hierarchical",
    "mxfp8",
    "bf16",
}
"""What a method of its own stands for, or what methods are set against."""


def add_registered() -> None:
    """Make a column of everything that is registered and has none, also of what was registered since."""
    for entry in schedules.entries():
        chunks = entry.item.chunks or 2
        on = {"pp": STAGES, "schedule": entry.name, "vpp": chunks}
        off = {"pp": STAGES, "schedule": "1f1b", "vpp": 1}
        _add(schedules, entry.name, "sequence and depth", Pair("1F1B", on, off), ("pp",), 200)
    for transport in transports.entries():
        on = {"transport": transport.name}
        pair = Pair("block all-to-all", on, {"transport": "nccl-alltoall"})
        _add(transports, transport.name, "experts", pair, ("ep",), 220)
    for recipe in recipes.entries():
        on = {"precision": recipe.name, "fp8_params": False}
        pair = Pair("BF16", on, {"precision": "bf16", "fp8_params": False})
        _add(recipes, recipe.name, "kernels", pair, (), 240)


def _add(registry: Registry[Any], name: str, group: str, pair: Pair, classes: tuple[str, ...], place: int) -> None:
    if name in OWN or name in methods:
        return
    entry = next(one for one in registry.entries() if one.name == name)
    column = Method(name, group, place, (pair,), classes=classes, second=True)
    methods.add(name, column, summary=entry.summary, source=entry.source)


add_registered()
