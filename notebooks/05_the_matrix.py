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
# # 5. The matrix
#
# What does each training method do to each bottleneck? Reviews answer with a table of + and -. Here the signs are derived: the
# same scenario with the method and without, over many models and clusters, by one rule for all cells.

# %%
from rich import print as show

import moesim
from moesim.matrix.answer import answer
from moesim.matrix.ensemble import Ensemble, situations
from moesim.matrix.own import own_situations
from moesim.report import figures, matrix_figure
from moesim.report.matrix import evidence

# %% [markdown]
# ## A part of it
#
# Seven methods against eight bottlenecks, over a small ensemble of scenarios. `moesim matrix` derives the whole of it.

# %%
METHODS = ["fsdp", "ep", "pp", "cp", "recompute", "mxfp8", "overlap"]
BOTTLENECKS = ["persistent-memory", "saved-activations", "dispatch-traffic", "boundary-traffic"]
BOTTLENECKS += ["compute-throughput", "launch-overhead", "pipeline-bubbles", "exposed-communication"]
part = answer(situations(Ensemble(even=6, skewed=2)), METHODS, BOTTLENECKS)
part

# %%
figures.drawn(matrix_figure.draw, part)

# %% [markdown]
# A + reduces the bottleneck, a - adds to it; a triangle means that it depends on the scenario, and the evidence says on what.
#
# ## The evidence of a cell
#
# Recomputation keeps fewer activations: in which scenarios, by how much, and through which terms.

# %%
show(evidence(answer(situations(Ensemble(even=2, skewed=0)), ["recompute"], ["saved-activations"])))

# %% [markdown]
# ## Your own scenario
#
# For one job the signs become sizes. x0.5: half of it is left with the method; +1 GiB: there was none without.

# %%
problem = moesim.load("qwen3-235b-h100x256")
mine = answer(own_situations(problem), METHODS, BOTTLENECKS, own=problem.name)
mine

# %% [markdown]
# The next question is what each of them does to the step. That is an estimate:

# %%
from moesim.studies.compare import comparison

comparison({"as it is": problem}, [{"recompute": "full"}, {"overlap_ep": "true"}, {"pp": "4"}])
