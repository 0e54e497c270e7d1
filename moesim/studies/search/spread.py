"""Parts of a search on several cores or machines; whatever the order in which they end, the answer is the same."""

from __future__ import annotations

import pickle
import signal
import socket
import ssl
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from moesim.base.errors import Collector, SpecError
from moesim.studies.search.jobs import Job
from moesim.studies.search.tasks import Done, Task, work_apart

if TYPE_CHECKING:
    from distributed import Client

AHEAD = 2
"""Tasks for each thread of a cluster that are under way: one that it works on and one that waits beside it."""
PATIENCE = "10s"
"""How long a scheduler may take to answer."""
KNOCK = 5.0
"""How long its machine may take to accept a connection. [s]"""
ENCRYPTED = ("tls", "wss")
"""Protocols that need certificates."""
CERTIFICATES = {
    "tls_ca_file": "DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
    "tls_client_cert": "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT",
    "tls_client_key": "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY",
}
"""What Dask calls the files of a client, and the variables of the environment that name them."""


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


def knock(scheduler: str) -> None:
    """Refuse an address at which nobody listens, or that takes certificates that are not there, before anything is done."""
    try:
        from distributed import Security
    except ImportError:
        raise SpecError.single("--scheduler", "", "needs Dask", "pip install 'moesim[cluster]'") from None
    protocol, _, place = scheduler.rpartition("://")
    if protocol in ENCRYPTED:
        files = {name: getattr(Security(), name) for name in CERTIFICATES}
        problems = Collector()
        for name, variable in CERTIFICATES.items():
            if files[name] is None and name != "tls_client_key":  # which the file of the certificate may hold too
                problems.add(
                    "--scheduler", "", f"{protocol}:// takes certificates, and Dask has no {name}", f"set {variable}"
                )
            elif files[name] is not None and "\n" not in files[name] and not Path(files[name]).is_file():
                problems.add("--scheduler", "", f"{name}: there is no file '{files[name]}'", f"set {variable}")
        problems.raise_if_any()
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), KNOCK) as opened:
            if protocol in ("", "tcp", "tls"):
                _hear(Security().get_connection_args("client")["ssl_context"] if protocol == "tls" else None, opened)
    except (OSError, ValueError) as error:
        raise _silent(scheduler, error) from None


def _hear(context: ssl.SSLContext | None, opened: socket.socket) -> None:
    """Wait for a scheduler's greeting: it speaks first, and a client that finds none takes minutes to give up."""
    if context is not None:
        opened = context.wrap_socket(opened)
    if not opened.recv(1):
        raise OSError("the connection was closed")


def _silent(scheduler: str, error: Exception) -> SpecError:
    what = f"no Dask scheduler answers at '{scheduler}' ({error})"
    return SpecError.single("--scheduler", "", what, "write for example --scheduler tcp://login1:8786")


def _client(scheduler: str) -> Client:
    """A client of a scheduler; a `SpecError` where what listens there is none."""
    from distributed import Client

    try:
        client: Client = Client(scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise _silent(scheduler, error) from None
    return client
