r"""Corrections of collectives from measured tables.

Each collective is fitted alone, per scope: 2, 4 and 8 GPUs of a node, and across nodes. The parameters are the ratios of
:mod:`moesim.cost.collectives.nccl`, so their priors are 1: few rows change little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moesim.calibrate.fit import Parameter, fitted
from moesim.cost.collectives import collective_time
from moesim.cost.collectives.nccl import EAGER
from moesim.cost.machine import Group, Links
from moesim.traces.collective_table import Measured

Floats = NDArray[np.floating[Any]]
LOW, HIGH, FASTEST = 0.01, 50.0, 1.05
NODE_TERMS: dict[str, tuple[str, ...]] = {
    "all-gather": ("ring-ll", "ring-ll128", "ring-simple"),
    "reduce-scatter": ("ring-ll", "ring-ll128", "ring-simple"),
    "all-reduce": ("ring-ll", "ring-ll128", "ring-simple", "nvls-simple"),
    "all-to-all": ("pairwise-simple",),
    "send-recv": ("pairwise-simple",),
}
NET_TERMS: dict[str, tuple[str, ...]] = {
    "all-gather": ("ring-ll", "ring-ll128", "ring-simple", "pat-simple"),
    "reduce-scatter": ("ring-ll", "ring-ll128", "ring-simple", "pat-simple"),
    "all-reduce": ("ring-ll", "ring-ll128", "ring-simple", "tree-ll", "tree-ll128", "tree-simple", "nvlstree-simple"),
    "all-to-all": ("pairwise-simple",),
    "send-recv": ("pairwise-simple",),
}
ACROSS = ("net", "two")
MORE: dict[str, tuple[str, ...]] = {
    "all-to-all-pairwise-simple-net": ("half-bytes", "per-rank"),
    "all-reduce-nvls-simple-node": ("ramp-bytes",),
}
"""Terms that one algorithm has beside latency and bandwidth."""


@dataclass(frozen=True)
class Rows:
    """Measurements of one collective as columns. [B, s]"""

    collective: str
    size: Floats
    group: Group
    time: Floats

    def __len__(self) -> int:
        return len(self.size)


def rows_of(measured: Iterable[Measured], collective: str) -> Rows:
    """Rows of a collective that carry a time."""
    chosen = [row for row in measured if row.collective == collective and row.time is not None]
    ranks, per_node = (np.array([getattr(row, name) for row in chosen], dtype=float) for name in ("ranks", "per_node"))
    return Rows(
        collective,
        np.array([row.size for row in chosen], dtype=float),
        Group(ranks, per_node),
        np.array([row.time for row in chosen], dtype=float),
    )


def scope_of(row: Measured) -> str:
    """Scope of the corrections that price a row."""
    if row.nodes > 1:
        return "net" if row.nodes > 2 else "two"
    return "node" if row.ranks > 4 else "quad" if row.ranks > 2 else "pair"


def predicted(rows: Rows, links: Links, fits: Mapping[str, float] | None = None) -> Floats:
    """Times of rows, with corrections on top of those that the links have. [s]"""
    if fits:
        links = replace(links, fits=dict(links.fits) | dict(fits))
    return np.asarray(collective_time(rows.collective, rows.size, rows.group, links), dtype=float)


def parameters_of(collective: str, scope: str, links: Links) -> list[Parameter]:
    """Corrections of a collective in a scope, the important ones first; a reduce-scatter starts as its mirror."""
    found: list[tuple[int, str, float]] = []
    for way in (NET_TERMS if scope in ACROSS else NODE_TERMS)[collective]:
        if (not links.nvls and "nvls" in way) or ("nvls-" in way and scope != "node"):
            continue
        if scope in ACROSS and "ll128" in way and not links.nccl.ll128_net:
            continue
        name, simple = f"{collective}-{way}-{scope}", "simple" in way
        rank = 0 if simple and not (links.nvls and way == "ring-simple" and collective == "all-reduce") else 3
        rank = 1 if way.endswith("-ll") else rank
        found += [(rank, f"{name}-latency", 1.2), (rank, f"{name}-bandwidth", 0.3)]
        if scope not in ACROSS and simple and collective != "send-recv":
            found.append((rank, f"{name}-ramp", 1.5))
        if simple and ("ring" in way or (collective == "all-to-all" and scope not in ACROSS)):
            found.append((rank, f"{name}-norm", 0.8))
        if scope in ACROSS and way.endswith("-ll") and EAGER in links.fits:
            found.append((rank, f"{name}-late", 0.8))
        found += [(rank, f"{name}-{term}", 0.8) for term in MORE.get(name, ())]
    found.sort(key=lambda one: one[0])
    mirror = {"reduce-scatter": "all-gather"}.get(collective, collective)

    def prior(name: str) -> float:
        names = (name, name.replace("-two-", "-net-"), name.replace(collective, mirror, 1))
        return next((float(links.fits[one]) for one in names if one in links.fits), 1.0)

    return [
        Parameter(name, max(prior(name), low), low, high, spread)
        for _, name, spread in found
        for low, high in (bounds(name),)
    ]


def bounds(name: str) -> tuple[float, float]:
    """Bounds of a correction: rings and messages cannot be faster than their wires."""
    if name.endswith(("-norm", "-late")):
        return 1.001, 4.0
    across = "-net-" in name or "-two-" in name
    if name.endswith("-bandwidth") and "tree" not in name and (across or "-ring-simple-" in name):
        return LOW, FASTEST
    return LOW, HIGH


def fit_scope(rows: Rows, scope: str, links: Links, *, starts: int = 3, seed: int = 0) -> dict[str, float]:
    """Corrections of one collective in one scope.

    Where NCCL leaves LL128 before Simple is faster, the size at which it does is tried among the measured sizes.
    """
    if rows.collective == "all-to-all" and scope == "two":  # priced as among more nodes
        return {}
    parameters = parameters_of(rows.collective, scope, links)

    early = {f"{rows.collective}-ring-simple-{scope}-latency": 5.0, f"{rows.collective}-ring-simple-{scope}-norm": 2.0}
    # where NCCL leaves LL128 early, Simple starts slowly: the search begins there

    def solve(fixed: Mapping[str, float], starts: int) -> tuple[float, dict[str, float]]:
        begin = [replace(one, prior=early.get(one.name, one.prior)) for one in parameters] if fixed else parameters
        fit = fitted(
            lambda values: predicted(rows, links, {**values, **fixed}),
            rows.time,
            begin,
            what=f"{rows.collective} ({scope})",
            starts=starts,
            seed=seed,
            max_evaluations=40,
            per_parameter=1.3,
            noise=NOISE,
        )
        return fit.costs[0], {**fit.values, **fixed}

    best, values = solve({}, starts)
    mirror = links.fits.get(f"all-gather-ring-ll128-{scope}-most")
    name = f"{rows.collective}-ring-ll128-{scope}-most"
    if any("ll128" in parameter.name for parameter in parameters):
        sizes = (1.42 * np.unique(rows.size[(rows.size >= 1e6) & (rows.size < rows.size.max() / 4)])).tolist()
        for size in [mirror, *sizes] if mirror else sizes:
            cost, tried = solve({name: size}, 1)
            if cost < SWITCH * best:
                best, values = cost, tried
    values = told_by_rows(rows, links, values, {one.name: one.prior for one in parameters})
    return {name: value for name, value in values.items() if abs(value / before(name, links) - 1) > UNMOVED}


def told_by_rows(
    rows: Rows, links: Links, values: Mapping[str, float], priors: Mapping[str, float]
) -> dict[str, float]:
    """Corrections without those that no row tells: they go back to their prior where no prediction changes by that."""
    kept = dict(values)
    times = predicted(rows, links, kept)
    for name, prior in priors.items():
        tried = predicted(rows, links, {**kept, name: prior})
        if np.abs(np.log(tried / times)).max() < UNSEEN:
            kept[name] = prior
    return kept


def before(name: str, links: Links) -> float:
    """Value that prices take for a correction so far: a scope without one takes that of a larger one."""
    names = (name, name.replace("-two-", "-net-"), name.replace("-pair-", "-node-").replace("-quad-", "-node-"))
    return next((float(links.fits[one]) for one in names if one in links.fits), default(name))


def default(name: str) -> float:
    """Value of a correction that changes nothing; a limit of sizes always changes something."""
    return 1e-9 if name.endswith("-most") else 1.0


UNMOVED = 0.0015
"""Corrections that stay that close to 1 are not kept. [-]"""
UNSEEN = 0.002
"""Change of a prediction that no row tells from noise. [-]"""
FEWEST = 6
"""Rows of one collective in one scope that a fit needs."""
NOISE = 0.03
"""Spread of a good row. [-]"""
SWITCH = 0.9
"""A size at which NCCL leaves LL128 is believed where it takes the misfit down to this share."""


def fit_collectives(
    measured: Sequence[Measured], links: Links, scopes: Sequence[str], *, fewest: int = FEWEST, seed: int = 0
) -> dict[str, float]:
    """Corrections of all collectives with enough rows, in the scopes asked for."""
    found: dict[str, float] = {}
    for scope in scopes:
        inside = [row for row in measured if scope_of(row) == scope]
        for collective in NODE_TERMS:
            rows = rows_of(inside, collective)
            if len(rows) >= fewest:
                found |= fit_scope(rows, scope, replace(links, fits=dict(links.fits) | found), seed=seed)
    return found | hidden_rings(found, links)


def hidden_rings(found: Mapping[str, float], links: Links) -> dict[str, float]:
    """Corrections of the ring all-reduce on a whole node, which no row shows where NVLS is faster: those of the all-gather."""
    if not links.nvls or "all-reduce-nvls-simple-node-latency" not in found:
        return {}
    return {
        name.replace("all-gather", "all-reduce", 1): value
        for name, value in found.items()
        if name.startswith(("all-gather-ring-simple-node", "all-gather-ring-ll128-node"))
    }
