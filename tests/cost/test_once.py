"""What is done once."""

import itertools
import pickle

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
