"""A file of the parts of a search that are finished, a line each, so that it can go on where it was stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.base.version import VERSION
from moesim.reading import plain_strategy
from moesim.studies.search.block import Counts
from moesim.studies.search.jobs import Job
from moesim.studies.search.pool import Plan
from moesim.studies.search.ranking import Aim
from moesim.studies.search.tasks import Done, Part
from moesim.workload.strategy import Strategy

FORMAT = 1
OPTION = "--checkpoint"


def head(jobs: Sequence[Job], aim: Aim, parts: Sequence[Part]) -> dict[str, Any]:
    """What makes a search the same one: every number that it reads, what it varies, what it looks for, and its parts."""
    problems = [job.problem for job in jobs]
    made = {
        "model": [one.model for one in problems],
        "machine": [one.machine for one in problems],
        "software": [one.software for one in problems],
        "batch": [(one.sequence_length, one.global_batch, one.documents) for one in problems],
        "strategy": [(one.strategy, one.scenario.strategy.given) for one in problems],
        "space": [[(axis.name, axis.values) for axis in job.space.axes] for job in jobs],
        "objective": (aim, [job.price for job in jobs]),
        "order of parts": [(name, None if region is None else region.flat.tolist()) for name, _, region in parts],
    }
    digests = {name: hashlib.sha256(repr(value).encode()).hexdigest()[:16] for name, value in made.items()}
    return {"search": FORMAT, "moesim": VERSION} | digests


class Checkpoint:
    """The file of a search; opened, it holds what was finished before.

    A line is written at once and only when its part is finished, so that whatever stops the search costs the parts under
    way and nothing else. A line that was cut off is dropped.

    Raises
    ------
    SpecError
        Where the file is of another search, with what differs, has parts that the search has not, or is no such file.
    """

    def __init__(self, path: Path, head: dict[str, Any], parts: Sequence[Part]) -> None:
        self._path = path
        self._parts = {name: number for name, number, _ in parts}
        self.finished: dict[str, Done] = {}
        kept = self._read(head) if path.exists() else 0
        self._file = path.open("r+b" if path.exists() else "wb")
        self._file.truncate(kept)
        self._file.seek(kept)
        if not kept:
            self._write(head)

    def _read(self, head: dict[str, Any]) -> int:
        """Take in the lines of an older run, and return where they end. [B]"""
        lines = self._path.read_bytes().split(b"\n")
        whole = lines[:-1]  # behind the last line end stands nothing, or a line that was cut off
        try:
            entries = [json.loads(line) for line in whole]
            if any(lines) and (not entries or "search" not in entries[0]):
                raise ValueError
            self._compare(entries[0] if entries else head, head)
            self._take(_done(entry) for entry in entries[1:])
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, SpecError):
                raise
            what = "is no file of a search"
            raise SpecError.single(OPTION, str(self._path), what, "name another, or delete it") from None
        return sum(len(line) + 1 for line in whole)

    def _take(self, noted: Iterable[Done]) -> None:
        """Take in finished parts; those that the search does not have, or that stand there twice, are no work of its."""
        for done in noted:
            if self._parts.get(done.name) != done.number or done.name in self.finished:
                twice = "twice" if done.name in self.finished else "that this search does not have"
                what = f"has part '{done.name}' {twice}"
                raise SpecError.single(OPTION, str(self._path), what, "name another, or delete it")
            self.finished[done.name] = done

    def _compare(self, found: dict[str, Any], head: dict[str, Any]) -> None:
        """Refuse the file of another search."""
        other = [name for name, value in head.items() if found.get(name) != value]
        if other:
            what = f"is of a search with another {', '.join(other[:-1] or other)}"  # parts follow from all the others
            fix = "ask the same as before, or name another file"
            raise SpecError.single(OPTION, str(self._path), what, fix)

    def add(self, done: Done) -> None:
        """Note a finished part."""
        plain = {"part": done.name, "number": done.number, "runs": done.runs, "counts": vars(done.counts)}
        plain["plans"] = [[plain_strategy(plan.strategy), plan.step_time_s, plan.peak_bytes] for plan in done.plans]
        self._write(plain)

    def _write(self, plain: dict[str, Any]) -> None:
        self._file.write(json.dumps(plain).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _done(entry: dict[str, Any]) -> Done:
    plans = tuple(Plan(_strategy(plain), step, peak) for plain, step, peak in entry["plans"])
    counts = Counts(**entry["counts"] | {"refused": Counter(entry["counts"]["refused"])})
    return Done(entry["part"], entry["number"], plans, entry["runs"], counts)


def _strategy(plain: dict[str, Any]) -> Strategy:
    """The strategy that was written as plain values."""
    return Strategy().replace(**{name: tuple(one) if isinstance(one, list) else one for name, one in plain.items()})
