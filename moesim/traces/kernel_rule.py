"""Classes of GPU work, told by rules on names of kernels; a user's own rules come first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from moesim.base.errors import Collector, SpecError
from moesim.base.registry import Registry
from moesim.spec.yaml_file import read_document

OTHER, COPY_CLASS, SET_CLASS = "other", "copy", "set"
COMMUNICATION = ("nccl", "deepep", "nvshmem", "custom-all-reduce")
"""Classes that move data between GPUs."""


@dataclass(frozen=True)
class KernelRule:
    """Kernels of a class.

    Parameters
    ----------
    family
        Class: ``gemm``, ``attention``, ``nccl`` and so on.
    pattern
        Regular expression, searched in the name.
    order
        Rules with a smaller number are asked first.
    unless
        Regular expression of names that the pattern finds by accident.
    communication
        Whether the kernels move data between GPUs.
    """

    family: str
    pattern: str
    order: int
    unless: str = ""
    communication: bool = False

    def matches(self, name: str) -> bool:
        """Whether a kernel of this name is meant."""
        return _found(self.pattern, name) and not (self.unless and _found(self.unless, name))


RULES: Registry[KernelRule] = Registry(
    "kernel rule", package="moesim.traces.kernel_rules", entry_points="moesim.kernel_rules"
)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _found(pattern: str, name: str) -> bool:
    return _compiled(pattern).search(name) is not None


@dataclass(frozen=True)
class Classes:
    """Rules in the order in which they are asked."""

    rules: tuple[KernelRule, ...]

    def rule_of(self, name: str) -> KernelRule | None:
        """Rule of a kernel, None where no rule knows it."""
        return next((rule for rule in self.rules if rule.matches(name)), None)


def classes(own: Path | None = None) -> Classes:
    """All registered rules, behind those of a user's file."""
    shipped = sorted((entry.item for entry in RULES.entries()), key=lambda rule: rule.order)
    return Classes((*(own_rules(own) if own else ()), *shipped))


def own_rules(path: Path) -> Sequence[KernelRule]:
    """Rules of a YAML file: a list of ``class`` and ``pattern``, and ``communication: true`` where it is.

    Raises
    ------
    SpecError
        With one line for every rule that is none.
    """
    document = read_document(path)
    listed = document.data.get("kernels")
    example = "write kernels: [{class: gemm, pattern: my_gemm}]"
    if not isinstance(listed, list) or not listed:
        raise SpecError.single(document.name, "kernels", "has no list of rules", example)
    problems, rules = Collector(), []
    known = {"class", "pattern", "unless", "communication"}
    for place, one in enumerate(listed):
        where, path_ = document.where(("kernels", place)), f"kernels[{place}]"
        if not isinstance(one, Mapping) or not {"class", "pattern"} <= set(one):
            problems.add(where, path_, "needs class and pattern", example)
            continue
        for name in sorted(set(map(str, one)) - known):
            problems.add(where, f"{path_}.{name}", "is not known", f"known: {', '.join(sorted(known))}")
        family, communication = str(one["class"]), one.get("communication", str(one["class"]) in COMMUNICATION)
        if not isinstance(communication, bool):
            problems.add(where, f"{path_}.communication", f"'{communication}' is neither true nor false")
        for name in ("pattern", "unless"):
            try:
                re.compile(str(one.get(name, "")))
            except re.error as error:
                problems.add(where, f"{path_}.{name}", f"is no regular expression: {error}")
        rules.append(KernelRule(family, str(one["pattern"]), 0, str(one.get("unless", "")), communication is True))
    problems.raise_if_any()
    return rules
