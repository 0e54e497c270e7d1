"""Run again what README.md, CHANGELOG.md and docs/extending.md quote: ``python docs/refresh.py [--tests]``.

``<!-- accuracy -->``, ``<!-- numbers -->``, ``<!-- causes -->``
    A table, up to ``<!-- end -->``.
``<!-- output of COMMAND -->``, or ``... | head -N``, ``... | tail -N``
    What the command prints, in the code block below. ``make test`` runs only with ``--tests``.
``<!-- file PATH -->``, ``<!-- append to PATH -->``
    The code block below is that file, or goes to its end, in a copy of the project in which the commands of the page
    run. So the examples of docs/extending.md are tried as they stand.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import moesim

RUNS = {
    "qwen3-235b-h100x256": "PP 8 x 4 chunks, EP 32, DeepEP",
    "zoo-002": "the same, expert exchange overlapped",
    "zoo-004": "PP 32 x 3 chunks, EP 8, NCCL all-to-all",
}
FIRST = {
    "qwen3-235b-h100x256": (17.08, 61.16),
    "zoo-002": (15.25, 62.27),
    "zoo-004": (17.34, 64.02),
}
"""Step time and peak memory of the first version that gave any. [s, GiB]"""
CAUSES = {
    "loss unfused, 100 launches a MoE layer, 10 us each": {
        "software.runtime.fused_cross_entropy": "false",
        "software.runtime.launches_per_operation": "1",
        "software.host.framework_per_kernel": "5 us",
    },
    "fused loss": {
        "software.runtime.launches_per_operation": "1",
        "software.host.framework_per_kernel": "5 us",
    },
    "launches as counted in a run": {"software.host.framework_per_kernel": "5 us"},
    "host time per kernel from a trace: as it is": {},
}
"""From constants like those of the first version to those of today, one after the other."""
PAGES = ("README.md", "CHANGELOG.md", "docs/extending.md")
COPIED = ("moesim", "hardware_specs", "scenarios")
ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def signed(value: float) -> str:
    """Per cent with one decimal and a real minus."""
    return f"{value:+.1%}".replace("-", "\u2212").replace("%", " %")


def table(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    """Markdown; every column but the first ones to the right."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def accuracy() -> str:
    """Measured and predicted step, and the rate that each implies."""
    rows = []
    for name, what in RUNS.items():
        problem = moesim.load(name)
        estimate, measured = moesim.estimate(problem), problem.measured
        assert measured is not None
        assert measured.step_time is not None
        rows.append(
            [
                str(measured.run_id),
                what,
                f"{measured.step_time:.1f} s",
                f"{estimate.step_time_s:.1f} s",
                signed(estimate.step_time_s / measured.step_time - 1),
                f"{measured.tflop_per_s_per_gpu:.0f}",
                f"{estimate.tflop_per_s_per_gpu:.0f}",
            ]
        )
    head = ["run", "", "measured step", "predicted", "error", "measured TFLOP/s per GPU", "predicted"]
    return table(head, rows, left=2)


def numbers() -> str:
    """Results of the first version and of this one."""
    rows = []
    for name, (step, peak) in FIRST.items():
        problem = moesim.load(name)
        estimate, measured = moesim.estimate(problem), problem.measured
        assert measured is not None
        now = f"{estimate.step_time_s:.2f} s", f"{estimate.memory.peak_bytes / 2**30:.2f} GiB"
        rows.append([f"`{name}`", f"{step:.2f} s", now[0], f"{measured.step_time} s", f"{peak:.2f} GiB", now[1]])
    return table(["scenario", "step, first", "step", "measured", "peak memory, first", "peak memory"], rows)


def causes() -> str:
    """Step times under the constants of the first version, and as these change one after the other."""
    rows = []
    for what, changes in CAUSES.items():
        problems = [moesim.load(name).with_changes(changes) for name in RUNS]
        rows.append([what, *(f"{moesim.estimate(problem).step_time_s:.2f} s" for problem in problems)])
    return table(["", *(f"`{name}`" for name in RUNS)], rows)


def output(match: re.Match[str], root: Path) -> str:
    """A code block with what its command prints now."""
    comment, command, end, count, language = match.groups()
    if command == "make test" and "--tests" not in sys.argv:
        return match.group()
    called = command.replace("make ", f"make --assume-old=.venv/.stamp --assume-old=.venv/.stamp-dev BIN={BIN} ")
    variables = os.environ | {"PATH": f"{BIN}:/usr/bin:/bin", "COLUMNS": "120", "PYTHONPATH": str(root)}
    done = subprocess.run(called, shell=True, cwd=root, env=variables, capture_output=True, text=True, check=False)
    text = (done.stdout + done.stderr).replace(str(BIN), ".venv/bin")
    lines = [line.rstrip() for line in text.splitlines()]
    if end == "head":
        lines = [*lines[: int(count)], "..."]
    if end == "tail":
        lines = ["...", *lines[-int(count) :]]
    shown = [f"$ {command}", *lines] if language == "console" else lines
    return "\n".join([comment, f"```{language}", *shown, "```"])


def with_examples(text: str, folder: Path) -> Path:
    """The project, copied into a folder if a page writes files, with these files in it."""
    blocks = re.findall(r"<!-- (file|append to) (\S+) -->\n```\w+\n(.*?)^```$", text, flags=re.S | re.M)
    if not blocks:
        return ROOT
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for how, path, content in blocks:
        with (folder / path).open("a" if how == "append to" else "w", encoding="utf-8") as file:
            file.write(content)
    return folder


def main() -> None:
    """Replace tables and outputs."""
    tables = {"accuracy": accuracy, "numbers": numbers, "causes": causes}
    block = re.compile(r"(<!-- output of (.*?)(?: \| (head|tail) -(\d+))? -->)\n```(\w+)\n.*?^```$", re.S | re.M)
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, make in tables.items():
            if f"<!-- {name} -->" in text:
                whole = f"<!-- {name} -->\n{make()}\n<!-- end -->"
                text = re.sub(rf"<!-- {name} -->.*?<!-- end -->", whole, text, flags=re.S)
        with tempfile.TemporaryDirectory() as folder:
            root = with_examples(text, Path(folder))
            text = block.sub(lambda match, root=root: output(match, root), text)
        (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
