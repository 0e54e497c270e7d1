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
# # 2. Choosing a layout for a 235B MoE
#
# Qwen3-235B-A22B shall be trained on 256 H100. Which parallel degrees, and why those? A search tries all combinations, leaves out
# what is illegal or does not fit, and says for the others what makes them slower.

# %%
import moesim
from moesim.report import figures, front

problem = moesim.load("qwen3-235b-h100x256")

# %% [markdown]
# ## The search
#
# Degrees, chunks a rank, micro-batch and recomputation are varied here; without `vary` every method is. The answer is exact: a
# bound on each layout decides which ones need not be run, and the best ones are run and estimated like any other.

# %%
vary = {
    "tp": [1, 2, 4],
    "pp": [2, 4, 8, 16],
    "vpp": [1, 2, 3, 4, 6],
    "ep": [4, 8, 16, 32, 64],
    "micro_batch": [1, 2],
    "recompute": [[], ["layernorm", "moe_act"], ["moe"], ["full"]],
}
found = moesim.search(problem, vary, top=8)
found

# %% [markdown]
# The last column is the reason: terms of the step that are longer than in the best layout. Below, why the others were never
# run: the rule of the model, the schedule or the software that refuses them.
#
# ## The winner beside what the scenario has

# %%
best = found.top[0].answer
mine = moesim.estimate(problem)
figures.breakdown({"the scenario": mine, "first": best, "second": found.top[1].answer, "eighth": found.top[-1].answer})

# %%
changed = {
    name: (mine.strategy[name], best.strategy[name]) for name in vary if mine.strategy[name] != best.strategy[name]
}
print(f"{mine.step_time_s / best.step_time_s:.2f} times as fast; changed (from, to): {changed}")
best

# %% [markdown]
# Steps that lie within each other's interval are not told apart by the model. A layout that is a little slower and leaves more
# memory may be the better choice:

# %%
figures.memory(best)

# %% [markdown]
# ## What less memory costs
#
# The front holds every layout than which no other one is both faster and smaller. It answers "what do I pay for ten GiB of
# headroom" for the whole space at once.

# %%
edge = moesim.search(problem, vary, pareto=("step", "memory"))
figures.drawn(front.draw, edge)

# %%
roomy = next(one for one in edge.top if one.plan.peak_bytes < 0.75 * mine.memory.capacity_bytes)
slower = roomy.plan.step_time_s / edge.top[0].plan.step_time_s - 1
print(f"a quarter of each GPU free: {slower:+.1%}, {roomy.plan.peak_bytes / 2**30:.1f} GiB")

# %% [markdown]
# ## Is the optimum sharp?
#
# A sweep around the winner shows where a degree stops to pay. Within five per cent of the best a value counts as equally good.

# %%
around = problem.with_changes({name: value for name, value in best.strategy.items() if name in vary})
moesim.sweep(around, {"ep": [4, 8, 16, 32], "micro_batch": [1, 2]})

# %% [markdown]
# ## By hand
#
# `explore` is a panel of sliders that re-estimates as they move. What is illegal says why, and the last answer stays. In a
# notebook it is shown by its name; here it is moved by code.

# %%
panel = moesim.explore(around)
panel.set(ep=64)
print(panel.message or f"{panel.answer.step_time_s:.2f} s")
panel.set(ep=32)
print(panel, panel.message or f"{panel.answer.step_time_s:.2f} s")
