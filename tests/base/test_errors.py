import pickle

import pytest

from moesim.base.errors import Collector, Issue, SpecError, Violation, did_you_mean


def test_an_issue_leaves_out_what_is_empty() -> None:
    assert str(Issue("s.yaml:7", "strategy.ep", "too many", "write 8")) == "s.yaml:7: strategy.ep: too many; write 8"
    assert str(Issue("--set ep", "", "too many")) == "--set ep: too many"


def test_all_problems_at_once() -> None:
    problems = Collector()
    problems.raise_if_any()
    problems.add("a:1", "x", "is bad")
    problems.add(Issue("a:2", "y", "is worse", "drop it"))
    with pytest.raises(SpecError) as error:
        problems.raise_if_any()
    assert str(error.value).splitlines() == ["a:1: x: is bad", "a:2: y: is worse; drop it"]
    assert len(error.value.issues) == 2


def test_errors_travel_between_processes() -> None:
    error = SpecError.single("a:1", "x", "is bad", "mend it")
    assert pickle.loads(pickle.dumps(error)).issues == error.issues


def test_a_violation_names_the_legal_values() -> None:
    assert str(Violation("tp", "5 is odd", "2, 4")) == "tp: 5 is odd; legal: 2, 4"


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("zero-buble", ["zb-h1", "1f1b"], "known: 1f1b, zb-h1"),
        ("GPIPE", ["gpipe"], "did you mean 'gpipe'? (known: gpipe)"),
        ("eq", ["ep", "tp"], "did you mean 'ep'? (known: ep, tp)"),
        ("x", [], "none are known"),
        ("name07", [f"name{i:02}" for i in range(30)], "did you mean 'name07'?"),
    ],
)
def test_suggestions(word: str, known: list[str], hint: str) -> None:
    assert did_you_mean(word, known) == hint
