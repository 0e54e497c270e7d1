"""docs/accuracy.md is of the calibrations, forms and extracts that lie here."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_is_not_stale():
    stamp = runpy.run_path(str(ROOT / "docs" / "accuracy_stamp.py"))["stamp"]()
    written = re.search(r"`stamp ([0-9a-f]{16})`", (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8"))
    assert written is not None
    assert written[1] == stamp, "overlays, prices or extracts have changed since: run `make accuracy`"
