"""PowerSGD: a gradient matrix of n rows and m columns travels as two factors of rank r, r (n + m) values.

P = M Q is summed over the replicas and orthogonalised, then Q = M^T P is summed; P Q^T stands for the gradient. What it
leaves out is kept in a buffer of the gradients' size and added to those of the next step. Matrices that would shrink
to more than half, and whatever is no matrix, travel whole.
"""

from moesim.workload.compression import Compression, compressions

compressions.add(
    "powersgd",
    Compression(low_rank=True),
    summary="PowerSGD, powersgd:R: factors of rank R with error feedback.",
    source="vogels2019-powersgd",
)
