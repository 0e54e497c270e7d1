"""Rules of context parallelism: how the ranks share a sequence."""

from __future__ import annotations

import numpy as np

from moesim.rules import Candidate, Rule, divides, shown


def _padded(c: Candidate) -> int:
    """Length of a sequence that is padded until a ring can cut it. [tokens]"""
    pieces = int(2 * c.strategy.cp)
    return -(-c.sequence_length // pieces) * pieces


SEQUENCE_RULES = (
    Rule(
        "ring-pieces",
        ("cp",),
        lambda c: np.logical_or(
            c.strategy.cp_kind != "ring",
            np.logical_or(np.equal(c.strategy.cp, 1), divides(c.sequence_length, 2 * c.strategy.cp)),
        ),
        lambda c: (
            f"a ring gives each rank two pieces of a sequence, one from each end of the mask: 2*cp = "
            f"{shown(2 * c.strategy.cp)} does not divide sequences of {c.sequence_length}; padded to "
            f"{_padded(c):,} tokens, {_padded(c) - c.sequence_length} of them empty, they would"
        ),
    ),
    Rule(
        "ulysses-heads",
        ("cp",),
        lambda c: np.logical_or(
            c.strategy.cp_kind != "ulysses",
            divides(c.model.layers[-1].attention.num_heads, c.strategy.tp * c.strategy.cp),
        ),
        lambda c: (
            f"ulysses exchanges heads: tp*cp = {shown(c.strategy.tp * c.strategy.cp)} does not divide "
            f"{c.model.layers[-1].attention.num_heads} attention heads"
        ),
    ),
)
