"""Write docs/accuracy_budget.md and its figure: ``python docs/make_accuracy_budget.py``.

``docs/make_accuracy.py`` does it too, with the validation that it makes anyway.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from accuracy_runs import validation
from accuracy_stamp import stamp
from refresh import table

from moesim.report.error_budget import budget_columns, budget_figure, sensitivity_columns
from moesim.studies.error_budget import GROUPS, OVERLAP_SPREAD, SKEW_SPREAD, budget_table, largest
from moesim.studies.validate import Row

PAGE = Path(__file__).with_name("accuracy_budget.md")
FIGURE = PAGE.parent / "figures" / "error_budget.svg"
TEXT = """# Where the error comes from

Written by `make accuracy` on {date}, for the calibrations of `stamp {stamp}`. `moesim validate --budget` prints the same tables.

![One standard error of a step by family, in parts](figures/error_budget.svg)

Each bar is one standard error of a step of that family, in parts by their share of the variance. The tick is what was found: the
root of the mean square of the logarithm of predicted over measured time, each run judged by constants that have not seen its
group. Grey is what the parts do not explain.

## One standard error of a step

{errors}

How each is made:

- **kernels, power, messages, host**: the interval of each estimate, [as explained there](design.md#reading-the-answer): prices of a family of
  kernels or collectives off together by the residuals of their calibration, and constants without one off by a spread for
  their kind of evidence.
- **overlap**: a step with and without every overlap that the run has; a run may miss {overlap} of the gain. Assumed.
- **skew**: where the router decides, the load of the hottest rank is off by {skew} (assumed), times the elasticity of the step.
- **unknown fields**: what fields that the run does not print may move a step, over their legal alternatives, all as likely.
- **together** in quadrature; **found** beside it. Where more is expected than found, the spreads of constants are too wide.

## Sensitivity

What a step moves by. Kernels, messages and host: their share of the busy critical path, which is the elasticity on all their
prices together. Overlap: logarithm of the step without it over the step. Skew: elasticity on the hottest rank's load.

{sensitivity}

## Largest part by family

{largest}
"""


def write(rows: Sequence[Row]) -> None:
    """Write the page and the figure for the rows of a validation with budgets."""
    known = budget_table(rows)
    budget_figure(known, FIGURE)
    parts = [
        [str(one["family"]), largest({name: one["errors"][name] for name in GROUPS} | {"not explained": one["left"]})]
        for one in known
    ]
    text = TEXT.format(
        date=f"{date.today():%Y-%m-%d}",
        stamp=stamp(),
        errors=table(*budget_columns(known)),
        sensitivity=table(*sensitivity_columns(known)),
        largest=table(["family", "largest part"], parts, left=2),
        overlap=f"{100 * OVERLAP_SPREAD:.0f} %",
        skew=f"{100 * SKEW_SPREAD:.0f} %",
    )
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(validation(os.cpu_count() or 1)[0])
