"""What an answer hangs on: elasticities, and the swings of what is uncertain."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from moesim.intervals import listed
from moesim.report.estimate import seconds
from moesim.result import Contribution, Estimate
from moesim.spec.calibration import NORMAL_95

LEAST = 0.0005
"""Elasticity below which a constant is not listed."""


def swings(answer: Estimate, top: int) -> list[tuple[Contribution, float, float]]:
    """Steps at the ends of the 90 % interval of each thing that is uncertain, the others held; widest first. [s]"""
    found = []
    for one in sorted(listed(answer.interval), key=lambda one: -abs(one.log_error))[:top]:
        factor = math.exp(NORMAL_95 * abs(one.log_error))
        found.append((one, answer.step_time_s / factor, answer.step_time_s * factor))
    return found


def sensitivity_data(answer: Estimate, top: int) -> dict[str, Any]:
    """Plain values in SI units."""
    return {
        "step_time_s": answer.step_time_s,
        "low_s": answer.low_s,
        "high_s": answer.high_s,
        "elasticities": [dict(vars(one)) for one in answer.constants[:top]],
        "swings": [
            {"name": one.name, "evidence": one.evidence, "low_s": low, "high_s": high, "share": one.share}
            for one, low, high in swings(answer, top)
        ],
    }


def sensitivity_table(answer: Estimate, top: int) -> RenderableType:
    """Constants by elasticity, then what is uncertain by its swing."""
    moved = Table(title=f"{answer.name}: step {seconds(answer.step_time_s)}; what moves it", title_justify="left")
    for column in ("constant", "1 % more moves the step by", "evidence", "source"):
        moved.add_column(column, justify="right" if "%" in column else "left", overflow="fold")
    for one in [constant for constant in answer.constants if abs(constant.elasticity) >= LEAST][:top]:
        moved.add_row(Text(one.setting or one.path), f"{one.elasticity:+.3f} %", one.kind, one.source)
    unsure = Table(title="what is not known well: the step at the ends of its 90 % interval", title_justify="left")
    for column in ("", "low", "high", "of the variance", "evidence"):
        unsure.add_column(column, justify="left" if column in ("", "evidence") else "right")
    for what, low, high in swings(answer, top):
        unsure.add_row(Text(what.name), seconds(low), seconds(high), f"{what.share:.1%}", what.evidence)
    return Group(moved, unsure)
