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
# # 3. Fabrics
#
# What the network is, what groups of ranks get of it, what breaks when a part breaks, and how to put the ranks on it.

# %%
import pandas as pd

import moesim
from moesim.report import fabric_drawing, figures
from moesim.studies.compare import comparison
from moesim.studies.fabric_groups import fabric_groups
from moesim.studies.fabric_view import fabric_view
from moesim.studies.placement import placements

# %% [markdown]
# ## Shapes
#
# 32 nodes of 8 H100 on a fat tree whose leaves are oversubscribed two to one, with a rail for each GPU of a node, on rails
# that do not meet, and on a torus. Bisection is what one half can send to the other.

# %%
names = ("fat-tree:2", "rail-ndr400", "rail-only", "torus3d")
views = {name: fabric_view(name, 32, "hgx-h100") for name in names}
pd.DataFrame(
    {
        name: {
            "tiers": ", ".join(f"{tier.name} ({tier.size})" for tier in view.tiers),
            "bisection [TB/s]": view.bisection / 1e12,
            "share of full bisection": view.full_bisection_share,
            "diameter [links]": view.network.reduced.diameter,
        }
        for name, view in views.items()
    }
).T

# %%
figures.drawn(fabric_drawing.draw, views["fat-tree:2"])

# %%
figures.drawn(fabric_drawing.draw, views["torus3d"])

# %% [markdown]
# ## What a job feels of it
#
# The same job on each: the exchange of experts crosses nodes, so the fabric decides what it costs.

# %%
problem = moesim.load("qwen3-235b-h100x256")
comparison(
    {"rails (as it is)": problem}, [{"cluster.fabric": name} for name in ("fat-tree:1", "fat-tree:2", "torus3d")]
)

# %% [markdown]
# Why: what the groups of each parallel axis get. Experts span four nodes; replicas are far apart, but send little.

# %%
fabric_groups(problem)

# %% [markdown]
# ## Faults
#
# A NIC fails, a node computes at 80 %, a rail switch is lost. All groups of an axis wait for their slowest one where they meet.

# %%
moesim.whatif(problem, faults=["nic:node3.rail5", "slow:node3=0.8", "rail:5"])

# %% [markdown]
# ## Placement
#
# Ranks are numbered with the first axis innermost. Another order puts other groups into a node: priced for all legal orders.

# %%
placed = placements(problem)
pd.DataFrame([one.to_dict() for one in (placed.usual, *placed.ranked[:4])], index=["usual", "1", "2", "3", "4"])[
    ["attention_order", "expert_order", "step_time_s", "experts_per_domain"]
]

# %% [markdown]
# Experts of a group should fill whole nodes: what an order with fewer of them in a node costs.

# %%
apart = next(one for one in placed.ranked if one.experts_per_domain < placed.usual.experts_per_domain)
saved = placed.usual.step_s - placed.best.step_s
print(f"the best order saves {saved:.2f} s; {apart.experts_per_domain} experts a node: {apart.step_s:.1f} s")
