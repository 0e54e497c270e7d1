"""Public traces against figures made by an independent script."""

import csv
import json
import re

import pytest

from moesim.studies.trace_summary import trace_report, works
from moesim.traces.collectives import collectives
from moesim.traces.ranks import across
from moesim.traces.summary import Work, device_summary

TIMES = {
    "window": "window_s",
    "busy": "busy_s",
    "idle": "idle_s",
    "compute": "compute_s",
    "comm": "communication_s",
    "mem": "memory_s",
    "exposed": "exposed_s",
    "exposed_strict": "exposed_strict_s",
    "overlap": "overlap_s",
}
SHAPE = ("op", "batch", "m", "n", "k", "dtype")


@pytest.fixture(scope="module")
def read(shared_traces):
    """GPU work by the name of the expected figures."""
    found: dict[str, Work] = {}
    for path in sorted((shared_traces / "kineto").glob("*.gz")):
        with works([path]) as many:
            name = re.sub(r"(_8ranks)?(\.json|\.tar)\.gz$", "", path.name)
            found |= {f"{name}_rank{work.table.rank}" if len(many) > 1 else name: work for work in many}
    with works([shared_traces / "nsys" / "nsysai_mfu_2gpu_before.sqlite.gz"]) as many:
        found["nsysai_mfu_2gpu_before"] = many[0]
    return found


def test_every_figure_is_the_expected_one(read, shared_traces):
    wanted = sorted((shared_traces / "expected").glob("*.json"))
    assert {path.stem for path in wanted} == set(read)
    for path in wanted:
        work, gpus = read[path.stem], json.loads(path.read_text())["gpus"]
        assert sorted(map(str, work.table.devices)) == sorted(gpus)
        for device, figures in gpus.items():
            for linked, told in ((False, figures), (True, figures.get("linked_only"))):
                if told is None:
                    continue
                found = device_summary(work, int(device), linked_only=linked)
                mine = {name: getattr(found, TIMES[name]) * 1e6 for name in TIMES if name in told}
                assert mine == pytest.approx({name: told[name] for name in mine}, abs=0.002), (
                    path.stem,
                    device,
                    linked,
                )
                assert (found.kernels, found.communication_kernels) == (told["n_kernels"], told["n_comm"])


def test_shapes_of_matrix_products_are_the_expected_ones(read, shared_traces):
    for path in sorted((shared_traces / "expected").glob("*.gemm.csv")):
        work = read[path.name.removesuffix(".gemm.csv")]
        with path.open() as file:
            rows = list(csv.DictReader(file))
        wanted = {(row["op"], *(int(row[name]) for name in "BMNK"), row["dtype"]): row for row in rows}
        found = device_summary(work, work.table.devices[0]).gemms
        assert {tuple(getattr(one.shape, name) for name in SHAPE) for one in found} == set(wanted)
        for one in found:
            row = wanted[tuple(getattr(one.shape, name) for name in SHAPE)]
            assert (one.count, one.kernels_per_op) == (int(row["count"]), int(row["kernels_per_op"]))
            assert one.total_s * 1e6 == pytest.approx(float(row["us_sum"]), abs=0.002)


def test_counts_of_the_index(read, shared_traces):
    with (shared_traces / "index.csv").open() as file:
        rows = {row["file"].partition("/")[2].removesuffix(".json.gz"): row for row in csv.DictReader(file)}
    for name, work in read.items():
        row = rows.get(name)
        if row is None or row["gemm_shapes"] == "" or not row["gemm_shapes"].isdigit():
            continue
        one = device_summary(work, work.table.devices[0])
        told = (one.kernels, one.communication_kernels, one.gemm_shapes)
        assert told == tuple(int(row[key]) for key in ("gpu_kernels", "comm_kernels", "gemm_shapes")), name
        arguments = sum(one.told_by in ("kernel", "operator") for one in collectives(work))
        assert arguments == int(row["comm_kernels_with_args"]), name


def test_sizes_and_bandwidths_of_collectives(read, shared_traces):
    for name in ("hta_a100x2_ddp_comm_args", "tl_mi300x8_resnet_ddp_rank0", "hta_a100x8_dlrm_rank3"):
        with (shared_traces / "expected" / f"{name}.nccl.csv").open() as file:
            rows = list(csv.DictReader(file))
        found = collectives(read[name])
        assert len(found) == len(rows)
        for one, row in zip(found, rows, strict=True):
            assert one.size == (float(row["bytes"]) if row["bytes"] else None)
            if row["busbw_GBs"]:
                assert (one.bus_bandwidth or 0) / 1e9 == pytest.approx(float(row["busbw_GBs"]), abs=1e-4)


def test_waiting_is_apart_from_transfer_on_eight_ranks(read, shared_traces):
    found = across([read[f"param_v100x8_dlrm_rank{rank}"] for rank in range(8)])
    with (shared_traces / "expected" / "crossrank_param_v100x8_dlrm.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(found.matches) == len(rows)
    for match, row in zip(found.matches, rows, strict=True):
        assert len(match.members) == int(row["ranks"])
        assert match.start_spread_s * 1e6 == pytest.approx(float(row["start_spread_us"]), abs=1)
        assert match.end_spread_s * 1e6 == pytest.approx(float(row["end_spread_us"]), abs=1)
        assert match.transfer_s * 1e6 == pytest.approx(float(row["last_arrival_to_first_end_us"]), abs=1)
        assert match.last == int(row["slowest_to_arrive"])
        assert match.end_spread_s < 10e-6
        moved = [match.moved_s(rank) for rank in match.members]
        assert (max(moved) - min(moved)) * 1e6 <= float(row["end_spread_us"]) + 1


def test_sampled_ranks_are_not_matched_by_their_index(read):
    found = across([read["hta_128ranks_sampled_rank0"], read["hta_128ranks_sampled_rank1"]])
    assert found.rejected == {"never at the same time: not the same collective": 6}
    assert not any(match.complete for match in found.matches)


@pytest.mark.parametrize(
    ("folder", "files", "what", "count"),
    [
        ("nccl_tests", 4, "rows", 4 * 34),
        ("ncu", 1, "kernels", 1),
        ("flight_recorder", 64, "entries", 925),
        ("et", 3, "nodes", 931 + 3664 + 7),
    ],
)
def test_files_without_a_timeline_hold_what_the_index_says(shared_traces, folder, files, what, count):
    found = trace_report([shared_traces / folder])
    assert (len(found.records), len(found.files)) == (files, 0)
    assert sum(one.counts[what] for one in found.records) == count
