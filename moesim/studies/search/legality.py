"""Which plans of a search are legal, and which rule refuses the others: each rule is asked once for what it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
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


def framework_reads(rule: FrameworkRule) -> frozenset[str]:
    """Fields that a rule of a software spec depends on, degrees of derived numbers left out."""
    found: set[str] = set()
    for name in rule.names:
        found.update(DERIVED.get(name, (name,)))
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
        self._problem = problem
        self._known: dict[tuple[int, Hashable], list[tuple[frozenset[str], dict[tuple[Any, ...], bool | Mask]]]] = {}
        self.rules: tuple[Rule | FrameworkRule, ...] = (*ALL_RULES, *problem.software.rules)

    def ask(self, index: int, part: Part) -> tuple[bool | Mask, frozenset[str]]:
        """Which columns of a part satisfy a rule, and the fields beside degrees that it looked at."""
        strategy = part.strategy
        tables = self._known.setdefault((index, part.name), [])
        for reads, table in tables:
            found = table.get(tuple([getattr(strategy, name) for name in reads]))
            if found is not None:
                return found, reads
        mask, reads = self._evaluate(self.rules[index], strategy)
        values = tuple([getattr(strategy, name) for name in reads])
        for known, table in tables:
            if known == reads:
                table[values] = mask
                return mask, known
        tables.append((reads, {values: mask}))
        return mask, reads

    def _evaluate(self, rule: Rule | FrameworkRule, strategy: Strategy) -> tuple[bool | Mask, frozenset[str]]:
        candidate = self._problem.candidate(strategy)
        if isinstance(rule, FrameworkRule):
            holds: Any = rule.holds(candidate.values())
            reads = framework_reads(rule)
        else:
            watched = Watched(strategy)
            holds = rule.holds(replace(candidate, strategy=cast(Strategy, watched)))
            reads = watched.noted
        mask = np.asarray(holds, dtype=bool)
        same = bool(mask.all()) if mask.all() or not mask.any() else np.broadcast_to(mask, strategy.shape)
        return same, reads - set(DEGREES)

    def name(self, index: int) -> str:
        """What a refusal is counted under."""
        rule = self.rules[index]
        return rule.name if isinstance(rule, Rule) else f"{self._problem.software.name}: {rule.name}"


@dataclass
class Standing:
    """Which columns of a part are legal in one shape, as far as methods do not matter.

    ``pending``: rules that look at a method; ``refused``: columns that each rule refuses first.
    """

    alive: Mask
    micro_batches: NDArray[np.float64]
    stages: tuple[Stage, ...] = ()
    pending: list[int] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def refuse(self, name: str, holds: bool | Mask) -> None:
        """Take out the columns in which a rule does not hold."""
        if holds is True:
            return
        out = self.alive & ~np.asarray(holds)
        count = int(np.count_nonzero(out))
        if count:
            self.refused[name] += count
            self.alive = self.alive & ~out


def standing(memory: Memory, problem: Problem, part: Part, methods: Sequence[str]) -> Standing:
    """What the schedule, the layout and the rules say of the columns of a part; rules that read a method are left open.

    What refuses all columns is asked first. Nothing else is asked then.
    """
    strategy = part.strategy
    found = Standing(np.ones(strategy.shape, dtype=bool), np.zeros(strategy.shape))
    model, schedule = problem.model, find_schedule(strategy.schedule)
    if schedule.chunks not in (None, strategy.vpp):  # whatever the micro-batches are
        for violation in schedule.constraints(strategy.pp, 1, strategy.vpp)[:1]:
            found.refuse(violation.rule, False)
            return found
    placed = place_layers(len(model.layers), strategy.pp * strategy.vpp, strategy.layout, model.mtp_layers)
    if isinstance(placed, Violation):
        found.refuse(placed.rule, False)
        return found
    found.stages = placed * schedule.pipelines
    for index in range(len(memory.rules)):
        holds, reads = memory.ask(index, part)
        if reads.isdisjoint(methods):
            found.refuse(memory.name(index), holds)
            if holds is False:
                return found
        else:
            found.pending.append(index)
    candidate = problem.candidate(strategy)
    found.micro_batches = np.broadcast_to(candidate.num_micro_batches, strategy.shape)
    for count in np.unique(found.micro_batches[found.alive]):
        for violation in schedule.constraints(strategy.pp, int(count), strategy.vpp)[:1]:
            found.refuse(violation.rule, found.micro_batches != count)
    return found


def with_methods(memory: Memory, part: Part, before: Standing) -> tuple[Mask, Counter[str]]:
    """The legal columns of a part with its methods, and the columns that each rule that was left open refuses."""
    now = Standing(before.alive, before.micro_batches)
    for index in before.pending:
        now.refuse(memory.name(index), memory.ask(index, part)[0])
    return now.alive, now.refused
