"""DeepEP in a node: rows of 7,168 channels to 8 of 256 experts, in GB/s that count the copies of a rank to itself, as DeepEP prints them.

On H100 SMs bind with 12, and NVLink with 20 and 24; on H800, which has 8 of its 18 links, NVLink binds with either. The tolerance is
what the fit leaves in the rows of H100, and holds on H800, of which no row was fitted.
"""

import csv
from pathlib import Path

import pytest

from moesim.spec import library
from moesim.studies.exchange import Rows, exchanged

ROWS = list(csv.DictReader((Path(__file__).parent / "exchanges_nvlink.csv").read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['node']}-{row['direction']}-{row['num_sms']}")
def test_published_exchange(row):
    rows = Rows(tokens=int(row["tokens"]), precision=row["dtype"])
    found = exchanged(row["direction"], "deepep", f"{row['node']}:1", rows, int(row["num_sms"]))
    assert found.bandwidth == pytest.approx(1e9 * float(row["value"]), rel=float(row["tolerance"]))


def test_none_of_them_is_faster_than_the_wires():
    """Seven of eight copies leave a rank."""
    for row in ROWS:
        assert 7 / 8 * 1e9 * float(row["value"]) < library.get("nodes", row["node"]).links.wire_bandwidth
