"""Schedules from a file: a CSV with a line for each rank and a cell for each slot, as PyTorch writes them.

Cells are ``<stage><action><micro-batch>`` with the actions F (forward), B (whole backward), I (input gradient) and W
(weight gradient), or ``(0F1;3B0)OVERLAP_F_B`` for a pair that may run as one task; empty cells are slots without work.
Messages are not listed: they follow from the slots.

References
----------
pytorch-pipelining: ``_Action.from_str``, ``_PipelineScheduleRuntime._load_csv``
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from moesim.base.errors import Collector, SpecError, Violation
from moesim.timeline.schedule import Op, Program, Schedule, Slot

ACTIONS = {"F": Op.F, "B": Op.BW, "I": Op.B, "W": Op.W}
WORDS = {Op.F: "forward", Op.BW: "backward", Op.B: "backward", Op.W: "weight gradient"}
SINGLE = re.compile(r"(\d+)([A-Z_]+)(\d*)")
PAIR = re.compile(r"\((\d+F\d+);(\d+B\d+)\)OVERLAP_F_B")
LEGAL = "cells such as 0F3 (forward), 0B3 (whole backward), 0I3 and 0W3 (its parts), (0F3;1B2)OVERLAP_F_B, or empty"
DIGITS = 6


class Placed(NamedTuple):
    """A slot and where it stands in the file."""

    slot: Slot
    line: int
    cell: int


class UserSchedule(Schedule):
    """The programs of a file; it fits one shape only."""

    def __init__(self, path: str, programs: list[list[Slot]]) -> None:
        self._path, self._programs = path, programs
        slots = [(rank, slot) for rank, program in enumerate(programs) for slot in program]
        self._ranks = tuple(rank for _, rank in sorted({(slot.stage, rank) for rank, slot in slots}))
        self._micro_batches = 1 + max(slot.micro_batch for _, slot in slots)
        self.chunks = len(self._ranks) // len(programs)
        self.splits = any(slot.op == Op.W for _, slot in slots)
        self.pairs = any(slot.paired for _, slot in slots)

    def constraints(self, pp: int, micro_batches: int, vpp: int) -> list[Violation]:
        """Need the ranks, micro-batches and chunks of the file."""
        asked = {
            "pp": (len(self._programs), pp, "lines, one a rank"),
            "micro-batches": (self._micro_batches, micro_batches, "micro-batches"),
            "vpp": (self.chunks, vpp, "stages a rank"),
        }
        return [
            Violation(
                f"schedule-file-{name}", f"{self._path} has {has} {what}, not {given}", f"{name} {has}", self._path
            )
            for name, (has, given, what) in asked.items()
            if has != given
        ]

    def stage_rank(self, pp: int, vpp: int) -> tuple[int, ...]:
        """Rank of each stage, as the file places it."""
        return self._ranks

    def order(self, pp: int, micro_batches: int, vpp: int, extra_warmup: int = 0) -> Sequence[Program]:
        """Program of each rank; what the file says is not changed for extra warm-up."""
        return self._programs


def read_schedule(path: str) -> UserSchedule:
    """Return the schedule in a file; a `SpecError` lists what is wrong with it, by line."""
    file = Path(path)
    try:
        status = file.stat()
        return _read(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise SpecError.single(path, "", f"cannot be read: {error.strerror}", "name a CSV file of slots") from None
    except UnicodeDecodeError:
        raise SpecError.single(path, "", "is no text in UTF-8", LEGAL) from None


@lru_cache(maxsize=32)
def _read(path: str, _modified: int, _size: int) -> UserSchedule:
    problems = Collector()
    with Path(path).open(encoding="utf-8", newline="") as file:
        lines = [row for row in csv.reader(file) if row]
    ranks = [list(_placed(path, line, row, problems)) for line, row in enumerate(lines, start=1)]
    if not any(ranks):
        problems.add(path, "", "has no slots", LEGAL)
    problems.raise_if_any()
    for check in (_repeated, _misplaced, _missing, _early):
        check(path, ranks, problems)
        problems.raise_if_any()
    _stuck(path, ranks, problems)
    problems.raise_if_any()
    return UserSchedule(path, [[placed.slot for placed in rank] for rank in ranks])


def _placed(path: str, line: int, row: list[str], problems: Collector) -> Iterator[Placed]:
    """Slots of a line."""
    for cell, text in enumerate((text.strip() for text in row), start=1):
        pair = PAIR.fullmatch(text)
        parts = pair.groups() if pair else (text,) if text else ()
        for part in parts:
            single = SINGLE.fullmatch(part)
            if not single or single[2] not in ACTIONS or not single[3] or max(map(len, single.groups())) > DIGITS:
                problems.add(f"{path}:{line}", "", f"cell {cell} '{part}' is no slot", LEGAL)
                continue
            op = ACTIONS[single[2]]
            yield Placed(Slot(op, int(single[1]), int(single[3]), bool(pair) and op == Op.F), line, cell)


def _what(slot: Slot) -> str:
    return f"the {WORDS[slot.op]} of stage {slot.stage}, micro-batch {slot.micro_batch}"


def _key(slot: Slot) -> tuple[str, int, int]:
    return WORDS[slot.op], slot.stage, slot.micro_batch


def _repeated(path: str, ranks: list[list[Placed]], problems: Collector) -> None:
    seen: dict[tuple[str, int, int], Placed] = {}
    for placed in (placed for rank in ranks for placed in rank):
        first = seen.setdefault(_key(placed.slot), placed)
        if first is not placed:
            what = f"cell {placed.cell} runs {_what(placed.slot)} again"
            problems.add(f"{path}:{placed.line}", "", what, f"it is in line {first.line}, cell {first.cell}")


def _misplaced(path: str, ranks: list[list[Placed]], problems: Collector) -> None:
    owner: dict[int, int] = {}
    for placed in (placed for rank in ranks for placed in rank):
        line = owner.setdefault(placed.slot.stage, placed.line)
        if line != placed.line:
            what = f"cell {placed.cell} runs stage {placed.slot.stage}, which is on the rank of line {line}"
            problems.add(f"{path}:{placed.line}", "", what, "one rank for each stage")
    if problems.issues:
        return
    chunks = Counter(owner.values())
    stages = 1 + max(owner)
    if gaps := sorted(set(range(stages)) - set(owner)):
        problems.add(path, "", f"has no stage {gaps[0]} of {stages}", "stages from 0 without gaps")
    for line in range(1, len(ranks) + 1):
        if chunks[line] * len(ranks) != stages and not gaps:
            what = f"this rank has {chunks[line]} of {stages} stages on {len(ranks)} ranks"
            problems.add(f"{path}:{line}", "", what, "as many stages on every rank")


def _missing(path: str, ranks: list[list[Placed]], problems: Collector) -> None:
    """A forward and a backward of each stage and micro-batch; a weight gradient for each split backward alone."""
    slots = {_key(placed.slot): placed for rank in ranks for placed in rank}
    line_of = {placed.slot.stage: placed.line for placed in slots.values()}
    count = 1 + max(micro_batch for _, _, micro_batch in slots)
    for stage, line in sorted(line_of.items()):
        for micro_batch in range(count):
            backward = slots.get(("backward", stage, micro_batch))
            split = backward is not None and backward.slot.op == Op.B
            where = f"of stage {stage}, micro-batch {micro_batch}"
            for word, letter, wanted in (
                ("forward", "F", True),
                ("backward", "B", True),
                ("weight gradient", "W", split),
            ):
                if wanted and (word, stage, micro_batch) not in slots:
                    fix = f"write {stage}{letter}{micro_batch}"
                    problems.add(f"{path}:{line}", "", f"the {word} {where} is missing", fix)
            if ("weight gradient", stage, micro_batch) in slots and backward is not None and not split:
                problems.add(f"{path}:{line}", "", f"the backward {where} is whole and has a W beside", "I and W, or B")


def _early(path: str, ranks: list[list[Placed]], problems: Collector) -> None:
    """What a rank runs before its own forward or input gradient."""
    for rank in ranks:
        done: set[tuple[str, int, int]] = set()
        for slot, line, cell in rank:
            needed = {Op.BW: "forward", Op.B: "forward", Op.W: "backward"}.get(slot.op)
            if needed and (needed, slot.stage, slot.micro_batch) not in done:
                what = f"cell {cell} runs {_what(slot)} before its {needed}"
                problems.add(f"{path}:{line}", "", what, f"the {needed} first")
            done.add(_key(slot))


def _stuck(path: str, ranks: list[list[Placed]], problems: Collector) -> None:
    """Ranks that wait for each other: the first cell that can never start."""
    last = max(placed.slot.stage for rank in ranks for placed in rank)
    done: set[tuple[str, int, int]] = set()
    heads = [0] * len(ranks)
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(ranks):
            while heads[rank] < len(program) and not (_waits_for(program[heads[rank]].slot, last) - done):
                done.add(_key(program[heads[rank]].slot))
                heads[rank] += 1
                moved = True
    for rank, program in enumerate(ranks):
        if heads[rank] < len(program):
            slot, line, cell = program[heads[rank]]
            word, stage, micro_batch = min(_waits_for(slot, last) - done)
            what = (
                f"deadlock: cell {cell}, {_what(slot)}, waits for the {word} of stage {stage}, micro-batch "
                f"{micro_batch}, which waits for this rank"
            )
            problems.add(f"{path}:{line}", "", what, "an order in which each cell finds what it needs")
            return


def _waits_for(slot: Slot, last: int) -> set[tuple[str, int, int]]:
    """The message that a slot needs."""
    if slot.op == Op.F and slot.stage > 0:
        return {("forward", slot.stage - 1, slot.micro_batch)}
    if slot.op in (Op.BW, Op.B) and slot.stage < last:
        return {("backward", slot.stage + 1, slot.micro_batch)}
    return set()
