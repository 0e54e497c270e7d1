"""What is done once."""

import itertools
import pickle
from dataclasses import dataclass

import numpy as np

from moesim.cost.once import Once


def test_equal_works_are_one_and_others_are_not():
    once, number = Once(), itertools.count(1)

    def ask(name, work):
        return once.once(name, work, lambda: next(number))

    assert ask("a", np.array([1.0, 2.0])) == ask("a", np.array([1.0, 2.0])) == 1
    assert ask("a", np.array([1.0, 3.0])) == 2
    assert ask("b", np.array([1.0, 2.0])) == 3
    assert ask("a", (np.array([1.0]), "x")) == ask("a", (np.array([1.0]), "x")) == 4


def test_another_process_knows_by_value_and_not_by_identity():
    once, work = Once(), np.array([1.0])
    once.once("a", work, lambda: 7)
    other = pickle.loads(pickle.dumps(once))
    assert not other._same
    assert other.once("a", np.array([1.0]), lambda: 8) == 7


@dataclass(frozen=True, eq=False)
class Itself:
    """A work that equals no other, whatever is in it."""

    known: dict[str, float]


def test_what_equals_itself_alone_is_told_apart_by_identity():
    once, number = Once(), itertools.count(1)
    one, other, array = Itself({}), Itself({}), np.array([1.0])
    found = [once.once("a", (work, array), lambda: next(number)) for work in (one, other, one)]
    assert found == [1, 2, 1]
