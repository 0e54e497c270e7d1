"""A user's own calibrations: read from files, and told apart by what they belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from moesim.base.errors import Collector, Issue, SpecError
from moesim.spec import library, steps
from moesim.spec.calibration import KERNEL_FAMILIES, CalibrationSpec
from moesim.spec.validation import validate
from moesim.spec.yaml_file import read_document

COLLECTIVES, TRANSPORT = "collectives", "transport"
NAMES = {
    COLLECTIVES: re.compile(
        r"net-eager-bytes|(all-(gather|reduce|to-all)|reduce-scatter|send-recv)"
        r"-(ring|tree|nvls|nvlstree|pat|pairwise)-(ll|ll128|simple)-(pair|quad|node|net|two)"
        r"-(latency|bandwidth|ramp|ramp-bytes|norm|late|most|half-bytes|per-rank)"
    ),
    TRANSPORT: re.compile(r"(intra|inter)_(dispatch|combine)_[a-z_]+"),
}
"""Constants that the families beside kernels have."""


def own_calibration(path: Path, shown: str, belongs: Mapping[str, Sequence[str]]) -> CalibrationSpec:
    """Return a calibration from a file.

    Parameters
    ----------
    path, shown
        The file, and as the user named it.
    belongs
        What a calibration may be of here, by family.

    Raises
    ------
    SpecError
        Where it is of another family, of other hardware, or holds a constant that nothing asks.
    """
    one = validate(CalibrationSpec, read_document(path))
    if one.family not in belongs:
        what = f"'{shown}' is a calibration of {one.family}"
        raise SpecError.single("", "", what, "one of " + ", ".join(belongs))
    if one.family == steps.STEPS:
        steps.check(one)
    name = library.find("gpus", one.gpu) if one.family in KERNEL_FAMILIES else one.gpu
    if name not in belongs[one.family]:
        known = ", ".join(belongs[one.family])
        what = f"'{shown}' is a calibration of {one.gpu}, and the nodes have {known}"
        if one.family == steps.STEPS:
            raise SpecError.single("", "gpu", f"a calibration of steps is one of '{steps.SOFTWARE}', not '{one.gpu}'")
        if one.family == TRANSPORT:
            raise SpecError.single("", "", f"'{shown}' is a calibration of {one.gpu}", f"known transports are {known}")
        raise SpecError.single("", "", what, f"measure on {belongs[one.family][0]}, or name another node")
    if pattern := NAMES.get(one.family):
        for constant, value in one.values().items():
            if not pattern.fullmatch(constant) or value <= 0:
                what = "no such constant" if value > 0 else f"{value:g} is out of range; more than 0"
                raise SpecError.single(str(path), f"constants.{constant}", what)
    return one


def of(own: Iterable[CalibrationSpec], name: str, *families: str) -> tuple[CalibrationSpec, ...]:
    """Return the calibrations of a node, a fabric or a transport."""
    return tuple(one for one in own if one.gpu == name and one.family in (families or (COLLECTIVES, TRANSPORT)))


def own_links(files: Sequence[Path], node: str, fabric: str, option: str) -> tuple[CalibrationSpec, ...]:
    """Return the calibrations of a node and its fabric that an option names."""
    problems = Collector()
    found: dict[str, CalibrationSpec] = {}
    for file in files:
        try:
            one = own_calibration(file, str(file), {COLLECTIVES: (node, fabric)})
            if one.gpu in found:
                raise SpecError.single("", "", f"'{file}' is a second calibration of {one.gpu}", "name one")
            found[one.gpu] = one
        except SpecError as error:
            problems.extend([one if one.where else Issue(option, "", one.what, one.fix) for one in error.issues])
    problems.raise_if_any()
    return tuple(found.values())
