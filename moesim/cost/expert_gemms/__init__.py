"""How a rank multiplies the rows of its experts: one file each, found by name."""

from collections.abc import Callable
from dataclasses import dataclass

from moesim.base.numeric import Numeric
from moesim.base.registry import Registry
from moesim.cost.machine import Gpu
from moesim.workload.ops import Gemm


@dataclass(frozen=True)
class ExpertGemm:
    """What a kind of expert product declares.

    Attributes
    ----------
    time
        Seconds of all products of a rank.
    kernel_each
        The host launches one kernel for each expert.
    host_counts
        The host has to know how many rows each expert has.
    padded
        Every expert is filled up to its capacity.
    """

    time: Callable[[Gemm, Gpu], Numeric]
    kernel_each: bool = False
    host_counts: bool = False
    padded: bool = False


expert_gemms: Registry[ExpertGemm] = Registry(
    "expert GEMM", package="moesim.cost.expert_gemms", entry_points="moesim.expert_gemms"
)
