"""The eight steps of DualPipe and DualPipeV: two flows of micro-batches meet on every rank."""

from __future__ import annotations

from moesim.timeline.schedule import Op, Slot
from moesim.timeline.zero_bubble import Counting


def dual_program(
    flows: tuple[int, int], first: dict[int, int], place: int, length: int, steady: int, middle: bool
) -> list[Slot]:
    """Program of one rank.

    Parameters
    ----------
    flows
        Its stages: of the flow that starts near it, and of the other one.
    first
        First micro-batch of each stage; 0 where left out.
    place, length
        How far the rank is from where its flow starts, and how many ranks lie from there to where the flows meet.
    steady
        Repetitions of the pairs in the middle of the program.
    middle
        Whether the flows meet here: the first pair is then not run as one.

    References
    ----------
    dualpipe, ``dualpipe.py`` and ``dualpipev.py``: steps 1 to 8
    """
    near, far = flows
    left = length - place - 1
    run = Counting(first)
    run.add(2 * left, (Op.F, near))
    run.add(place + 1, (Op.F, near), (Op.F, far))
    for _ in range(left):
        run.add(1, (Op.B, far))
        run.weight()
        run.add(1, (Op.F, far))
    for turn in range(steady):
        run.add(1, (Op.F, near), (Op.BW, far), paired=not (middle and turn == 0))
        run.add(1, (Op.F, far), (Op.BW, near), paired=True)
    for _ in range(left):
        run.add(1, (Op.BW, far))
        run.add(1, (Op.F, far), (Op.BW, near), paired=True)
    for half in range(2 * (place + 1)):  # whole backwards up to the middle, then split ones whose weights wait
        run.add(1, (Op.B if half > place else Op.BW, near if half % 2 else far))
    for _ in range(left):
        run.weight()
        run.add(1, (Op.B, near))
    for _ in range(place + 1):
        run.weight()
    return run.slots
