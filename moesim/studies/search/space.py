"""What a search varies: axes of strategy fields, and what ``auto`` means for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from moesim.base.errors import Collector, SpecError, did_you_mean
from moesim.constraints import CHOICES
from moesim.cost.transports import profiled, transports
from moesim.problem import Problem
from moesim.studies.search.legality import single_field_mask
from moesim.timeline.schedules import schedules
from moesim.workload.layers import layer_block, recomputed, saved_bytes
from moesim.workload.mesh import Mesh
from moesim.workload.ops import Block
from moesim.workload.precision import recipes
from moesim.workload.recompute import policies
from moesim.workload.setting import Setting
from moesim.workload.stages import COUNT_ENDS, EVEN, FIRST_LARGER, place_layers
from moesim.workload.strategy import DEGREES, FIELDS, FLAGS, Strategy

SHAPE = ("pp", "vpp", "schedule", "layout")
"""Fields that make the shape of a pipeline."""
VARIED = ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "schedule", "layout", "recompute", "transport")
"""What is varied where nobody says what."""
LARGEST_MICRO_BATCH = 8
"""Largest micro-batch that ``auto`` tries. [sequences]"""

Vary = Mapping[str, str | Sequence[Any]]
"""For each field its values, or ``auto``."""


@dataclass(frozen=True)
class Axis:
    """A field and its values."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Space:
    """All combinations of the values of some axes, around the strategy of a problem."""

    problem: Problem
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of combinations."""
        return math.prod(len(axis.values) for axis in self.axes)

    def place(self, strategy: Strategy) -> tuple[int, ...]:
        """Where a strategy stands in the order of the combinations."""
        return tuple(axis.values.index(getattr(strategy, axis.name)) for axis in self.axes)

    def part(self, names: Sequence[str]) -> tuple[Axis, ...]:
        """The axes among some names."""
        return tuple(axis for axis in self.axes if axis.name in names)

    @cached_property
    def methods(self) -> tuple[Axis, ...]:
        """The axes that are neither degrees nor make the shape of a pipeline."""
        return tuple(axis for axis in self.axes if axis.name not in (*DEGREES, *SHAPE))

    @cached_property
    def free(self) -> tuple[str, ...]:
        """Fields that the software has a default for and that neither the scenario nor an axis says."""
        said = {*self.problem.scenario.strategy.given, *(axis.name for axis in self.axes)}
        return tuple(name for name in self.problem.software.defaults if name not in said)


def space(problem: Problem, vary: Vary | None = None) -> Space:
    """Return the space of a search.

    Parameters
    ----------
    problem
        The job; fields that are not varied stay as its scenario says, or follow the defaults of its software.
    vary
        Values of each field, or ``auto`` for all that it can have. Left out: :data:`VARIED`, all ``auto``.

    Raises
    ------
    SpecError
        With one issue for each field or value that does not exist.
    """
    wanted = dict(vary) if vary else dict.fromkeys(VARIED, "auto")
    problems = Collector()
    axes: list[Axis] = []
    for path, values in wanted.items():
        name = path.removeprefix("strategy.")
        if name not in FIELDS:
            fix = f"set it with --set {path}=..." if "." in path else did_you_mean(name, FIELDS)
            problems.add(f"--vary {path}", "", "a search varies fields of the strategy", fix)
        elif isinstance(values, str) and values != "auto":
            problems.add(f"--vary {path}", "", f"'{values}' is no list of values", f"write [{values}], or auto")
        elif values != "auto":
            axes.append(Axis(name, _read(problem, name, list(values), problems)))
        elif name not in (*AUTO, *FLAGS, *CHOICES):
            problems.add(f"--vary {path}", "", "auto has no list of its values", "write them out")
        else:
            axes.append(Axis(name, ()))
    problems.raise_if_any()
    known = {axis.name: axis.values for axis in axes if axis.values}
    for place, axis in sorted(enumerate(axes), key=lambda one: (*SHAPE, *FIELDS).index(one[1].name)):
        if not axis.values:
            found = _auto(problem, axis.name, known)
            known[axis.name] = found
            axes[place] = Axis(axis.name, found)
    return Space(problem, tuple(axes))


def _read(problem: Problem, name: str, values: list[Any], problems: Collector) -> tuple[Any, ...]:
    """Values as the strategy takes them; those that have no meaning are collected."""
    found: dict[Any, None] = {}
    for value in values:
        told = list(value) if isinstance(value, tuple) else value
        try:
            changed = problem.with_changes({name: told}, "--vary").strategy
        except SpecError as error:
            problems.extend(error.issues)
            continue
        unknown = [one for one in problem.check(changed) if one.violation.rule.startswith("known-")]
        for one in unknown:
            problems.add(f"--vary {name}", "", one.violation.message, one.violation.legal)
        if not unknown:
            found[getattr(changed, name)] = None
    if not values:
        problems.add(f"--vary {name}", "", "has no values", f"write for example --vary {name}=1,2,4")
    return tuple(found)


def _auto(problem: Problem, name: str, known: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    if name in FLAGS:
        return (False, True)
    if name in CHOICES:
        return tuple(CHOICES[name])
    return AUTO[name](problem, known)


def _degrees(name: str) -> Callable[[Problem, Mapping[str, tuple[Any, ...]]], tuple[Any, ...]]:
    def values(problem: Problem, _: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
        """Divisors of the GPUs that break no rule by themselves."""
        numbers = np.array([k for k in range(1, problem.machine.num_gpus + 1) if problem.machine.num_gpus % k == 0])
        return tuple(int(one) for one in numbers[single_field_mask(problem, name, numbers.astype(float))])

    return values


def _pipeline_ranks(problem: Problem, known: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    most = _units(problem)
    return tuple(value for value in _degrees("pp")(problem, known) if value <= most)


def _units(problem: Problem) -> int:
    return len(problem.model.layers) + 2 + problem.model.mtp_layers


def _chunks(problem: Problem, known: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    """Chunks a rank with which the layers can be placed on at least one number of ranks."""
    layouts = known.get("layout") or _layouts(problem, known)
    ranks = known.get("pp", (problem.strategy.pp,))
    layers, mtp = len(problem.model.layers), problem.model.mtp_layers
    return tuple(
        vpp
        for vpp in range(1, _units(problem) // 2 + 1)
        if vpp == 1
        or any(isinstance(place_layers(layers, pp * vpp, one, mtp), tuple) for one in layouts for pp in ranks if pp > 1)
    )


def _micro_batches(problem: Problem, _: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(k for k in range(1, LARGEST_MICRO_BATCH + 1) if problem.global_batch % k == 0)


def _layouts(problem: Problem, _: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    given = problem.scenario.strategy.given.get("layout")
    return tuple(dict.fromkeys([COUNT_ENDS, EVEN, FIRST_LARGER, *([] if given is None else [given])]))


def _recomputes(problem: Problem, _: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    """What is recomputed now, nothing, and each policy that frees something on one of the model's layers."""
    fusion, one_rank = problem.machine.runtime.fusion, Mesh(1, 1, 1, 1, 1, 1)
    setting = Setting(1, problem.sequence_length, one_rank, recipes.get("bf16"), fusion=fusion)
    blocks = [layer_block(layer, problem.model.hidden, setting) for layer in dict.fromkeys(problem.model.layers)]
    kept = {name: [recomputed(block, (policies.get(name),)) for block in blocks] for name in policies.names()}
    single = ((name,) for name, less in kept.items() if any(map(_frees, less, blocks)))
    return tuple(dict.fromkeys([(), problem.strategy.recompute, *single]))


def _frees(less: Block, whole: Block) -> bool:
    return bool(saved_bytes(less) < saved_bytes(whole))


def _transports(problem: Problem, _: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    known = [one.name for one in transports.entries() if profiled(one.item, problem.machine.protocol)]
    return tuple(known) if problem.model.moe else (problem.strategy.transport,)


def _schedules(_problem: Problem, _: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(schedules.names())


def _precisions(problem: Problem, _: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(entry.name for entry in recipes.entries() if entry.item.rate in problem.machine.gpu.rates)


AUTO: dict[str, Callable[[Problem, Mapping[str, tuple[Any, ...]]], tuple[Any, ...]]] = {
    "tp": _degrees("tp"),
    "cp": _degrees("cp"),
    "ep": _degrees("ep"),
    "etp": _degrees("etp"),
    "pp": _pipeline_ranks,
    "vpp": _chunks,
    "micro_batch": _micro_batches,
    "layout": _layouts,
    "schedule": _schedules,
    "recompute": _recomputes,
    "transport": _transports,
    "precision": _precisions,
}
"""All values of a field that ``auto`` stands for."""
