"""A trace of this machine, made by the profiler of PyTorch (extra ``profiler``), is read end to end."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from moesim.studies.trace_summary import trace_report
from moesim.traces.event_table import ANNOTATION, OP
from moesim.traces.matrix_shapes import matrix_shape
from moesim.traces.opening import format_of, read_timeline

SCRIPT = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile, record_function

first, second = torch.randn(64, 32), torch.randn(32, 16)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    for number in range(3):
        with record_function("my step"):
            torch.mm(first, second).relu()
profiler.export_chrome_trace(sys.argv[1])
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed (extra profiler)")
def test_a_profile_of_this_machine(tmp_path):
    path = tmp_path / "own.json"
    subprocess.run([sys.executable, "-c", SCRIPT, str(path)], check=True, capture_output=True)
    assert format_of(path) == "kineto"
    table = read_timeline(path)
    assert dict(table.repaired) == {}
    named = {kind: [place for place in range(len(table)) if table.category[place] == kind] for kind in (OP, ANNOTATION)}
    products = [place for place in named[OP] if table.name_of(place) == "aten::mm"]
    assert len(products) == 3
    for place in products:
        shape = matrix_shape("aten::mm", table.detail_of(place))
        assert shape is not None
        assert (shape.m, shape.n, shape.k, shape.dtype) == (64, 16, 32, "float")
        assert table.duration[place] > 0
    assert [table.name_of(place) for place in named[ANNOTATION]].count("my step") == 3
    found = trace_report([path])
    assert (len(found.files), found.devices) == (1, ())
