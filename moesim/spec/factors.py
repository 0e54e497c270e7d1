"""Numbers of the hardware and software changed by a factor: ``gpu.memory_bandwidth=x1.2``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from moesim.base.errors import Collector, did_you_mean
from moesim.base.units import DIMENSIONS
from moesim.spec.overrides import HARDWARE_PREFIXES
from moesim.spec.provenance import Sourced

_FACTOR = re.compile(r"x(\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+)")


def factor_of(value: Any) -> float | None:
    """Return the factor that a value is written as, None where it is none. [-]

    Examples
    --------
    >>> factor_of("x1.2"), factor_of("4 TB/s"), factor_of(2)
    (1.2, None, None)
    """
    found = _FACTOR.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(found[1]) if found else None


def of_the_transport(changes: Mapping[str, Any], transport: str) -> dict[str, Any]:
    """Return changes with ``transport.num_sms`` as that of the expert transport that is used after them.

    Parameters
    ----------
    changes
        Path to value.
    transport
        The expert transport in use where the changes name none.

    Examples
    --------
    >>> of_the_transport({"transport": "deepep-v2", "transport.num_sms": 6}, "deepep")
    {'transport': 'deepep-v2', 'transports.deepep-v2.num_sms': 6}
    """
    used = changes.get("strategy.transport", changes.get("transport", transport))
    start = "transport."
    return {
        f"transports.{used}.{path.removeprefix(start)}" if path.startswith(start) else path: value
        for path, value in changes.items()
    }


def without_factors(changes: Mapping[str, Any], numbers: Mapping[str, Sourced], where: str) -> dict[str, Any]:
    """Return changes with each factor replaced by the number it makes of the one in use.

    Parameters
    ----------
    changes
        Path to value, as :func:`moesim.spec.overrides.with_overrides` takes them.
    numbers
        Every sourced number in use, by its path.
    where
        Option that the changes came from, for messages.

    Raises
    ------
    SpecError
        With one issue for each factor on something that is no number of the hardware or software.
    """
    problems = Collector()
    found = dict(changes)
    for path, value in changes.items():
        factor = factor_of(value)
        if factor is None or path.partition(".")[0] not in HARDWARE_PREFIXES:
            continue
        number = numbers.get(path) or numbers.get(_with_constants(path))
        if number is None:
            known = [key.replace(".constants.", ".") if key.startswith("transports.") else key for key in numbers]
            problems.add(f"{where} {path}", "", f"nothing called '{path}' has a number", did_you_mean(path, known))
            continue
        unit = f" {DIMENSIONS[number.dimension].si}" if number.dimension else ""
        found[path] = f"{number.value * factor!r}{unit}"
    problems.raise_if_any()
    return found


def _with_constants(path: str) -> str:
    first, _, rest = path.partition(".")
    name, _, constant = rest.partition(".")
    return f"{first}.{name}.constants.{constant}"
