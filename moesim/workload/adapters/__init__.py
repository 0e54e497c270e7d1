"""Adapters: a few trained parameters beside frozen weights; one file each, found by name.

Frozen weights keep no gradient, no main copy and no moments, and their weight-gradient products disappear. An adapter
touches training state, saved activations, products, the messages about gradients and the model FLOPs of a token.
"""

from dataclasses import dataclass

from moesim.base.registry import Registry


@dataclass(frozen=True)
class Adapter:
    """What an adapter is made of.

    Attributes
    ----------
    beside
        It stands beside each chosen matrix as two of rank r; otherwise one bottleneck of width r follows each layer.
    frozen_bytes
        Bytes of a parameter in a frozen matrix, scales included, where that is not the dtype of the weights; such a
        matrix is brought back to BF16 before each product. [B]
    """

    beside: bool = True
    frozen_bytes: float | None = None


adapters: Registry[Adapter] = Registry("adapter", package="moesim.workload.adapters", entry_points="moesim.adapters")

TARGETS = ("attention", "linear")
"""Matrices that adapters stand beside: those of attention, or every one of a layer but the router."""


def parse_adapter(name: str) -> tuple[str, int | None]:
    """Name of an adapter and its rank.

    Examples
    --------
    >>> parse_adapter("lora:8"), parse_adapter("none")
    (('lora', 8), ('none', None))
    """
    base, colon, rank = name.partition(":")
    return (base, int(rank)) if colon and rank.isdigit() else (name, None)
