from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.export.report import interval_set as offsetset
from rocketlet.export.report.interval_set import ArrayIntervalSet, IntervalSet

ranges = st.tuples(st.integers(0, 40), st.integers(1, 6)).map(lambda r: (r[0], r[0] + r[1]))


@given(st.lists(ranges, max_size=12))
def test_runs_count_like_a_multiset(added: list[tuple[int, int]]) -> None:
    """First, last, missing and repeated numbers are those of the numbers added, in any order."""
    runs, seen = IntervalSet(), Counter[int]()
    for start, end in added:
        runs.add(start, end)
        seen.update(range(start, end))
    numbers = sorted(seen)
    assert runs.first == (numbers[0] if numbers else None)
    assert runs.last == (numbers[-1] if numbers else None)
    missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers)) if numbers else []
    assert runs.missing() == len(missing)
    assert runs.first_missing() == (missing[0] if missing else None)
    assert runs.repeats == sum(seen.values()) - len(seen)


@given(st.lists(ranges, max_size=8), st.lists(ranges, max_size=8))
def test_two_sets_are_taken_together_and_apart(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    """As sets of numbers are; what both have came more than once."""
    first, second = IntervalSet(one), IntervalSet(other)
    seen = [Counter(number for run in runs for number in range(*run)) for runs in (one, other)]
    assert (bool(first), bool(second)) == (bool(one), bool(other))
    assert first.minus(second) == list(IntervalSet((number, number + 1) for number in seen[0].keys() - seen[1].keys()))
    first.merge(second)
    both = seen[0] + seen[1]
    assert list(first) == list(IntervalSet((number, number + 1) for number in both))
    assert first.repeats == both.total() - len(both)


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
