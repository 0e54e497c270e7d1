"""What a job would be with something changed or broken: each change alone beside the base, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moesim.base import checked
from moesim.base.display import Shown
from moesim.base.errors import SpecError
from moesim.problem import Named, as_problem
from moesim.studies.compare import Case, Comparison, comparison
from moesim.studies.faults import PATH, Faulted, faulted
from moesim.studies.meaning import sound_changes


@dataclass(frozen=True, repr=False)
class WhatIf(Shown):
    """Changes beside the base.

    ``faults``: what a fault does to the groups of each axis, by its name. ``together``: whether the last case has all
    the changes at once.
    """

    comparison: Comparison
    faults: Mapping[str, Faulted] = field(default_factory=dict)
    together: bool = False

    def __repr__(self) -> str:
        return f"WhatIf({', '.join(repr(case.name) for case in self.comparison.cases)})"

    @property
    def interaction_s(self) -> float | None:
        """What all changes at once add beyond the sum of what each adds; None where that is not known. [s]"""
        answers = [case.answer for case in self.comparison.cases]
        if not self.together or any(answer is None for answer in answers):
            return None
        base, *alone, together = (answer.step_time_s for answer in answers if answer is not None)
        return together - base - sum(step - base for step in alone)

    def ratios(self, case: Case) -> dict[str, float]:
        """Each term of the step over the same of the base, those that the base lacks left out. [-]"""
        if case.answer is None:
            return {}
        before, after = self.comparison.base.breakdown_s, case.answer.breakdown_s
        return {name: after.get(name, 0.0) / value for name, value in before.items() if value}

    def exposed_deltas_s(self, case: Case) -> dict[str, float]:
        """What of the step waits for each class of communication and for the host, less the same of the base. [s]

        Terms follow the critical path, which may change lanes; this does not.
        """
        if case.answer is None:
            return {}
        before, after = self.comparison.base.exposed_s, case.answer.exposed_s
        return {name: after[name] - value for name, value in before.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units."""
        plain = self.comparison.to_dict()
        for told, case in zip(plain["cases"], self.comparison.cases, strict=True):
            if case.answer is not None:
                told["step_ratio"] = case.answer.step_time_s / self.comparison.base.step_time_s
                told["breakdown_ratio"] = self.ratios(case)
                told["delta_exposed_s"] = self.exposed_deltas_s(case)
        faults = {name: found.to_dict() for name, found in self.faults.items()}
        return plain | {"together": self.together, "interaction_s": self.interaction_s, "faults": faults}


def whatif(
    problem: Named,
    changes: Sequence[Mapping[str, str]] = (),
    faults: Sequence[str] = (),
    reoptimise: Sequence[str] = (),
) -> WhatIf:
    """Estimate a job as it is, with each change, with each fault, and with all of them where they can be combined.

    Parameters
    ----------
    problem
        The job.
    changes
        Each a mapping of path to value, as :meth:`moesim.Problem.with_changes` takes it; a number of the hardware may be
        a factor, ``{"nic.bandwidth": "x0.5"}``.
    faults
        As :func:`moesim.studies.faults.faulted` takes them.
    reoptimise
        Fields of the strategy that are searched for each case.

    Raises
    ------
    SpecError
        Where nothing changes, or nothing of it can be estimated.
    """
    problem = as_problem(problem, "whatif")
    for one in checked.listed("whatif", "changes", changes):
        checked.mapped("whatif", "changes", one)
    checked.listed("whatif", "faults", faults)
    checked.listed("whatif", "reoptimise", reoptimise)
    variants = [dict(one) for one in changes] + [{PATH: fault} for fault in faults]
    if not variants or not all(variants):
        raise SpecError.single("", "", "nothing changes", "give --change PATH=VALUE or --fault KIND:TARGET")
    sound_changes(problem, variants, "--change")
    paths = [path for one in variants for path in one]
    together = len(variants) > 1 and len(paths) == len(set(paths))
    if together:
        variants.append({path: value for one in variants for path, value in one.items()})
    found = comparison({problem.name: problem}, variants, reoptimise=reoptimise, where="--change")
    base = found.cases[0]
    if base.answer is None:
        raise SpecError.single("", "", f"the job as it stands cannot be estimated: {'; '.join(base.refused)}")
    able = {case.name for case in found.cases if case.answer is not None}
    hit = {fault: faulted(problem, fault) for fault in faults if f"{PATH}={fault}" in able}
    return WhatIf(found, hit, together)
