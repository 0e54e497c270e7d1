"""Stochastic gradient descent with momentum: one moment a parameter."""

from moesim.workload.optimizers import Optimizer, optimizers

optimizers.add("sgd-momentum", Optimizer(1.0, 1.0), summary="SGD with momentum, one moment.", source="zero2020")
