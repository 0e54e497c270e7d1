"""Which plans of a search are legal, and which rule refuses the others: each rule is asked once for what it reads."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from moesim.base.errors import Violation
from moesim.constraints import ALL_RULES
from moesim.problem import Problem
from moesim.rules import Rule
from moesim.spec.software import Rule as FrameworkRule
from moesim.timeline.schedules import find_schedule
from moesim.workload.stages import Stage, place_layers
from moesim.workload.strategy import COUNTS, DEGREES, FIELDS, Strategy

Mask = NDArray[np.bool_]
DERIVED = {
    "num_micro_batches": ("pp",),
    "dp": ("pp",),
    "edp": ("pp",),
    "recompute_full": ("recompute",),
    "recompute_moe": ("recompute",),
    "schedule_file": ("schedule",),
}
"""Fields, beside degrees, that names in the rules of a software spec follow from."""
RANKS = ("tp", "cp", "pp", "ep", "etp", "micro_batch")
DERIVED_OF_DEGREES = DERIVED | dict.fromkeys(("num_micro_batches", "dp", "edp"), RANKS)
"""The same with degrees."""


class Watched:
    """A strategy that notes which of its fields are read."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy, self._read = strategy, set[str]()

    def __getattr__(self, name: str) -> Any:
        self._read.update((name,) if name in FIELDS else FIELDS)
        return getattr(self._strategy, name)

    @property
    def noted(self) -> frozenset[str]:
        """What was read."""
        return frozenset(self._read)


def framework_reads(rule: FrameworkRule, derived: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Fields that a rule of a software spec depends on, through the numbers that are ``derived`` of them too."""
    found: set[str] = set()
    for name in rule.names:
        found.update(derived.get(name, (name,)))
    return frozenset(found & set(FIELDS))


def single_field_mask(problem: Problem, name: str, values: NDArray[np.float64]) -> Mask:
    """Which values of a degree break no rule that reads nothing else of the strategy."""
    ones: dict[str, Any] = {**dict.fromkeys(COUNTS, 1), name: values}
    strategy = problem.strategy.replace(**ones)
    mask = np.ones(len(values), dtype=bool)
    for rule in ALL_RULES:
        watched = Watched(strategy)
        holds = rule.holds(replace(problem.candidate(strategy), strategy=cast(Strategy, watched)))
        if watched.noted == {name}:
            mask &= holds
    told = problem.candidate(strategy).values()
    for framework_rule in problem.software.rules:
        if framework_rule.names & {*FIELDS, *DERIVED} == {name}:
            mask &= framework_rule.holds(told)
    return mask


@dataclass(frozen=True)
class Part:
    """Columns of degrees that share what the software's defaults make of them."""

    name: Hashable
    strategy: Strategy


class Memory:
    """Masks of rules, by the columns and by what the rule read of the strategy."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._known: dict[tuple[int, Hashable], list[tuple[frozenset[str], dict[tuple[Any, ...], bool | Mask]]]] = {}
        self._counts: dict[Hashable, tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]] = {}
        self.rules: tuple[Rule | FrameworkRule, ...] = (*ALL_RULES, *problem.software.rules)

    def ask(self, index: int, part: Part) -> tuple[bool | Mask, frozenset[str]]:
        """Which columns of a part satisfy a rule, and the fields beside degrees that it looked at."""
        strategy = part.strategy
        tables = self._known.setdefault((index, part.name), [])
        for reads, table in tables:
            found = table.get(tuple([getattr(strategy, name) for name in reads]))
            if found is not None:
                return found, reads
        mask, every = self._evaluate(self.rules[index], strategy)
        reads = every - set(DEGREES)
        values = tuple([getattr(strategy, name) for name in reads])
        for known, table in tables:
            if known == reads:
                table[values] = mask
                return mask, known
        tables.append((reads, {values: mask}))
        return mask, reads

    def always(self, index: int, part: Part, methods: Mapping[str, Sequence[Any]]) -> bool:
        """Whether a rule is known to hold in all columns of a part with every choice of the methods that it looks at."""
        names = methods.keys() & self.ask(index, part)[1]
        others = methods.keys() - names
        for values in itertools.product(*(methods[name] for name in names)):
            strategy = part.strategy.replace(**dict(zip(names, values, strict=True)))
            holds, reads = self.ask(index, Part(part.name, strategy))
            if holds is not True or not reads.isdisjoint(others):
                return False
        return True

    def _evaluate(self, rule: Rule | FrameworkRule, strategy: Strategy) -> tuple[bool | Mask, frozenset[str]]:
        candidate = self.problem.candidate(strategy)
        if isinstance(rule, FrameworkRule):
            holds: Any = rule.holds(candidate.values())
            reads = framework_reads(rule, DERIVED)
        else:
            watched = Watched(strategy)
            holds = rule.holds(replace(candidate, strategy=cast(Strategy, watched)))
            reads = watched.noted
        mask = np.asarray(holds, dtype=bool)
        same = bool(mask.all()) if mask.all() or not mask.any() else np.broadcast_to(mask, strategy.shape)
        return same, reads

    def micro_batches(self, part: Part) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Micro-batches of each column of a part, the numbers that occur, and which of them each column has."""
        key = (part.name, part.strategy.pp)
        if key not in self._counts:
            told = self.problem.candidate(part.strategy).num_micro_batches
            counts = np.array(np.broadcast_to(told, part.strategy.shape), dtype=float)
            self._counts[key] = (counts, *np.unique(counts, return_inverse=True))
        return self._counts[key]

    def settled(self, strategy: Strategy, fields: frozenset[str]) -> Iterator[tuple[str, bool | Mask]]:
        """Names and masks of rules that read nothing but some fields, whatever the others are."""
        for index, rule in enumerate(self.rules):
            if isinstance(rule, FrameworkRule) and not framework_reads(rule, DERIVED_OF_DEGREES) <= fields:
                continue
            mask, reads = self._evaluate(rule, strategy)
            if reads <= fields:
                yield self.name(index), mask

    def name(self, index: int) -> str:
        """What a refusal is counted under."""
        rule = self.rules[index]
        return rule.name if isinstance(rule, Rule) else f"{self.problem.software.name}: {rule.name}"


@dataclass
class Standing:
    """Which columns of a part are legal in one shape, as far as methods do not matter.

    ``pending``: rules that look at a method; ``refused``: columns that each rule refuses first; ``known``: what is legal
    with some methods, by those that the open rules look at.
    """

    alive: Mask
    micro_batches: NDArray[np.float64]
    stages: tuple[Stage, ...] = ()
    pending: list[int] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    known: list[tuple[tuple[str, ...], dict[tuple[Any, ...], tuple[Mask, Counter[str]]]]] = field(default_factory=list)

    def refuse(self, name: str, holds: bool | Mask) -> None:
        """Take out the columns in which a rule does not hold."""
        if holds is True:
            return
        out = self.alive & ~np.asarray(holds)
        count = int(np.count_nonzero(out))
        if count:
            self.refused[name] += count
            self.alive = self.alive & ~out


def shape_refusal(memory: Memory, strategy: Strategy, fields: frozenset[str]) -> str | None:
    """The rule that refuses a shape of a pipeline whatever the degrees and methods are; None where none does.

    Parameters
    ----------
    memory
        The rules.
    strategy
        One strategy with the shape.
    fields
        What rules may look at: fields that are the same in all plans with the shape.
    """
    model, schedule = memory.problem.model, find_schedule(strategy.schedule)
    if schedule.chunks not in (None, strategy.vpp):
        for violation in schedule.constraints(strategy.pp, 1, strategy.vpp):
            return violation.rule
    placed = place_layers(len(model.layers), strategy.pp * strategy.vpp, strategy.layout, model.mtp_layers)
    if isinstance(placed, Violation):
        return placed.rule
    return next((name for name, holds in memory.settled(strategy, fields) if holds is False), None)


def standing(memory: Memory, problem: Problem, part: Part, methods: Mapping[str, Sequence[Any]]) -> Standing:
    """What the rules say of the columns of a part whose shape is not refused; those that refuse some methods are left open.

    Once a rule refuses all columns nothing else is asked.
    """
    strategy = part.strategy
    found = Standing(np.ones(strategy.shape, dtype=bool), np.zeros(strategy.shape))
    model, schedule = problem.model, find_schedule(strategy.schedule)
    placed = place_layers(len(model.layers), strategy.pp * strategy.vpp, strategy.layout, model.mtp_layers)
    assert isinstance(placed, tuple)
    found.stages = placed * schedule.pipelines
    for index in range(len(memory.rules)):
        holds, reads = memory.ask(index, part)
        if reads.isdisjoint(methods):
            found.refuse(memory.name(index), holds)
            if not found.alive.any():
                return found
        elif not memory.always(index, part, methods):
            found.pending.append(index)
    found.micro_batches, counts, which = memory.micro_batches(part)
    for place in np.flatnonzero(np.bincount(which[found.alive], minlength=len(counts))):
        for violation in schedule.constraints(strategy.pp, int(counts[place]), strategy.vpp)[:1]:
            found.refuse(violation.rule, which != place)
    return found


def with_methods(memory: Memory, part: Part, before: Standing, methods: Mapping[str, Any]) -> tuple[Mask, Counter[str]]:
    """The legal columns of a part with some methods, and the columns that each rule that was left open refuses.

    Rules are asked once for the methods that they look at.
    """
    if not before.pending:
        return before.alive, Counter()
    for names, known in before.known:
        found = known.get(tuple([methods[name] for name in names]))
        if found is not None:
            return found
    chosen = Part(part.name, part.strategy.replace(**methods))
    now = Standing(before.alive, before.micro_batches)
    looked: set[str] = set()
    for index in before.pending:
        holds, reads = memory.ask(index, chosen)
        looked |= reads
        now.refuse(memory.name(index), holds)
    read = tuple(name for name in methods if name in looked)
    table = next((known for names, known in before.known if names == read), None)
    if table is None:
        table = {}
        before.known.append((read, table))
    table[tuple([methods[name] for name in read])] = (now.alive, now.refused)
    return now.alive, now.refused
