"""SMs that kernels of communication may hold: no more than the GPU has."""

from __future__ import annotations

from collections.abc import Iterator

from moesim.base.errors import Issue
from moesim.spec import library
from moesim.spec.hardware import GpuSpec
from moesim.spec.overrides import sm_driven
from moesim.spec.scenario import ScenarioSpec

HELD = ("num_sms", "collective_sms")
"""How the paths of such numbers end."""


def unheld(scenario: ScenarioSpec, gpu: GpuSpec) -> Iterator[Issue]:
    """One issue for each number of SMs that is set to what the GPU cannot give; kernels that copy by SMs need one."""
    most = gpu.num_sms.value
    for path, told in scenario.overrides.items():
        if not path.endswith(HELD) or path.startswith("gpu."):
            continue
        try:
            value = float(str(told))
        except ValueError:
            continue  # no number at all, which whoever reads it says
        least = int(_copies_by_sms(path))
        if 0 <= value < least or value > most:
            where = scenario.where(f"overrides.{path}")
            shown = "" if where.startswith("--") else f"overrides.{path}"
            what = f"{value:g} SMs, and {gpu.name} has {most:g}" if value else "a kernel that copies by SMs needs one"
            yield Issue(where, shown, what, f"legal: {least} to {most:g}")


def _copies_by_sms(path: str) -> bool:
    """Whether a path is the SMs of a transport that cannot do without."""
    first, *rest = path.split(".")
    return first == "transports" and rest[0] in library.names("transports") and sm_driven(rest[0])
