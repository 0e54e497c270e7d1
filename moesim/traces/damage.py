"""What is wrong with a file: defects by name with their number and the place of the first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Damage:
    """Defects of a file that were repaired or left out.

    Attributes
    ----------
    counts
        How often each defect was met.
    first
        Where each was met first, as an offset in the file (decompressed where it is gzip). [B]
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)

    def note(self, what: str, offset: int | None = None, count: int = 1) -> None:
        """Count a defect."""
        if count <= 0:
            return
        self.counts[what] += count
        if offset is not None:
            self.first.setdefault(what, offset)

    def note_all(self, names: list[str], offset: int) -> None:
        """Count several defects of one place."""
        for name in names:
            self.note(name, offset)
