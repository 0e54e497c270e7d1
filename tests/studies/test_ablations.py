"""Published ablations: reading of pairs, scores, and every shipped pair beside what docs/accuracy_ablations.md says."""

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.studies import ablation_table
from moesim.studies.ablation_table import METRICS, REASONS, LeftOut, Pair, read_pairs, shipped_pairs, side_problem
from moesim.studies.ablations import (
    GROUPS,
    Scored,
    attention_share,
    grouped,
    omissions,
    score,
    scored,
    side,
    summary,
)
from moesim.studies.run_table import Refused

PAGE = Path(__file__).parents[2] / "docs" / "accuracy_ablations.md"
HEAD = ",".join(ablation_table.REQUIRED)


@pytest.fixture(scope="module")
def printed():
    return list(read_pairs(shipped_pairs()))


@pytest.fixture(scope="module")
def rows(printed):
    return list(scored(printed))


def table(tmp_path, *lines):
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join((HEAD, *lines)) + "\n")
    return path


def effect(predicted, published=0.1, **changes):
    values = {"pair_id": "x", "status": "estimated", "published_effect": published, "predicted_effect": predicted}
    return Scored(**values, size_error=abs(predicted / published - 1), **changes)


def test_every_row_is_a_pair_or_says_why_not(printed):
    with shipped_pairs().open(encoding="utf-8") as file:
        facts = list(csv.DictReader(file))
    assert [one.pair_id for one in printed] == [row["pair_id"] for row in facts]
    assert len({row["pair_id"] for row in facts}) == len(facts)
    for one, row in zip(printed, facts, strict=True):
        assert row["source"], one.pair_id
    assert {one.metric for one in printed if isinstance(one, Pair)} == set(METRICS)
    assert {one.reason for one in printed if isinstance(one, LeftOut)} == set(REASONS)


def test_a_side_with_changes_says_what_it_assumed_or_follows_its_source(printed):
    for one in printed:
        if isinstance(one, Pair) and not one.shared and one.metric not in ablation_table.SLOTS:
            assert one.assumed or one.note or len((one.without + one.with_).split("=")) <= 2, one.pair_id


def test_every_pair_estimates(rows):
    assert [row.pair_id for row in rows if row.status == "refused"] == []
    for row in rows:
        if row.status == "estimated":
            assert np.isfinite([row.published_effect, row.predicted_effect]).all()
            assert min(row.predicted_without, row.predicted_with) > 0


def test_the_page_says_what_is_computed(rows):
    text = PAGE.read_text(encoding="utf-8")
    all_pairs = next(line for line in text.splitlines() if line.startswith("| **all** |"))
    found = summary([row for row in rows if row.status == "estimated"])
    cells = [cell.strip() for cell in all_pairs.split("|")[2:-1]]
    assert [int(cell) for cell in cells[:3]] == [found["pairs"], found["counted"], found["right"]]
    shares = [float(cell.removesuffix(" %")) / 100 for cell in cells[3:]]
    assert shares == pytest.approx([found["right_share"], found["size_error"]], abs=6e-4)
    verdicts = dict(re.findall(r"^\| `(\w+-\d+)`.*\| (?:\*\*)?(right|wrong|small)(?:\*\*)? \|$", text, flags=re.M))
    words = {None: "small", True: "right", False: "wrong"}
    assert verdicts == {row.pair_id: words[row.right] for row in rows if row.status == "estimated"}
    _, left_out = text.split("## Left out")
    listed = {
        reason: int(count) for reason, count in re.findall(r"^\| ([\w-]+) \| [^|]+ \| (\d+) \|", left_out, flags=re.M)
    }
    assert listed == omissions(rows)


def test_the_targets_of_direction_and_size(rows):
    found = summary([row for row in rows if row.status == "estimated"])
    assert found["right_share"] >= 0.9
    assert found["size_error"] <= 0.4


def test_slots_are_those_of_the_definition():
    unit = "schedule=1f1b pp=4 vpp=1 micro_batches=8"
    assert 1 / side(unit, True).values["slot_rate"] == pytest.approx(3 * (8 + 3))
    assert side(f"{unit} schedule=zb-h1", True).values["slot_copies"] == 4
    share = attention_share("llama2-7b", 4096)
    # per token and layer: 4 matrices of 4096 x 4096, 3 of 4096 x 11008, a causal core of 4 x 4096 x 2048; the head once
    core, products = 32 * 4 * 4096 * 2048, 2 * (32 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000)
    assert share == pytest.approx(core / (core + products))
    longer = side(f"{unit} model=llama2-7b seq_len=4096", True).values["slot_rate"]
    assert 1 / longer == pytest.approx((3 + 0.5 * share) * (8 + 3))


def test_what_a_side_says():
    assert side_problem("MBSK-001 recompute=full").strategy.recompute == ("full",)
    assert side_problem("MBSK-001 strategy.optimizer=sgd").strategy.optimizer == "sgd"
    assert isinstance(side_problem("MBSK-001 strategy.ep=7"), Refused)
    assert isinstance(side_problem("MBSK-001 strategy.nothing=7"), Refused)
    assert side_problem("MBSK-991").rule == "unknown-run"
    words = "model=llama3-8b gpu=h100-sxm-80gb num_gpus=8 seq_len=4096 global_batch=8 dp_sharding=fsdp"
    assert side_problem(words).global_batch == 8


def test_two_sides_of_a_pair():
    pair = Pair("x", "g", "m", "step_time", "MBSK-001", "recompute=full", (1.0, 1.3))
    assert pair.sides == ("MBSK-001", "MBSK-001 recompute=full")
    assert not pair.shared
    found = score(pair)
    values = found.to_dict()
    assert values["predicted_effect"] == pytest.approx(np.log(values["predicted_with"] / values["predicted_without"]))
    assert found.right
    assert found.moves
    assert Pair("x", "g", "m", "step_time", "MBSK-001", "MBSK-002", (1.0, 1.3)).shared
    refused = score(Pair("x", "g", "m", "step_time", "MBSK-001", "ep=7", (1.0, 1.3)))
    assert (refused.status, refused.published_effect) == ("refused", None)


@pytest.mark.parametrize(
    ("row", "right"),
    [
        (effect(0.05), True),
        (effect(-0.05), False),
        (effect(0.004), False),  # as good as none
        (effect(-0.05, -0.2), True),
        (effect(-0.05, 0.02), None),
    ],
)
def test_direction(row, right):
    assert row.right is right


def test_scores():
    found = summary([effect(0.05), effect(0.12), effect(-0.1), effect(5.0, 0.02)])
    assert (found["pairs"], found["counted"], found["right"]) == (4, 3, 2)
    assert found["right_share"] == pytest.approx(2 / 3)
    assert found["size_error"] == pytest.approx(0.5)
    assert summary([])["right_share"] is None


def test_groups(rows):
    for by in GROUPS:
        *groups, everything = grouped(rows, (by,))
        assert sum(group["pairs"] for group in groups) == everything["pairs"]
    with pytest.raises(SpecError, match="no column 'groups' of pairs"):
        grouped(rows, ("groups",))
    assert Counter(row.status for row in rows) == {
        "estimated": grouped(rows)[-1]["pairs"],
        "left out": sum(omissions(rows).values()),
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x,g,m,MBSK-001,MBSK-002,step_time,1,one,", "are no numbers"),
        ("x,g,m,MBSK-001,MBSK-002,step_time,1,0,", "have no ratio"),
        ("x,g,m,MBSK-001,,step_time,1,2,", "says no run"),
        ("x,g,m,MBSK-001,MBSK-002,step_tme,1,2,", "no metric 'step_tme'"),
        ("x,g,m,,,,,,kernels", "no reason 'kernels'"),
    ],
)
def test_bad_rows(tmp_path, line, words):
    with pytest.raises(SpecError, match=words):
        list(read_pairs(table(tmp_path, line)))


def test_a_table_without_its_columns(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("pair_id,group\n")
    with pytest.raises(SpecError, match="columns left_out, method, metric"):
        list(read_pairs(path))
