"""Compression of gradients on the wire, where replicas reduce them once a step; one file each, found by name.

A compression touches the messages about gradients, the HBM traffic around them and the buffers that it needs.
"""

from dataclasses import dataclass

from moesim.base.registry import Registry


@dataclass(frozen=True)
class Compression:
    """How gradients travel.

    Attributes
    ----------
    wire_bytes
        Bytes of a value on the wire, where they are cast. [B]
    low_rank
        Matrices travel as two factors of a rank that the name gives, and what they leave out is added to the next
        step's gradients (error feedback).
    """

    wire_bytes: float | None = None
    low_rank: bool = False


compressions: Registry[Compression] = Registry(
    "gradient compression", package="moesim.workload.compression", entry_points="moesim.compression"
)


def parse_compression(name: str) -> tuple[str, int | None]:
    """Name of a compression and its rank.

    Examples
    --------
    >>> parse_compression("powersgd:4"), parse_compression("fp16")
    (('powersgd', 4), ('fp16', None))
    """
    base, colon, rank = name.partition(":")
    return (base, int(rank)) if colon and rank.isdigit() else (name, None)
