"""Factors on what a software is said to take: fitted to whole steps, laid over its numbers.

``hardware_specs/step_fits.yaml`` declares which numbers may be fitted, how far each may be from its source, and which
profiles are fitted together. A calibration of the family ``steps`` holds a factor for each family of software and path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, get_args

from pydantic import Field, model_validator

from moesim.base.errors import SpecError, did_you_mean
from moesim.spec import library
from moesim.spec.calibration import DERIVED_SPREAD, CalibrationSpec
from moesim.spec.provenance import Sourced, SpecModel
from moesim.spec.software import SoftwareSpec
from moesim.spec.validation import validate
from moesim.spec.yaml_file import read_document

STEPS = "steps"
"""Family of the calibrations that hold such factors, and what their ``gpu`` names: all software."""
SOFTWARE = "software"
SHIPPED = "software-steps"
FIELD = "field-"
"""Beginning of the names of residuals that say what a field may move."""
MOE_FIELDS = ("rank_imbalance", "routing", "overlap_ep", "transport")
"""Fields that mean nothing without experts."""
MOST = 12
"""Numbers of one family of software that may be fitted."""


class StepParameter(SpecModel):
    """A number of the software that whole steps may move.

    ``path``: section and name in the spec of a software. ``low``, ``high``: factors on its value within which it stays;
    ``spread``: how far it may well be off, as the standard deviation of its logarithm. [-]
    """

    path: str
    spread: Annotated[float, Field(gt=0)]
    low: Annotated[float, Field(gt=0)]
    high: float
    note: str

    @model_validator(mode="after")
    def _holds_its_prior(self) -> StepParameter:
        if not self.low < 1 < self.high:
            raise ValueError(f"{self.low:g} to {self.high:g} does not hold 1, the value that has a source")
        section, _, name = self.path.partition(".")
        known = [f"{part}.{field}" for part in SECTIONS for field in SECTIONS[part]]
        if name not in SECTIONS.get(section, ()):
            raise ValueError(f"no number '{self.path}' of a software; {did_you_mean(self.path, known)}")
        return self


class StepFits(SpecModel):
    """What may be fitted to whole steps.

    ``families``: profiles that are fitted together, by name of the family. ``never``: stacks of a run table whose rows
    no fit sees. ``alternatives``: what a field that nobody gave may have been.
    """

    schema_version: int = Field(alias="schema")
    parameters: Annotated[tuple[StepParameter, ...], Field(max_length=MOST)]
    families: dict[str, tuple[str, ...]]
    never: tuple[str, ...] = ()
    alternatives: dict[str, tuple[object, ...]]

    def family(self, software: str) -> str | None:
        """Family that a profile belongs to."""
        return next((name for name, members in self.families.items() if software in members), None)


def _sections() -> dict[str, tuple[str, ...]]:
    found = {}
    for section in ("host", "runtime", "sustained"):
        model = SoftwareSpec.model_fields[section].annotation
        fields = getattr(model, "model_fields", {})
        found[section] = tuple(name for name, one in fields.items() if _is_number(one.annotation))
    return found


def _is_number(annotation: object) -> bool:
    """Whether a field is a sourced number, also one that may be left out."""
    options = (annotation, *get_args(annotation))
    return any(isinstance(one, type) and issubclass(one, Sourced) for one in options)


PRICED = ("host", "sustained", "memory", "runtime", "constants", "defaults")
"""What an estimate depends on of a software; its rules only say what is legal."""
SECTIONS = _sections()
"""Numbers of a software that a step depends on, by section."""


def step_fits() -> StepFits:
    """Return what may be fitted, as the file that comes with moesim says."""
    return _read(library.root() / "hardware_specs" / "step_fits.yaml")


def family_of(software: str) -> str | None:
    """Return the family that a profile belongs to; one that differs by rules alone belongs to that of its base."""
    found = step_fits().family(software)
    if found is None and software in library.names("software"):
        spec = library.get("software", software)
        base = library.get("software", spec.profile_of) if spec.profile_of else None
        if base is not None and all(getattr(spec, part) == getattr(base, part) for part in PRICED):
            return family_of(base.name)
    return found


@lru_cache(maxsize=4)
def _read(path: Path) -> StepFits:
    return validate(StepFits, read_document(path))


def scaled(software: SoftwareSpec, factors: Mapping[str, float], source: str, note: str) -> SoftwareSpec:
    """Return a software with some of its numbers times a factor, and where the factor comes from; those it lacks stay out.

    Parameters
    ----------
    factors
        By path. [-]
    source, note
        Key of the data, and words for the provenance.
    """
    sections: dict[str, SpecModel] = {}
    for path, factor in factors.items():
        section, _, name = path.partition(".")
        part = sections.get(section, getattr(software, section))
        number: Sourced | None = getattr(part, name)
        if number is None:  # the software does not have it
            continue
        told = f"{number.value:.6g} times {factor:.4g}: {note}"
        changed = type(number).model_construct(value=number.value * factor, kind="derived", source=source, note=told)
        sections[section] = part.model_copy(update={name: changed})
    return software.model_copy(update=sections)


def check(one: CalibrationSpec) -> None:
    """Raise a `SpecError` where a calibration of steps holds what nothing asks for."""
    fits = step_fits()
    known = [f"{family}.{number.path}" for family in fits.families for number in fits.parameters]
    for name, value in one.values().items():
        if name not in known:
            raise SpecError.single("", f"constants.{name}", "no such constant", did_you_mean(name, known))
        if value <= 0:
            raise SpecError.single(
                "", f"constants.{name}", f"{value:g} is out of range", "write a factor of more than 0"
            )


def factors_of(one: CalibrationSpec, software: str) -> dict[str, float]:
    """Return the factors of a calibration for a profile, by path; none where its family was not fitted. [-]"""
    family = family_of(software)
    start = f"{family}."
    return {name.removeprefix(start): value for name, value in one.values().items() if name.startswith(start)}


def laid(software: SoftwareSpec, one: CalibrationSpec | None, fixed: tuple[str, ...] = ()) -> SoftwareSpec:
    """Return a software with a calibration of steps laid over it; `fixed` paths keep their value."""
    factors = factors_of(one, software.name) if one is not None else {}
    factors = {path: factor for path, factor in factors.items() if path not in fixed}
    if one is None or not factors:
        return software
    return scaled(software, factors, one.source, f"calibration {one.name}, {one.rows.get('used', 0):,} steps")


def used(own: Iterable[CalibrationSpec]) -> CalibrationSpec | None:
    """Return the user's own calibration of steps, else the one that comes with moesim."""
    return next((one for one in own if one.family == STEPS), None) or shipped()


def spreads(one: CalibrationSpec | None, software: str, is_moe: bool) -> dict[str, float]:
    """Return how far steps were off beyond their prices, and how far each field that nobody gave may move one.

    Standard errors of the logarithm of a step [-]: ``steps``, and fields by name. A software that was not among the
    rows is known 1.5 times worse than all others together.
    """
    if one is None or "all" not in one.residuals:
        return {}
    kind = f"{family_of(software)}-{'moe' if is_moe else 'dense'}"
    known = one.residuals.get(kind)
    found = {STEPS: known.sigma if known else DERIVED_SPREAD * one.residuals["all"].sigma}
    fields = ((name.removeprefix(FIELD), spread) for name, spread in one.residuals.items() if name.startswith(FIELD))
    return found | {name: spread.sigma for name, spread in fields if is_moe or name not in MOE_FIELDS}


def shipped() -> CalibrationSpec | None:
    """Return the calibration of steps that comes with moesim, if there is one."""
    path = library.folder("calibrations") / f"{SHIPPED}.yaml"
    return library.get("calibrations", SHIPPED) if path.is_file() else None
