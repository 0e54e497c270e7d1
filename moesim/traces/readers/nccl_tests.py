"""Logs of nccl-tests: text of every dialect since 2.0, and the JSON of ``-J``.

Text rows are found by their shape, two whole numbers first: interleaved ``NCCL INFO`` lines, rank prefixes, several tests in one
file and comments that lost their ``#`` do no harm. A row is a count of columns that depends on the release (11, 12 or 13, and
more behind them), so the header, or the numbers from the right, tell what is what.

References
----------
nccl-tests (src/common.cu, src/util.cu)
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moesim.base.errors import SpecError
from moesim.traces.collective_table import OPERATIONS, Measured, MeasuredTable, number
from moesim.traces.opening import READERS, Reader
from moesim.traces.records import Records

TYPES = {
    **dict.fromkeys(("int8", "uint8", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"), 1.0),
    **dict.fromkeys(("half", "bfloat16", "float16"), 2.0),
    **dict.fromkeys(("int32", "uint32", "float"), 4.0),
    **dict.fromkeys(("int64", "uint64", "double"), 8.0),
}
PER_RANK_COUNT = ("all-gather", "reduce-scatter", "all-to-all")
"""Collectives whose ``count`` is that of one rank's part: size = count x bytes x ranks."""
WHOLE = re.compile(r"\d+(?:\.\d+)?(?:e\+?\d+)?$")
PREFIX = re.compile(r"^\s*(?:\[?\d+\]?[:\s]|\d+:\s)?\s*(?=\d)")
RANK = re.compile(r"Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+(\d+)\s+\[[^\]]*\]\s*(.*)$")
EMPTY = "size is zero"
START = re.compile(r"\bnThreads?:?\s+\d+\s+nGpus")
"""Line of settings with which a job starts."""
TEST = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoall|sendrecv|broadcast|reduce|gather|scatter|hypercube)_perf"
)
FAILED = re.compile(
    r"Test (?:NCCL |CUDA )?failure|remote process exited|NCCL WARN.*(?:abort|fail)|mpirun.*(?:exited|aborted)", re.I
)


def sniff(head: str) -> bool:
    """Whether the beginning of a file is a log of nccl-tests."""
    marks = ("nccl-tests", "out-of-place", "out_of_place", "nThread", "_perf", "Avg bus bandwidth")
    return any(mark in head for mark in marks)


def read_nccl_tests(
    path: Path,
    *,
    collective: str | None = None,
    ranks: float | None = None,
    per_node: float | None = None,
    priced_only: bool = True,
) -> MeasuredTable:
    """Read a log.

    Parameters
    ----------
    collective, ranks, per_node
        What the log does not say itself.
    priced_only
        Leave out operations that have no price.

    Raises
    ------
    SpecError
        With one line where nothing can be used: no rows, no operation, no number of ranks.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    if text.lstrip().startswith("{"):
        return _read_json(path, text, collective, per_node)
    return _read_text(path, text, collective, ranks, per_node, priced_only)


@dataclass
class _Raw:
    """One line of results: what was running, and both places' time, rates and count of errors."""

    collective: str | None
    ranks: float | None
    per_node: float | None
    gpu: str
    size: float
    count: float
    dtype: str
    halves: tuple[list[str], list[str]]


def _read_text(
    path: Path,
    text: str,
    collective: str | None,
    ranks: float | None,
    per_node: float | None,
    priced_only: bool,
) -> MeasuredTable:
    refused: Counter[str] = Counter()
    lines: list[_Raw] = []
    hosts: dict[int, str] = {}
    running, gpu, ended, jobs = collective, "", False, _Jobs()
    for line in text.splitlines():
        if test := TEST.search(line):
            running = collective or OPERATIONS.get(test.group(1), f"?{test.group(1)}")
            if "starting" in line:
                hosts, ended = {}, False
        elif rank := RANK.search(line):
            hosts[int(rank.group(1))] = rank.group(2)
            gpu = rank.group(4).strip() or gpu
        elif START.search(line):
            jobs.start(len(lines))
        elif "Avg bus bandwidth" in line or "Out of bounds" in line:
            ended = True
            jobs.end(line, len(lines))
        elif FAILED.search(line):
            refused["lines that report a failure"] += 1
        else:
            told = ranks or float(len(hosts)) or None
            most = float(max(Counter(hosts.values()).values(), default=0)) or None
            raw = _raw(line, refused)
            if raw is not None:
                jobs.row(raw[0], len(lines))
                lines.append(_Raw(running, told, per_node or most, gpu, *raw))
    mixed = jobs.mixed(len(lines))
    if mixed:
        refused["rows of several jobs are mixed"] += len(mixed)
        lines = [raw for place, raw in enumerate(lines) if place not in mixed]
    if not ended:
        refused["the log is cut: no summary line"] += 1
    results = len(lines) + refused[EMPTY]
    rows = _measured(path, lines, refused, priced_only)
    if not rows:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in refused.items())
        what = f"no usable row of nccl-tests{': ' + reasons if reasons else ''}"
        raise SpecError.single(str(path), "", what, "give a log of nccl-tests with its rows of sizes and times")
    return MeasuredTable(tuple(rows), +refused, results)


class _Jobs:
    """Which rows stand where several jobs wrote into one log at once.

    A job starts, writes sizes that grow, and ends with a summary. Jobs are mixed where a summary comes before the end of
    another job, or sizes go back and not to the first one, as they do in another cycle of the same job.
    """

    def __init__(self) -> None:
        self.open, self.ends, self.begin = 0, 0, 0
        self.sizes: list[float] = []
        self.back = False
        self.found: set[int] = set()

    def start(self, row: int) -> None:
        """Note that another job starts before a row."""
        if self.open == 0:
            self._new(row)
        self.open += 1
        self.sizes = []

    def row(self, size: float, row: int) -> None:
        """Note the size of a row."""
        if self.open == 0 and self.ends:
            self._new(row)
        if self.sizes and size <= self.sizes[-1] and size != self.sizes[0]:
            self.back = True
        self.sizes.append(size)

    def end(self, line: str, row: int) -> None:
        """Note the summary of a job."""
        if "Avg bus bandwidth" in line:
            self.open, self.ends = max(0, self.open - 1), self.ends + 1
            if self.open == 0 or self.ends > 1:
                self._close(row)

    def mixed(self, row: int) -> set[int]:
        """Rows of jobs that are mixed."""
        self._close(row)
        return self.found

    def _new(self, row: int) -> None:
        self.ends, self.begin, self.sizes, self.back = 0, row, [], False

    def _close(self, row: int) -> None:
        if self.ends > 1 or self.back:
            self.found |= set(range(self.begin, row))


def _raw(line: str, refused: Counter[str]) -> tuple[float, float, str, tuple[list[str], list[str]]] | None:
    words = next((words for words in (PREFIX.sub("", line, count=1).split(), line.split()) if _is_row(words)), None)
    if words is None:
        return None
    numbers = words[3:]
    while numbers and not _is_value(numbers[0]):  # redop
        numbers = numbers[1:]
    if len(numbers) > 8 and re.fullmatch(r"-?\d+", numbers[0]) and len(numbers) != 16:
        numbers = numbers[1:]  # root
    if float(words[0]) == 0:
        refused[EMPTY] += 1
    elif len(numbers) < 8:
        refused["row is cut or lacks columns"] += 1
    else:
        return float(words[0]), float(words[1]), words[2], (numbers[:4], numbers[4:8])
    return None


def _is_row(words: list[str]) -> bool:
    return len(words) > 2 and bool(WHOLE.match(words[0]) and WHOLE.match(words[1])) and words[2] in TYPES


def _is_value(word: str) -> bool:
    return number(word) is not None or word.upper() in ("N/A", "NAN", "INF", "-NAN")


def _measured(path: Path, lines: list[_Raw], refused: Counter[str], priced_only: bool) -> list[Measured]:
    named = _named(path)
    fastest = max(lines, key=lambda raw: number(raw.halves[0][1]) or 0.0, default=None)
    rows = []
    for raw in lines:
        collective = raw.collective or named
        if not priced_only:
            collective = (collective or "").removeprefix("?") or None
        if collective is None or collective.startswith("?"):
            told = f"operation '{collective[1:]}' is not priced" if collective else "operation is not told"
            refused[told] += 1
            continue
        ranks = raw.ranks or _ranks(collective, raw, fastest or raw)
        if ranks is None or ranks < 2:
            refused["number of ranks is not told"] += 1
            continue
        per_node = min(raw.per_node or 8.0, ranks)
        for place, (time, _, _, wrong) in zip(("out_of_place", "in_place"), raw.halves, strict=True):
            seconds = number(time)
            if seconds is None or seconds <= 0:
                refused["no time"] += 1
            elif number(wrong):
                refused["data came out wrong (#wrong > 0)"] += 1
            else:
                columns = {"place": place, "dtype": raw.dtype}
                rows.append(
                    Measured(
                        collective,
                        raw.size,
                        ranks,
                        per_node,
                        seconds * 1e-6,
                        raw.gpu,
                        source=path.stem,
                        columns=columns,
                    )
                )
    return rows


def _named(path: Path) -> str | None:
    """Operation in the name of the file, where the log itself does not say."""
    name = path.stem.lower().replace("-", "_").replace("allreduce", "all_reduce").replace("allgather", "all_gather")
    name = name.replace("reducescatter", "reduce_scatter")
    found = next((OPERATIONS[word] for word in OPERATIONS if word in name), None)
    other = next((word for word in ("broadcast", "reduce", "gather", "scatter") if word in name), None)
    return found or (f"?{other}" if other else None)


def _ranks(collective: str, raw: _Raw, fastest: _Raw) -> float | None:
    """Ranks from the count of one part; for an all-reduce from busbw over algbw of the fastest row."""
    if collective in PER_RANK_COUNT and raw.count > 0:
        return float(round(raw.size / (raw.count * TYPES[raw.dtype])))
    algorithm, bus = (number(word) or 0.0 for word in fastest.halves[0][1:3])
    if collective != "all-reduce" or algorithm < 1 or not 1 < bus / algorithm < 2:
        return None
    low, high = ((bus + sign * 0.005) / (algorithm - sign * 0.005) for sign in (-1, 1))
    first, last = (math.ceil(2 / (2 - low)), math.floor(2 / (2 - high)) if high < 2 else 4096)
    fitting = list(range(first, last + 1))
    whole = [ranks for ranks in fitting if ranks % 8 == 0]
    only = fitting if len(fitting) == 1 else whole
    return float(only[0]) if len(only) == 1 else None


def _read_json(path: Path, text: str, collective: str | None, per_node: float | None) -> MeasuredTable:
    refused: Counter[str] = Counter()
    data = _json(path, text, refused)
    config = data.get("config") or {}
    devices = config.get("devices") or []
    told = " ".join(str(part) for part in data.get("args") or [])
    test = TEST.search(told)
    name = collective or (OPERATIONS.get(test.group(1)) if test else None)
    name = name or next((OPERATIONS[word] for word in OPERATIONS if word in path.stem.lower()), None)
    if name is None:
        raise SpecError.single(str(path), "args", "the operation is not told", "give --op allreduce")
    if not devices:
        raise SpecError.single(str(path), "config.devices", "no list of devices tells the ranks", "")
    ranks = float(len(devices))
    hosts = Counter(str(device.get("hostname")) for device in devices)
    gpu = str(devices[0].get("device_info") or "")
    rows = []
    for result in data.get("results") or []:
        size = number(str(result.get("size")))
        if not size:
            refused["size is zero" if size == 0 else "no size"] += 1
            continue
        for place in ("out_of_place", "in_place"):
            half = result.get(place)
            if not half:
                continue
            time = number(str(half.get("time", half.get("cpu_time"))))
            if time is None or time <= 0:
                refused["no time"] += 1
            elif number(str(half.get("nwrong"))):
                refused["data came out wrong (#wrong > 0)"] += 1
            else:
                share = float(per_node or max(hosts.values()))
                rows.append(
                    Measured(name, size, ranks, share, time * 1e-6, gpu, source=path.stem, columns={"place": place})
                )
    if not rows:
        raise SpecError.single(str(path), "results", "no usable row", "")
    return MeasuredTable(tuple(rows), refused)


def _json(path: Path, text: str, refused: Counter[str]) -> dict[str, Any]:
    """JSON as nccl-tests write it: bare ``inf`` and ``nan``, and no end where the run was cut."""
    plain = re.sub(r"(?<=[:\[,\s])-?(?:inf|nan)(?=[,\s\]}])", "null", text)
    try:
        return dict(json.loads(plain))
    except ValueError:
        pass
    for match in reversed(list(re.finditer(r"\}\s*,", plain[:2_000_000_000]))[-200:]):
        for closing in ("]}", "]}]}", "}"):
            try:
                data = dict(json.loads(plain[: match.start() + 1] + closing))
            except ValueError:
                continue
            refused["the log is cut: JSON without its end"] += 1
            return data
    raise SpecError.single(str(path), "", "neither a log nor JSON of nccl-tests", "")


def _mine(head: bytes) -> bool:
    return sniff(head.decode("utf-8", errors="replace")) and b'_perf"' not in head  # the inspector has such keys


def _read_any(path: Path, progress: Callable[[int], None] = lambda _taken: None) -> Records:
    """Records of a log, operations without a price included."""
    table = read_nccl_tests(path, priced_only=False)
    rows = [
        {"collective": row.collective, "size_bytes": row.size, "ranks": row.ranks, "time_s": row.time, **row.columns}
        for row in table.rows
    ]
    return Records(str(path), "nccl-tests", tuple(rows), {"rows": table.lines, "times": len(rows)}, table.refused)


READERS.add(
    "nccl-tests",
    Reader(_mine, _read_any),
    summary="nccl-tests: log or JSON",
    source="nccl-tests",
)
