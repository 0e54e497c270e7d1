"""A panel for notebooks: change a layout with sliders and see at once what becomes of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moesim.base.errors import SpecError, did_you_mean
from moesim.base.words import changes_in_words, word
from moesim.constraints import CHOICES
from moesim.estimator import estimate
from moesim.problem import Named, Problem, as_problem
from moesim.report.estimate import seconds
from moesim.report.estimate_html import parts
from moesim.report.html import fragment
from moesim.report.methods import meaning
from moesim.report.palette import SHORT_NAMES
from moesim.result import Estimate
from moesim.studies.search.space import AUTO, space
from moesim.workload.strategy import COUNTS, FLAGS

FIELDS = (
    "nodes",
    "global_batch",
    "sequence_length",
    "tp",
    "cp",
    "pp",
    "vpp",
    "ep",
    "etp",
    "micro_batch",
    "sequence_parallel",
    "schedule",
    "transport",
    "recompute",
    "precision",
    "dp_sharding",
    "overlap_ep",
)
"""What the panel changes."""
OF_EXPERTS = ("ep", "etp", "transport", "overlap_ep")
"""What a model without experts has no use for."""
DOUBLED = {"nodes": 4, "global_batch": 4, "sequence_length": 4}
"""Numbers of the job, and how often each doubles and halves."""
MOST_CHUNKS = 8
"""Largest number of chunks a rank that is offered, unless the scenario has more."""
LABELS = {
    "global_batch": "sequences a step",
    "tp": "tensor parallel (tp)",
    "cp": "context parallel (cp)",
    "pp": "pipeline ranks (pp)",
    "vpp": "chunks a rank (vpp)",
    "ep": "expert parallel (ep)",
    "etp": "within experts (etp)",
    "schedule": "pipeline schedule",
    "transport": "expert transport",
    "dp_sharding": "sharding of replicas",
    "overlap_ep": "overlapped exchange",
}
"""What a control is called where that is more than the name of its field."""
MEANINGS = {
    "nodes": "nodes of the cluster",
    "global_batch": "sequences of a step, over all replicas",
    "sequence_length": "tokens of a sequence",
}
"""What the numbers of the job count."""
PATHS = {"nodes": "cluster.count"}
"""Where a scenario keeps what a control is not named after."""


class Explorer:
    """The panel.

    Attributes
    ----------
    controls
        Widgets by the name of their field; setting a ``value`` re-estimates.
    start, answer
        The estimate of the problem as it was given, and of the last layout that is legal.
    message
        Why the layout is refused, a line a reason; empty where it is legal.
    widget
        All of it, as notebooks show it.
    """

    def __init__(self, problem: Problem, fields: Sequence[str]) -> None:
        widgets = _ipywidgets()
        self._problem, self._paused = problem, False
        self._given: dict[str, Any] = {}
        self.start = self.answer = estimate(problem)
        self.message = ""
        self._first = {name: _value(problem, name) for name in fields}
        self.controls: dict[str, Any] = {name: self._control(widgets, name) for name in fields}
        self._page = widgets.HTML(layout=widgets.Layout(flex="1 1 480px", min_width="0", margin="0"))
        reset = widgets.Button(description="as it was")
        reset.on_click(lambda _: self.reset())
        column = widgets.Layout(flex="0 1 330px", min_width="0", margin="0 24px 12px 0")
        left = widgets.VBox([*self.controls.values(), reset], layout=column)
        self.widget = widgets.HBox([left, self._page], layout=widgets.Layout(flex_flow="row wrap"))
        self._show()

    def __repr__(self) -> str:
        return f"Explorer({self._problem.name!r}: {changes_in_words(self.changes) or 'as it is'})"

    def _repr_mimebundle_(self, **told: Any) -> Any:
        return self.widget._repr_mimebundle_(**told)

    @property
    def html(self) -> str:
        """What stands beside the controls."""
        return str(self._page.value)

    @property
    def changes(self) -> dict[str, Any]:
        """What was chosen, as :meth:`moesim.Problem.with_changes` takes it."""
        return {
            PATHS.get(name, name): list(value) if isinstance(value, tuple) else value
            for name, value in self._given.items()
        }

    @property
    def problem(self) -> Problem:
        """The problem as the controls have it, legal or not."""
        return self._problem.with_changes(self.changes) if self.changes else self._problem

    def set(self, **values: Any) -> None:
        """Set several controls, and estimate once."""
        unknown = [name for name in values if name not in self.controls]
        if unknown:
            raise SpecError.single("explore", unknown[0], "is no control", did_you_mean(unknown[0], self.controls))
        wanted = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        for name, value in wanted.items():
            options = getattr(self.controls[name], "options", ((False, False), (True, True)))
            if value not in [one for _, one in options]:
                legal = ", ".join(str(label) for label, _ in options)
                raise SpecError.single("explore", name, f"'{value}' is not offered", f"one of {legal}")
        assumed = {name for name in self._first if f"strategy.{name}" in self._problem.assumed}
        moved = {**self._given, **wanted}.items()  # what is put back to what the scenario says is no change
        self._given = {name: value for name, value in moved if value != self._first[name] or name in assumed}
        self._update()

    def reset(self) -> None:
        """Take every change back."""
        self._given = {}
        self._update()

    def _control(self, widgets: Any, name: str) -> Any:
        value = self._first[name]
        told: dict[str, Any] = {
            "description": LABELS.get(name, name.replace("_", " ")),
            "tooltip": MEANINGS.get(name) or meaning(name),
            "style": {"description_width": "10.5em"},
            "layout": widgets.Layout(width="auto"),
            "value": value,
        }
        if name in FLAGS:
            told["layout"] = widgets.Layout(width="auto", margin="2px 2px 2px 6em")
            control = widgets.Checkbox(indent=False, **told)
        else:
            told["options"] = [(_shown(one), one) for one in _options(self._problem, name, value)]
            kind = widgets.SelectionSlider if name in (*COUNTS, *DOUBLED) else widgets.Dropdown
            control = kind(**told)
        control.observe(lambda change: self._moved(name, change["new"]), names="value")
        return control

    def _moved(self, name: str, value: Any) -> None:
        if not self._paused:
            self.set(**{name: value})

    def _update(self) -> None:
        """Estimate, and let the controls that nobody touched follow the defaults of the software."""
        shown = {**{name: control.value for name, control in self.controls.items()}, **self._given}
        try:
            problem = self.problem
            self.answer, self.message = estimate(problem), ""
            shown = {name: _value(problem, name) for name in self.controls}
        except SpecError as error:
            self.message = "\n".join(f"{one.what}; {one.fix}" if one.fix else one.what for one in error.issues)
        self._paused = True
        try:
            for name, value in shown.items():
                _put(self.controls[name], value)
        finally:
            self._paused = False
        self._show()

    def _show(self) -> None:
        lines = self.message.splitlines()
        told = against(self.answer, self.start)
        if self.changes and not lines:
            told = f"{changes_in_words(self.changes)}: {told}"
        self._page.value = fragment("explore", refused=lines, told=told, **parts(self.answer))


def explore(problem: Named, fields: Sequence[str] | None = None) -> Explorer:
    """Return a panel of sliders that re-estimates as they move.

    Parameters
    ----------
    problem
        A problem, a scenario file, or the name of a shipped scenario.
    fields
        What can be changed: names of :data:`FIELDS`, or other fields of the strategy with a list of values. Left out:
        all of :data:`FIELDS`, without those of the experts where the model has none.

    Raises
    ------
    SpecError
        Where ipywidgets is missing, a field has no list of values, or the problem itself is refused.
    """
    _ipywidgets()
    known = dict.fromkeys((*DOUBLED, *AUTO, *FLAGS, *CHOICES))
    for name in fields or ():
        if name not in known:
            raise SpecError.single("explore", name, "has no list of its values", did_you_mean(name, known))
    found = as_problem(problem, "explore")
    if fields is None:
        fields = [name for name in FIELDS if found.model.moe or name not in OF_EXPERTS]
    return Explorer(found, tuple(dict.fromkeys(fields)))


def against(answer: Estimate, start: Estimate) -> str:
    """How an answer differs from the first one."""
    if answer is start or answer == start:
        return "As it was given."
    rate = answer.tokens_per_s_per_gpu / start.tokens_per_s_per_gpu - 1
    deltas = {
        name: answer.breakdown_s.get(name, 0.0) - start.breakdown_s.get(name, 0.0)
        for name in {**start.breakdown_s, **answer.breakdown_s}
    }
    largest = sorted(deltas, key=lambda name: -abs(deltas[name]))[:2]
    terms = ", ".join(
        f"{SHORT_NAMES[name]} {'+' if deltas[name] > 0 else '-'}{seconds(abs(deltas[name]))}" for name in largest
    )
    return f"{rate:+.1%} tokens/s per GPU against {seconds(start.step_time_s)} as given; most by {terms}."


def _put(control: Any, value: Any) -> None:
    """Show a value, also one that a default of the software brings and nobody offered."""
    options = getattr(control, "options", None)
    if options is not None and value not in [one for _, one in options]:
        control.options = [*options, (_shown(value), value)]
    control.value = value


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else word(value)


def _value(problem: Problem, name: str) -> Any:
    if name == "nodes":
        return problem.scenario.cluster.count
    return getattr(problem if name in DOUBLED else problem.strategy, name)


def _options(problem: Problem, name: str, value: Any) -> list[Any]:
    """Values of a control, the present one among them."""
    found: Sequence[Any]
    if name in DOUBLED:
        powers = range(1, DOUBLED[name] + 1)
        found = [*(value * 2**k for k in powers), *(value // 2**k for k in powers if value % 2**k == 0)]
    elif name == "vpp":
        chunks = space(problem, {"pp": "auto", "vpp": "auto"}).axes[1].values
        found = [one for one in chunks if one <= MOST_CHUNKS]
    else:
        found = space(problem, {name: "auto"}).axes[0].values
    unique = dict.fromkeys([*found, value])
    return sorted(unique) if name in (*COUNTS, *DOUBLED) else list(unique)


def _ipywidgets() -> Any:
    try:
        import ipywidgets
    except ImportError:
        raise SpecError.single("explore", "", "needs ipywidgets", "pip install 'moesim[jupyter]'") from None
    return ipywidgets
