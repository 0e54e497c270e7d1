# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4. Calibration with your own traces
#
# Shipped constants come from published measurements. A trace of your own GPUs replaces them: this notebook makes a small one
# with a known answer, reads it, fits it, and lays the fit over an estimate.

# %%
import json
import tempfile
from pathlib import Path

import pandas as pd

import moesim
from moesim.calibrate.overlay import overlay_text
from moesim.report import figures
from moesim.studies.kernel_prices import Asked, kernel_price
from moesim.studies.trace_calibration import trace_calibration
from moesim.studies.trace_ops import traced_ops
from moesim.traces.opening import read_timeline
from moesim.traces.summary import work_of
from moesim.workload.ops import Gemm

GPU = "h100-sxm-80gb"

# %% [markdown]
# ## A trace
#
# The profiler of PyTorch writes operators with the shapes of their operands (`record_shapes=True`), launches, and kernels.
# Ours has matrix products of a GPU whose tensor cores are 15 % slower than the shipped constants say, as on a throttled card.

# %%
SLOWER = 1.15
SIZES = [(4096, 4096, 4096), (8192, 4096, 4096), (4096, 8192, 1024), (8192, 8192, 8192), (2048, 4096, 8192)]
SIZES += [(16384, 1024, 4096), (1024, 16384, 2048), (12288, 4096, 2048), (4096, 12288, 4096), (8192, 2048, 2048)]


def price(m: int, n: int, k: int) -> float:
    return kernel_price(Asked("gemm", Gemm(m, n, k), GPU)).time_s


def event(
    kind: str, name: str, start: float, long: float, line: int, process: int, **told: object
) -> dict[str, object]:
    return {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": long, "tid": line, "pid": process, "args": told}


events, now = [], 100.0
for number, (m, n, k) in enumerate([*SIZES, *SIZES], start=1):
    time_us = round(1e6 * price(m, n, k) * SLOWER, 3)
    shapes = {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2}
    events.append(event("cpu_op", "aten::mm", now - 60, 20, 1, 50, **{"External id": number}, **shapes))
    launch = {"correlation": number, "External id": number}
    events.append(event("cuda_runtime", "cudaLaunchKernel", now - 50, 1, 1, 50, **launch))
    events.append(event("kernel", "nvjet_tst_TNN", now, time_us, 7, 0, device=0, stream=7, **launch))
    now += time_us + 5
folder = Path(tempfile.mkdtemp())
trace = folder / "mine.json"
device = {"id": 0, "name": "NVIDIA H100 80GB HBM3"}
_ = trace.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))

# %% [markdown]
# ## What the trace says
#
# Every operator beside the price of the model. The prices are too short throughout: a property of this GPU, not noise.

# %%
work = work_of(read_timeline(trace))
operators = traced_ops([work], family="gemm")
pd.DataFrame(
    [
        {
            "operator": one.op,
            "median [us]": 1e6 * one.median_s,
            "GFLOP": (one.flop or 0) / 1e9,
            "error of the price": one.error,
        }
        for one in operators.ops
    ]
).round(3)

# %% [markdown]
# ## The fit
#
# Ten shapes move three constants; the others stay as they were (`kept`), and so do the intervals of regimes that the rows do not
# reach. With more rows some are held out to judge the fit. The overlay names its data, their range, and the command that wrote it.

# %%
calibration = trace_calibration(
    [work], None, GPU, "moesim calibrate trace mine.json --gpu h100-sxm-80gb --family gemm", ("gemm",)
)
(overlay,) = calibration.overlays
mine = folder / "mine.yaml"
_ = mine.write_text(overlay_text(overlay))
print(mine.read_text())

# %% [markdown]
# ## An estimate with it
#
# `calibrations` in a scenario, or `--set calibrations=mine.yaml`. A dense model in which matrix products are most of the step:

# %%
llama = moesim.from_names("llama3-8b", "hgx-h100:4")
shipped = moesim.estimate(llama)
own = moesim.estimate(llama.with_changes({"calibrations": str(mine)}))
print(f"{shipped.step_time_s:.3f} s with what is shipped, {own.step_time_s:.3f} s with mine")
figures.breakdown({"shipped": shipped, "mine": own})

# %%
told = {one.setting: (one.value, one.source) for one in own.constants if one.setting.startswith("gpu.kernels.gemm")}
before = {one.setting: (one.value, one.source) for one in shipped.constants}
pd.DataFrame(
    [
        {"constant": name, "shipped": before[name][0], "mine": value, "source": source}
        for name, (value, source) in told.items()
        if value != before[name][0]
    ]
).set_index("constant")

# %% [markdown]
# The known answer comes back: tensor cores that take 15 % longer.

# %%
name = "gpu.kernels.gemm_efficiency"
assert abs(before[name][0] / told[name][0] / SLOWER - 1) < 0.02

# %% [markdown]
# A measured step is the last check: `moesim diagnose SCENARIO --measured 24.2s --trace mine.json` sets it beside the estimate and
# ranks what may explain the rest.
