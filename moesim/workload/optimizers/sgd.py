"""Plain stochastic gradient descent: no state beside the main weights."""

from moesim.workload.optimizers import Optimizer, optimizers

optimizers.add("sgd", Optimizer(0.0, 0.0), summary="SGD without momentum, no moments.", source="zero2020")
