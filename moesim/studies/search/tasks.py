"""Parts of a search as tasks: what is sent to a worker, what comes back, and the work."""

from __future__ import annotations

import pickle
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from moesim.base.errors import SpecError
from moesim.base.version import VERSION
from moesim.studies.search.block import Counts
from moesim.studies.search.jobs import Job
from moesim.studies.search.pool import Plan, Pool, Rival
from moesim.studies.search.ranking import Aim
from moesim.studies.search.walk import Region, Walk

FIRST, COLUMNS = 64, 512
"""Combinations of degrees in the first part, which is worked on before the others, and at most in the others, each of which is
up to twice the one before: enough to be worked on together, few enough to share out."""
Part = tuple[str, int, Region | None]
"""Name, number of the job, and what to walk of its space; None for all."""
Told = Callable[[Counts, Plan | None], None]
"""Takes the counts of a part so far, and its best plan."""


@dataclass(frozen=True, eq=False)
class Task:
    """A part of the space of a job, and what its plans have to beat.

    ``name``: of the part, the same whenever the same search is made; ``number``: of the job; ``region``: None for all of
    its space; ``version``: of what sends it.
    """

    name: str
    number: int
    region: Region | None
    aim: Aim
    rivals: tuple[Rival, ...] = ()
    version: str = VERSION


@dataclass(frozen=True)
class Done:
    """What a part has: counts, plans that may be among the best, and how many were run. ``complete``: all of the part."""

    name: str
    number: int
    plans: tuple[Plan, ...] = ()
    runs: int = 0
    counts: Counts = field(default_factory=Counts)
    complete: bool = True


def pieces(job: Job, told: Callable[[Counts], None]) -> tuple[list[Region], Counts]:
    """Parts of the space of a job, the most promising first, and what is known of the plans in none of them."""
    walk = Walk(job.space, Pool(job.problem, 1))
    found: list[Region] = []
    size = min(FIRST, COLUMNS)
    for region in walk.parts(lambda: told(walk.counts)):
        start = 0
        while start < len(region.flat):
            some = {name: value[start : start + size] for name, value in vars(region).items() if np.ndim(value)}
            found.append(replace(region, **some))
            start, size = start + size, min(2 * size, COLUMNS)
    return found, walk.counts


class Worker:
    """Works on parts; what it learns of a space it keeps for the next part."""

    def __init__(self, jobs: tuple[Job, ...]) -> None:
        self._jobs = jobs
        self._walks: dict[int, Walk] = {}

    def work(self, task: Task, told: Told = lambda _counts, _best: None) -> Done:
        """Walk through a part; a ``KeyboardInterrupt`` ends it with what it has found."""
        job = self._jobs[task.number]
        pool = task.aim.pool(job, task.rivals)
        if task.number not in self._walks:
            self._walks[task.number] = Walk(job.space, pool)
        walk = self._walks[task.number]
        walk.begin(pool)
        complete = True

        def tell() -> None:
            told(walk.counts, pool.best[0] if pool.best else None)

        try:
            if task.region is None:
                walk.run(tell)
            else:
                walk.run_part(task.region, tell)
        except KeyboardInterrupt:
            complete = False
            pool.run(pool.top)
        return Done(task.name, task.number, tuple(pool.best), pool.runs, walk.counts, complete)


_of_thread = threading.local()


def work_apart(jobs: bytes, task: Task) -> Done:
    """The work of a process of its own; ``jobs`` are pickled, so that they are read once for many parts."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that sends the tasks decides
    if task.version != VERSION:
        what = f"a worker has moesim {VERSION}, and the search comes from {task.version}"
        raise SpecError.single("--scheduler", "", what, "install the same on all machines")
    if not hasattr(_of_thread, "worker"):
        _of_thread.worker = lru_cache(maxsize=1)(lambda jobs: Worker(pickle.loads(jobs)))
    done: Done = _of_thread.worker(jobs).work(task)
    return done
