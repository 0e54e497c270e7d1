"""Published kernel timings that no fit saw, against the shipped calibrations of the H100.

A few hundred rows of aiconfigurator-core 0.12 (NVIDIA, Apache-2.0; TensorRT-LLM 1.3.0rc20 on H100 SXM), drawn by hash from
the held-out rows by ``docs/make_accuracy_kernels.py``. The bounds are the held-out errors of docs/accuracy_kernels.md with room
for the sample: a third more.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from moesim.calibrate.families import FAMILIES
from moesim.calibrate.score import interval, score
from moesim.calibrate.split import held_out
from moesim.cost.from_spec import build_gpu
from moesim.spec import library

GPU = "h100-sxm-80gb"


def rows(name):
    frame = pd.read_csv(Path(__file__).with_name(f"kernels_{name}_held_out.csv"))
    return frame.assign(fused=True) if name == "grouped" else frame


def priced(family, frame):
    kind, overlay = FAMILIES[family], library.calibrations(GPU)[family]
    gpu = build_gpu(library.get("gpus", GPU))
    predicted = kind.predict(frame, gpu, overlay.values("extra"))
    low, high = interval(predicted, kind.regimes(frame, gpu), overlay.residuals)
    return score(predicted, frame["time_s"].to_numpy(), low, high)


@pytest.mark.parametrize(
    ("family", "name", "query", "median", "p90"),
    [
        ("gemm", "gemm", "rate == 'bf16'", 0.046, 0.145),
        ("gemm", "gemm", "rate == 'fp8'", 0.07, 0.19),
        ("grouped-gemm", "grouped", "rate == 'bf16' and not uneven", 0.056, 0.17),
        ("grouped-gemm", "grouped", "rate == 'bf16' and uneven and ep == 1", 0.071, 0.185),
        ("grouped-gemm", "grouped", "rate == 'bf16' and uneven and ep > 1", 0.115, 0.37),
        ("attention", "attention", "length >= 512", 0.053, 0.165),
        ("memory", "memory", "bytes > 0", 0.02, 0.085),
    ],
)
def test_rows_that_no_fit_saw(family, name, query, median, p90):
    found = priced(family, rows(name).query(query).reset_index(drop=True))
    print(found)
    assert found.count >= 20
    assert found.median < median
    assert found.p90 < p90
    assert found.coverage > 0.78


@pytest.mark.parametrize(("family", "name"), [("gemm", "gemm"), ("attention", "attention"), ("memory", "memory")])
def test_the_extracts_are_on_the_side_that_the_fit_does_not_see(family, name):
    frame = rows(name)
    columns = list(FAMILIES[family].split)
    frame = frame.astype(dict.fromkeys(columns, float))
    assert held_out(frame, columns).mean() > 0.99


def test_the_datasheet_alone_is_far_off():
    frame = rows("gemm").query("rate == 'bf16'")
    gpu = library.get("gpus", GPU)
    flop = 2 * frame["m"] * frame["n"] * frame["k"]
    moved = 2 * (frame["m"] * frame["k"] + frame["k"] * frame["n"] + frame["m"] * frame["n"])
    roofline = np.maximum(flop / gpu.peak_flop_rate["bf16"].value, moved / gpu.memory_bandwidth.value)
    assert score(roofline.to_numpy(), frame["time_s"].to_numpy()).median > 0.25
