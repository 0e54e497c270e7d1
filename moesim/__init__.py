"""moesim: how long one training step of a mixture-of-experts model takes, whether it fits, and what binds it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moesim.base.errors import SpecError
    from moesim.estimator import estimate
    from moesim.evaluator import Evaluation, evaluate
    from moesim.problem import Problem, from_names, load
    from moesim.report.explore import explore
    from moesim.result import Estimate, Timeline
    from moesim.studies.checkpoint import checkpoint
    from moesim.studies.diagnose import diagnose
    from moesim.studies.fit import fit
    from moesim.studies.search.search import search
    from moesim.studies.sweep import sweep
    from moesim.studies.uncertainty import uncertainty
    from moesim.studies.whatif import whatif
    from moesim.workload.strategy import Strategy

from moesim.base import version
from moesim.base.display import bind

__version__ = version.VERSION

bind("Estimate", "moesim.report.estimate_html")
bind("Answer", "moesim.report.matrix_html")
bind("Timeline", "moesim.report.timeline_html")
_TABLES = ("Budget", "CheckpointAnswer", "Diagnosis", "Explanation", "FabricGroups", "FabricView", "Fit", "Roofline")
for study in (*_TABLES, "Uncertainty"):
    bind(study, "moesim.report.rich_html")
for study in ("Comparison", "Scaling", "Search", "Sweep", "WhatIf"):
    bind(study, "moesim.report.studies_html")

_HOMES = {
    "Estimate": "moesim.result",
    "Evaluation": "moesim.evaluator",
    "Problem": "moesim.problem",
    "SpecError": "moesim.base.errors",
    "Strategy": "moesim.workload.strategy",
    "Timeline": "moesim.result",
    "checkpoint": "moesim.studies.checkpoint",
    "diagnose": "moesim.studies.diagnose",
    "estimate": "moesim.estimator",
    "evaluate": "moesim.evaluator",
    "explore": "moesim.report.explore",
    "fit": "moesim.studies.fit",
    "from_names": "moesim.problem",
    "load": "moesim.problem",
    "search": "moesim.studies.search.search",
    "sweep": "moesim.studies.sweep",
    "uncertainty": "moesim.studies.uncertainty",
    "whatif": "moesim.studies.whatif",
}
__all__ = [
    "Estimate",
    "Evaluation",
    "Problem",
    "SpecError",
    "Strategy",
    "Timeline",
    "checkpoint",
    "diagnose",
    "estimate",
    "evaluate",
    "explore",
    "fit",
    "from_names",
    "load",
    "search",
    "sweep",
    "uncertainty",
    "whatif",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used, so that ``moesim --help`` starts fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'moesim' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
