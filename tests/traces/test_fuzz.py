"""Readers of mutated files: an answer with counted repairs, or a line on what is wrong; no crash, no hang."""

import gzip
import json
import pickle
import sqlite3
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moesim.base.errors import SpecError
from moesim.studies.trace_replay import Replayed, scaled
from moesim.studies.trace_summary import trace_report
from moesim.traces.event_table import EventTable
from moesim.traces.opening import read_any
from moesim.traces.summary import work_of

LONGEST = 20.0
"""Seconds that nothing of some kilobytes takes, on any machine. [s]"""
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "drop", "flip", "insert", "repeat", "swap"]),
        st.floats(0, 1),
        st.integers(1, 200),
        st.sampled_from(
            [b'"', b"\\", b"\x00", b"\xff", b"{", b"}", b"]", b",", b"N/A", b"1e999", b"-", b"9" * 40, b"null"]
        ),
    ),
    min_size=1,
    max_size=4,
)


def mutated(content, edits):
    data = bytearray(content)
    for kind, where, length, piece in edits:
        place = int(where * max(len(data) - 1, 0))
        if kind == "cut":
            del data[place:]
        elif kind == "drop":
            del data[place : place + length]
        elif kind == "flip":
            data[place : place + 1] = bytes([byte ^ 1 << length % 8 for byte in data[place : place + 1]])
        elif kind == "insert":
            data[place:place] = piece
        elif kind == "repeat":
            data[place:place] = data[place : place + length]
        else:
            data[place : place + length] = reversed(data[place : place + length])
    return bytes(data)


def answered(path):
    """Read, sum up and replay a file; the refusal where it is refused."""
    try:
        found = read_any(path)
        if isinstance(found, EventTable):
            trace_report([path])
            work = work_of(found)
            if 0 < len(work.links.work) < 200:
                Replayed.of([work]).replay(scaled([work], {"kernels": "0.5"}))
    except SpecError as error:
        return error
    return None


def read_or_refused(path):
    begun = time.monotonic()
    refusal = answered(path)
    assert time.monotonic() - begun < LONGEST
    if refusal is not None:
        assert refusal.issues
        assert all(len(str(issue).splitlines()) == 1 for issue in refusal.issues), str(refusal)


def kineto(folder):
    events: list[dict[str, object]] = []
    for number in range(6):
        told: dict[str, object] = {
            "device": 0,
            "stream": 7 + number % 2,
            "correlation": number,
            "External id": 90 + number,
        }
        dims = {"External id": 90 + number, "Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}
        told |= {"Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float"} if number % 2 else {}
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if number % 2 else "sgemm"
        place = {"pid": 5, "tid": 6}
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", **place, "ts": 10.5 * number, "dur": 5, "args": dims},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **place, "ts": 10.5 * number + 1, "dur": 1}
            | {"args": {"correlation": number}},
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10.5 * number + 5, "dur": 7.25}
            | {"args": told},
        ]
    whole = {
        "schemaVersion": 1,
        "traceEvents": events,
        "distributedInfo": {"rank": 0, "pg_config": [{"ranks": [0, 1]}]},
    }
    return json.dumps(whole, indent=1).encode()


def packed(folder):
    return gzip.compress(kineto(folder))


def nsys(folder):
    path = folder / "made.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(
            "create table StringIds (id integer, value text); insert into StringIds values (1, 'sgemm');"
            "create table CUPTI_ACTIVITY_KIND_KERNEL (start int, end int, deviceId int, streamId int,"
            " correlationId int, globalPid int, demangledName int);"
            "insert into CUPTI_ACTIVITY_KIND_KERNEL values (10, 20, 0, 7, 1, 1, 1), (30, 40, 0, 7, 2, 1, 1);"
        )
    database.close()
    return path.read_bytes()


def ncu(folder):
    head = '"ID","Kernel Name","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    return ("==PROF== x\n" + head + '"0","k","9.0","S","Duration","ns","10"\n' * 3).encode()


def dump(folder):
    entry = {
        "process_group": ("1", "x"),
        "profiling_name": "nccl:send 0->1",
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
    }
    return pickle.dumps({"pg_config": {"1": {"ranks": "[0, 1]"}}, "entries": [entry]}, protocol=2)


def inspector(folder):
    told = {"coll": "AllReduce", "coll_msg_size_bytes": 9000, "coll_exec_time_us": 5}
    return (json.dumps({"header": {"n_ranks": 2}, "metadata": {}, "coll_perf": told}) + "\n").encode() * 3


def graph(folder):
    return json.dumps({"workload_graph": [{"Id": 1, "Name": "a", "NodeType": 4, "runtime": 3}] * 3}).encode()


def observer(folder):
    return json.dumps({"schema": "1.0.1", "nodes": [{"id": 1, "name": "aten::mm", "input_shapes": [[1]]}] * 3}).encode()


def protobuf(folder):
    return bytes([5, 0x0A, 3]) + b"0.4" + bytes([10, 8, 5, 18, 4]) + b"node" + bytes([24, 7])


def log(folder):
    row = "  1048576  262144  float  sum  -1  35.0  29.96  52.43  0  34.9  30.05  52.58  0\n"
    return (
        "# nThread 1 nGpus 8\n# Collective test starting: all_reduce_perf\n" + row * 3 + "# Avg bus bandwidth: 5\n"
    ).encode()


@pytest.mark.parametrize("make", [kineto, packed, nsys, ncu, dump, inspector, graph, observer, protobuf, log])
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(edits=EDITS)
def test_a_mutated_file_is_read_or_refused(tmp_path_factory, make, edits):
    folder = tmp_path_factory.mktemp("fuzz")
    path = folder / "trace"
    path.write_bytes(mutated(make(folder), edits))
    read_or_refused(path)


PUBLIC = (
    *(
        "kineto/hta_a100_event_sync.json.gz",
        "kineto/hta_inference_legacy_cats.json.gz",
        "kineto/hta_a100_triton_example.json.gz",
    ),
    *("ncu/superbench_b200_cublaslt_fp8_ncu.csv.log", "nccl_tests/superbench_a100x8_allreduce.log"),
)


@pytest.mark.parametrize("name", PUBLIC)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(edits=EDITS)
def test_a_mutated_public_file_is_read_or_refused(shared_traces, tmp_path_factory, name, edits):
    content = (shared_traces / name).read_bytes()
    plain = zlib.decompress(content, wbits=31) if name.endswith(".gz") else content
    path: Path = tmp_path_factory.mktemp("fuzz") / "trace"
    path.write_bytes(mutated(plain, edits))
    read_or_refused(path)
