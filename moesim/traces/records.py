"""What a measurement file without a timeline holds: records as plain values, and counts of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Records:
    """Records of one file.

    Attributes
    ----------
    source, format
        File and the name of its reader.
    records
        Plain values, the unit in the key.
    counts
        What there is how often.
    repaired, first
        Defects that were repaired or left out, and the offset of the first of each.
    """

    source: str
    format: str
    records: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int]
    repaired: Mapping[str, int] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)
