"""NCCL and DeepEP tables of the package aiconfigurator-core (extra ``measurements``).

Known flaws of the tables: ``message_size`` counts elements; latencies are in ms (NCCL) and us (DeepEP); the ``version`` column
of some folders contradicts the folder, so the folder counts; int8 all-reduces skip NVLS and are left out; DeepEP rows of H200
in release 0.5.6.post2 repeat those of H100.
"""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from moesim.base.errors import SpecError
from moesim.traces.collective_table import OPERATIONS, Measured, MeasuredTable

PACKAGE = "aiconfigurator-core"
FOLDERS = {
    "h100-sxm-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "a100-sxm-80gb": "a100_sxm",
    "b200-sxm": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
}
BYTES = {"half": 2, "int8": 1}
ADDING = ("all_reduce", "reduce_scatter")


def tables(gpu: str, pattern: str) -> list[Path]:
    """Files of a GPU in the installed package that match a pattern below its folder, sorted."""
    spec = find_spec("aiconfigurator_core")
    if spec is None or spec.origin is None:
        raise SpecError.single(PACKAGE, "", "the package is not installed", "pip install 'moesim[measurements]'")
    if gpu not in FOLDERS:
        raise SpecError.single(PACKAGE, "", f"no tables of {gpu}", f"tables of {', '.join(FOLDERS)}")
    folder = Path(spec.origin).parent / "systems/data" / FOLDERS[gpu] / "comm"
    found = sorted(folder.glob(pattern))
    if not found:
        raise SpecError.single(PACKAGE, "", f"no tables {pattern} of {gpu}", "")
    return found


def newest(paths: list[Path]) -> Path:
    """Table of the newest release, by the folder it stands in."""
    return max(paths, key=lambda path: [int(part) for part in path.parent.name.split(".") if part.isdigit()])


def read_nccl_table(gpu: str) -> MeasuredTable:
    """Read the NCCL table of the newest release for a GPU: releases choose protocols differently."""
    import pandas as pd

    rows: list[Measured] = []
    refused: Counter[str] = Counter()
    path = newest(tables(gpu, "nccl/*/nccl_perf.parquet"))
    for line in pd.read_parquet(path).to_dict("records"):
        operation, dtype = str(line["op_name"]), str(line["nccl_dtype"])
        if dtype == "int8" and operation in ADDING:
            refused["int8 sums skip NVLS"] += 1
            continue
        ranks = float(line["num_gpus"])
        size, time = float(line["message_size"]) * BYTES[dtype], float(line["latency"]) * 1e-3
        source = f"{PACKAGE} NCCL {path.parent.name}"
        rows.append(Measured(OPERATIONS[operation], size, ranks, ranks, time, gpu, source=source))
    return MeasuredTable(tuple(rows), refused)
