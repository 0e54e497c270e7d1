"""Parts of a search on several cores or machines; whatever the order in which they end, the answer is the same."""

from __future__ import annotations

import pickle
import signal
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moesim.base.errors import SpecError
from moesim.studies.search.jobs import Job
from moesim.studies.search.tasks import Done, Task, work_apart

if TYPE_CHECKING:
    from distributed import Client

AHEAD = 2
"""Tasks for each thread of a cluster that are under way: one that it works on and one that waits beside it."""
PATIENCE = "20s"
"""How long a scheduler may take to answer."""


def elsewhere(jobs: tuple[Job, ...], tasks: Iterator[Task], workers: int, scheduler: str | None) -> Generator[Done]:
    """Work on tasks on the workers of a scheduler, or in processes of this machine where there is none."""
    return on_cores(jobs, tasks, workers) if scheduler is None else on_cluster(jobs, tasks, scheduler)


def on_cores(jobs: tuple[Job, ...], tasks: Iterator[Task], workers: int) -> Generator[Done]:
    """Work on tasks in processes of this machine; each is made when a process is free, and knows what was found before."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    told = pickle.dumps(jobs)
    parallel = Parallel(workers, return_as="generator_unordered", batch_size=1, pre_dispatch=workers)
    ended: Generator[Done] | None = None
    try:
        with _unheard_interrupts():
            ended = parallel(delayed(work_apart)(told, task) for task in tasks)
        while (done := next(ended, None)) is not None:
            yield done
    except TerminatedWorkerError:
        what = "a process was killed, perhaps because memory ran out"
        raise SpecError.single(
            "--workers", "", what, "use fewer; with --checkpoint what was finished is kept"
        ) from None
    finally:
        if ended is not None:
            with warnings.catch_warnings(action="ignore"):  # that what is under way is given up is meant
                ended.close()


@contextmanager
def _unheard_interrupts() -> Iterator[None]:
    """Processes that are started here hear no Ctrl-C: the one that starts them hears it a little later, and ends them."""
    from multiprocessing import resource_tracker

    if not hasattr(signal, "pthread_sigmask"):  # what stands blocked is passed on to processes on POSIX systems alone
        yield
        return
    resource_tracker.ensure_running()  # which would unblock it again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def on_cluster(jobs: tuple[Job, ...], tasks: Iterator[Task], scheduler: str) -> Generator[Done]:
    """Work on tasks on the workers of a Dask scheduler, those that come later too.

    What a worker that is lost had under way is given to others by the scheduler. Tasks carry all that they need, so that
    nothing they read can be lost with a worker.
    """
    with _client(scheduler) as client:
        from distributed import KilledWorker, as_completed

        told = pickle.dumps(jobs)
        running = as_completed(loop=client.loop)

        def fill() -> None:
            most = AHEAD * max(1, sum(client.nthreads().values()))
            while running.count() < most and (task := next(tasks, None)) is not None:
                running.add(client.submit(work_apart, told, task, pure=False))

        fill()
        for future in running:
            try:
                done: Done = future.result()
            except KilledWorker as error:
                what = f"every worker that worked on a part was lost ({error.last_worker})"
                fix = "give them more memory; with --checkpoint what was finished is kept"
                raise SpecError.single("--scheduler", "", what, fix) from None
            yield done
            fill()


def _client(scheduler: str) -> Client:
    """A client of a scheduler; a `SpecError` where there is none, or no Dask."""
    try:
        from distributed import Client
    except ImportError:
        raise SpecError.single("--scheduler", "", "needs Dask", "pip install 'moesim[cluster]'") from None
    try:
        client: Client = Client(scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        what = f"no Dask scheduler answers at '{scheduler}' ({error})"
        raise SpecError.single("--scheduler", "", what, "write for example --scheduler tcp://login1:8786") from None
    return client
