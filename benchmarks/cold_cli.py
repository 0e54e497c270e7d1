"""How long a cold command takes, beside the imports that no Python tool of this kind can avoid."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PYTHON = [sys.executable]
MOESIM = [str(Path(sys.executable).with_name("moesim"))]
COMMANDS = {
    "python -c 'import numpy, pydantic'": [*PYTHON, "-c", "import numpy, pydantic"],
    "moesim --help": [*MOESIM, "--help"],
    "moesim specs": [*MOESIM, "specs"],
    "moesim estimate": [*MOESIM, "estimate", "qwen3-235b-h100x256"],
    "moesim estimate --json": [*MOESIM, "estimate", "qwen3-235b-h100x256", "--json"],
}


def seconds(command: list[str], repeats: int = 7) -> float:
    """Median of a few processes, after one that fills the file caches and leaves bytecode, as an installation does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def main() -> None:
    """Print a line for each command: time, and ratio to the imports."""
    measured = {name: seconds(command) for name, command in COMMANDS.items()}
    base = next(iter(measured.values()))
    for name, value in measured.items():
        print(f"{name:36} {1e3 * value:5.0f} ms   {value / base:4.1f} x the imports")


if __name__ == "__main__":
    main()
