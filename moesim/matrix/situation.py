"""Situations: what a method is tried in, and the cases with and without it that come of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.base.expression import Expression
from moesim.base.numeric import Numeric
from moesim.constraints import legal_mask, stages, violations
from moesim.cost.blocks import price_blocks
from moesim.cost.machine import Machine
from moesim.cost.once import Once
from moesim.cost.plan import Plan
from moesim.matrix.case import Case, Step
from moesim.matrix.choices import CHOICES, Choices
from moesim.matrix.placing import arbitrary_order
from moesim.problem import Problem
from moesim.rules import Candidate
from moesim.spec.software import SoftwareSpec
from moesim.workload.stages import FIRST_LARGER
from moesim.workload.strategy import DEGREES, OFF, Strategy


@dataclass(frozen=True)
class Own:
    """The situation's own value of a field where it uses the method, else another one (a value, or text to evaluate)."""

    field: str
    otherwise: Any


@dataclass(frozen=True)
class Formula:
    """A value that is worked out from the situation: an expression of strategy fields and sizes."""

    text: str


@dataclass(frozen=True)
class BySkew:
    """One value where experts are alike, another where some are hotter."""

    even: Any
    skewed: Any


Changes = Mapping[str, Any]
"""Fields of a strategy or of :class:`Choices`, or ``num_gpus``, with what they become."""


@dataclass(frozen=True, eq=False)
class Situation:
    """A model on a cluster with a strategy; degrees may be arrays, one column for each scenario.

    ``micro_batches`` of the strategy; methods that change the replicas change them, so that the global batch stays.
    ``skewed``: some experts are hotter than others. ``common``: what situations of the same problem know of prices.
    """

    name: str
    problem: Problem
    strategy: Strategy
    micro_batches: int
    skewed: bool = False
    common: Once = field(default_factory=Once, repr=False)
    _known: dict[tuple[Any, ...], tuple[Case, NDArray[np.bool_]] | None] = field(
        default_factory=dict, repr=False, init=False
    )
    _steps: dict[tuple[Any, ...], tuple[Step, NDArray[np.bool_]] | None] = field(
        default_factory=dict, repr=False, init=False
    )
    _alike: dict[tuple[Any, ...], Step] = field(default_factory=dict, repr=False, init=False)

    @property
    def columns(self) -> int:
        """Scenarios in it. [-]"""
        return int(np.prod(self.strategy.shape, dtype=int))

    def case(self, changes: Changes) -> tuple[Case, NDArray[np.bool_]] | None:
        """The step with changes, and the scenarios in which it is legal; None where it is in none."""
        settled = {name: self._value(value) for name, value in changes.items()}
        key = tuple(sorted((name, _hashable(value)) for name, value in settled.items()))
        if key not in self._known:
            self._known[key] = self._case(settled)
        return self._known[key]

    def holds(self, text: str) -> bool:
        """Whether an expression is true of it, in any column."""
        return not text or bool(np.any(Expression(text).evaluate(self._names())))

    def _value(self, value: Any) -> Any:
        if isinstance(value, Own):
            own = getattr(self.strategy, value.field)
            if isinstance(own, np.ndarray):
                return np.where(own != OFF[value.field], own, self._value(value.otherwise))
            return own if own != OFF[value.field] else self._value(value.otherwise)
        if isinstance(value, BySkew):
            return self._value(value.skewed if self.skewed else value.even)
        if isinstance(value, Formula):
            return Expression(value.text).value(self._names())
        return value

    def _names(self) -> dict[str, Any]:
        machine, model = self.problem.machine, self.problem.model
        values = {name: getattr(self.strategy, name) for name in Strategy.__dataclass_fields__}
        sizes = {
            "domain": machine.nvlink_domain,
            "num_gpus": machine.num_gpus,
            "num_experts": model.moe.num_experts if model.moe else 1,
            "shared_size": model.moe.shared_size if model.moe else 0,
            "num_layers": len(model.layers),
            "num_heads": model.layers[-1].attention.num_heads,
            "micro_batches": self.micro_batches,
        }
        return values | sizes

    def _case(self, changes: dict[str, Any]) -> tuple[Case, NDArray[np.bool_]] | None:
        choices = Choices(**{name: value for name, value in changes.items() if name in CHOICES})
        strategy = self.strategy.replace(**{name: value for name, value in changes.items() if name in OFF})
        strategy = strategy.replace(**{name: _plain(getattr(strategy, name)) for name in DEGREES})
        if strategy.shape:  # skewed experts have a column of sizes for each entry
            strategy = strategy.replace(ep=np.broadcast_to(np.asarray(strategy.ep, dtype=float), strategy.shape))
        gpus = int(np.max(changes.get("num_gpus", self._machine.num_gpus)))
        key = (strategy_key(strategy), gpus, choices.rank_order)
        if key not in self._steps:
            self._steps[key] = self._step(strategy, gpus, choices.rank_order)
        found = self._steps[key]
        return None if found is None else (Case(found[0], choices), found[1])

    def _step(self, strategy: Strategy, gpus: int, rank_order: str) -> tuple[Step, NDArray[np.bool_]] | None:
        """The step of a strategy, and the scenarios in which it is legal; None where it is in none."""
        machine = self._machine
        if gpus != machine.num_gpus:
            machine = replace(machine, num_gpus=gpus)
        micro_batches = self.micro_batches * self._share(strategy, gpus)
        if micro_batches < 1 or micro_batches % 1:
            return None
        problem = replace(self.problem, machine=machine, software=self._software)
        batch = round(micro_batches * float(np.max(_replicas(strategy, gpus) * strategy.micro_batch)))
        candidate = replace(problem.candidate(strategy), global_batch=batch)
        mask = np.broadcast_to(legal_mask(_whole_batches(candidate)), strategy.shape)
        first = _column(strategy, int(np.argmax(mask))) if mask.ndim else strategy
        if not mask.any():
            return None
        broken = _names_broken(candidate, first, int(micro_batches))
        if broken == {"layers-per-stage"}:
            strategy, first = strategy.replace(layout=FIRST_LARGER), first.replace(layout=FIRST_LARGER)
            candidate = replace(candidate, strategy=strategy)
            broken = _names_broken(candidate, first, int(micro_batches))
        if broken:
            return None
        strategy = _legal_columns(strategy, mask)
        candidate = replace(candidate, strategy=strategy)
        if rank_order == "arbitrary":
            machine = arbitrary_order(machine, candidate.mesh)
        layers = (strategy_key(strategy.replace(schedule="", overlap_p2p=False)), gpus, rank_order)
        step = Step(self._plan(strategy, machine, candidate, int(micro_batches)), self._shared, self._alike.get(layers))
        self._alike.setdefault(layers, step)
        return step, mask

    @cached_property
    def _shared(self) -> Once:
        """What is known of layers and prices on the situation's machine."""
        return self.common.once("rates", tuple(self._machine.gpu.rates.values()), Once)

    @cached_property
    def _machine(self) -> Machine:
        """The machine at the clock that the situation's own step sustains: whatever a method changes, the clock stays."""
        machine, strategy = self.problem.machine, self.strategy
        gpu = machine.gpu
        if gpu.power is None:
            return machine
        candidate = replace(self.problem.candidate(strategy), strategy=strategy)
        clock = price_blocks(self._plan(strategy, machine, candidate, self.micro_batches)).clock
        rates = {name: rate * clock for name, rate in gpu.rates.items()} if np.min(clock) < 1 else gpu.rates
        return replace(machine, gpu=replace(gpu, rates=rates, power=None))

    @property
    def _software(self) -> SoftwareSpec:
        """The software without what it refuses: a method is tried where it is possible, not where it is on offer."""
        return self.problem.software.model_copy(update={"rules": ()})

    def _plan(self, strategy: Strategy, machine: Machine, candidate: Candidate, micro_batches: int) -> Plan:
        return Plan(
            self.problem.model,
            machine,
            strategy,
            stages(candidate),
            self.problem.sequence_length,
            micro_batches,
            extra_warmup(self.problem.software) if strategy.overlap_ep else 0,
            strategy.shape,
            documents=self.problem.documents,
        )

    def _share(self, strategy: Strategy, gpus: int) -> float:
        """Micro-batches of a pipeline over those of the situation, for the same sequences in a step. [-]"""
        own = _replicas(self.strategy, self.problem.machine.num_gpus) * self.strategy.micro_batch
        if gpus != self.problem.machine.num_gpus:
            return 1.0  # each replica does what it did
        shares = np.ravel(np.round(np.asarray(own / (_replicas(strategy, gpus) * strategy.micro_batch)), 9))
        return float(shares[0]) if (shares == shares[0]).all() else 0.0


def _replicas(strategy: Strategy, gpus: int) -> Numeric:
    return gpus / (strategy.tp * strategy.cp * strategy.pp)


def _whole_batches(candidate: Candidate) -> Candidate:
    """The candidate with a batch that suits every column: micro-batches are the same in all."""
    whole = candidate.mesh.dp * candidate.strategy.micro_batch
    return replace(candidate, global_batch=int(np.lcm.reduce(np.ravel(np.maximum(whole, 1)).astype(int))))


def _names_broken(candidate: Candidate, strategy: Strategy, micro_batches: int) -> set[str]:
    """Rules that one column breaks."""
    one = replace(candidate, strategy=strategy)
    batch = round(micro_batches * float(one.mesh.dp * strategy.micro_batch))
    return {broken.violation.rule for broken in violations(replace(one, global_batch=batch))}


def _column(strategy: Strategy, index: int) -> Strategy:
    shape = strategy.shape
    degrees = {
        name: np.broadcast_to(value, shape).ravel()[index].item()
        for name in DEGREES
        if isinstance(value := getattr(strategy, name), np.ndarray)
    }
    return strategy.replace(**{name: int(value) if value == int(value) else value for name, value in degrees.items()})


def _legal_columns(strategy: Strategy, mask: NDArray[np.bool_]) -> Strategy:
    """The strategy with the first legal column in place of those that are not: nothing reads them."""
    if mask.all() or not mask.ndim:
        return strategy
    index = np.where(mask, np.arange(len(mask)), int(np.argmax(mask)))
    whole = {name: np.broadcast_to(getattr(strategy, name), mask.shape)[index] for name in DEGREES}
    return strategy.replace(**{name: whole[name] for name in DEGREES if np.ndim(getattr(strategy, name))})


def extra_warmup(software: SoftwareSpec) -> int:
    """Forwards that the software issues early where it merges pairs. [-]"""
    told = software.constants.get("overlap_ep_extra_warmup")
    return int(told.value) if told else 0


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def strategy_key(strategy: Strategy) -> tuple[Any, ...]:
    """A strategy as something that can be looked up."""
    return tuple(_hashable(getattr(strategy, name)) for name in Strategy.__dataclass_fields__)


def _hashable(value: Any) -> Any:
    return tuple(np.ravel(value).tolist()) if isinstance(value, np.ndarray) else value
