"""One number or many at once.

A degree or a hardware constant is a :data:`Numeric`: a float, or an array with one entry a configuration.
Formulas are written once and serve both, so the scalar answer equals ``array[i]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numeric = float | NDArray[np.floating[Any]]
Boolean = bool | np.bool_ | NDArray[np.bool_]


def first(value: Numeric) -> float:
    """The number, or that of the first configuration, in its unit."""
    return float(np.ravel(value)[0])
