"""Hardware as measurement files spell it: ``NVIDIA H100 80GB HBM3``, ``A100-SXM4-40GB``."""

from __future__ import annotations

import re
from functools import lru_cache

from moesim.base.errors import SpecError
from moesim.spec import library


@lru_cache(maxsize=512)
def gpu_of(text: str) -> str | None:
    """Name of the GPU spec that a spelling means; None where there is none.

    What stands in brackets is left out, then words at the end, until a name or an alias is met.

    Examples
    --------
    >>> gpu_of("NVIDIA H100 80GB HBM3"), gpu_of("A100-SXM4-40GB"), gpu_of("not stated (A100-class)")
    ('h100-sxm-80gb', 'a100-sxm-40gb', None)
    """
    plain = re.sub(r"\(.*?\)", " ", text.lower()).replace("nvidia", " ")
    if "/" in plain:
        return None
    words = re.sub(r"\bsxm\d\b", "sxm", re.sub(r"[^a-z0-9]+", " ", plain)).split()
    for count in range(len(words), 0, -1):
        try:
            return library.find("gpus", "-".join(words[:count]))
        except SpecError:
            continue
    return None


@lru_cache(maxsize=512)
def node_of(gpu: str, network: str = "") -> str | None:
    """Name of the node spec for a GPU: the one on that network where the text names one, else the usual one."""
    names = [name for name in library.names("nodes") if library.get("nodes", name).gpu == gpu]
    words = network.lower()
    for name in names:
        node = library.get("nodes", name)
        if library.get("nics", node.nic).protocol in words:
            return name
    usual = [name for name in names if library.get("nodes", name).preferred]
    return next(iter(usual or names), None)
