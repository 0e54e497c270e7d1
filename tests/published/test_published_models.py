"""Parameter counts and model FLOPs of the shipped models against those of their documents.

``models.csv``: total and active parameters by arithmetic on the printed dimensions (0.1 %: biases and the biases of
LayerNorm have no place in a spec), and the counts that the authors print, to their last digit; ``differs_because``
says where the printed count counts something else. ``flop_per_token.csv``: rate x step time x GPUs / tokens, the
median over the runs that print both; ``evidence`` is ``derived`` where the step time itself came from the rate, so that
the row only shows that the convention is the same.
"""

import csv
from pathlib import Path

import pytest

from moesim.spec import library
from moesim.workload.from_spec import model_from_spec


def rows(name):
    with Path(__file__).with_name(name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


MODELS, FLOP = rows("models.csv"), rows("flop_per_token.csv")


def last_digit(count: int) -> int:
    """Value of one unit in the last printed digit.

    >>> last_digit(671000000000), last_digit(6652567552)
    (1000000000, 1)
    """
    digits = str(count)
    return int(10 ** (len(digits) - len(digits.rstrip("0"))))


def model(name):
    return model_from_spec(library.get("models", name))


def test_every_model_has_a_row():
    assert sorted(row["name"] for row in MODELS) == library.names("models")
    assert all(row["source"] for row in MODELS + FLOP)


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row["name"])
def test_parameters(row):
    counted = model(row["name"])
    for column, value in (("total_params", counted.total_params), ("active_params", counted.active_params)):
        if row[column]:
            assert value == pytest.approx(int(row[column]), rel=1e-3), column
    if row["mtp_params"]:
        assert counted.mtp_params == int(row["mtp_params"])


@pytest.mark.parametrize("row", [row for row in MODELS if row["published_total"]], ids=lambda row: row["name"])
def test_printed_total(row):
    counted, printed = model(row["name"]).total_params, int(row["published_total"])
    agrees = abs(counted - printed) <= last_digit(printed) / 2
    assert agrees != bool(row["differs_because"]), f"{counted:,} against {printed:,}"
    assert counted == pytest.approx(printed, rel=0.07)
    assert library.get("models", row["name"]).published.total_params == printed


ACTIVE = [row for row in MODELS if row["published_active"] and library.get("models", row["name"]).moe]


@pytest.mark.parametrize("row", ACTIVE, ids=lambda row: row["name"])
def test_printed_active_names_its_embedding_convention(row):
    counted, printed = model(row["name"]), int(row["published_active"])
    published = library.get("models", row["name"]).published
    assert published.active_params == printed
    left_out = {"both": 0, "head": 1, "neither": 2}
    fitting = [
        convention
        for convention, tables in left_out.items()
        if abs(counted.active_params - tables * counted.embedding_params - printed) <= last_digit(printed) / 2
    ]
    if published.embeddings_counted:
        assert fitting == [published.embeddings_counted]
    else:
        assert row["name"] in NAMED_IN_THE_NOTE
        assert counted.active_params == pytest.approx(printed, rel=0.05)


NAMED_IN_THE_NOTE = {"deepseek-v3", "deepseek-v3-no-mtp", "kimi-k2", "mixtral-8x22b", "moonlight-16b-a3b"}
"""Printed active counts that no convention or more than one gives; the note of the model says so."""


@pytest.mark.parametrize(
    "row", FLOP, ids=[f"{row['model']}-{row['sequence_length']}-{row['convention']}" for row in FLOP]
)
def test_flop_per_token(row):
    flop = model(row["model"]).flop_per_token(int(row["sequence_length"]), row["convention"])
    assert flop == pytest.approx(float(row["flop_per_token"]), rel=0.01)


@pytest.mark.parametrize("name", [name for name in library.names("models") if name.startswith("mpt-")])
def test_mpt_prints_its_position_table_and_biases(name):
    """The benchmark of llm-foundry prints V d + 12 L d^2 + (13 L + 2) d + s d; one norm gain a norm is counted here."""
    counted = model(name)
    printed = {int(row["published_total"]) for row in MODELS if row["name"] == name}.pop()
    layers, biases = len(counted.layers), 11 * len(counted.layers) + 1
    rest = printed - counted.total_params - biases * counted.hidden
    assert rest in {counted.position_params(length) for length in (512, 1024, 2048)}, layers
