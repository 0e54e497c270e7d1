"""A few measured kernels of each GPU, as facts that travel with the package and stand beside a price."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pandas as pd

from moesim.base.errors import SpecError
from moesim.calibrate.families import FAMILIES
from moesim.calibrate.split import sample
from moesim.calibrate.tables import SYSTEMS
from moesim.spec import library

FOLDER = "measured_kernels"
"""Folder in ``hardware_specs``; a table for each family."""
COLUMNS = {
    "gemm": ("rate", "m", "n", "k"),
    "grouped-gemm": ("rate", "tokens", "hidden", "width", "groups", "m"),
    "attention": ("batch", "length", "heads", "kv_heads", "query_dim", "value_dim"),
    "memory": ("bytes",),
}
"""Columns of a table beside ``gpu`` and ``time_us``; of fused experts only the balanced rows."""
SINGLE: Mapping[str, bool] = {
    "fused": True,
    "uneven": False,
    "cached": True,
    "backward": False,
    "cast": False,
    "plain": True,
}
"""What is the same in every row, for those who price them."""
MOST = {"gemm": 200, "grouped-gemm": 120, "attention": 100, "memory": 60}
"""Rows of a GPU."""


def sampled(family: str, source: str = "aiconfigurator") -> str:
    """Table of rows drawn by hash from what the calibrations read, for every GPU that has some."""
    kind, parts, origin = FAMILIES[family], [], ""
    for gpu in SYSTEMS:
        try:
            rows = kind.read(source, gpu)
        except SpecError:  # not every GPU has every table
            continue
        frame = rows.frame[~rows.frame["uneven"]] if "uneven" in rows.frame else rows.frame
        chosen = sample(frame, MOST[family], kind.keys)
        table = chosen[list(COLUMNS[family])].assign(time_us=(1e6 * chosen["time_s"]).map(lambda time: f"{time:.5g}"))
        parts.append(table.convert_dtypes().sort_values(list(COLUMNS[family])).assign(gpu=gpu))
        origin = rows.source
    joined = pd.concat(parts, ignore_index=True)[["gpu", *COLUMNS[family], "time_us"]]
    text = io.StringIO()
    text.write(f"# {origin}; written by: moesim calibrate points --out hardware_specs/{FOLDER}\n")
    joined.to_csv(text, index=False, lineterminator="\n", float_format="%.6g")
    return text.getvalue()


def points(family: str) -> tuple[pd.DataFrame, str]:
    """Shipped rows of a family, and the key of their source."""
    path = library.root() / "hardware_specs" / FOLDER / f"{family}.csv"
    with path.open(encoding="utf-8") as file:
        source = file.readline().removeprefix("#").partition(";")[0].strip()
        frame = pd.read_csv(file)
    return frame.assign(time_s=1e-6 * frame["time_us"], **SINGLE), source
