"""Files of the PyTorch profiler in all their generations."""

import gzip
import json

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.traces import json_list
from moesim.traces.event_table import KERNEL, OP
from moesim.traces.linking import links
from moesim.traces.opening import format_of, read_timeline
from moesim.traces.summary import summaries, work_of


def test_times_are_exact_in_every_generation(made):
    for start, nanoseconds in (
        (1661203462598772, 1661203462598772000),
        (1712195495505582.988, None),  # the file below writes it in full
        (4458676422880.181, 4458676422880181),
    ):
        made.events = []
        made.kernel("k", start, 2.125)
        text = made.text()
        if nanoseconds is None:
            text = text.replace(json.dumps(start), "1712195495505582.988")
            nanoseconds = 1712195495505582988
        table = read_timeline(made.write(text=text))
        assert (table.start[0], table.duration[0]) == (nanoseconds, 2125)


def test_the_base_is_added_and_keys_may_stand_behind_the_events(made):
    made.kernel("k", 10.5, 1)
    made.tail = {"baseTimeNanoseconds": 1751410836000000000, "distributedInfo": {"rank": 3, "world_size": 8}}
    del made.head["distributedInfo"]
    table = read_timeline(made.write())
    assert table.start[0] == 1751410836000010500
    assert (table.rank, table.world_size) == (3, 8)


@pytest.mark.parametrize("form", ["list", "gzip", "two gzip members", "compact", "no metadata"])
def test_forms_of_the_file(made, form):
    for number in range(5):
        made.kernel(f"k{number}", 10 * number, 4, launch=10 * number - 5)
    plain = made.text()
    text = {
        "list": json.dumps(made.events).encode(),
        "gzip": gzip.compress(plain.encode()),
        "two gzip members": gzip.compress(plain[:100].encode()) + gzip.compress(plain[100:].encode()),
        "compact": json.dumps(json.loads(plain), separators=(",", ":")).encode(),
        "no metadata": json.dumps({"traceEvents": made.events}).encode(),
    }[form]
    path = made.write("oddly.named", text)
    assert format_of(path) == "kineto"
    table = read_timeline(path)
    assert (len(table), dict(table.repaired)) == (10, {})


def test_pieces_of_any_size_give_the_same(made, monkeypatch):
    for number in range(60):
        args = {"list": [{"name": "a"}, {"name": "b"}], "text": '}, {"ph": "X", "cat": "kernel"}'}
        made.kernel(f"k{number}", 10 * number, 4, launch=10 * number - 5, **args)
    made.tail = {"traceName": "x", "pg": [{"name": "a"}, {"name": "b"}], "distributedInfo": {"rank": 7}}
    path = made.write()
    whole = read_timeline(path)
    monkeypatch.setattr("moesim.traces.stream.PLAIN_BLOCK", 97)
    for size in (50, 333, 4096):
        monkeypatch.setattr(json_list, "PIECE", size)
        pieces = read_timeline(path)
        assert dict(pieces.repaired) == {}
        assert pieces.rank == 7
        np.testing.assert_array_equal(pieces.start, whole.start)
        assert [pieces.name_of(place) for place in range(len(pieces))] == [
            whole.name_of(place) for place in range(len(whole))
        ]


def test_only_the_category_tells_work_of_the_gpu(made):
    made.kernel("k", 10, 5)
    made.add("cpu_op", "triton_poi_fused_0", 0, 40, stream=7)
    made.add("cuda_sync", "Stream Sync", 0, 80, tid=7, pid=0, stream=7, device=0)
    made.add("gpu_user_annotation", "ProfilerStep#1", 0, 90, tid=7, pid=0, stream=7, device=0)
    made.add("Kernel", "old", 20, 5, tid=7, pid=0, **{"external id": 4})
    one = summaries(read_timeline(made.write()))[0]
    assert one.window_s == pytest.approx(15e-6)
    assert one.busy_s == pytest.approx(10e-6)
    assert one.kernels == 2


@pytest.mark.parametrize("generation", ["new", "old"])
def test_operators_are_found_by_id_or_around_the_launch(made, generation):
    made.add("cpu_op", "aten::linear", 0, 50, **{"External id": 900})
    dims = {"Input Dims": [[4, 2], [2, 8]], "Input type": ["float", "float"]}
    made.add("cpu_op", "aten::mm", 5, 20, **{"External id": 901}, **dims)
    made.add("cpu_op", "aten::add", 60, 20, **{"External id": 101})  # in old files 101 is the correlation of the kernel
    made.kernel("sgemm", 30, 5, launch=10, external=901 if generation == "new" else 101)
    made.kernel("other", 90, 5, launch=65, external=101 if generation == "new" else 102)
    table = read_timeline(made.write())
    found = links(table)
    assert found.by_id is (generation == "new")
    assert [table.name_of(int(op)) for op in found.op] == ["aten::mm", "aten::add"]
    shape = summaries(table)[0].gemms[0].shape
    assert (shape.op, shape.m, shape.n, shape.k) == ("mm", 4, 8, 2)


def test_work_without_a_launch_is_left_out_where_asked(made):
    made.kernel("before", 0, 100)
    made.kernel("inside", 200, 50, launch=150)
    table = read_timeline(made.write())
    every, linked = summaries(table)[0], summaries(table, linked_only=True)[0]
    assert (every.kernels, linked.kernels) == (2, 1)
    assert linked.window_s == pytest.approx(50e-6)


def test_several_gpus_in_a_file_are_apart(made):
    made.kernel("a", 0, 100, device=0)
    made.kernel("b", 50, 100, device=1)
    found = summaries(read_timeline(made.write()))
    assert [one.device for one in found] == [0, 1]
    assert [one.busy_s for one in found] == pytest.approx([1e-4, 1e-4])


def test_exposed_communication(made):
    made.kernel("sgemm", 0, 100)
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 50, 100, stream=20)
    made.kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 200, 100, stream=20)
    made.kernel("Memcpy HtoD", 250, 100, stream=21, cat="gpu_memcpy", bytes=8)
    one = summaries(read_timeline(made.write()))[0]
    assert [one.communication_s, one.exposed_s, one.exposed_strict_s, one.overlap_s, one.memory_s] == pytest.approx(
        [200e-6, 150e-6, 100e-6, 50e-6, 100e-6]
    )
    assert one.busy_s == pytest.approx(300e-6)


def test_own_rules_come_first(made):
    from moesim.traces.kernel_rule import classes

    made.kernel("my_secret_gemm", 0, 1)
    made.kernel("halo", 5, 1)
    rules = made.folder / "rules.yaml"
    rules.write_text(
        "kernels:\n- {class: secret, pattern: my_secret}\n- {class: halo, pattern: ^halo$, communication: true}"
    )
    work = work_of(read_timeline(made.write()), classes(rules))
    assert work.family.tolist() == ["secret", "halo"]
    assert work.communication.tolist() == [False, True]
    rules.write_text("kernels:\n- {class: secret, pattern: '['}\n- {class: x}\n")
    with pytest.raises(SpecError) as refused:
        classes(rules)
    assert len(refused.value.issues) == 2


def test_operators_and_kernels_only(made):
    made.add("python_function", "f", 0, 5)
    made.events.append({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}})
    made.add("cpu_op", "aten::add", 0, 5)
    made.kernel("k", 2, 2)
    table = read_timeline(made.write())
    assert sorted(table.category.tolist()) == sorted([OP, KERNEL])
    assert table.ignored == {"python_function": 1, "no category": 1}
