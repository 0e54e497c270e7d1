"""Numbers that carry their source.

A sourced number is written ``{value: 3.35 TB/s, source: nvidia-h100, kind: datasheet}``. The kinds, from strong to weak:

``measured``
    read off a measurement of this machine or software.
``datasheet``
    stated by the maker: datasheet, manual, or the maker's source code.
``paper``
    stated by somebody else in print: a paper, a recipe, a benchmark's configuration.
``derived``
    follows from sourced numbers by the arithmetic in ``note``.
``assumed``
    a guess; ``note`` says why this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from moesim.base.units import DIMENSIONS, format_quantity, parse_quantity

Kind = Literal["measured", "datasheet", "paper", "derived", "assumed"]
KINDS: tuple[str, ...] = get_args(Kind)


class SpecModel(BaseModel):
    """Base of everything read from a file: immutable, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, protected_namespaces=())

    def provenance(self, prefix: str = "") -> dict[str, Sourced]:
        """Return every sourced number below, by its dotted path."""
        return dict(_sourced(self, prefix))


class Sourced(SpecModel):
    """A number with the place it comes from; subclasses fix the dimension.

    Parameters
    ----------
    value
        SI value. [dimension of the class]
    kind
        How strong the source is, one of :data:`KINDS`.
    source
        Key in ``sources.yaml``; needed unless `kind` is ``assumed``.
    quote, note
        The words of the source, and how the number follows from them.
    """

    dimension: ClassVar[str] = ""
    positive: ClassVar[bool] = False
    most: ClassVar[float] = math.inf

    value: float
    kind: Kind
    source: str | None = None
    quote: str | None = None
    note: str | None = None

    @field_validator("value", mode="before")
    @classmethod
    def _parse_value(cls, value: Any) -> float:
        return parse_sourced_value(value, cls.dimension)

    @field_validator("value")
    @classmethod
    def _in_range(cls, value: float) -> float:
        positive = cls.positive or cls.dimension in ("bandwidth", "flop_rate")
        if not math.isfinite(value) or value < 0 or (value == 0 and positive) or value > cls.most:
            least = "more than 0" if positive else "0 or more"
            most = f", at most {cls.most:g}" if math.isfinite(cls.most) else ""
            raise ValueError(f"{value:g} is out of range; write a finite value of {least}{most}")
        return value

    @model_validator(mode="after")
    def _has_evidence(self) -> Sourced:
        if self.kind == "assumed" and not self.note:
            raise ValueError("an assumed number needs a reason; add note: why this value")
        if self.kind != "assumed" and not self.source:
            raise ValueError(f"a {self.kind} number needs a source; add source: KEY of sources.yaml")
        return self

    @property
    def text(self) -> str:
        """The value as people read it."""
        return format_quantity(self.value, self.dimension) if self.dimension else f"{self.value:g}"

    def with_value(self, value: float, note: str) -> Sourced:
        """Return the number changed to an assumed `value`; the type stays."""
        return type(self).model_construct(value=value, kind="assumed", note=note)


def parse_sourced_value(value: Any, dimension: str) -> float:
    """Return the number in ``value:`` as an SI float, or raise a `ValueError` that shows an example."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be a number, not {value!r}; {_example(dimension)}")
    if dimension:
        return parse_quantity(str(value), dimension)
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"'{value}' is not a plain number; {_example(dimension)}") from None


def _example(dimension: str) -> str:
    return f"write for example '{DIMENSIONS[dimension].example}'" if dimension else "write for example 0.9"


class Number(Sourced):
    """A dimensionless number: a count, a share, an exponent. [-]"""


class Positive(Number):
    """A dimensionless number that something is divided by. [-]"""

    positive: ClassVar[bool] = True


class Share(Positive):
    """What is reached of something that cannot be exceeded. [-]"""

    most: ClassVar[float] = 1.0


class Bandwidth(Sourced):
    """Bytes per second in one direction. [B/s]"""

    dimension: ClassVar[str] = "bandwidth"


class Bytes(Sourced):
    """An amount of memory or data. [B]"""

    dimension: ClassVar[str] = "bytes"


class Seconds(Sourced):
    """A time. [s]"""

    dimension: ClassVar[str] = "time"


class FlopRate(Sourced):
    """Dense floating-point operations per second. [FLOP/s]"""

    dimension: ClassVar[str] = "flop_rate"


class Flop(Sourced):
    """A number of floating-point operations. [FLOP]"""

    dimension: ClassVar[str] = "flop"
    positive: ClassVar[bool] = True


class Watts(Sourced):
    """Power. [W]"""

    dimension: ClassVar[str] = "power"


class FlopEnergy(Sourced):
    """Energy of a floating-point operation. [J/FLOP]"""

    dimension: ClassVar[str] = "flop_energy"


class ByteEnergy(Sourced):
    """Energy of a byte that is moved. [J/B]"""

    dimension: ClassVar[str] = "byte_energy"


class Constant(Sourced):
    """A number of any dimension, told by its unit; without a unit it is dimensionless.

    Methods read these by name and know what they expect, so a spec may add constants without a change here.
    """

    @field_validator("value", mode="before")
    @classmethod
    def _parse_value(cls, value: Any) -> float:
        if isinstance(value, str):
            for dimension in DIMENSIONS:
                try:
                    return parse_quantity(value, dimension)
                except ValueError:
                    continue
        return parse_sourced_value(value, "")


def _sourced(value: Any, path: str) -> Iterator[tuple[str, Sourced]]:
    if isinstance(value, Sourced):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _sourced(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _sourced(item, f"{path}.{name}" if path else str(name))
