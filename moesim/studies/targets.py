"""What published runs are to come out at, and what they do: the lines of the table of docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from moesim.studies.validate import Row, kendall, memory_errors, orders

INEXPRESSIBLE = "not-modelled-yet: unsupported:"
"""Beginning of the reason of a row whose model has layers that nothing here prices."""
SMALL_EFFECT = 0.03
"""Measured ratios closer to 1 need no sign, only to stay as close. [-]"""
FACTOR = 1.3
"""Within which the ZeRO-3 runs of 2021 are to lie. [-]"""


@dataclass(frozen=True)
class Line:
    """One target: what was asked, what is reached on how many rows, and whether that meets it; None: nothing is asked."""

    name: str
    target: str
    reached: str
    count: int
    met: bool | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Errors:
    """Rows whose step times are judged together, and what their absolute errors and their bias may be at most. [-]"""

    name: str
    chosen: Callable[[Row], bool]
    median: float | None = None
    p90: float | None = None
    bias: float | None = None


def _family(*names: str) -> Callable[[Row], bool]:
    return lambda row: row.family in names


UNKNOWN_SKEW = "MoE, H100, natural or not printed"
STEP_TIMES = (
    Errors("MoE on H100, routing balanced or by capacity", _family("MoE, H100, balanced"), 0.08, 0.20, 0.03),
    Errors("MoE on H100, apart: Moonlight", lambda row: row.run_id.startswith("MBSK")),
    Errors("MoE on H100, apart: natural ZOO", lambda row: row.family == UNKNOWN_SKEW and row.run_id.startswith("ZOO")),
    Errors("MoE on H100, apart: Mixtral", lambda row: row.family == UNKNOWN_SKEW and row.model.startswith("mixtral")),
    Errors("MoE on B200, GB200, GB300, B300", _family("MoE, Blackwell"), 0.10, 0.25),
    Errors("Olmo-core report, B300, never fitted", _family("olmo-core"), 0.10),
    Errors("dense on H100, A100", _family("dense, H100 and A100"), 0.06, 0.15),
    Errors("dense on Blackwell", _family("dense, Blackwell")),
    Errors("dense, apart: vTrain", _family("vtrain")),
    Errors("dense, apart: zero-bubble paper", _family("zero-bubble paper")),
)


@dataclass(frozen=True)
class Ratio:
    """Two runs that differ in one thing; ``only_sign`` where the report says that the code was another."""

    name: str
    before: str
    after: str
    only_sign: bool = False


RATIOS = (
    Ratio("recompute", "OLMO-4G03", "OLMO-4G04"),
    Ratio("MXFP8", "OLMO-4G01", "OLMO-4G02"),
    Ratio("learned routing, EP1", "OLMO-P01", "OLMO-P02"),
    Ratio("learned routing, EP8", "OLMO-P04", "OLMO-P05"),
    Ratio("EP8 for EP1, learned", "OLMO-P02", "OLMO-P03"),
    Ratio("EP8 for EP1, block exchange", "OLMO-EP01", "OLMO-EP02"),
    Ratio("micro-batch 2 for 3", "OLMO-P04", "OLMO-P06"),
    Ratio("PP8 for PP4", "OLMO-P10", "OLMO-P11"),
    Ratio("128 for 64 experts, EP8", "OLMO-8L09", "OLMO-8L10"),
    Ratio("FSDP for DDP, 16 sequences", "OLMO-8L01", "OLMO-8L03", only_sign=True),
    Ratio("FSDP for DDP, 512 sequences", "OLMO-8L02", "OLMO-8L04", only_sign=True),
)
"""Pairs of the Olmo-core report, each with what it changes. Times count per sequence."""


def targets(rows: Sequence[Row], elapsed_s: float | None = None) -> list[Line]:
    """Every line that some row says something about.

    Parameters
    ----------
    rows
        Of a validation; those of the table that comes with moesim are meant.
    elapsed_s
        Time that all rows together took. [s]
    """
    lines = [*_step_times(rows), *_ratio_lines(rows), *_few(rows), *_memory(rows), *_whole(rows)]
    if elapsed_s is not None and rows:
        lines.append(Line("time of all rows", "under 10 s", f"{elapsed_s:.0f} s", len(rows), elapsed_s < 10))
    return [line for line in lines if line.count]


def _step_times(rows: Sequence[Row]) -> Iterator[Line]:
    for one in STEP_TIMES:
        errors = np.array([row.time_error for row in rows if row.time_error is not None and one.chosen(row)], float)
        if not len(errors):
            continue
        size = np.abs(errors)
        median, p90, bias = float(np.median(size)), float(np.quantile(size, 0.9)), float(np.median(errors))
        limits = ((one.median, median, "median"), (one.p90, p90, "p90"), (one.bias, abs(bias), "bias"))
        asked = [f"{name} {'within ' if name == 'bias' else '<= '}{limit:.0%}" for limit, _, name in limits if limit]
        met = all(value <= limit for limit, value, _ in limits if limit) if asked else None
        told = f"median {median:.1%}, p90 {p90:.1%}, bias {bias:+.1%}"
        yield Line(f"step: {one.name}", ", ".join(asked), told, len(errors), met)


@dataclass(frozen=True)
class Judged:
    """A ratio of the time per sequence, measured and predicted [-], and whether it is right."""

    ratio: Ratio
    measured: float
    predicted: float

    @property
    def right(self) -> bool:
        """On the same side of 1; where the measured one is within 3 % of it, as close; where only the sign counts, that."""
        if abs(self.measured - 1) < SMALL_EFFECT and not self.ratio.only_sign:
            return abs(self.predicted - 1) <= SMALL_EFFECT
        return (self.predicted > 1) == (self.measured > 1)


def ratios(rows: Sequence[Row]) -> list[Judged]:
    """Every pair of which both runs have a step time."""
    known = {row.run_id: row for row in rows if row.time_error is not None}
    found = []
    for one in RATIOS:
        before, after = known.get(one.before), known.get(one.after)
        if before is not None and after is not None:
            batches = before.global_batch / after.global_batch
            steps = [(row.measured_step_time_s or 0.0, row.predicted_step_time_s or 0.0) for row in (before, after)]
            measured, predicted = (batches * later / sooner for sooner, later in zip(*steps, strict=True))
            found.append(Judged(one, measured, predicted))
    return found


def _ratio_lines(rows: Sequence[Row]) -> Iterator[Line]:
    judged = ratios(rows)
    wrong = [one for one in judged if not one.right]
    told = f"{len(judged) - len(wrong)} of {len(judged)} right"
    if wrong:
        parts = (f"{one.ratio.name} {one.predicted - 1:+.1%} for {one.measured - 1:+.1%}" for one in wrong)
        told += "; wrong: " + ", ".join(parts)
    yield Line("Olmo-core ratios", "sign right; under 3 % within 3 %", told, len(judged), not wrong)


def _few(rows: Sequence[Row]) -> Iterator[Line]:
    timed = {row.run_id: row for row in rows if row.time_error is not None}
    pair = [timed[name] for name in ("KOR-001", "KOR-002") if name in timed]
    told = ", ".join(f"{row.time_error:+.1%}" for row in pair)
    met = all(abs(row.time_error or 0.0) <= 0.05 for row in pair)
    yield Line("step: KOR-001, KOR-002", "5 % each", told, len(pair), met)
    zero = [row for name, row in timed.items() if name.startswith("SC21-")]
    worst = max((abs(np.log1p(row.time_error or 0.0)) for row in zero), default=0.0)
    order = kendall(zero) if len(zero) > 1 else 1.0
    told = f"factor {np.exp(worst):.2f}, tau {order:.2f}"
    yield Line(
        "step: ZeRO-3 of 2021", f"order, factor {FACTOR}", told, len(zero), order == 1 and worst <= np.log(FACTOR)
    )


def _memory(rows: Sequence[Row]) -> Iterator[Line]:
    for kind in ("allocated", "reserved", "active"):
        size = np.abs(memory_errors(row for row in rows if row.memory_kind == kind))
        if not len(size):
            continue
        median, p90 = float(np.median(size)), float(np.quantile(size, 0.9))
        told, met = f"median {median:.1%}, p90 {p90:.1%}", median <= 0.05 and p90 <= 0.12
        yield Line(f"memory, {kind}", "median <= 5%, p90 <= 12%", told, len(size), met)
    fitting = [row for row in rows if row.status == "estimated" and not row.measured_oom]
    wrong = [row.run_id for row in fitting if row.predicted_oom]
    told = f"{len(wrong)}" + (f": {', '.join(sorted(wrong))}" if wrong else "")
    yield Line("runs that fitted, predicted not to", "none", told, len(fitting), not wrong)


def _whole(rows: Sequence[Row]) -> Iterator[Line]:
    taus = [order.tau for order in orders(rows)]
    told = f"median tau {np.median(taus):.2f}, least {min(taus):.2f}" if taus else ""
    yield Line("order of layouts", "median tau >= 0.8", told, len(taus), bool(taus) and float(np.median(taus)) >= 0.8)
    inside = [row.inside for row in rows if row.inside is not None]
    share = float(np.mean(inside)) if inside else 0.0
    yield Line("90 % intervals", "hold 85-95 %", f"{share:.1%}", len(inside), 0.85 <= share <= 0.95)
    expressible = [row for row in rows if not row.reason.startswith(INEXPRESSIBLE)]
    estimated = sum(row.status == "estimated" for row in expressible)
    share = estimated / max(len(expressible), 1)
    told = f"{share:.1%} ({estimated} of {len(expressible)})"
    yield Line("rows of expressible models estimated", ">= 95 %", told, len(expressible), share >= 0.95)
