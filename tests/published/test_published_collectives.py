"""Published times of collectives against the prices; the column `why` tells which rows the fit saw."""

import csv
from pathlib import Path

import pytest

from moesim.studies.collectives import price, setting

with Path(__file__).with_name("collectives.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{row['collective']}-{row['cluster']}x{row['gpus_per_node']}" for row in ROWS]
)
def test_published_time(row):
    found = price(row["collective"], float(row["size_bytes"]), setting(row["cluster"], int(row["gpus_per_node"])))
    assert found.time == pytest.approx(float(row["time_us"]) * 1e-6, rel=float(row["tolerance"]))
