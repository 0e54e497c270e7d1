"""Checkpoints of jobs beside published figures."""

from dataclasses import replace

import pytest

import moesim
from moesim.studies.checkpoint import GPU_MTTF_S, Plan, checkpoint, shrunk, watchdog


@pytest.fixture(scope="module")
def llama():
    return moesim.from_names("llama3-8b", "hgx-h100:1", software="torchtitan")


def test_llama_3_on_16384_gpus_failed_every_3_1_hours(llama):
    """419 unexpected interruptions in 54 days on 16,384 GPUs (The Llama 3 Herd of Models)."""
    hours = GPU_MTTF_S / 16384 / 3600
    assert hours == pytest.approx(3.1, rel=0.01)
    assert checkpoint(llama, Plan()).mtbf_s * 8 == pytest.approx(GPU_MTTF_S)


def test_the_bound_and_the_reach_of_a_save_that_was_timed(llama):
    """12 B for each of 8.03e9 parameters at 2.2 GB/s are 44 s; the save took 394 s (torchtitan issue 1301)."""
    found = checkpoint(llama, Plan(storage="local-nvme", write_bandwidth=2.2e9))
    assert found.num_bytes == pytest.approx(96.4e9, rel=0.001)
    assert found.save_time_s == pytest.approx(44, rel=0.05)
    assert found.slow_save_time_s == pytest.approx(394, rel=0.05)
    assert not found.survives_node_loss


def test_an_asynchronous_save_stops_the_job_for_the_copy_alone(llama):
    now, later = (checkpoint(llama, Plan(asynchronous=one)) for one in (False, True))
    assert now.blocking_s == now.save_time_s == later.save_time_s
    assert later.blocking_s == pytest.approx(later.shard_bytes / 64e9)
    assert later.host_bytes == pytest.approx(later.num_bytes)
    assert later.goodput > now.goodput


def test_more_writers_are_never_slower(llama):
    def times(problem, counts):
        return [checkpoint(problem, Plan(storage="local-nvme", writers=count)).save_time_s for count in counts]

    one, all_ranks = times(llama, (1, 8))
    assert one == pytest.approx(all_ranks)  # the ranks of one node share its drive
    many = times(moesim.load("zoo-002"), (1, 31, 32, 33, 100, 256))
    assert many == sorted(many, reverse=True)
    assert many[2:] == pytest.approx(many[-1:] * 4)


@pytest.mark.parametrize(("saves", "order"), [("sharded", "falls"), ("gathered", "grows")])
def test_a_sharded_copy_falls_with_ranks_and_a_collection_grows(llama, saves, order):
    """2, 4 and 8 ranks: 10.3, 8.4, 2.5 s of an asynchronous sharded save, 44, 68, 89 s of a gathered one (torchtune 443)."""

    def stands_still(gpus):
        job = llama.with_changes({"cluster.gpus": gpus, "global_batch": 8})
        plan = Plan(save=saves, asynchronous=saves == "sharded")
        return checkpoint(job, plan).blocking_s

    found = [stands_still(gpus) for gpus in (2, 4, 8)]
    assert found == sorted(found, reverse=order == "falls")
    assert len(set(found)) == 3


def test_an_asynchronous_save_is_seen_by_the_watchdog_where_the_next_one_waits_for_it(llama):
    plan = Plan(storage="local-nvme", asynchronous=True, timeout_s=600.0, interval_s=100.0)
    found = checkpoint(llama, plan)
    assert found.waits_s == pytest.approx(found.blocking_s + found.slow_save_time_s - 100)
    rare = checkpoint(llama, replace(plan, interval_s=3600.0))
    assert (rare.waits_s, rare.trips_watchdog) == (rare.blocking_s, "no")


def test_each_form_of_the_best_interval_has_its_goodput(llama):
    """The exact goodput is flat around its best: all three forms are within a thousandth of each other."""
    found = checkpoint(llama, Plan())
    assert set(found.goodputs) == set(found.intervals_s) == {"young", "daly", "availability"}
    assert found.goodputs["daly"] == found.goodput
    assert max(found.goodputs.values()) - min(found.goodputs.values()) < 1e-3
    assert found.overhead == pytest.approx(found.blocking_s / (found.interval_s + found.blocking_s))


@pytest.mark.parametrize(("timeout", "answer"), [(None, None), (600, "no"), (100, "where saves are slow"), (40, "yes")])
def test_the_watchdog(timeout, answer):
    assert watchdog(44, 394, timeout) == answer


def test_going_on_with_fewer_nodes():
    problem = moesim.from_names("llama3-8b", "hgx-h100:4", software="torchtitan").with_changes({"global_batch": "96"})
    left = shrunk(problem, 1, "fp32-adam")
    assert left.nodes == 3
    assert left.throughput is not None
    assert 0.6 < left.throughput < 0.85
    refused = shrunk(problem.with_changes({"global_batch": "32"}), 1, "fp32-adam")
    assert refused.throughput is None
    assert refused.refused
