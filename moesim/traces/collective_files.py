"""Files of measured collectives, whichever form they have."""

from __future__ import annotations

from pathlib import Path

from moesim.base.errors import SpecError
from moesim.traces.collective_table import MeasuredTable, read_collective_csv
from moesim.traces.readers.nccl_tests import read_nccl_tests, sniff


def read_collective_file(
    path: Path, *, collective: str | None = None, ranks: float | None = None, per_node: float | None = None
) -> MeasuredTable:
    """Read a CSV, or a log or JSON of nccl-tests, told by what it holds.

    Parameters
    ----------
    collective, ranks, per_node
        What a log does not say itself: operation, ranks of the communicator, and ranks in one node.

    Raises
    ------
    SpecError
        With one line for a file that holds no measured collectives.
    """
    if not path.exists():
        raise SpecError.single(str(path), "", "there is no such file", "name a CSV or a log of nccl-tests")
    if path.is_file() and path.suffix != ".csv":
        with path.open("rb") as file:
            head = file.read(4096).decode("utf-8", errors="replace")
        if sniff(head) or head.lstrip().startswith("{"):
            return read_nccl_tests(path, collective=collective, ranks=ranks, per_node=per_node)
    for option, value in (("--op", collective), ("--nranks", ranks), ("--gpus-per-node", per_node)):
        if value is not None:
            raise SpecError.single(option, "", "is for logs that do not say it", f"'{path}' tells it: leave it out")
    return read_collective_csv(path)
