from pathlib import Path

import pytest

SCENARIO = """\
schema: 1
name: small
model: qwen3-235b-a22b
cluster: {node: hgx-h100, count: 4}
sequence_length: 4096
global_batch: 64
strategy:
  tp: 2
  sequence_parallel: true
  ep: 16
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good scenario in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = Path("small.yaml")
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def edit(small: Path):
    """Write the scenario with a piece of its text replaced."""

    def change(old: str, new: str) -> Path:
        assert old in SCENARIO
        small.write_text(small.read_text().replace(old, new))
        return small

    return change
