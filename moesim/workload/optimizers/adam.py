"""AdamW: mean and variance of every gradient; the dtype of both is ``optimizer_state_dtype``."""

from moesim.workload.optimizers import Optimizer, optimizers

optimizers.add("adam", Optimizer(2.0, 2.0), summary="AdamW, two moments a parameter.", source="kingma2015")
