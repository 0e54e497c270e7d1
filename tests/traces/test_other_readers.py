"""Files without a timeline: Nsight Compute, nccl-tests, NCCL inspector, flight recorder, execution traces."""

import json
import os
import pickle
import sqlite3
import struct

import pytest

from moesim.base.errors import SpecError
from moesim.studies.trace_replay import Replayed, scaled
from moesim.traces.event_table import GPU_WORK
from moesim.traces.linking import links
from moesim.traces.opening import format_of, read_any, read_timeline
from moesim.traces.summary import device_summary, work_of

NCU = """\
==PROF== Connected to process 1
2208 2048 5608 0 358.15 141.59
"ID","Process ID","Kernel Name","Grid Size","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"
"0","1","gemm<a, ""b"">","(9, 32, 1)","10.0","S","Duration","{unit}","{value}",
"0","1","gemm<a, ""b"">","(9, 32, 1)","10.0","S","Registers","register/thread","n/a"
"0","1","gemm<a, ""b"">","(9, 32, 1)","10.0","S","","","","Rule"
"""
RAW = """\
"ID","Kernel Name","Grid Size","CC","gpu__time_duration.sum","sm__cycles.avg"
"","","","","us","cycle"
"0","gemm","(9, 1, 1)","10.0","406.24","508,757"
"1","add","(9, 1, 1)","10.0","6.24","8"
"""


@pytest.mark.parametrize(
    ("unit", "value"), [("ns", "406240"), ("usecond", "406.24"), ("us", "406.24"), ("ns", "406,240")]
)
def test_a_details_page_of_nsight_compute(made, unit, value):
    found = read_any(made.write("a.csv", NCU.format(unit=unit, value=value)))
    assert (found.format, found.counts) == ("ncu", {"kernels": 1, "metrics": 1})
    assert found.records[0]["kernel"] == 'gemm<a, "b">'
    assert found.records[0]["time_s"] == pytest.approx(406.24e-6)
    assert found.repaired == {"metric without a number": 1}


def test_a_raw_page_of_nsight_compute(made):
    found = read_any(made.write("a.csv", RAW))
    assert [one["time_s"] for one in found.records] == pytest.approx([406.24e-6, 6.24e-6])
    assert found.records[0]["metrics"]["sm__cycles.avg"] == {"value": 508757.0, "unit": "cycle"}


INSPECTOR = {
    "header": {"id": "0x1", "rank": 1, "n_ranks": 8, "nnodes": 1},
    "metadata": {"inspector_output_format_version": "v4.0"},
    "coll_perf": {"coll": "AllGather", "coll_sn": 8, "coll_msg_size_bytes": 2147483648, "coll_exec_time_us": 41057},
}


def test_sizes_of_the_inspector_become_those_of_the_whole_buffer(made):
    pretty, line = json.dumps(INSPECTOR, indent=2), json.dumps(INSPECTOR)
    broken = line.replace('"rank": 1', '"rank": ?')
    found = read_any(made.write(text=f"{pretty}\n{line}\n{broken}\n{line}\n{line[:-20]}"))
    assert found.counts == {"all-gather": 3}
    assert found.repaired == {"object left out: no JSON": 2}
    one = found.records[0]
    assert one["size_bytes"] / one["time_s"] / 1e9 == pytest.approx(418.44, abs=0.01)  # README of the inspector


ENTRY = {
    "process_group": ("73", "EXPERT_MODEL_PARALLEL_GROUP"),
    "profiling_name": "nccl:all_to_all",
    "collective_seq_id": 20947,
    "input_sizes": [[4096, 5120]],
    "input_dtypes": ["BFloat16"],
    "output_sizes": [[4147, 5120]],
    "output_dtypes": ["BFloat16"],
    "state": "scheduled",
    "is_p2p": False,
}
DUMP = {"version": "2.9", "pg_config": {"73": {"name": "73", "ranks": "[8, 9, 10, 11]"}}, "entries": [ENTRY, 7]}


@pytest.mark.parametrize("write", [pickle.dumps, lambda dump: json.dumps(dump).encode()])
def test_a_dump_of_the_flight_recorder(made, write):
    found = read_any(made.write("_dump_3", write(DUMP)))
    assert found.counts == {"entries": 1, "groups": 1, "state scheduled": 1}
    one = found.records[0]
    told = [one[name] for name in ("collective", "ranks", "input_bytes", "output_bytes")]
    assert told == ["all-to-all", 4, 4096 * 5120 * 2, 4147 * 5120 * 2]
    assert found.repaired == {"entry left out: no mapping": 1}


class Runs:
    def __reduce__(self):
        return (os.system, ("true",))


def test_a_pickle_that_would_run_something_is_refused(made):
    with pytest.raises(SpecError, match="only plain data is loaded") as refused:
        read_any(made.write("_dump_3", pickle.dumps({"entries": [Runs()]})))
    assert len(refused.value.issues) == 1


def test_execution_traces_of_pytorch_in_both_schemas(made):
    flat = {"name": "aten::mm", "id": 4, "rf_id": 5, "parent": 2, "input_shapes": [[2, 3]], "input_types": ["Tensor"]}
    nested = {
        "id": 5,
        "name": "record_param_comms",
        "ctrl_deps": 2,
        "inputs": {"shapes": [[4]], "types": ["Tensor"]},
        "attrs": [{"name": "rf_id", "type": "uint64", "value": 9}, {"name": "collective_name", "value": "allreduce"}],
    }
    found = read_any(made.write(text=json.dumps({"schema": "1.0.1", "pid": 1, "nodes": [flat, nested, {}]})))
    assert found.counts == {"nodes": 2, "operators": 1, "collectives": 1}
    assert [one["record_id"] for one in found.records] == [5, 9]
    assert found.repaired == {"node left out: no mapping or without an id": 1}


def message(*fields):
    body = b"".join(
        bytes([number << 3 | 2, len(value)]) + value if isinstance(value, bytes) else bytes([number << 3, value])
        for number, value in fields
    )
    return bytes([len(body)]) + body


def test_chakra_in_json_and_protobuf(made):
    graph = [{"Id": 1, "Name": "a", "NodeType": 4, "runtime": 318}, {"id": 2, "name": "b", "type": 7}]
    found = read_any(made.write(text=json.dumps({"workload_graph": graph})))
    assert found.counts == {"nodes": 2, "compute": 1, "collective": 1}
    head = message((1, b"0.0.4"), (2, message((1, b"schema"))[1:]))
    nodes = [message((1, 5), (2, b"all_reduce"), (3, 7), (5, bytes([3, 4])), (7, 100)), message((1, 6), (3, 4), (5, 3))]
    path = made.write("a.et", head + b"".join(nodes) + nodes[0][:4])
    assert format_of(path) == "chakra-protobuf"
    found = read_any(path)
    assert [(one["name"], one["kind"], one["parents"]) for one in found.records] == [
        ("all_reduce", "collective", [3, 4]),
        (None, "compute", [3]),
    ]
    assert found.records[0]["time_s"] == pytest.approx(1e-4)
    assert found.repaired == {"file is cut: what came before is read": 1}


TABLES = """
create table StringIds (id integer, value text);
insert into StringIds values (1, 'nvjet_x'), (2, 'ncclDevKernel_SendRecv(x)'), (3, 'cudaLaunchKernel'), (4, 'note');
create table CUPTI_ACTIVITY_KIND_KERNEL_V2
  (start int, end int, deviceId int, streamId int, correlationId int, globalPid int, demangledName int);
insert into CUPTI_ACTIVITY_KIND_KERNEL_V2 values
  (1000, 2000, 0, 7, 5, 16777216, 1), (2000, 2500, 1, 7, 5, 33554432, 2), (9000, 8000, 1, 7, 6, 33554432, 1);
create table CUPTI_ACTIVITY_KIND_RUNTIME (start int, end int, globalTid int, correlationId int, nameId int);
insert into CUPTI_ACTIVITY_KIND_RUNTIME values (100, 200, 16777217, 5, 3), (1100, 1200, 33554433, 5, 3);
create table CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start int, end int, deviceId int, correlationId int, syncType int);
insert into CUPTI_ACTIVITY_KIND_SYNCHRONIZATION values (0, 90000, 0, 8, 3);
create table NVTX_EVENTS (start int, end int, eventType int, text text, textId int, domainId int, globalTid int);
insert into NVTX_EVENTS values
  (50, 300, 59, 'aten::mm, seq = 4, op_id = 9, sizes = [[2, 3], [3, 4]]', null, 0, 16777217),
  (50, 300, 59, null, 4, 0, 16777217), (50, 300, 59, 'ncclSend', null, 1, 16777217);
"""


def test_nsys_processes_share_correlations_and_syncs_are_no_work(made):
    path = made.folder / "a.db"
    with sqlite3.connect(path) as database:
        database.executescript(TABLES)
    database.close()
    table = read_timeline(path)
    assert (table.format, table.devices) == ("nsys", [0, 1])
    assert dict(table.repaired) == {"negative duration": 1}
    found = links(table)
    assert table.of(*GPU_WORK).sum() == 2
    assert [int(table.start[launch]) for launch in found.launch] == [100, 1100]
    work = work_of(table)
    first, second = (device_summary(work, device) for device in (0, 1))
    assert [first.window_s, second.communication_s] == pytest.approx([1e-6, 0.5e-6])
    assert [(one.shape.m, one.shape.n, one.shape.k) for one in first.gemms] == [(2, 4, 3)]
    assert table.ignored == {"nvtx of libraries": 1}


EVENTS = """
create table StringIds (id integer, value text);
insert into StringIds values
  (1, 'sgemm'), (2, 'ncclDevKernel_SendRecv(x)'), (3, 'cudaLaunchKernel'), (4, 'cudaEventRecord');
create table CUPTI_ACTIVITY_KIND_KERNEL
  (start int, end int, deviceId int, streamId int, correlationId int, globalPid int, shortName int);
insert into CUPTI_ACTIVITY_KIND_KERNEL values
  (10000, 210000, 0, 20, 1, 16777216, 2), (300000, 310000, 0, 7, 2, 16777216, 1);
create table CUPTI_ACTIVITY_KIND_RUNTIME (start int, end int, globalTid int, correlationId int, nameId int);
insert into CUPTI_ACTIVITY_KIND_RUNTIME values
  (1000, 2000, 16777217, 1, 3), (3000, 4000, 16777217, 8, 4),
  (5000, 6000, 16777217, 9, 4), (7000, 8000, 16777217, 2, 3);
create table CUPTI_ACTIVITY_KIND_CUDA_EVENT (globalPid int, eventSyncId int, streamId int, correlationId int);
insert into CUPTI_ACTIVITY_KIND_CUDA_EVENT values (16777216, 77, 20, 8);
create table CUPTI_ACTIVITY_KIND_SYNCHRONIZATION
  (start int, end int, deviceId int, streamId int, correlationId int, globalPid int, syncType int, eventSyncId int);
insert into CUPTI_ACTIVITY_KIND_SYNCHRONIZATION values (5500, 5600, 0, 7, 9, 16777216, 2, 77);
"""


def test_nsys_tells_what_a_stream_waits_for(made):
    path = made.folder / "a.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(EVENTS)
    database.close()
    work = work_of(read_timeline(path))
    found = Replayed.of([work]).replay(scaled([work], {"communication": "0"}))
    # 90 us lie between the end of the one and the start of the other: more than a guess would connect
    assert found.measured_s == pytest.approx(300e-6)
    assert found.replayed_s == pytest.approx(100e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"SQLite format 3\x00" + struct.pack(">H", 4096) + b"\x01" * 200, "is a damaged database"),
        (b"\x80\x04garbage", "cannot be loaded"),
        (b'{"schema": "1.0.1", "nodes": 7}', "nodes: is no list"),
        (b'{"workload_graph": [', "is no JSON"),
        (b"==PROF== Connected to process 1\n", "has no header of Nsight Compute"),
    ],
)
def test_damaged_files_are_refused_in_a_line(made, content, line):
    with pytest.raises(SpecError, match=line) as refused:
        read_any(made.write("a", content))
    assert len(str(refused.value).splitlines()) == 1


def test_a_file_without_a_timeline_is_named_where_one_is_needed(made):
    with pytest.raises(SpecError, match="is a file of ncu, which holds no timeline"):
        read_timeline(made.write("a.csv", RAW))
