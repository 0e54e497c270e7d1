"""``moesim collective --pxn``: a collective with and without PXN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from moesim.base.errors import SpecError
from moesim.cli import grammar
from moesim.studies import collective_health as health
from moesim.studies.collectives import Setting, shown
from moesim.studies.rails import Railed, railed

WORDS = {"on": True, "off": False}


def asked(text: str) -> list[bool]:
    """Return the ways of a list of ``on`` and ``off``."""
    words = [word.lower() for word in grammar.values(text)]
    if not words or any(word not in WORDS for word in words):
        raise SpecError.single("--pxn", "", f"'{text}' is not on or off", "write --pxn on,off")
    return [WORDS[word] for word in dict.fromkeys(words)]


def deliver(
    name: str,
    size: float,
    at: tuple[str, str | None, tuple[Path, ...]],
    pxn: str,
    measured: tuple[str | None, Setting],
    ways: tuple[bool, Path | None],
) -> None:
    """Print a collective in each way.

    Parameters
    ----------
    name, size
        The collective and its size [B].
    at
        The cluster, the fabric and the user's own calibrations.
    pxn
        The ways.
    measured
        A busbw or a time, and the setting that it is judged in.
    ways
        As JSON, and to which file.
    """
    found = railed(name, size, *at[:2], asked(pxn), at[2])
    plain: dict[str, Any] = {"cases": [one.to_dict() for one in found]}
    priced = [one for one in found if one.price is not None]
    if len(priced) == 2 and priced[0].price and priced[1].price:
        plain["ratio"] = priced[1].price.time / priced[0].price.time
    text, where = measured
    if text is not None:
        expected = next((one.price for one in priced), None)
        if expected is None:
            raise SpecError.single("--measured", "", "nothing is priced to judge it by", "--pxn on, or another fabric")
        time = health.measured_time(text, name, size, expected.group)
        plain |= health.verdict(expected, time, where)
    grammar.deliver(plain, _table(found), *ways)


def _table(found: tuple[Railed, ...]) -> Table:
    tiers = list(dict.fromkeys(tier for one in found for tier in one.tier_bytes))
    table = Table()
    for column in ("PXN", "time", "90 %", "busbw", "bound by", "crosses rails", *(f"into {tier}" for tier in tiers)):
        table.add_column(column)
    for one in found:
        word = "on" if one.pxn else "off"
        if one.price is None:
            table.add_row(word, "refused", one.refused)
            continue
        low, high = shown(one.price.low, "time"), shown(one.price.high, "time")
        cells = (shown(one.tier_bytes.get(tier, 0.0), "bytes") for tier in tiers)
        crosses = "yes" if one.crosses_rails else "no"
        busbw = shown(one.price.busbw, "rate")
        table.add_row(
            word, shown(one.price.time, "time"), f"{low} to {high}", busbw, one.price.binding, crosses, *cells
        )
    return table
