"""Whether a measured kernel is as it should be, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moesim.calibrate.believable import FASTER
from moesim.studies.kernel_prices import KernelPrice

SLOW = (
    "clocks: power or heat limit, or a lower application clock; `nvidia-smi -q -d CLOCK,PERFORMANCE` names it, all "
    "compute-bound kernels are slow alike",
    "the launch is in the time: kernels of some 10 us look several us slower; time a CUDA graph or many in a row",
    "another kernel than the library's best: odd strides, sizes not divisible by 8, an old library; other shapes are fine",
    "something else runs on the GPU: the same call scatters from run to run",
)
FAST = (
    "operands that stay in the L2 between repetitions: flush it, or take larger ones",
    "inputs of zeros or constants, which draw less power than random ones",
)


@dataclass(frozen=True)
class Verdict:
    """What a measured time is: ``healthy``, ``slow``, ``fast`` or ``impossible``. ``share``: expected over measured. [-]"""

    word: str
    share: float
    measured_s: float
    causes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The verdict in words."""
        meaning = {
            "healthy": "within the 90 % interval",
            "slow": "slower than the 90 % interval",
            "fast": "faster than the 90 % interval",
            "impossible": "faster than the datasheet allows: check the units and the shape",
        }[self.word]
        return f"{self.word}: {meaning}; {self.share:.0%} of the expected rate"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"verdict": self.word, "share": self.share, "measured_s": self.measured_s, "causes": list(self.causes)}


def verdict(measured: float, price: KernelPrice, least: float) -> Verdict:
    """What a measured time is worth beside a price.

    Parameters
    ----------
    measured
        Time. [s]
    price
        Of the same kernel.
    least
        Time at the datasheet rate. [s]
    """
    share = price.time_s / measured
    if measured * FASTER < least:
        return Verdict("impossible", share, measured, ())
    if measured > price.high_s:
        return Verdict("slow", share, measured, SLOW)
    if measured < price.low_s:
        return Verdict("fast", share, measured, FAST)
    return Verdict("healthy", share, measured, ())
