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
# # 1. A first estimate
#
# Qwen3-235B-A22B on 256 H100: how long is one training step, where does it go, what would change it?

# %%
import itertools

import numpy as np
import pandas as pd

import moesim
from moesim.report import figures
from moesim.studies.compare import comparison
from moesim.studies.explain import explain

# %% [markdown]
# ## Load and estimate
#
# A scenario names a model, a cluster, a batch and a strategy. Its name works as well as its file.

# %%
problem = moesim.load("qwen3-235b-h100x256")
problem.strategy

# %%
answer = moesim.estimate(problem)
answer

# %% [markdown]
# The step time is the end of a timeline: forwards and backwards of 128 micro-batches on eight pipeline ranks, each with four
# chunks of layers. Shown here with fewer micro-batches, so that they can be told apart.

# %%
moesim.estimate(problem.with_changes({"global_batch": 256})).timeline

# %% [markdown]
# ## How far to trust it
#
# The interval is made of what is uncertain: prices of kernels and messages, constants, fields that nobody gave. The widest bar
# is what to measure first.

# %%
figures.tornado(answer, 8)

# %% [markdown]
# Every constant knows its source. An elasticity of -0.3 means: one per cent more of it, 0.3 per cent less step time.

# %%
pd.DataFrame([vars(constant) for constant in answer.constants[:6]]).set_index("setting")[
    ["value", "elasticity", "kind", "source"]
]

# %% [markdown]
# ## What if
#
# A comparison sets changes beside the scenario, term by term. Paths are those of `--set`: fields of the strategy or the scenario,
# numbers of the hardware.

# %%
comparison(
    {"as it is": problem},
    [
        {"overlap_ep": "true"},
        {"ep": "16"},
        {"transport": "nccl-alltoall"},
        {"recompute": "full"},
        {"gpu.memory_bandwidth": "4.8 TB/s"},
        {"cluster.node": "hgx-b200"},
    ],
)

# %% [markdown]
# ## Many strategies at once
#
# `evaluate` gives step time and peak memory of a list of strategies, with the numbers of `estimate`. Illegal ones are NaN.

# %%
grid = [
    problem.strategy.replace(tp=tp, sequence_parallel=tp > 1, ep=ep, micro_batch=micro_batch)
    for tp, ep, micro_batch in itertools.product((1, 2, 4), (4, 8, 16, 32, 64), (1, 2, 4))
]
evaluation = moesim.evaluate(problem, grid)
table = pd.DataFrame([{"tp": s.tp, "ep": s.ep, "micro_batch": s.micro_batch} for s in grid])
table["step_time_s"] = evaluation.step_time_s
table["peak_gib"] = evaluation.peak_bytes / 2**30
table["fits"] = evaluation.fits
print(f"{len(grid)} strategies, {evaluation.legal.sum()} legal, {table['fits'].sum()} fit in memory")
table[table["fits"]].sort_values("step_time_s").head(8)

# %% [markdown]
# One entry of the batch is the scalar answer:

# %%
first = int(np.flatnonzero(evaluation.legal)[0])
assert np.isclose(evaluation.step_time_s[first], moesim.estimate(problem, grid[first]).step_time_s, rtol=1e-12)

# %% [markdown]
# Why is a strategy illegal? `check` says so, with the values that would do:

# %%
[str(broken.violation) for broken in problem.check(problem.strategy.replace(ep=48))]

# %% [markdown]
# ## What it is made of
#
# `explain` lists every operation of the rank that finishes last with its price, and the memory of each rank by phase and class.
# Here for Moonlight-16B-A3B on one node: MLA attention, shared experts, one dense layer.

# %%
explained = explain(moesim.load("mbsk-001"))
operations = pd.DataFrame([vars(row) for row in explained.ops])
operations["in_the_step_s"] = operations["seconds"] * operations["calls"]
operations.sort_values("in_the_step_s", ascending=False)[
    ["where", "name", "lane", "bound", "flop", "hbm_bytes", "message_bytes", "seconds", "calls", "in_the_step_s"]
].head(12)

# %%
phases = pd.DataFrame(explained.memory[0]) / 2**30
phases.loc[phases.max(axis=1) > 0].round(2)

# %% [markdown]
# Its peak is that of the largest phase, in GiB per class. A measured step beside it:

# %%
explained.estimate.memory.peak_phase, explained.estimate.measured

# %% [markdown]
# ## Sharding, without a file
#
# A dense model, its state whole and split: `from_names` takes a model, nodes and a software. What nobody gives comes from the software.

# %%
llama = moesim.from_names("llama3-8b", "hgx-h200:1", "megatron-core")
shardings = ("ddp", "zero1", "zero2", "fsdp")
pd.DataFrame(
    {
        name: {"step [s]": one.step_time_s, "peak [GiB]": one.memory.peak_bytes / 2**30, "fits": one.feasible}
        for name in shardings
        for one in [moesim.estimate(llama.with_changes({"dp_sharding": name, "overlap_param_gather": False}))]
    }
).T

# %% [markdown]
# ## All of it on one page
#
# `moesim report qwen3-235b-h100x256 -o report.html` writes an estimate with its timeline, memory, methods, evidence and sources as
# one file that can be sent to somebody.
