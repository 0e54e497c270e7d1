"""Published effects of methods: their direction, their size, and the page that shows them; ``-rP`` prints the errors."""

from pathlib import Path

import pytest

from moesim.spec.check import sources

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def page(names_of):
    """Names of the script that writes the page."""
    return names_of("make_accuracy_targets")


@pytest.fixture(scope="module")
def targets(page):
    return {target.name: target for target in page["targets"]()}


def test_changes_go_the_way_that_was_published(targets):
    wrong = {name for name, target in targets.items() if not target.right}
    for target in targets.values():
        print(f"{target.name}: {target.predicted:.4g} of {target.published:.4g} {target.unit}, {target.error:+.1%}")
    assert not wrong


def test_arithmetic_is_within_two_per_cent(targets):
    exact = [target for target in targets.values() if target.part == "exact"]
    assert len(exact) > 10
    for target in exact:
        assert target.predicted == pytest.approx(target.published, rel=0.02), target.name


def test_half_of_the_sizes_are_within_a_twentieth(targets):
    errors = sorted(abs(target.error) for target in targets.values() if target.part == "step")
    assert errors[len(errors) // 2] < 0.06
    assert errors[-1] < 0.4


def test_every_row_has_a_source(targets):
    assert {target.source for target in targets.values()} <= set(sources())


def test_a_miss_has_a_cause(targets, page):
    for target in targets.values():
        assert target.cause or (abs(target.error) <= 0.1 and target.right)
    assert set(page["CAUSES"]) <= set(targets)


def test_the_page_is_not_stale(page):
    written = (DOCS / "accuracy_targets.md").read_text(encoding="utf-8")
    assert written == page["page"](), "run `python docs/make_accuracy_targets.py`"
