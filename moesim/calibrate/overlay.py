"""What a calibration leaves behind: a YAML file with the constants and everything needed to judge them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moesim.base.units import DIMENSIONS
from moesim.calibrate.score import Score, Spread

HEADER = "# Written by the command below; edit the measurements, not this file.\n"


@dataclass(frozen=True)
class Overlay:
    """Constants that replace those of a spec, with what they were fitted on.

    Attributes
    ----------
    name
        Name of the file without its ending: the GPU, or the GPU and the family.
    gpu, family
        What it belongs to: a GPU (or a node, a fabric) and a family of operations.
    source, version
        Key of ``sources.yaml`` or the name of the user's file; release of the data.
    command
        Command line that writes the same file again.
    constants
        Value and dimension (a key of ``DIMENSIONS``, or empty) by name of the constant.
    rows
        Rows read, used and held out.
    dropped
        Rows left out, by reason.
    covered
        Smallest and largest value of each quantity among the rows used.
    residuals
        Spread of the logarithm of predicted over measured time, by regime.
    scores
        Errors by name of the set of rows; ``held_out`` is the one that counts.
    summary, note
        One line about it; what a reader should know.
    kept
        Constants that the rows did not decide.
    extra
        Constants of kernels that the measurements contain beside the one that is priced.
    folds
        What a fit without each group of rows finds.
    """

    name: str
    gpu: str
    family: str
    source: str
    version: str
    command: str
    constants: Mapping[str, tuple[float, str]]
    rows: Mapping[str, int]
    dropped: Mapping[str, int]
    covered: Mapping[str, tuple[float, float]]
    residuals: Mapping[str, Spread]
    scores: Mapping[str, Score] = field(default_factory=dict)
    summary: str = ""
    note: str = ""
    kept: Sequence[str] = ()
    extra: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    folds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def overlay_text(overlay: Overlay) -> str:
    """Overlay as YAML; the same overlay gives the same text."""
    from ruamel.yaml import YAML

    data: dict[str, object] = {
        "schema": 1,
        "name": overlay.name,
        "summary": overlay.summary or f"{overlay.family} of {overlay.gpu}, fitted to measurements",
        "gpu": overlay.gpu,
        "family": overlay.family,
        "source": overlay.source,
        "version": overlay.version,
        "command": overlay.command,
        "constants": {name: quantity(*value) for name, value in overlay.constants.items()},
        "rows": {name: int(count) for name, count in overlay.rows.items()},
        "dropped": {reason: int(count) for reason, count in sorted(overlay.dropped.items())},
        "covered": {name: _flow([_short(low), _short(high)]) for name, (low, high) in overlay.covered.items()},
        "residuals": {
            name: _flow({"count": one.count, "q05": _round(one.q05), "q50": _round(one.q50), "q95": _round(one.q95)})
            for name, one in overlay.residuals.items()
        },
        "scores": {name: _flow(_score(one)) for name, one in overlay.scores.items()},
    }
    if overlay.extra:
        data["extra"] = {name: quantity(*value) for name, value in overlay.extra.items()}
    if overlay.kept:
        data["kept"] = list(overlay.kept)
    if overlay.folds:
        data["folds"] = {name: _fold(one) for name, one in overlay.folds.items()}
    if overlay.note:
        data["note"] = overlay.note
    yaml = YAML()
    yaml.width = 4096
    yaml.default_flow_style = False
    text = io.StringIO()
    yaml.dump(data, text)
    return HEADER + text.getvalue()


def quantity(value: float, dimension: str) -> float | str:
    """Value to six digits, with its unit.

    Examples
    --------
    >>> quantity(3.1e-06, "time"), quantity(0.91234567, "")
    ('3.1e-06 s', 0.912346)
    """
    rounded = float(f"{value:.6g}")
    return f"{rounded:g} {DIMENSIONS[dimension].si}" if dimension else rounded


def _flow(value: Any) -> Any:
    """Return a list or mapping that YAML writes on one line."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    shown = CommentedMap(value) if isinstance(value, dict) else CommentedSeq(value)
    shown.fa.set_flow_style()
    return shown


def _fold(one: Mapping[str, Any]) -> dict[str, Any]:
    told = {"runs": _flow(list(one["runs"]))}
    if one["constants"]:
        told["constants"] = _flow({name: _round(value) for name, value in one["constants"].items()})
    return told | {"step_error": _round(one["step_error"])}


def _score(one: Score) -> dict[str, float | int]:
    told: dict[str, float | int] = {"count": one.count}
    told |= {"median": _round(one.median), "p90": _round(one.p90), "bias": _round(one.bias)}
    if one.coverage is not None:
        told["coverage"] = _round(one.coverage)
    return told


def _round(value: float) -> float:
    return round(float(value), 4)


def _short(value: float) -> float | int:
    value = float(f"{value:.6g}")
    return int(value) if value == int(value) and abs(value) < 1e15 else value
