"""The pages of runs, of pairs and of the error budget are of the calibrations, forms, extracts and tables that lie here."""

import re
import runpy
from pathlib import Path

import pytest

from moesim.estimator import estimate
from moesim.problem import load
from moesim.studies.step_factors import judged

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("page", "patterns"),
    [("accuracy.md", "PATTERNS"), ("accuracy_budget.md", "PATTERNS"), ("accuracy_ablations.md", "ABLATIONS")],
)
def test_the_page_is_not_stale(page, patterns):
    module = runpy.run_path(str(ROOT / "docs" / "accuracy_stamp.py"))
    written = re.search(r"`stamp ([0-9a-f]{16})`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert written is not None
    now = module["stamp"](module[patterns])
    assert written[1] == now, "overlays, prices, extracts or tables have changed since: run `make accuracy`"


@pytest.mark.parametrize("name", ["mb26.06-002", "zoo-002", "mpt-019", "kor-001", "olmo-p10"])
def test_the_page_has_the_steps_of_today(name):
    """Whatever has changed: a step that the page prints is the one that an estimate gives, to its digits."""
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    cells = re.search(rf"^\| `{re.escape(name)}` \|(.*)$", text, flags=re.M)
    assert cells is not None
    printed = cells[1].split("|")[2].strip()
    step = estimate(judged(load(name), name.upper())).step_time_s
    digits = len(printed.removesuffix(" s").partition(".")[2])
    assert f"{step:.{digits}f} s" == printed, "steps have changed since: run `make accuracy`"
