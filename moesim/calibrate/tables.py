"""Tables of the package ``aiconfigurator-core``: kernels measured by NVIDIA on several GPUs with three frameworks."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from moesim.base.errors import SpecError, did_you_mean

PACKAGE = "aiconfigurator-core"
SYSTEMS = {
    "a100-sxm-80gb": "a100_sxm",
    "h100-sxm-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
}
"""Folder of each GPU in the package."""
FRAMEWORKS = ("trtllm", "vllm", "sglang")


def package_version() -> str:
    """Release of the package, or an error that says how to get it."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        raise SpecError.single(
            "--from", "", f"{PACKAGE} is not installed", "install moesim[measurements], or name a CSV"
        ) from None


def source_key() -> str:
    """Key of ``sources.yaml`` for the tables."""
    return f"{PACKAGE}-{'.'.join(package_version().split('.')[:2])}"


def package_table(gpu: str, family: str, table: str, framework: str = "trtllm") -> tuple[pd.DataFrame, str]:
    """Newest table of a framework on a GPU, and its release; ``time_s`` is the latency.

    Raises
    ------
    SpecError
        Where the package, the GPU or the table is missing.
    """
    package_version()
    if gpu not in SYSTEMS:
        raise SpecError.single("--gpu", "", f"{PACKAGE} has no tables of '{gpu}'", did_you_mean(gpu, SYSTEMS))
    if framework not in FRAMEWORKS:
        raise SpecError.single("--from", "", f"no framework '{framework}'", did_you_mean(framework, FRAMEWORKS))
    spec = find_spec("aiconfigurator_core")
    root = Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else Path()
    folder = root / "systems" / "data" / SYSTEMS[gpu] / family / framework
    files = sorted(folder.glob(f"*/{table}.parquet"), key=lambda path: _ordered(path.parent.name))
    if not files:
        raise SpecError.single("--from", "", f"{PACKAGE} has no {table} of {framework} on {gpu}", "try another one")
    largest = max(path.stat().st_size for path in files)
    full = [path for path in files if 2 * path.stat().st_size >= largest]  # later releases may hold a few models only
    rows = pd.read_parquet(full[-1])
    rows["time_s"] = rows["latency"] * 1e-3
    return rows, f"{framework} {full[-1].parent.name}"


def _ordered(release: str) -> tuple[Any, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))
