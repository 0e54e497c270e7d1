"""Rows a second of the shipped table of published runs, in one process, and what a row costs beside one estimate.

Run with ``python benchmarks/validate.py [STRIDE]``; a stride of n takes every n-th row.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import moesim
from moesim.studies import validate


def main(stride: int) -> None:
    lines = validate.shipped_table().read_text(encoding="utf-8").splitlines(keepends=True)
    with TemporaryDirectory() as folder:
        table = Path(folder) / "runs.csv"
        table.write_text("".join([lines[0], *lines[1::stride]]), encoding="utf-8")
        start, busy = time.perf_counter(), time.process_time()
        rows = list(validate.validated(table))
        taken, busy = time.perf_counter() - start, time.process_time() - busy
    estimated = sum(row.status == "estimated" for row in rows)
    print(f"{len(rows)} rows, {estimated} estimated: {taken:.1f} s, {busy:.1f} s of CPU, {len(rows) / busy:.0f} rows/s")

    problem = moesim.load("qwen3-235b-h100x256")
    moesim.estimate(problem)
    busy_one = time.process_time()
    for _ in range(5):
        moesim.estimate(problem)
    one = (time.process_time() - busy_one) / 5
    print(f"a row costs {busy / len(rows) / one:.2f} warm estimates of {problem.name} ({one * 1e3:.1f} ms)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
