"""Loading a checkpoint on another layout: what may be read at once, what has to be converted, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError, did_you_mean
from moesim.cost.update import held_params, owned_params
from moesim.problem import Problem
from moesim.spec import library
from moesim.spec.storage import StorageSpec
from moesim.studies.checkpoint import CONTENTS

FORMATS = {
    "logical": "tensors of the whole model by name, shape and offset; ranks write and read the parts that they own",
    "layout-bound": "a file for each rank, as its layout has it; another layout needs a conversion",
    "gathered": "one file of whole tensors, collected and handed out by one rank of each node",
}
"""How a checkpoint is written. Universal Checkpointing and PyTorch's distributed checkpoints are of the first kind."""
LAYOUT = ("tp", "pp", "vpp", "layout", "ep", "etp", "schedule", "dp_sharding")
"""Choices that decide which rank holds what, beside the number of GPUs."""


@dataclass(frozen=True)
class Resharded:
    """A load on another layout. Times in s, sizes in B.

    ``differs``: what decides where tensors lie and is not as it was. ``read_bytes_per_gpu`` of the rank that reads most;
    ``files_per_rank``: written parts that its own part overlaps. ``host_bytes``: what a node stages before it lies on
    its GPUs, which hold nothing beside their own part. ``conversion_s`` in front of the load, 0 where none is needed.
    """

    format: str
    direct: bool
    differs: tuple[str, ...]
    refused: tuple[str, ...]
    read_bytes: float
    read_bytes_per_gpu: float
    files_per_rank: int
    host_bytes: float
    conversion_bytes: float
    conversion_s: float
    load_s: float

    @property
    def total_s(self) -> float:
        """Conversion and load. [s]"""
        return self.conversion_s + self.load_s

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain = dict(vars(self)) | {"differs": list(self.differs), "refused": list(self.refused)}
        return plain | {"total_s": self.total_s}


def reshard(
    problem: Problem, changes: Mapping[str, Any], storage: str, contents: str, form: str, where: str = "--onto"
) -> Resharded:
    """A checkpoint of a job, loaded by the same model on the changed layout.

    A rank reads the main weights and moments that it updates, cut out of what was written; ranks with a whole optimizer
    each read all of it. Conversion reads and writes the whole checkpoint on the nodes of the new job.

    Raises
    ------
    SpecError
        For an unknown format or contents, or another model.

    References
    ----------
    olmo-core-report, section 12
    """
    if form not in FORMATS:
        raise SpecError.single("--format", "", f"no format '{form}'", did_you_mean(form, FORMATS))
    if contents not in CONTENTS:
        raise SpecError.single("--contents", "", f"no contents '{contents}'", did_you_mean(contents, CONTENTS))
    other = problem.with_changes(dict(changes), where)
    if other.model != problem.model:
        raise SpecError.single(where, "", "another model has other tensors", "choices of the layout, or the cluster")
    machine, tier = other.machine, library.get("storage", storage)
    nodes = machine.num_gpus / machine.gpus_per_node
    per_param = CONTENTS[contents][0]
    whole = problem.model.stored_params * per_param
    differs = tuple(_differing(problem, other))
    refused = tuple(one.violation.message for one in other.check())
    if refused:
        return Resharded(form, False, differs, refused, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0)
    plan = other.plan()
    owned = [float(owned_params(plan, held_params(plan, rank))) * per_param for rank in range(other.strategy.pp)]
    ranks = machine.num_gpus / other.strategy.pp
    read = whole if form == "gathered" else sum(owned) * ranks
    direct = form != "layout-bound" or not differs
    rate = tier.read_bandwidth.value * (1 if form == "gathered" else nodes)
    load = tier.open_time.value + read / _capped(rate, tier)
    converted = 0.0 if direct else 2 * whole
    conversion = 0.0
    if not direct:
        both = whole / _capped(tier.read_bandwidth.value * nodes, tier)
        both += whole / _capped(tier.write_bandwidth.value * nodes, tier)
        conversion = 2 * tier.open_time.value + both
    written = 1 if form == "gathered" else problem.machine.num_gpus
    return Resharded(
        format=form,
        direct=direct,
        differs=differs,
        refused=(),
        read_bytes=read,
        read_bytes_per_gpu=whole if form == "gathered" else max(owned),
        files_per_rank=1 if not differs or form == "gathered" else math.ceil(written * max(owned) / whole) + 1,
        host_bytes=whole if form == "gathered" else max(owned) * machine.gpus_per_node,
        conversion_bytes=converted,
        conversion_s=conversion,
        load_s=load,
    )


def _differing(one: Problem, other: Problem) -> list[str]:
    found = [name for name in LAYOUT if getattr(one.strategy, name) != getattr(other.strategy, name)]
    return found + (["number of GPUs"] if one.machine.num_gpus != other.machine.num_gpus else [])


def _capped(rate: float, tier: StorageSpec) -> float:
    """Bandwidth of all nodes together. [B/s]"""
    return min(rate, tier.aggregate_bandwidth.value) if tier.aggregate_bandwidth else rate
