"""The families of kernels that can be calibrated, by name."""

from moesim.calibrate.attention import ATTENTION
from moesim.calibrate.dense import DENSE
from moesim.calibrate.experts import GROUPED
from moesim.calibrate.family import Family
from moesim.calibrate.memory import MEMORY

FAMILIES: dict[str, Family] = {one.name: one for one in (DENSE, GROUPED, ATTENTION, MEMORY)}
