"""Run again what README.md and docs/accuracy.md quote: ``python docs/refresh.py``.

``<!-- accuracy -->``, ``<!-- inside -->``, ``<!-- changes -->``
    A table, up to ``<!-- end -->``.
``<!-- output of COMMAND -->``, or ``... | head -N``
    What the command prints, in the code block below.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import moesim
from moesim.timeline.tasks import SM

RUNS = {
    "qwen3-235b-h100x256": "PP 8 x 4 chunks, EP 32, DeepEP",
    "zoo-002": "the same, expert exchange overlapped",
    "zoo-004": "PP 32 x 3 chunks, EP 8, NCCL all-to-all",
}
CHANGES = (
    ("gpu.kernels.gemm_efficiency", "0.75", "0.885"),
    ("gpu.kernels.memory_efficiency", "0.6", "0.88"),
    ("software.host.framework_per_kernel", "50 us", "5 us"),
    ("software.host.framework_per_kernel", "100 us", "5 us"),
)
"""Constants, what they are set to, and what they are."""
PAGES = ("README.md", "docs/accuracy.md")
ROOT = Path(__file__).resolve().parents[1]


def signed(value: float) -> str:
    """Per cent with one decimal and a real minus."""
    return f"{value:+.1%}".replace("-", "\u2212").replace("%", " %")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown; every column but the first two to the right."""
    rule = ["---", "---"] + ["---:"] * (len(head) - 2)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def accuracy(runs: dict[str, tuple[moesim.Problem, moesim.Estimate]]) -> str:
    """Measured and predicted step, and the rate that each implies."""
    rows = []
    for (problem, estimate), what in zip(runs.values(), RUNS.values(), strict=True):
        measured = problem.measured
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
    return table(head, rows)


def inside(runs: dict[str, tuple[moesim.Problem, moesim.Estimate]]) -> str:
    """What the predictions are made of: how busy the ranks are, and what expert communication costs."""
    rows = []
    for problem, estimate in runs.values():
        graph, run = estimate.timeline.graph, estimate.timeline.run
        lengths = run.end - run.start
        busy = np.array([lengths[graph.tasks_of(rank, SM)].sum() for rank in range(graph.num_ranks)])
        assert problem.measured is not None
        rows.append(
            [
                str(problem.measured.run_id),
                f"rank {busy.argmax()} of {graph.num_ranks}",
                f"{busy.max():.1f} s",
                f"{np.median(busy):.1f} s",
                f"{estimate.bubble_fraction:.1%}".replace("%", " %"),
                f"{estimate.exposed_s['ep']:.1f} s",
                f"{estimate.exposed_s['host']:.2f} s",
            ]
        )
    head = ["run", "busiest rank", "busy there", "busy, median rank", "idle, all ranks", "EP exposed", "host exposed"]
    return table(head, rows)


def changes(runs: dict[str, tuple[moesim.Problem, moesim.Estimate]]) -> str:
    """What the first and the last run would take if a constant were worse."""
    chosen = [runs["qwen3-235b-h100x256"], runs["zoo-004"]]
    rows = [["as it is", "", *(f"{estimate.step_time_s:.1f} s" for _, estimate in chosen)]]
    for path, value, now in CHANGES:
        steps = [moesim.estimate(problem.with_changes({path: value})).step_time_s for problem, _ in chosen]
        rows.append([f"`{path}`", f"{now} to {value}", *(f"{step:.1f} s" for step in steps)])
    return table(["constant", "change", "ZOO-001", "ZOO-004"], rows)


def output(match: re.Match[str]) -> str:
    """A code block with what its command prints now."""
    comment, command, head, language = match.group(1), match.group(2), match.group(3), match.group(4)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        command, shell=True, cwd=ROOT, env={"PATH": path, "COLUMNS": "120"}, capture_output=True, text=True, check=False
    )
    lines = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
    if head:
        lines = [*lines[: int(head)], "..."]
    shown = [f"$ {command}", *lines] if language == "console" else lines
    return "\n".join([comment, f"```{language}", *shown, "```"])


def main() -> None:
    """Replace tables and outputs."""
    runs = {}
    for name in RUNS:
        problem = moesim.load(name)
        runs[name] = problem, moesim.estimate(problem)
    tables = {"accuracy": accuracy(runs), "inside": inside(runs), "changes": changes(runs)}
    block = re.compile(r"(<!-- output of (.*?)(?: \| head -(\d+))? -->)\n```(\w+)\n.*?\n```", re.S)
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, content in tables.items():
            text = re.sub(
                rf"<!-- {name} -->.*?<!-- end -->", f"<!-- {name} -->\n{content}\n<!-- end -->", text, flags=re.S
            )
        (ROOT / page).write_text(block.sub(output, text), encoding="utf-8")


if __name__ == "__main__":
    main()
