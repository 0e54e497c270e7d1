"""Run the command line inside the test, as a shell would see it."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moesim.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """What a shell sees of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer as JSON; nothing else may have been printed."""
        assert (self.code, self.err) == (0, ""), self
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Lines of a refusal: exit code 2, nothing on stdout, no traceback."""
        assert self.code == 2, self
        assert self.out == ""
        assert "Traceback" not in self.err
        return self.err.splitlines()


Run = Callable[..., Outcome]


@pytest.fixture
def moesim(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["moesim", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        code = exit_.value.code
        assert isinstance(code, int)
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def scenario(scenarios: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped scenario in the working directory, by its name alone."""
    monkeypatch.chdir(tmp_path)
    path = Path("s.yaml")
    path.write_text((scenarios / "qwen3-235b-h100x256.yaml").read_text())
    return path
