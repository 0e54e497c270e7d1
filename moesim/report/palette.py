"""Names and colours of what is drawn: blue computes, orange moves, green updates, grey waits.

Blue against orange is the pair that every common kind of colour blindness keeps apart; within a family only the
lightness changes, and no picture relies on colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from moesim.report.estimate import NAMES


@dataclass(frozen=True)
class Family:
    """Terms that belong together, with their colours from dark to pale."""

    name: str
    colours: dict[str, str]


BLUES = ("#2b6cb0", "#5a9bd4", "#93c4e8", "#c9e1f3")
ORANGES = ("#c4500a", "#e98432", "#f5ad6e", "#fad3ad", "#9a6b3f", "#c9a888")
TERMS = (
    Family("computing", dict(zip(("gemm", "grouped_gemm", "attention", "memory_bound"), BLUES, strict=True))),
    Family("moving data", dict(zip(("ep", "tp", "cp", "pp", "dp", "pcie"), ORANGES, strict=True))),
    Family("optimizer", {"optimizer": "#1d8f6b"}),
    Family("waiting", {"host": "#6f6f6f", "bubble": "#b4b4b4", "other": "#dcdcdc"}),
)
"""Terms of a step."""
CLASSES = (
    Family(
        "model state",
        {"weights": BLUES[0], "gradients": BLUES[1], "optimizer": BLUES[2], "unsharded": BLUES[3], "update": "#3f8fa8"},
    ),
    Family("activations", {"activations": ORANGES[0], "logits": ORANGES[1], "workspace": ORANGES[2]}),
    Family("exchange of experts", {"transport": "#1d8f6b"}),
    Family("runtime", {"slack": "#b4b4b4", "context": "#8c8c8c", "nccl": "#6f6f6f"}),
)
"""Classes of memory."""
BAD = "#b3261e"
"""What does not fit."""

TERM_COLOURS = {term: colour for family in TERMS for term, colour in family.colours.items()}
CLASS_COLOURS = {name: colour for family in CLASSES for name, colour in family.colours.items()}
SHORT_NAMES = {term: name.partition(" (")[0] for term, name in NAMES.items()}
CLASS_NAMES = {
    "unsharded": "gathered weights",
    "update": "optimizer's update",
    "transport": "transport buffers",
    "slack": "allocator's slack",
    "context": "CUDA context",
    "nccl": "NCCL",
}
"""Classes of memory whose name is not its own explanation."""


def family_of(term: str) -> str:
    """Family of a term of the step."""
    return next(family.name for family in TERMS if term in family.colours)


def class_name(name: str) -> str:
    """Class of memory as people read it."""
    return CLASS_NAMES.get(name, name)
