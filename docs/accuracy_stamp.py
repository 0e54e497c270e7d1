"""Hash of what the tables of docs/accuracy.md and its pages follow from: ``python docs/accuracy_stamp.py`` prints it."""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = (
    "hardware_specs/calibrations/*.yaml",
    "hardware_specs/step_fits.yaml",
    "scenarios/tables/published_runs.csv",
    "moesim/cost/collectives/*.py",
    "moesim/cost/transports/*.py",
    "moesim/cost/attention.py",
    "moesim/cost/gemm.py",
    "moesim/cost/grouped.py",
    "moesim/cost/memory_bound.py",
    "moesim/cost/regimes.py",
    "moesim/cost/tiles.py",
    "tests/published/*_held_out.csv",
)
"""Overlays, what may be fitted to steps, forms of prices, published runs, and extracts of measurements."""
ABLATIONS = (*PATTERNS, "scenarios/tables/*.csv", "moesim/studies/ablation*.py")
"""The same, the tables of published runs and pairs, and how pairs are scored."""


def stamp(patterns: tuple[str, ...] = PATTERNS) -> str:
    """Hash of the files, names included."""
    found = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    print(stamp())
