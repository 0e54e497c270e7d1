"""Loads of a checkpoint on another layout."""

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.studies.resharding import FORMATS, reshard

STORAGE = ("parallel-filesystem", "fp32-adam")


@pytest.fixture(scope="module")
def job():
    """256 GPUs, PP 8 x 4 chunks, EP 32, optimizer sharded."""
    return moesim.load("zoo-002")


def moved(job, form="logical", **changes):
    return reshard(job, changes, *STORAGE, form)


def test_tensors_by_name_load_on_any_layout(job):
    """Olmo-core report, section 12: 12 bytes a parameter, cut out of what was written."""
    found = moved(job, ep=8, pp=16, vpp=2)
    assert found.direct
    assert found.differs == ("pp", "vpp", "ep")
    assert found.conversion_s == found.conversion_bytes == 0
    assert found.read_bytes == pytest.approx(12 * job.model.stored_params, rel=1e-3)
    assert found.read_bytes / 256 <= found.read_bytes_per_gpu < 1.2 * found.read_bytes / 256
    assert found.host_bytes == 8 * found.read_bytes_per_gpu


def test_files_of_ranks_need_a_conversion_where_the_layout_changes(job):
    same, other = moved(job, "layout-bound"), moved(job, "layout-bound", ep=8)
    assert same.direct
    assert same.differs == ()
    assert not other.direct
    assert other.conversion_bytes == pytest.approx(2 * other.read_bytes, rel=1e-3)
    assert other.total_s > 2.5 * moved(job, ep=8).total_s
    assert moved(job, "layout-bound", **{"cluster.count": 64}).differs == ("number of GPUs",)


def test_one_reader_reads_all_of_it(job):
    found = moved(job, "gathered", ep=8)
    assert found.direct
    assert found.read_bytes_per_gpu == found.host_bytes == 12 * job.model.stored_params
    assert found.load_s > 5 * moved(job, ep=8).load_s


def test_ranks_with_a_whole_optimizer_each_read_it(job):
    whole, shared = (moved(job, dp_sharding=name, overlap_param_gather=False) for name in ("ddp", "zero1"))
    assert whole.read_bytes > 1.4 * shared.read_bytes  # one replica of each expert, 32 of the rest


def test_fewer_gpus_read_more_each(job):
    half, all_of_them = (moved(job, ep=8, **{"cluster.count": count}) for count in (16, 32))
    assert half.read_bytes_per_gpu == pytest.approx(2 * all_of_them.read_bytes_per_gpu, rel=0.01)
    assert half.files_per_rank >= all_of_them.files_per_rank


def test_a_layout_that_is_not_legal_says_why(job):
    found = moved(job, ep=3)
    assert not found.direct
    assert found.refused
    assert found.to_dict()["total_s"] == 0


@pytest.mark.parametrize(
    ("changes", "form", "message"),
    [
        ({}, "layoutbound", "no format 'layoutbound'"),
        ({"model": "llama3-8b", "ep": 1, "overlap_ep": False, "capacity_factor": None}, "logical", "another model"),
    ],
)
def test_what_is_no_load(job, changes, form, message):
    with pytest.raises(SpecError, match=message):
        reshard(job, changes, *STORAGE, form)


def test_formats_are_said_in_words():
    assert set(FORMATS) == {"logical", "layout-bound", "gathered"}
