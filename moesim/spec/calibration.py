"""Calibrations: constants fitted to measurements, with what they were fitted on."""

from __future__ import annotations

import math
from typing import Annotated, Any, get_args

from pydantic import Field, FiniteFloat, ValidationError, field_validator, model_validator

from moesim.base.errors import did_you_mean
from moesim.spec.hardware import KernelConstants
from moesim.spec.provenance import Constant, Sourced, SpecModel
from moesim.spec.validation import NamedSpec

KERNEL_FAMILIES = ("gemm", "grouped-gemm", "attention", "memory")
"""Families whose constants are kernel constants of a GPU."""
NORMAL_95 = 1.6449
"""Standard deviations of a normal distribution below its 95 % quantile."""
DERIVED_SPREAD = 1.5
"""How much wider the residuals of another GPU are taken where its constants are carried over. Assumed."""


class SpreadSpec(SpecModel):
    """Quantiles of the logarithm of predicted over measured time. [-]"""

    count: Annotated[int, Field(ge=0)]
    q05: FiniteFloat
    q50: FiniteFloat
    q95: FiniteFloat

    @model_validator(mode="after")
    def _in_order(self) -> SpreadSpec:
        if not self.q05 <= self.q50 <= self.q95:
            raise ValueError(f"{self.q05:g}, {self.q50:g}, {self.q95:g} are not in order; write q05 <= q50 <= q95")
        return self

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


class FoldSpec(SpecModel):
    """What the rows of all other groups say of one group of runs.

    ``constants``: fitted without its rows. ``step_error``: standard error of the logarithm of a step beyond that of its
    prices, estimated without its rows. [-]
    """

    runs: tuple[str, ...]
    constants: dict[str, float] = Field(default_factory=dict)
    step_error: Annotated[float, Field(ge=0)]


class CalibrationSpec(NamedSpec):
    """What ``moesim calibrate`` leaves behind.

    ``gpu`` names what the constants belong to; ``constants`` replace those of its spec. ``extra`` are constants of
    kernels that the measurements contain beside the one that is priced. ``covered`` is the range of the rows used.
    ``folds``: what a fit without each group of rows finds, so that no run is judged by a fit that has seen it.
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
    folds: dict[str, FoldSpec] = Field(default_factory=dict)
    note: str | None = None

    @field_validator("covered")
    @classmethod
    def _are_ranges(cls, covered: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (low, high) in covered.items():
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise ValueError(f"{name} from {low:g} to {high:g} is no range; write the smallest value first")
        return covered

    @model_validator(mode="after")
    def _can_be_used(self) -> CalibrationSpec:
        if self.family in KERNEL_FAMILIES:
            for name, value in self.constants.items():
                _check_constant(name, value)
            if "all" not in self.residuals:
                raise ValueError("residuals has no 'all'; write the quantiles of all rows")
        else:
            for name, value in self.constants.items():
                _check_value(name, value, Constant)
        return self

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


def _check_constant(name: str, value: float | str) -> None:
    """Raise a `ValueError` where a GPU cannot have such a constant."""
    field = KernelConstants.model_fields.get(name)
    if field is None:
        raise ValueError(f"no constant of kernels '{name}'; {did_you_mean(name, KernelConstants.model_fields)}")
    options = (field.annotation, *get_args(field.annotation))
    kind = next(one for one in options if isinstance(one, type) and issubclass(one, Sourced))
    _check_value(name, value, kind)


def _check_value(name: str, value: float | str, kind: type[Sourced]) -> None:
    """Raise a `ValueError` where a constant of a kind cannot have the value."""
    try:
        kind.model_validate({"value": value, "kind": "assumed", "note": "checked"})
    except ValidationError as error:
        raise ValueError(f"{name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
