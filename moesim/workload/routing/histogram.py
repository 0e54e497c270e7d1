"""A measured histogram: rows of each expert, in the order in which the experts sit on the ranks."""

import numpy as np

from moesim.workload.routing import Popularity, Routing, routings


def histogram(argument: str, num_experts: int) -> Popularity:
    """Rows of each expert as listed, ``5,3,1,...``. [-]"""
    parts = [part for part in argument.replace(";", ",").split(",") if part.strip()]
    try:
        rows = np.array([float(part) for part in parts])
    except ValueError:
        raise ValueError("a histogram is a list of numbers, one for each expert") from None
    if len(rows) != num_experts:
        raise ValueError(f"a histogram of {len(rows)} numbers for {num_experts} experts")
    if not np.isfinite(rows).all() or (rows < 0).any() or not rows.sum() > 0:
        raise ValueError("rows of experts are 0 or more, and not all 0")
    return rows


routings.add(
    "histogram",
    Routing(histogram, "rows of each expert, or a file with them", shuffled=False),
    summary="histogram:FILE or a list, measured rows of each expert in the order of the ranks.",
    source="olmo-core-report",
)
