"""One family of kernels and how its constants are fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from moesim.base.errors import SpecError
from moesim.calibrate.believable import FEW_ROWS, FEWEST, believable, enough, refuse_absurd
from moesim.calibrate.fit import Fit, Parameter, fitted
from moesim.calibrate.measurements import Rows
from moesim.calibrate.overlay import Overlay
from moesim.calibrate.score import Score, Spread, interval, score, spreads
from moesim.calibrate.split import folds, held_out, sample
from moesim.calibrate.tables import FRAMEWORKS, PACKAGE
from moesim.cost.from_spec import EFFICIENCIES, build_gpu
from moesim.cost.machine import Gpu
from moesim.spec import library
from moesim.spec.hardware import GpuSpec

Floats = NDArray[np.floating[Any]]
MOST_ROWS = 4000
"""Rows that a fit looks at; more change nothing but its time."""
FOLDS = 3
"""Parts of the groups, each of which is priced by a fit on the others for the residual quantiles."""


SHARED_WITH = {
    "gemm": "Grouped GEMMs use these constants too (attention: gemm_power_onset): their prices move as well, and their "
    "grade is one lower unless they have an own overlay."
}


@dataclass(frozen=True)
class Stage:
    """Constants that are fitted together, and the rows that decide them.

    ``keep`` picks the rows of the stage; ``names`` are constants of the GPU, ``extra`` those of other kernels in the
    measurements, with bounds and dimension as in `Parameter`.
    """

    name: str
    keep: Callable[[pd.DataFrame], Any]
    parameters: Sequence[Parameter]
    extra: Sequence[Parameter] = ()


@dataclass(frozen=True)
class Family:
    """A family of kernels: how to read, price and judge its rows.

    ``split``: columns that make the groups that are held out together; ``keys``: those that tell rows apart;
    ``covered``: those whose range the overlay keeps; ``same``: constants that take the value of another one;
    ``scored``: rows that errors are reported on; ``shared``: rows whose kernels all frameworks have;
    ``weights``: what rows count for in the fit, else the same; ``least``: times that the datasheet allows; ``spans``: columns that
    hold a covered quantity where it has no column of its own.
    """

    name: str
    read: Callable[[str, str], Rows]
    from_csv: Callable[[Path, str | None], Rows]
    predict: Callable[[pd.DataFrame, Gpu, Mapping[str, float]], Floats]
    regimes: Callable[[pd.DataFrame, Gpu], NDArray[Any]]
    stages: Sequence[Stage]
    split: Sequence[str]
    keys: Sequence[str]
    covered: Sequence[str]
    same: Mapping[str, str] = field(default_factory=dict)
    scored: Callable[[pd.DataFrame], Any] = lambda frame: np.ones(len(frame), dtype=bool)
    shared: Callable[[pd.DataFrame], Any] | None = None
    weights: Callable[[pd.DataFrame], Floats] | None = None
    spans: Mapping[str, Sequence[str]] = field(default_factory=dict)
    least: Callable[[pd.DataFrame, GpuSpec], Floats] = lambda frame, _spec: np.zeros(len(frame))


@dataclass(frozen=True)
class Calibration:
    """A fit with everything that judges it."""

    overlay: Overlay
    gpu: Gpu
    extra: dict[str, float]
    held: pd.DataFrame
    residuals: dict[str, Spread]


def with_values(gpu: Gpu, spec: GpuSpec, values: Mapping[str, float]) -> Gpu:
    """Return a GPU with other kernel constants; rates of narrow formats keep their own efficiency."""
    known = set(vars(gpu.kernels))
    kernels = replace(gpu.kernels, **{name: value for name, value in values.items() if name in known})
    rates = dict(gpu.rates)
    for name, (peak, constant) in EFFICIENCIES.items():
        if peak in spec.peak_flop_rate and (constant in values or name in rates):
            given = getattr(spec.kernels, constant)
            efficiency = values.get(constant, given.value if given else None)
            if efficiency is not None:
                rates[name] = spec.peak_flop_rate[peak].value * efficiency / kernels.gemm_efficiency
    return replace(gpu, kernels=kernels, rates=rates)


def prior_spec(gpu: str, family: str, source: str) -> GpuSpec:
    """GPU whose constants a fit starts from: never with what the same measurements have made before."""
    shipped = library.calibrations(gpu).get(family)
    if shipped is not None and shipped.source == source:
        return library.uncalibrated_gpu(gpu, family)
    return library.get("gpus", gpu)


@dataclass(frozen=True)
class Constants:
    """Constants of all stages of a family: of the GPU, of other kernels, and those that too few rows left alone."""

    values: dict[str, float]
    extra: dict[str, float]
    kept: tuple[str, ...]
    used: int


def calibrate(family: Family, gpu_name: str, source: str, command: str, holdout: float = 0.3) -> Calibration:
    """Fit the constants of a family on one GPU.

    The residual quantiles are those of rows that a fit did not see: each third of the groups is priced by a fit on the
    other two. Where frameworks share their kernels, those of other frameworks count as much as those of this one.

    Parameters
    ----------
    family, gpu_name
        What to fit, and on which GPU.
    source
        ``aiconfigurator`` (with ``:framework``), or a CSV file.
    command
        Command line to write into the overlay.
    holdout
        Share of the groups that the fit does not see; 0 where there are few rows.
    """
    rows = family.read(source, gpu_name)
    spec = prior_spec(gpu_name, family.name, rows.source)
    own = csv_or_package(source)[0] is not None
    if own:
        believable(family, rows, spec)
    enough(rows, len(rows.frame))
    frame = rows.frame
    few = len(frame) < FEW_ROWS
    held = np.zeros(len(frame), dtype=bool) if few else held_out(frame, family.split, holdout)
    staged = np.any([np.asarray(stage.keep(frame)) for stage in family.stages], axis=0)
    found = _constants(family, gpu_name, spec, frame[~held])
    gpu = with_values(build_gpu(spec), spec, found.values)
    predicted = family.predict(frame, gpu, found.extra)
    regimes = family.regimes(frame, gpu)
    fitting = staged & ~held
    if own:
        refuse_absurd(rows, predicted[fitting], frame[fitting])
    residuals = _spread(family, gpu_name, spec, frame, fitting, found, source)
    low, high = interval(predicted, regimes, residuals)
    frame = frame.assign(predicted_s=predicted, low_s=low, high_s=high, regime=regimes)
    scored = np.asarray(family.scored(frame)) & staged
    scores = {}
    for name, part in (("fitted", scored & ~held), ("held_out", scored & held)):
        if part.any():
            scores[name] = _score(frame[part])
    for stage in family.stages:
        part = scored & held & np.asarray(stage.keep(frame))
        if part.any() and len(family.stages) > 1:
            scores[f"held_out {stage.name}"] = _score(frame[part])
    dimensions = {one.name: one.dimension for stage in family.stages for one in (*stage.parameters, *stage.extra)}
    dimensions |= {name: dimensions[other] for name, other in family.same.items()}
    kept = set(found.kept) if few else set()
    note = ""
    if few:
        shipped = library.calibrations_like(gpu_name).get(family.name)
        wider = f"Intervals of regimes are those of {shipped.name}, widened to these rows." if shipped else ""
        note = " ".join(filter(None, (wider, SHARED_WITH.get(family.name, ""))))
    overlay = Overlay(
        name=f"{gpu_name}-{family.name}",
        gpu=gpu_name,
        family=family.name,
        source=rows.source,
        version=rows.version,
        command=command,
        constants={name: (value, dimensions[name]) for name, value in found.values.items() if name not in kept},
        extra={name: (value, dimensions[name]) for name, value in found.extra.items()},
        rows={"read": rows.read, "used": found.used, "held_out": int((held & staged).sum())},
        dropped=rows.dropped,
        covered=_covered(family, gpu_name, frame[fitting], few),
        residuals=residuals,
        scores=scores,
        kept=found.kept,
        note=note,
    )
    return Calibration(overlay, gpu, found.extra, frame[held & staged], residuals)


def _covered(family: Family, gpu_name: str, frame: pd.DataFrame, few: bool) -> dict[str, tuple[float, float]]:
    """Range of each quantity; a few rows leave that of the shipped calibration as it is, as they do with its intervals."""
    own: dict[str, tuple[float, float]] = {}
    for name in family.covered:
        columns = [name] if name in frame else list(family.spans.get(name, ()))
        own[name] = (float(frame[columns].min().min()), float(frame[columns].max().max()))
    shipped = library.calibrations_like(gpu_name).get(family.name) if few else None
    wider = shipped.covered if shipped else {}
    return {
        name: (min(low, wider.get(name, (low,))[0]), max(high, wider.get(name, (high,))[-1]))
        for name, (low, high) in own.items()
    }


def _constants(family: Family, gpu_name: str, spec: GpuSpec, rows: pd.DataFrame) -> Constants:
    """Fit of all stages, one after the other; a stage without rows is left out, but something must be fitted."""
    start = build_gpu(spec)
    informed = gpu_name in {one.gpu for one in library.calibrations(gpu_name).values()}
    values: dict[str, float] = {}
    extra: dict[str, float] = {}
    kept: list[str] = []
    used = 0
    parts = [(stage, rows[np.asarray(stage.keep(rows))]) for stage in family.stages]
    most = max(len(part) for _, part in parts)
    for stage, chosen in parts:
        if len(chosen) < min(FEWEST, most) or not (len(chosen) or stage is family.stages[0]):
            continue
        used += len(chosen)
        fit = _fitted(family, stage, sample(chosen, MOST_ROWS, family.keys), start, spec, values, extra, informed)
        names = {one.name for one in stage.parameters}
        values |= {name: value for name, value in fit.values.items() if name in names}
        extra |= {name: value for name, value in fit.values.items() if name not in names}
        kept += [one.name for one in (*stage.parameters, *stage.extra) if one.name not in fit.free]
    return Constants(_completed(family, values), extra, tuple(kept), used)


def _completed(family: Family, values: Mapping[str, float]) -> dict[str, float]:
    """Values, with those constants that take the value of another one."""
    return dict(values) | {name: values[other] for name, other in family.same.items() if other in values}


def _spread(
    family: Family,
    gpu_name: str,
    spec: GpuSpec,
    frame: pd.DataFrame,
    fitting: NDArray[np.bool_],
    fit: Constants,
    source: str,
) -> dict[str, Spread]:
    """Residual quantiles: of rows that a fit did not see, where there are enough to leave some out.

    A few rows do not tell how far others are off: they keep the quantiles of the shipped calibration, widened to theirs.
    """
    gpu = build_gpu(spec)
    final = with_values(gpu, spec, fit.values)
    rows = frame[fitting].reset_index(drop=True)
    if len(frame) < FEW_ROWS:
        own = spreads(_log_errors(family.predict(rows, final, fit.extra), rows), family.regimes(rows, gpu))
        shipped = library.calibrations_like(gpu_name).get(family.name)
        known = shipped.residuals.items() if shipped else ()
        low, high = own["all"].q05, own["all"].q95
        counts = {name: one.count for name, one in own.items()}
        return own | {name: Spread(counts.get(name, 0), min(s.q05, low), s.q50, max(s.q95, high)) for name, s in known}
    found = [(rows, _unseen(family, gpu_name, spec, rows))]
    found += [
        (other, _log_errors(family.predict(other, final, fit.extra), other))
        for other in _others(family, gpu_name, source)
    ]
    errors = np.concatenate([one for _, one in found])
    named = np.concatenate([family.regimes(part, gpu) for part, _ in found])
    finite = np.isfinite(errors)
    return spreads(errors[finite], named[finite])


def _unseen(family: Family, gpu_name: str, spec: GpuSpec, rows: pd.DataFrame) -> Floats:
    """Logarithm of predicted over measured time, each third of the groups priced by a fit on the others. [-]"""
    gpu = build_gpu(spec)
    errors = np.full(len(rows), np.nan)
    parts = folds(rows, family.split, FOLDS)
    for fold in range(FOLDS):
        apart = parts == fold
        if not apart.any() or apart.all():
            continue
        found = _constants(family, gpu_name, spec, rows[~apart])
        chosen = rows[apart].reset_index(drop=True)
        errors[apart] = _log_errors(family.predict(chosen, with_values(gpu, spec, found.values), found.extra), chosen)
    return errors


def _others(family: Family, gpu_name: str, source: str) -> Iterator[pd.DataFrame]:
    """Rows of the other frameworks of the package, but for the groups that are held out."""
    path, own = csv_or_package(source)
    for framework in FRAMEWORKS:
        if family.shared is None or path is not None or framework == own:
            continue
        try:
            frame = family.read(f"{PACKAGE}:{framework}", gpu_name).frame
        except SpecError:  # the package need not have every framework on every GPU
            continue
        yield frame[np.asarray(family.shared(frame)) & ~held_out(frame, family.split)].reset_index(drop=True)


def _log_errors(predicted: Floats, rows: pd.DataFrame) -> Floats:
    return np.asarray(np.log(predicted / rows["time_s"].to_numpy(dtype=float)))


def _score(frame: pd.DataFrame) -> Score:
    columns = ("predicted_s", "time_s", "low_s", "high_s")
    predicted, measured, low, high = (frame[name].to_numpy(dtype=float) for name in columns)
    return score(predicted, measured, low, high)


def _fitted(
    family: Family,
    stage: Stage,
    rows: pd.DataFrame,
    start: Gpu,
    spec: GpuSpec,
    values: Mapping[str, float],
    extra: Mapping[str, float],
    informed: bool,
) -> Fit:
    def prior(one: Parameter) -> Parameter:
        value = getattr(start.kernels, one.name, None)
        if value is None:
            given = getattr(spec.kernels, one.name, None)
            value = given.value if given else None
        if value is None or not isinstance(value, float | int) or value <= 0:
            return one
        spread = min(one.spread, 0.15) if informed and len(rows) < FEW_ROWS else one.spread
        return replace(one, prior=float(np.clip(value, 1.001 * one.low, 0.999 * one.high)), spread=spread)

    parameters = [prior(one) for one in (*stage.parameters, *stage.extra)]
    names = {one.name for one in stage.parameters}

    def predict(trial: Mapping[str, float]) -> Floats:
        chosen = dict(values) | {name: trial[name] for name in names}
        gpu = with_values(start, spec, _completed(family, chosen))
        return family.predict(rows, gpu, dict(extra) | dict(trial))

    measured = rows["time_s"].to_numpy(dtype=float)
    what = f"{family.name} {stage.name}".strip()
    weights = family.weights(rows) if family.weights else None
    return fitted(predict, measured, parameters, what=what, starts=2, max_evaluations=60, weights=weights)


def csv_or_package(source: str) -> tuple[Path | None, str]:
    """Path of a CSV, or None and the framework of the package."""
    name, _, framework = source.partition(":")
    if name in ("aiconfigurator", "aiconfigurator-core"):
        return None, framework or "trtllm"
    path = Path(source)
    if not path.exists():
        raise SpecError.single(
            "--from", "", f"there is no file '{source}'", "name a CSV, or aiconfigurator[:framework]"
        )
    return path, ""
