"""What a notebook and ``rich.print`` show of answers and studies."""

import html
import io
import re

import pytest
from rich.console import Console

from moesim.estimator import estimate
from moesim.matrix.answer import answer as matrix_answer
from moesim.matrix.own import own_situations
from moesim.report.estimate import NAMES, seconds
from moesim.report.lanes import bars
from moesim.report.palette import CLASS_COLOURS, TERM_COLOURS
from moesim.report.rich_html import TABLES, WIDTH
from moesim.report.timeline_html import drawings
from moesim.result import BREAKDOWN, EXTRA
from moesim.studies.budget import budget
from moesim.studies.checkpoint import checkpoint
from moesim.studies.compare import comparison
from moesim.studies.diagnose import diagnose
from moesim.studies.explain import explain
from moesim.studies.fabric_groups import fabric_groups
from moesim.studies.fabric_view import fabric_view
from moesim.studies.fit import fit
from moesim.studies.roofline import roofline
from moesim.studies.scaling import scaled
from moesim.studies.search.search import search
from moesim.studies.sweep import sweep
from moesim.studies.uncertainty import uncertainty
from moesim.studies.whatif import whatif


@pytest.fixture(scope="module")
def answer(small):
    return estimate(small)


@pytest.fixture(scope="module")
def shown(small, answer):
    return {
        "estimate": answer,
        "timeline": answer.timeline,
        "search": search(small, {"tp": [1, 2, 4], "ep": [4, 8], "micro_batch": [1, 3]}, top=3),
        "comparison": comparison({"small": small}, [{"ep": "4"}, {"ep": "5"}, {"precision": "fp8-blockwise"}]),
        "sweep": sweep(small, {"ep": [4, 8, 5], "micro_batch": [1, 2]}),
        "whatif": whatif(small, [{"ep": "4"}, {"gpu.memory_bandwidth": "x1.2"}]),
        "matrix": matrix_answer(own_situations(small), ["ep", "recompute"], ["saved-activations"], own="small"),
        "signs": matrix_answer(own_situations(small), ["ep", "recompute"], ["saved-activations"]),
        "scaling": scaled(small, [4, 8, 16, 3]),
    }


WORDS = {
    "estimate": ["step time", "what binds", "Memory of each pipeline rank"],
    "timeline": ["forward", "backward", "optimizer"],
    "search": ["12 plans", "Refused by", "slower than the best by"],
    "comparison": ["The step", "ep=4", "refused ep=5", "precision=fp8-blockwise"],
    "sweep": ["6 combinations", "2 refused", "loses by", "ep: best at"],
    "whatif": ["The step", "ep=4", "All at once"],
    "matrix": ["small", "Recomp", "Saved activation memory", "x0."],
    "signs": ["scenarios in", "+ reduces, - adds"],
    "scaling": ["Scaling at the same global batch", "efficiency", "3 nodes refused"],
}


@pytest.mark.parametrize("kind", WORDS)
def test_a_notebook_shows(shown, kind):
    page = shown[kind]._repr_html_()
    text = re.sub(r"<[^>]+>", " ", page.partition("</style>")[2])
    for word in WORDS[kind]:
        assert word in text, word
    assert "<script" not in page
    assert page.count("<div") == page.count("</div>")


@pytest.mark.parametrize("kind", WORDS)
def test_a_terminal_shows(shown, kind):
    page = io.StringIO()
    Console(file=page, width=140).print(shown[kind])
    assert len(page.getvalue().splitlines()) > 4


@pytest.mark.parametrize("kind", WORDS)
def test_its_name_is_short(shown, kind):
    assert len(repr(shown[kind])) < 160


def test_tables_of_the_terminal_serve_notebooks_too(small):
    shown = {
        "Budget": budget(small, 1e12),
        "CheckpointAnswer": checkpoint(small),
        "Diagnosis": diagnose(small, 0.08),
        "Explanation": explain(small),
        "FabricGroups": fabric_groups(small),
        "FabricView": fabric_view("rail-ndr400", 8),
        "Fit": fit(small),
        "Roofline": roofline(small),
        "Uncertainty": uncertainty(small, 100),
    }
    assert shown.keys() == TABLES.keys()
    for name, value in shown.items():
        assert type(value).__name__ == name
        page = io.StringIO()
        Console(file=page, width=WIDTH, highlight=False).print(value)
        plain = html.unescape(re.sub(r"<[^>]+>", "", value._repr_html_() or ""))
        assert page.getvalue().split() == plain.split()


def test_a_search_shows_its_best_plans_in_order(shown):
    page = shown["search"]._repr_html_()
    places = [page.index(f">{seconds(one.plan.step_time_s)}<") for one in shown["search"].top]
    assert places == sorted(places)


def test_a_comparison_adds_up(shown):
    page = shown["comparison"]._repr_html_()
    widths = [float(width) for width in re.findall(r"<i style=\"width:([\d.]+)%", page)]
    longest = max(case.answer.step_time_s for case in shown["comparison"].cases if case.answer)
    total = sum(case.answer.step_time_s for case in shown["comparison"].cases if case.answer)
    assert sum(widths) == pytest.approx(100 * total / longest, abs=0.01 * len(widths))


def test_everything_has_a_name_and_a_colour_of_its_own(answer):
    assert set(TERM_COLOURS) == set(NAMES) == {*BREAKDOWN, *EXTRA}
    assert {f"{name}_bytes" for name in CLASS_COLOURS} == set(answer.memory.stages[0]) - {"peak_bytes"}
    for colours in (TERM_COLOURS, CLASS_COLOURS):
        assert len(set(colours.values())) == len(colours)


def test_a_short_step_is_drawn_task_by_task(small):
    short = estimate(small.with_changes({"global_batch": 32})).timeline
    (whole,) = drawings(short)
    drawn = sum(path.count("M") for _, path in whole.paths)
    assert drawn == sum(1 for _ in bars(short))
    assert whole.ticks[0][0] == 0
    assert all(0 <= place <= 100 for place, _ in whole.ticks)


def test_a_long_step_is_drawn_twice_and_stays_small(qwen):
    beginning, whole = drawings(estimate(qwen).timeline)
    assert beginning.title.startswith("the first")
    assert (beginning.separated, whole.separated) == (True, False)
    assert sum(len(path) for _, path in whole.paths) < 400_000


def test_bars_cover_what_each_rank_computes(answer):
    busy = [0.0] * answer.timeline.graph.num_ranks
    for bar in bars(answer.timeline):
        if bar.bottom <= 1:
            busy[bar.rank] += (bar.end - bar.start) * (bar.bottom - bar.top)
    assert busy == pytest.approx(answer.busy_s)
