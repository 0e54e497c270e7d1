"""Interval arithmetic against counting every nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moesim.traces.intervals import covered, less, union

SETS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


def arrays(pairs):
    start = np.array([one[0] for one in pairs], dtype=np.int64)
    return start, start + np.array([one[1] for one in pairs], dtype=np.int64)


def moments(pairs):
    return {time for start, length in pairs for time in range(start, start + length)}


@given(SETS, SETS)
def test_unions_and_differences_count_each_moment_once(first, second):
    assert covered(*arrays(first)) == len(moments(first))
    assert less(union(*arrays(first)), union(*arrays(second))) == len(moments(first) - moments(second))
    low, high = union(*arrays(first))
    assert (low[1:] > high[:-1]).all()
