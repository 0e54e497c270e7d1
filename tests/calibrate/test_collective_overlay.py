"""What is made of measured collectives: which rows are fitted, and what rows that are not fitted say."""

from collections import Counter

import pytest

from moesim.base.errors import SpecError
from moesim.calibrate.collective_overlay import checked, chosen_rows, links_of, measured_nodes
from moesim.calibrate.collectives import predicted, rows_of
from moesim.calibrate.overlay import Overlay
from moesim.calibrate.score import Spread
from moesim.traces.collective_table import Measured, MeasuredTable, flags

LINKS = links_of("hgx-h100")
GPU = "h100-sxm-80gb"


def gathered(size: float, share: float = 1.0, note: str = "", collective: str = "all-gather") -> Measured:
    """An all-gather on a node that takes `share` of the price."""
    row = Measured(collective, size, 8.0, 8.0, 1.0, GPU, note=note)
    return Measured(
        collective, size, 8.0, 8.0, share * float(predicted(rows_of([row], collective), LINKS)[0]), GPU, note=note
    )


@pytest.mark.parametrize(("share", "most"), [(1.0, 2.0**33), (1.05, 2.0**33), (3.0, 2.0**29)])
def test_rows_that_check_a_fit_widen_what_it_covers_where_its_intervals_hold(share, most):
    spread = Spread(30, -0.1, 0.0, 0.1)
    made = Overlay(
        "x",
        "hgx-h100",
        "collectives",
        "s",
        "",
        "c",
        {},
        {},
        {},
        {"size_bytes": (512.0, 2.0**29)},
        {"all": spread, "all-gather-node-large": spread},
    )
    found = checked(made, [gathered(2.0**power, share) for power in range(30, 34)], LINKS, "other.csv")
    assert found.covered["size_bytes"] == (512.0, most)
    assert found.scores["not fitted: other.csv"].count == 4
    assert found.scores["not fitted: other.csv"].median == pytest.approx(abs(1 / share - 1), abs=1e-6)
    with pytest.raises(SpecError, match="is like those that were fitted"):
        checked(made, [gathered(2.0**30, collective="all-reduce")], LINKS, "other.csv")


def test_flagged_rows_are_not_fitted():
    """A flag that names one operation is about that operation of the run only."""
    notes = ("", "ANOMALY: pair of nodes at half rate", "run 7; ANOMALY: sendrecv 15 GB/s", "ANOMALY: all_gather slow")
    table = MeasuredTable(tuple(gathered(2.0**30, note=note) for note in notes), Counter())
    found = chosen_rows(table, GPU, ("node",))
    assert [row.note for row in found.rows] == [notes[0], notes[2]]
    assert found.refused == {"flagged as an anomaly": 2}
    assert flags(notes[2], "send-recv")


def test_nodes_count_as_measured_where_every_collective_was():
    pair, ten = (Measured("send-recv", 1e9, 8.0 * nodes, 8.0, 1.0) for nodes in (2, 10))
    other = Measured("all-gather", 1e9, 80.0, 8.0, 1.0)
    assert measured_nodes([pair, ten, other]) == (10, 10)
    assert measured_nodes([pair, ten]) == (2, 10)
    assert measured_nodes([pair, other]) == (10, 10)
