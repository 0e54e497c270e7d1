"""Calibrations: constants fitted to measurements, with what they were fitted on."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from moesim.spec.provenance import Constant, SpecModel
from moesim.spec.validation import NamedSpec

KERNEL_FAMILIES = ("gemm", "grouped-gemm", "attention", "memory")
"""Families whose constants are kernel constants of a GPU."""
NORMAL_95 = 1.6449
DERIVED_SPREAD = 1.5
"""How much wider the residuals of another GPU are taken where its constants are carried over. Assumed."""


class SpreadSpec(SpecModel):
    """Quantiles of the logarithm of predicted over measured time. [-]"""

    count: int
    q05: float
    q50: float
    q95: float

    @property
    def sigma(self) -> float:
        """Standard deviation of a normal distribution with the same 90 % interval. [-]"""
        return (self.q95 - self.q05) / (2 * NORMAL_95)


class ScoreSpec(SpecModel):
    """Errors on a set of rows: absolute relative error of time, signed median, share inside the 90 % interval. [-]"""

    count: int
    median: float
    p90: float
    bias: float
    coverage: float | None = None


class CalibrationSpec(NamedSpec):
    """What ``moesim calibrate`` leaves behind.

    ``gpu`` names what the constants belong to; ``constants`` replace those of its spec. ``extra`` are constants of
    kernels that the measurements contain beside the one that is priced. ``covered`` is the range of the rows used.
    """

    gpu: str
    family: str
    source: str
    version: str = ""
    command: str
    constants: dict[str, float | str]
    extra: dict[str, float | str] = Field(default_factory=dict)
    rows: dict[str, int]
    dropped: dict[str, int] = Field(default_factory=dict)
    covered: dict[str, tuple[float, float]] = Field(default_factory=dict)
    residuals: dict[str, SpreadSpec] = Field(default_factory=dict)
    scores: dict[str, ScoreSpec] = Field(default_factory=dict)
    kept: tuple[str, ...] = ()
    note: str | None = None

    def entries(self) -> dict[str, dict[str, Any]]:
        """Constants as a spec writes them, with where they come from."""
        note = f"calibration {self.name}: {self.rows.get('used', 0):,} rows"
        return {
            name: {"value": value, "source": self.source, "kind": "measured", "note": note}
            for name, value in self.constants.items()
        }

    def values(self, which: str = "constants") -> dict[str, float]:
        """Constants as SI floats."""
        return {
            name: Constant.model_validate({"value": value, "kind": "measured", "source": self.source}).value
            for name, value in getattr(self, which).items()
        }
