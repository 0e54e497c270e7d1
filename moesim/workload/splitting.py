"""A backward in two parts: what the stage below waits for (B), and the weight gradients, which can wait (W)."""

from dataclasses import replace

from moesim.base.numeric import Numeric
from moesim.workload.ops import Op


def split_backward(ops: tuple[Op, ...]) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """Operations of B and of W, each in their order; no operation is lost or repeated.

    What waited for a weight gradient waits for what that one waited for. The gradient of the embedding stays in B: the
    stage that has it is the last to run backward, so nobody waits for it.

    References
    ----------
    qi2024, section 2
    """
    stands_for: dict[str, tuple[str, ...]] = {}
    before: tuple[str, ...] = ()
    inputs: list[Op] = []
    weights: list[Op] = []
    moved = False
    for op in ops:
        needs = _replaced(op.needs, stands_for)
        if op.held_bytes is None:
            beside = op.beside and not moved  # beside what is no longer there
            inputs.append(replace(op, needs=needs, beside=beside))
            before, moved = (op.name,), False
        else:
            stands_for[op.name] = needs or before
            own = {weight.name for weight in weights}
            weights.append(replace(op, needs=tuple(name for name in op.needs if name in own)))
            moved = True
    return tuple(inputs), tuple(weights)


def _replaced(needs: tuple[str, ...], stands_for: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    found: list[str] = []
    for name in needs:
        found.extend(other for other in stands_for.get(name, (name,)) if other not in found)
    return tuple(found)


def waiting_bytes(ops: tuple[Op, ...]) -> Numeric:
    """Inputs and output gradients that wait for the weight gradients of a split backward. [B]

    Notes
    -----
    An input that two products share is counted for each.
    """
    return sum((op.held_bytes for op in ops if op.held_bytes is not None), 0.0)
