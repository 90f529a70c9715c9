from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.export.report import interval_set as offsetset
from rocketlet.export.report.interval_set import ArrayIntervalSet, IntervalSet


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=12), max_size=12), st.sampled_from([2, 1 << 20]))
def test_offsets_are_counted_like_a_multiset(added: list[list[int]], most_waiting: int) -> None:
    """Runs and repeated numbers are those of all numbers added, in any order, however seldom they are joined."""
    found, seen = ArrayIntervalSet(), Counter[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offsetset, "_MOST_WAITING", most_waiting)
        for numbers in added:
            found.add(np.array(numbers))
            seen.update(numbers)
    assert found.runs() == list(IntervalSet((number, number + 1) for number in seen))
    assert found.repeated() == sorted((seen - Counter(set(seen))).elements())
    assert found.count == seen.total()
