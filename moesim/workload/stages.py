"""Which layers sit in which pipeline stage.

A *stage* is one model chunk; a rank holds ``vpp`` of them. The result lists stages in model order; a schedule says on
which rank each stage sits.
"""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from moesim.base.errors import Violation

COUNT_ENDS = "count-embedding-and-loss"
FIRST_LARGER = "first-stages-larger"
EVEN = "even"


@dataclass(frozen=True)
class Stage:
    """One model chunk: its layers and MTP modules, and whether the embedding or the loss is in it."""

    first_layer: int
    num_layers: int
    embedding: bool = False
    loss: bool = False
    mtp: int = 0

    @property
    def layers(self) -> range:
        """Indices of its layers."""
        return range(self.first_layer, self.first_layer + self.num_layers)


@lru_cache(maxsize=4096)
def place_layers(
    num_layers: int, num_stages: int, layout: str | tuple[int, ...], mtp: int = 0
) -> tuple[Stage, ...] | Violation:
    """Return the stages of a layout, or why it does not fit.

    Parameters
    ----------
    num_layers, num_stages, mtp
        Decoder layers; stages = pp * vpp; multi-token-prediction modules, which follow the last layer. [-]
    layout
        ``even``: the same number of layers in each stage. ``count-embedding-and-loss``: embedding, loss and each
        MTP module count as one layer; counts round up and the gap stays in the last stage (Megatron-Core
        ``account_for_embedding_in_pipeline_split`` and ``..._loss_...``). ``first-stages-larger``: the remainder goes to the first stages. A tuple: layers of each stage. A string
        such as ``Et*3|(tt|)*14tL``: Megatron-Core ``pipeline_model_parallel_layout``.
    """
    if isinstance(layout, tuple):
        return _from_counts(layout, num_layers, num_stages, mtp)
    if layout == EVEN:
        if num_layers % num_stages:
            return Violation(
                "layers-per-stage",
                f"{num_layers} layers do not divide over {num_stages} stages (pp*vpp)",
                f"pp*vpp in {_divisors(num_layers)}, or layout: {COUNT_ENDS}, layers per stage as a list, or a Megatron "
                "layout string",
            )
        return _from_counts((num_layers // num_stages,) * num_stages, num_layers, num_stages, mtp)
    if layout == FIRST_LARGER:
        least, more = divmod(num_layers, num_stages)
        counts = tuple(least + (stage < more) for stage in range(num_stages))
        return _from_counts(counts, num_layers, num_stages, mtp)
    if layout == COUNT_ENDS:
        return _count_ends(num_layers, num_stages, mtp)
    return _from_string(layout, num_layers, num_stages, mtp)


def _divisors(count: int) -> str:
    return ", ".join(str(part) for part in range(1, count + 1) if count % part == 0)


def _count_ends(num_layers: int, num_stages: int, mtp: int) -> tuple[Stage, ...] | Violation:
    if num_stages == 1:
        return _from_counts((num_layers,), num_layers, 1, mtp)
    units = math.ceil((num_layers + 2 + mtp) / num_stages)
    counts = [units - (stage == 0) for stage in range(num_stages - 1)]
    last = num_layers - sum(counts)
    if not 0 <= last <= units - 1 - mtp:
        return Violation(
            "layers-per-stage",
            f"{num_layers} layers, embedding, loss and {mtp} MTP modules rounded up to {units} a stage leave {last} for the last of "
            f"{num_stages} stages",
            "fewer stages, or layers per stage as a list",
        )
    return _from_counts((*counts, last), num_layers, num_stages, mtp)


def _from_counts(
    counts: tuple[int, ...], num_layers: int, num_stages: int, mtp: int, mtp_at: dict[int, int] | None = None
) -> tuple[Stage, ...] | Violation:
    if len(counts) != num_stages or sum(counts) != num_layers or min(counts) < 0:
        return Violation(
            "layers-per-stage",
            f"layout {list(counts)} has {len(counts)} stages and {sum(counts)} layers",
            f"{num_stages} counts >= 0 (pp*vpp) that add up to {num_layers}",
        )
    firsts = [0, *accumulate(counts[:-1])]
    modules = {num_stages - 1: mtp} if mtp_at is None else mtp_at
    return tuple(
        Stage(first, count, stage == 0, stage == num_stages - 1, modules.get(stage, 0))
        for stage, (first, count) in enumerate(zip(firsts, counts, strict=True))
    )


def _from_string(layout: str, num_layers: int, num_stages: int, mtp: int) -> tuple[Stage, ...] | Violation:
    expanded = expand_layout(layout)
    chunks = expanded.split("|")
    wrong = sorted(set(expanded) - set("EtmL|"))
    modules = f", {mtp} m behind them" if mtp else ""
    legal = f"{num_stages} chunks (pp*vpp) with E first, {num_layers} t{modules} and L last, as in Et*3|(tt|)*14tL"
    if wrong:
        return Violation("layers-per-stage", f"layout '{layout}' has unknown symbols {' '.join(wrong)}", legal)
    flat = expanded.replace("|", "")
    ends = "E" in chunks[0] and "L" in chunks[-1]
    if len(chunks) != num_stages or flat != "E" + "t" * num_layers + "m" * mtp + "L" or not ends:
        return Violation(
            "layers-per-stage",
            f"layout '{layout}' has {len(chunks)} chunks, {flat.count('t')} layers and {flat.count('m')} MTP modules",
            legal,
        )
    at = {index: chunk.count("m") for index, chunk in enumerate(chunks)}
    return _from_counts(tuple(chunk.count("t") for chunk in chunks), num_layers, num_stages, mtp, at)


def expand_layout(layout: str) -> str:
    """Expand the repetitions of a Megatron-Core layout string: ``(tt|)*2`` and ``t*3``."""
    expanded = layout.replace(" ", "").replace(",", "")
    pattern = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z|])\*(\d+)")
    while match := pattern.search(expanded):
        body, times = (match[1], match[2]) if match[1] is not None else (match[3], match[4])
        expanded = expanded[: match.start()] + body * int(times) + expanded[match.end() :]
    return expanded
