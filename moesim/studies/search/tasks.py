"""Parts of a search as tasks: what is sent to a worker, what comes back, and the work."""

from __future__ import annotations

import pickle
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import moesim
from moesim.base.errors import SpecError
from moesim.studies.search.jobs import Job
from moesim.studies.search.parts import Region
from moesim.studies.search.pool import Plan, Pool, Rival
from moesim.studies.search.ranking import Aim
from moesim.studies.search.walk import Counts, Walk

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
    version: str = moesim.__version__


@dataclass(frozen=True)
class Done:
    """What a part has: counts, plans that may be among the best, and how many were run. ``complete``: all of the part."""

    name: str
    number: int
    plans: tuple[Plan, ...] = ()
    runs: int = 0
    done: int = 0
    legal: int = 0
    fitting: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    complete: bool = True


def whole(jobs: tuple[Job, ...]) -> tuple[list[Part], list[Done]]:
    """Every space as one part."""
    return [(f"{number}", number, None) for number in range(len(jobs))], []


def parts(jobs: tuple[Job, ...]) -> tuple[list[Part], list[Done]]:
    """Parts of all spaces, and what is known of them without looking at any."""
    found: list[Part] = []
    known = []
    for number, job in enumerate(jobs):
        walk = Walk(job.space, Pool(job.problem, 1))
        found += [(f"{number}-{region.number}", number, region) for region in walk.parts()]
        known.append(_done(f"{number}", number, walk, True))
    return found, known


def _done(name: str, number: int, walk: Walk, complete: bool) -> Done:
    counts, pool = walk.counts, walk.pool
    told = (counts.done, counts.legal, counts.fitting, counts.refused)
    return Done(name, number, tuple(pool.best), pool.runs, *told, complete)


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
        walk.pool, walk.counts = pool, Counts()
        complete = True

        def tell() -> None:
            told(walk.counts, pool.best[0] if pool.best else None)

        try:
            if task.region is None:
                walk.run(tell)
            else:
                walk.run_part(task.region, tell)
                pool.finish()
        except KeyboardInterrupt:
            complete = False
            pool.run(pool.top)
        return _done(task.name, task.number, walk, complete)


_of_thread = threading.local()


def work_apart(jobs: bytes, task: Task) -> Done:
    """The work of a process of its own; ``jobs`` are pickled, so that they are read once for many parts."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that sends the tasks decides
    if task.version != moesim.__version__:
        what = f"a worker has moesim {moesim.__version__}, and the search comes from {task.version}"
        raise SpecError.single("--scheduler", "", what, "install the same on all machines")
    if not hasattr(_of_thread, "worker"):
        _of_thread.worker = lru_cache(maxsize=1)(lambda jobs: Worker(pickle.loads(jobs)))
    done: Done = _of_thread.worker(jobs).work(task)
    return done
