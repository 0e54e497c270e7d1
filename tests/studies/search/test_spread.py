"""A search that is spread over workers answers as one that is not."""

import os
import signal
import socket
import sys

import pytest

from moesim.base.errors import SpecError
from moesim.studies.search.answer import Progress
from moesim.studies.search.ranking import Aim, Ranking
from moesim.studies.search.search import search
from moesim.studies.search.tasks import Task, Worker, pieces

AIMS = [{}, {"objective": "memory"}, {"pareto": ("step", "memory")}, {"objective": "tokens-per-dollar", "price": 2.5}]


@pytest.mark.parametrize("aim", AIMS)
def test_parts_make_the_whole(tiny, vary, fine, told, tmp_path, aim):
    whole = search(tiny, vary, top=5, **aim)
    parts = search(tiny, vary, top=5, checkpoint=tmp_path / "s.jsonl", **aim)
    assert told(parts) == told(whole)
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 1 + 6
    steps = [(one.plan.step_time_s, one.plan.peak_bytes) for one in whole.top]
    assert len(set(steps)) < len(steps) or "pareto" in aim  # equal ones are among them


@pytest.mark.parametrize("aim", [Aim(("step",), 5), Aim(("memory",), 5), Aim(("step", "memory"), 5)])
def test_a_part_leaves_out_what_others_beat(tiny, vary, whole, aim):
    (job,) = whole.jobs
    (region,), _ = pieces(job, lambda counts: None)
    alone = Worker((job,)).work(Task("0", 0, region, aim))
    ranking = Ranking((job,), aim)
    ranking.take(0, alone.plans)
    beaten = Worker((job,)).work(Task("0", 0, region, aim, ((0.0, 0.0),)))
    assert (beaten.runs, beaten.plans) == (0, ())
    again = Worker((job,)).work(Task("0", 0, region, aim, ranking.rivals(0)))
    assert again.plans == alone.plans
    assert again.runs <= alone.runs
    assert (again.counts.done, again.counts.legal) == (alone.counts.done, alone.counts.legal)


def test_processes_change_nothing(tiny, vary, fine, told, whole):
    seen: list[Progress] = []
    found = search(tiny, vary, top=5, workers=2, progress=seen.append)
    assert told(found) == told(whole)
    assert [one.counts.done for one in seen] == sorted(one.counts.done for one in seen)
    assert seen[-1].counts.done == seen[-1].total == found.plans_total


def test_a_search_in_processes_can_be_stopped(tiny, vary, fine):
    def stop(progress):
        if progress.best:
            raise KeyboardInterrupt

    found = search(tiny, vary, workers=2, progress=stop)
    assert not found.complete
    assert 0 < found.counts.done < found.plans_total
    assert found.top


def test_a_process_that_is_killed_is_named(tiny, vary, fine):
    def kill(progress):
        from joblib.externals.loky import reusable_executor

        executor = reusable_executor._executor
        for pid in list(executor._processes if executor and progress.best else ()):
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(SpecError, match="--workers: a process was killed"):
        search(tiny, vary, workers=2, progress=kill)


@pytest.fixture(scope="module")
def cluster():
    """A Dask cluster of two processes on this machine."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(host="127.0.0.1", **options) as found:
        yield found


def test_a_cluster_changes_nothing_even_if_a_worker_dies(cluster, tiny, vary, fine, told, whole):
    killed: list[int] = []

    def kill(progress):
        if not killed and progress.best:
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    found = search(tiny, vary, top=5, scheduler=cluster.scheduler_address, progress=kill)
    assert killed
    assert told(found) == told(whole)


def test_errors_of_a_part_arrive(cluster, tiny, vary, fine, monkeypatch):
    monkeypatch.setattr("moesim.studies.search.tasks.Task.__init__.__defaults__", ((), "0.0.0"))
    with pytest.raises(SpecError, match=r"a worker has moesim .*, and the search comes from 0\.0\.0"):
        search(tiny, vary, scheduler=cluster.scheduler_address)


@pytest.fixture
def silent():
    """The port of a program that listens and says nothing."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        yield found.getsockname()[1]


def test_a_scheduler_that_does_not_answer(tiny, vary):
    pytest.importorskip("distributed")
    with pytest.raises(SpecError, match=r"--scheduler: no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        search(tiny, vary, scheduler="tcp://127.0.0.1:9")


def test_what_listens_and_is_no_scheduler_is_found_out_soon(tiny, vary, silent, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("moesim.studies.search.spread.KNOCK", 0.3)
    with pytest.raises(SpecError, match=f"--scheduler: no Dask scheduler answers at '127.0.0.1:{silent}'"):
        search(tiny, vary, scheduler=f"127.0.0.1:{silent}")


def test_an_encrypted_address_takes_certificates(tiny, vary, tmp_path):
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    with pytest.raises(SpecError) as error:
        search(tiny, vary, scheduler="tls://127.0.0.1:9")
    assert [issue.fix.removeprefix("set DASK_DISTRIBUTED__COMM__TLS__") for issue in error.value.issues] == [
        "CA_FILE",
        "CLIENT__CERT",
    ]
    there, gone = tmp_path / "ca.pem", str(tmp_path / "gone.pem")
    there.touch()
    told = {"distributed.comm.tls.ca-file": str(there), "distributed.comm.tls.client.cert": gone}
    with dask.config.set(told), pytest.raises(SpecError) as error:
        search(tiny, vary, scheduler="tls://127.0.0.1:9")
    assert [issue.what for issue in error.value.issues] == [f"tls_client_cert: there is no file '{gone}'"]


def test_without_dask_the_extra_is_named(tiny, vary, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SpecError, match=r"--scheduler: needs Dask; pip install 'moesim\[cluster\]'"):
        search(tiny, vary, scheduler="tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"workers": 0}, "--workers: 0 processes are none"),
        ({"workers": 2, "scheduler": "tcp://x:1"}, "--workers: does not go with --scheduler"),
    ],
)
def test_bad_numbers_of_workers(tiny, vary, options, what):
    with pytest.raises(SpecError, match=what):
        search(tiny, vary, **options)
