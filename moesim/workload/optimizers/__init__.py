"""Optimizers: one file each, found by name.

An optimizer says how many moments it keeps for a parameter of a hidden matrix and for any other, and whether it
orthogonalises the update of a matrix. It touches the optimizer state, the update's HBM traffic, and, where it
orthogonalises, adds products and the gathering of matrices that are split over ranks.
"""

from dataclasses import dataclass

from moesim.base.registry import Registry


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer keeps and computes.

    Attributes
    ----------
    matrix_moments
        Moments of a parameter in a hidden matrix. [-]
    plain_moments
        Moments of any other parameter: embedding, head, norms. [-]
    newton_schulz_steps
        Iterations that orthogonalise the update of each hidden matrix; 0 for none. [-]
    """

    matrix_moments: float
    plain_moments: float
    newton_schulz_steps: int = 0


optimizers: Registry[Optimizer] = Registry(
    "optimizer", package="moesim.workload.optimizers", entry_points="moesim.optimizers"
)
