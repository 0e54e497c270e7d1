"""How the router spreads tokens over the experts: one file each, found by name.

``balanced``, ``random``, ``natural`` and ``capacity`` say nothing about single experts: the strategy's ``rank_imbalance``
and ``capacity_factor`` say what the slowest rank gets. The others are laws of popularity, written ``zipf:1.0``: each
expert has its share of the rows, and what a rank gets follows from the experts that it holds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moesim.base.registry import Registry

Popularity = NDArray[np.float64]


@dataclass(frozen=True)
class Routing:
    """What a routing declares.

    Attributes
    ----------
    popularity
        Relative rows of each expert for an argument and a number of experts; a `ValueError` says what is wrong with the
        argument. None where nothing is said about single experts.
    argument
        What stands behind the colon, for messages.
    shuffled
        Experts sit on ranks in an order that has nothing to do with their popularity; else in the order of the list.
    """

    popularity: Callable[[str, int], Popularity] | None = None
    argument: str = ""
    shuffled: bool = True


routings: Registry[Routing] = Registry("routing", package="moesim.workload.routing", entry_points="moesim.routing")


def parse(text: str) -> tuple[str, str]:
    """Name of a routing and its argument.

    Examples
    --------
    >>> parse("zipf:1.2"), parse("balanced")
    (('zipf', '1.2'), ('balanced', ''))
    """
    name, _, argument = text.partition(":")
    return name, argument


def has_law(text: str) -> bool:
    """Whether a routing, of any name, says how popular each expert is."""
    name = parse(text)[0]
    return name in routings and routings.get(name).popularity is not None


def problem(text: str, num_experts: int) -> str:
    """What is wrong with the argument of a known routing; empty where nothing is."""
    name, argument = parse(text)
    routing = routings.get(name)
    if routing.popularity is None:
        return f"{name} takes no argument" if argument else ""
    try:
        routing.popularity(argument, num_experts)
    except ValueError as error:
        return str(error)
    return ""


def popularity(text: str, num_experts: int) -> Popularity:
    """Rows of each expert over the mean, for a routing with a law. (experts,) [-]"""
    name, argument = parse(text)
    law = routings.get(name).popularity
    if law is None:
        raise ValueError(f"routing {name} has no law")
    rows = law(argument, num_experts)
    return np.asarray(rows / rows.mean())


def exponent(argument: str, least: float) -> float:
    """The exponent of a law."""
    try:
        value = float(argument)
    except ValueError:
        raise ValueError(f"'{argument}' is no exponent") from None
    if not least <= value <= 10:
        raise ValueError(f"an exponent of {value:g} is outside of {least:g} to 10")
    return value
