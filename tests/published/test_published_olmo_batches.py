"""Utilisation against the global batch, 48 experts on one B300 node without expert parallelism; ``-rP`` shows errors.

One reduction a step is shared by more micro-batches as the batch grows; fully sharded training reduces and gathers in
each. The published DDP shards its optimizer: unsharded state alone would be 342 GB of 288.
"""

import csv
from pathlib import Path

import pytest

import moesim
from moesim.spec.check import sources

with Path(__file__).with_name("olmo_batches.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))
SEQUENCE = 8192


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, int], float]:
    base = moesim.from_names("olmo-8l-48e", "hgx-b300:1", "olmo-core")
    mfu = {}
    for row in ROWS:
        tokens = int(row["global_batch_tokens"])
        changes = {"sequence_length": SEQUENCE, "global_batch": tokens // SEQUENCE, "dp_sharding": row["sharding"]}
        mfu[row["sharding"], tokens] = moesim.estimate(base.with_changes(changes | {"ep": 1, "micro_batch": 2})).mfu
    return mfu


def test_sizes(found):
    for row in ROWS:
        mfu = found[row["sharding"], int(row["global_batch_tokens"])]
        print(f"{row['sharding']} {row['global_batch_tokens']}: {mfu:.1%}, {mfu / float(row['mfu']) - 1:+.1%}")
        assert mfu == pytest.approx(float(row["mfu"]), rel=0.2)  # FSDP comes out 17 % high at the small batch


def test_a_larger_batch_helps_one_reduction_a_step_more(found):
    told = {(row["sharding"], int(row["global_batch_tokens"])): float(row["mfu"]) for row in ROWS}

    def gain(values, sharding):
        return values[sharding, 4194304] / values[sharding, 131072]

    assert gain(found, "zero1") > gain(found, "fsdp") > 1
    for sharding in ("zero1", "fsdp"):
        assert gain(found, sharding) == pytest.approx(gain(told, sharding), rel=0.1)


def test_every_row_has_a_source():
    assert {row["source"] for row in ROWS} <= set(sources())
