"""How long the matrix takes: the start of the command, one scenario, and the full regeneration; wall clock and CPU."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

MOESIM = str(Path(sys.executable).with_name("moesim"))
COMMANDS = {
    "start": (["matrix", "--help"], 5),
    "qwen3-235b-h100x256": (["matrix", "--scenario", "qwen3-235b-h100x256"], 5),
    "DeepSeek-V3 on GB200 NVL72": (["matrix", "--scenario", "mcp-002"], 5),
    "full regeneration": (["matrix"], 1),
}
"""What is run, and how often."""


def seconds(words: list[str], repeats: int) -> tuple[float, float]:
    """Least wall clock and least CPU time of a few processes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    wall, spent = [], []
    for _ in range(repeats):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([MOESIM, *words], check=True, stdout=subprocess.DEVNULL, env=environment)
        wall.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(wall), min(spent)


def main() -> None:
    """Print a line for each command."""
    for name, (words, repeats) in COMMANDS.items():
        wall, spent = seconds(words, repeats)
        print(f"{name:28} {wall:6.2f} s, {spent:6.2f} s of CPU")


if __name__ == "__main__":
    main()
