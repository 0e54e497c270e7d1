"""Per-operation selective recompute: keep the attention output and every other matrix product, repeat the rest.

torchtitan's ``selective`` mode with option ``op``: of the products q, k, v, output, gate, up, down in order, every
second one is run again; pointwise operations always are.
"""

from moesim.workload.recompute import RecomputePolicy, policies

policies.add(
    "op-selective",
    RecomputePolicy(
        again={
            "input-norm": 1.0,
            "rope": 1.0,
            "projection": 1.0,
            "attention-residual": 1.0,
            "mlp-norm": 1.0,
            "mlp-up": 0.5,
            "mlp-activation": 1.0,
        },
        dropped={
            "input-norm-output": 1.0,
            "rotated-query-key": 1.0,
            "mlp-input": 1.0,
            "mlp-norm-output": 1.0,
            "mlp-up-output": 0.5,
            "mlp-activation-output": 1.0,
        },
    ),
    summary="Keep attention output and every other matrix product, run the rest again (torchtitan).",
    source="torchtitan",
)
