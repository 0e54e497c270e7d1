"""A trace of this machine: made by the profiler of PyTorch, where it is installed (extra ``profiler``), and read end to end."""

import pytest

from moesim.studies.trace_summary import trace_report
from moesim.traces.event_table import OP
from moesim.traces.matrix_shapes import matrix_shape
from moesim.traces.opening import format_of, read_timeline

torch = pytest.importorskip("torch")


def test_a_profile_of_this_machine(tmp_path):
    from torch.profiler import ProfilerActivity, profile, schedule

    first, second = torch.randn(64, 32), torch.randn(32, 16)
    path = tmp_path / "own.json"
    plan = schedule(wait=0, warmup=1, active=2)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=plan,
        record_shapes=True,
        on_trace_ready=lambda made: made.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(3):
            torch.mm(first, second).relu()
            profiler.step()
    assert format_of(path) == "kineto"
    table = read_timeline(path)
    assert dict(table.repaired) == {}
    products = [
        place for place in range(len(table)) if table.category[place] == OP and table.name_of(place) == "aten::mm"
    ]
    assert len(products) == 2
    for place in products:
        shape = matrix_shape("aten::mm", table.detail_of(place))
        assert shape is not None
        assert (shape.m, shape.n, shape.k, shape.dtype) == (64, 16, 32, "float")
        assert table.duration[place] > 0
    found = trace_report([path])
    assert (len(found.files), found.devices) == (1, ())
