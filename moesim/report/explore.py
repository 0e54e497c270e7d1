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
from moesim.report.palette import SHORT_NAMES
from moesim.result import Estimate
from moesim.studies.search.space import AUTO, space
from moesim.workload.strategy import COUNTS, FLAGS

FIELDS = (
    "nodes",
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
NODES = "nodes"
DOUBLINGS = 4
"""How often the nodes double or halve, and chunks a rank double."""


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
        self._page = widgets.HTML(layout=widgets.Layout(flex="1 1 auto", min_width="320px"))
        reset = widgets.Button(description="as it was")
        reset.on_click(lambda _: self.reset())
        left = widgets.VBox([*self.controls.values(), reset], layout=widgets.Layout(flex="0 0 auto"))
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
            "cluster.count" if name == NODES else name: list(value) if isinstance(value, tuple) else value
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
        self._given |= wanted
        self._update()

    def reset(self) -> None:
        """Take every change back."""
        self._given = {}
        self._update()

    def _control(self, widgets: Any, name: str) -> Any:
        style, value = {"description_width": "9em"}, self._first[name]
        if name in FLAGS:
            control = widgets.Checkbox(value=value, description=name, style=style)
        else:
            options = [(word(one), one) for one in _options(self._problem, name, value)]
            kind = widgets.SelectionSlider if name in (*COUNTS, NODES) else widgets.Dropdown
            control = kind(options=options, value=value, description=name, style=style)
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
        self._page.value = fragment("explore", refused=lines, told=told, **parts(self.answer))


def explore(problem: Named, fields: Sequence[str] = FIELDS) -> Explorer:
    """Return a panel of sliders that re-estimates as they move.

    Parameters
    ----------
    problem
        A problem, a scenario file, or the name of a shipped scenario.
    fields
        What can be changed: names of :data:`FIELDS`, or other fields of the strategy with a list of values.

    Raises
    ------
    SpecError
        Where ipywidgets is missing, a field has no list of values, or the problem itself is refused.
    """
    _ipywidgets()
    for name in fields:
        if name not in (NODES, *AUTO, *FLAGS, *CHOICES):
            known = dict.fromkeys((NODES, *AUTO, *FLAGS, *CHOICES))
            raise SpecError.single("explore", name, "has no list of its values", did_you_mean(name, known))
    return Explorer(as_problem(problem, "explore"), tuple(dict.fromkeys(fields)))


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
        control.options = [*options, (word(value), value)]
    control.value = value


def _value(problem: Problem, name: str) -> Any:
    return problem.scenario.cluster.count if name == NODES else getattr(problem.strategy, name)


def _options(problem: Problem, name: str, value: Any) -> list[Any]:
    """Values of a control, the present one among them."""
    found: Sequence[Any]
    if name == NODES:
        found = [value * 2**k for k in range(DOUBLINGS + 1)] + [value // 2**k for k in range(1, DOUBLINGS + 1)]
    elif name == "vpp":
        found = [2**k for k in range(DOUBLINGS)]
    else:
        found = space(problem, {name: "auto"}).axes[0].values
    unique = dict.fromkeys([*found, value])
    unique.pop(0, None)
    return sorted(unique) if name in (*COUNTS, NODES) else list(unique)


def _ipywidgets() -> Any:
    try:
        import ipywidgets
    except ImportError:
        raise SpecError.single("explore", "", "needs ipywidgets", "pip install 'moesim[jupyter]'") from None
    return ipywidgets
