"""Muon: one moment a matrix, its update orthogonalised by five Newton-Schulz steps; AdamW for the rest.

Each step works on a whole matrix in BF16. Where the optimizer is sharded the pieces of the moment are gathered first
(distributed Muon), and each rank orthogonalises its share of the matrices; where tensor parallelism splits a matrix,
its ranks gather it too and repeat the work. Embedding, head and norms keep AdamW with two moments.
"""

from moesim.workload.optimizers import Optimizer, optimizers

optimizers.add(
    "muon",
    Optimizer(1.0, 2.0, newton_schulz_steps=5),
    summary="Muon: one moment, Newton-Schulz products on hidden matrices, AdamW for embedding, head and norms.",
    source="liu2025-muon",
)
