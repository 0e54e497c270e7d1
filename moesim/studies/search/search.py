"""The search: a walk through all combinations that never runs a plan that cannot be among the best."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from os import PathLike
from pathlib import Path

from moesim.base import checked
from moesim.base.errors import Collector, SpecError
from moesim.estimator import estimate
from moesim.problem import Named, Problem, as_problem
from moesim.studies.search.answer import Found, Progress, Search
from moesim.studies.search.block import Counts
from moesim.studies.search.checkpoint import Checkpoint, head
from moesim.studies.search.jobs import Job, Price, jobs
from moesim.studies.search.pool import Plan
from moesim.studies.search.ranking import Aim, Ranked, Ranking, aim
from moesim.studies.search.space import Vary
from moesim.studies.search.spread import elsewhere, knock
from moesim.studies.search.tasks import Done, Part, Task, Worker, pieces

ADDRESS = re.compile(r"((tcp|tls|wss?)://)?([^\s/:\[\]]+|\[[0-9a-fA-F:]+\]):(?P<port>[1-9]\d{0,4})")
"""How an address of a Dask scheduler is written."""
Show = Callable[[Progress], None]


def search(
    problem: Named,
    vary: Vary | None = None,
    top: int = 20,
    objective: str = "step",
    *,
    pareto: Sequence[str] = (),
    price: Price | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: Show | None = None,
) -> Search:
    """Find the best of all legal plans that fit.

    Parameters
    ----------
    problem
        The job; fields that are not varied stay as its scenario says, or follow the defaults of its software.
    vary
        Values of each field, or ``auto`` for all that it can have. Left out: degrees, schedules, layouts, recomputation
        and expert transports, all ``auto``. ``cluster`` (or ``cluster.node``, ``cluster.count``) is a list of machines.
    top
        How many plans to return.
    objective
        ``step`` for the shortest step, ``memory`` for the smallest peak, ``tokens-per-dollar`` for the most tokens for
        the money, which on one machine is the shortest step.
    pareto
        Two or three objectives: return every plan than which no other one is better in all of them instead, in the order
        of the first.
    price
        Of a GPU for an hour: one, or one for each kind of node. [currency]
    workers
        Processes. The answer does not depend on their number.
    scheduler
        Address of a Dask scheduler, to search on its workers instead.
    checkpoint
        File of finished parts. A search that finds it there goes on from it.
    progress
        Called now and then. A ``KeyboardInterrupt`` ends the search with what it has found.

    Raises
    ------
    SpecError
        With one issue for each field or value that does not exist.
    """
    problem = as_problem(problem, "search")
    _typed(vary, top, pareto, workers, checkpoint)
    _check(problem, workers, scheduler)
    found = jobs(problem, vary, price)
    wanted = aim(found, pareto or (objective,), top, "--pareto" if pareto else "--objective")
    if scheduler is not None:
        knock(scheduler)
    run = _Run(found, wanted, progress)
    with ExitStack() as stack:
        try:
            run.split(apart=workers > 1 or scheduler is not None or checkpoint is not None)
            if checkpoint is not None:
                file = Checkpoint(Path(checkpoint), head(found, wanted, run.parts), run.parts)
                run.keep(stack.enter_context(closing(file)))
            if workers == 1 and scheduler is None:
                complete = run.gather(run.here(run.parts))
            else:  # what the most promising parts have lets the others leave out nearly all that they have
                complete = run.gather(run.here(run.firsts)) and run.gather(
                    elsewhere(found, run.tasks(run.parts), workers, scheduler)
                )
        except KeyboardInterrupt:
            complete = False
    return run.answer(complete)


def _check(problem: Problem, workers: int, scheduler: str | None) -> None:
    problems = Collector()
    if problem.slow is not None:
        problems.add("--fault", "", "a fault is priced with one strategy", "search without it")
    if workers < 1:
        problems.add("--workers", "", f"{workers} processes are none", "write for example --workers 4")
    if workers > 1 and scheduler is not None:
        problems.add("--workers", "", "does not go with --scheduler", "its workers are those of the cluster")
    if scheduler is not None and not _address(scheduler):
        fix = "write for example --scheduler tcp://login1:8786"
        problems.add("--scheduler", "", f"'{scheduler}' is no address of a Dask scheduler", fix)
    problems.raise_if_any()


def _typed(
    vary: Vary | None, top: int, pareto: Sequence[str], workers: int, checkpoint: str | PathLike[str] | None
) -> None:
    """Refuse arguments that are not what they should be."""
    if vary is not None:
        checked.axes("search", vary)
    if len(checked.listed("search", "pareto", pareto)) == 1:
        raise SpecError.single("search", "pareto", f"{pareto!r} is one objective", "two or three, or objective alone")
    for name, value in (("top", top), ("workers", workers)):
        checked.whole("search", name, value)
    if checkpoint is not None and not Path(checkpoint).parent.is_dir():
        what = f"there is no folder '{Path(checkpoint).parent}'"
        raise SpecError.single("--checkpoint", "", what, "make it, or name another")


def _address(scheduler: str) -> bool:
    found = ADDRESS.fullmatch(scheduler)
    return found is not None and int(found["port"]) <= 65_535


class _Run:
    """A search under way."""

    def __init__(self, jobs: tuple[Job, ...], aim: Aim, progress: Show | None) -> None:
        self.parts: list[Part] = []
        self._jobs, self._aim, self._progress = jobs, aim, progress
        self._ranking = Ranking(jobs, aim)
        self._counts, self._runs, self._resumed = Counts(), 0, 0
        self._checkpoint: Checkpoint | None = None
        self._finished: set[str] = set()
        self._started = time.perf_counter()

    def split(self, apart: bool) -> None:
        """Make parts of the spaces, or one of each."""
        for number, job in enumerate(self._jobs):
            if not apart:
                self.parts.append((f"{number}", number, None))
                continue
            found, counts = pieces(job, self._told)
            self.parts += [(f"{number}-{place}", number, region) for place, region in enumerate(found)]
            self._add(Done("", number, counts=counts))

    def keep(self, checkpoint: Checkpoint) -> None:
        """Take in what is finished, and note what will be."""
        self._checkpoint = checkpoint
        for one in checkpoint.finished.values():
            self._add(one)
            self._resumed += one.counts.done
            self._finished.add(one.name)

    @property
    def firsts(self) -> list[Part]:
        """The first part of each space."""
        return list({number: part for part in reversed(self.parts) for number in [part[1]]}.values())[::-1]

    def tasks(self, parts: Sequence[Part]) -> Iterator[Task]:
        """What is left to do of some parts, each task with what is the best when it is begun."""
        for name, number, region in parts:
            if name not in self._finished:
                yield Task(name, number, region, self._aim, self._ranking.rivals(number))

    def here(self, parts: Sequence[Part]) -> Generator[Done]:
        """Work on parts in this process."""
        worker = Worker(self._jobs)
        for task in self.tasks(parts):
            done = worker.work(task, self._told)
            yield done
            if not done.complete:
                return

    def gather(self, ended: Generator[Done]) -> bool:
        """Take in what ends, and say whether all did."""
        with closing(ended):
            for done in ended:
                if done.complete and self._checkpoint is not None:
                    self._checkpoint.add(done)  # before its plans are rivals of others
                self._add(done)
                self._finished.add(done.name)
                if not done.complete:
                    return False
                self._told(Counts())
        return True

    def _add(self, done: Done) -> None:
        self._counts = _sum(self._counts, done.counts)
        self._runs += done.runs
        self._ranking.take(done.number, done.plans)

    def _told(self, counts: Counts, best: Plan | None = None) -> None:
        if self._progress is not None:
            known = self._ranking.best
            shown = known[0].plan if known else best
            total = sum(job.space.size for job in self._jobs)
            seconds = time.perf_counter() - self._started
            self._progress(Progress(total, _sum(self._counts, counts), shown, seconds, self._resumed))

    def answer(self, complete: bool) -> Search:
        """What was found, with an estimate of each of the best."""
        seconds = time.perf_counter() - self._started
        counts, told = self._counts, {}
        for one in self._ranking.best:
            job = self._jobs[one.number]
            answer = estimate(job.problem, one.plan.strategy)
            plan = replace(one.plan, step_time_s=answer.step_time_s, peak_bytes=answer.memory.peak_bytes)
            told[Ranked(one.number, plan)] = Found(plan, answer, job)
        refused = Counter(dict(sorted(counts.refused.items(), key=lambda entry: (-entry[1], entry[0]))))
        best = tuple(told[one] for one in self._ranking.sorted(told))
        return Search(
            self._jobs,
            self._aim,
            replace(counts, refused=refused),
            self._resumed,
            self._runs,
            seconds,
            complete,
            best,
        )


def _sum(one: Counts, other: Counts) -> Counts:
    return Counts(
        one.done + other.done,
        one.legal + other.legal,
        one.bounded + other.bounded,
        one.fitting + other.fitting,
        one.refused + other.refused,
    )
