"""docs/methods.md: every method stands there, with the terms that it touches."""

from pathlib import Path

import pytest

from moesim.spec.check import sources
from moesim.spec.methods import METHODS
from moesim.workload.strategy import FIELDS, FLAGS

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def page(names_of):
    """Names of the script that writes the page."""
    return names_of("make_methods")


@pytest.fixture(scope="module")
def lines():
    """Rows of the page by the name that they start with."""
    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    return {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}


def test_every_method_stands_on_the_page(page, lines):
    fields = set(page["CHOICES"]) | set(page["REGISTRIES"])
    assert fields <= set(FIELDS)
    assert set(METHODS) <= fields
    assert set(FLAGS) - {"sequence_parallel"} <= fields
    names = {name for registry, _ in page["REGISTRIES"].values() for name in registry.names()}
    assert names | set(page["CHOICES"]) == set(lines)


def test_every_field_has_a_source(page):
    assert {source for _, source, _ in page["CHOICES"].values()} <= set(sources())


def test_none_is_refused(lines):
    assert not [name for name, line in lines.items() if "refused here" in line]


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("overlap_grad_reduce", "dp time -"),
        ("capacity_factor", "dropped rows +"),
        ("activation_offload", "host memory +"),
        ("cuda_graph", "activations memory +"),
    ],
)
def test_what_a_method_touches_is_what_the_page_says(page, lines, name, terms):
    found = page["touched"](page["problem"](), *page["CHOICES"][name][2])
    assert found in lines[name]
    assert terms in found
