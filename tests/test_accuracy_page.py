"""docs/accuracy.md and docs/accuracy_ablations.md are of the calibrations, forms, extracts and tables that lie here."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(("page", "patterns"), [("accuracy.md", "PATTERNS"), ("accuracy_ablations.md", "ABLATIONS")])
def test_the_page_is_not_stale(page, patterns):
    module = runpy.run_path(str(ROOT / "docs" / "accuracy_stamp.py"))
    written = re.search(r"`stamp ([0-9a-f]{16})`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert written is not None
    now = module["stamp"](module[patterns])
    assert written[1] == now, "overlays, prices, extracts or tables have changed since: run `make accuracy`"
