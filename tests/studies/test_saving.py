"""Who writes how much of a checkpoint, and what bounds the save."""

from dataclasses import replace

import pytest

from moesim.base.errors import SpecError
from moesim.spec import library
from moesim.studies.saving import SAVES, saving


@pytest.fixture(scope="module")
def disks():
    return library.get("storage", "local-nvme")


@pytest.fixture(scope="module")
def shared():
    return library.get("storage", "parallel-filesystem")


@pytest.mark.parametrize("sharding", ["ddp", "zero1", "fsdp"])
@pytest.mark.parametrize("kind", SAVES)
def test_all_parts_are_the_whole(small, disks, kind, sharding):
    found = saving(small.with_changes({"dp_sharding": sharding}), disks, 64e9, kind)
    assert found.mean_bytes * found.writers == pytest.approx(64e9)
    assert found.heaviest_bytes >= found.mean_bytes
    assert found.imbalance >= 1
    assert found.node_bytes >= found.heaviest_bytes
    assert found.node_bytes >= 64e9 / 8 * (1 - 1e-9)
    assert found.write_s == max(found.limits_s.values())


def test_one_stage_of_equal_shards_is_balanced(small, disks):
    found = saving(small.with_changes({"pp": 1, "schedule": "none", "dp_sharding": "fsdp"}), disks, 64e9)
    assert found.writers == 64
    assert found.imbalance == pytest.approx(1)
    assert found.heaviest_bytes == pytest.approx(1e9)


def test_the_stage_with_most_parameters_writes_most(small, disks):
    """The embedding on the first stage and the head on the last are no part of the ones between."""
    found = saving(small, disks, 64e9)
    assert (found.writers, found.imbalance > 1.05) == (64, True)
    assert found.limits_s["link of the node that writes most"] == pytest.approx(found.node_bytes / 2.2e9)


def test_the_first_replica_writes_what_all_replicas_hold(small, disks):
    alone = saving(small, disks, 64e9, "first-replica")
    assert alone.writers == 4 * 8  # of each of 4 stages the ranks of ep 8, among them those of tp 2
    assert alone.imbalance > saving(small, disks, 64e9).imbalance
    ddp = saving(small.with_changes({"dp_sharding": "ddp"}), disks, 64e9)
    assert (ddp.writers, ddp.heaviest_bytes) == (alone.writers, alone.heaviest_bytes)


def test_what_bounds_a_save(small, disks, shared):
    assert saving(small, disks, 64e9).bound == "link of the node that writes most"
    slow = shared.model_copy(update={"aggregate_bandwidth": shared.aggregate_bandwidth.with_value(1e9, "slow")})
    found = saving(small, slow, 64e9)
    assert (found.bound, found.write_s) == ("storage, all nodes together", 64.0)
    given = saving(small, disks, 64e9, bandwidth=2e9)
    assert (given.bound, given.write_s) == ("bandwidth that was given", 32.0)


def test_a_strategy_that_is_not_legal_writes_alike(small, disks):
    found = saving(replace(small, strategy=small.strategy.replace(ep=3)), disks, 64e9)
    assert (found.writers, found.imbalance) == (64, 1.0)


@pytest.mark.parametrize(
    ("kind", "writers", "line"),
    [
        ("shrded", None, "--save: no kind of save 'shrded'; did you mean 'sharded'?"),
        ("sharded", 65, "--writers: 65 writers on 64 GPUs"),
        ("first-replica", 8, "--writers: a first-replica save says itself who writes"),
    ],
)
def test_bad_input(small, disks, kind, writers, line):
    with pytest.raises(SpecError) as error:
        saving(small, disks, 1e9, kind, writers)
    assert str(error.value).startswith(line)
