"""Sets of queue offsets, kept as intervals without a gap, that know what came more than once.

    add(0, 3), add(5, 7), add(6, 9) -> [0, 3) [5, 9), 2 missing, 1 repeated

Rules:

- ``IntervalSet`` takes intervals: a sound queue is one for as long as it is read in order, however long it is.
- ``ArrayIntervalSet`` takes single numbers in any order and great number. Intervals are kept as arrays and put together
  now and then, so that memory and time follow the number of intervals.
"""

import bisect
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt


class IntervalSet:
    """A set of numbers that remembers how many came more than once."""

    def __init__(self, runs: Iterable[tuple[int, int]] = (), repeats: int = 0) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.repeats = repeats
        for start, end in runs:
            self.add(start, end)

    def __repr__(self) -> str:
        return f"<IntervalSet {list(self)} repeats={self.repeats}>"

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield each run as its first number and the one behind its last."""
        return zip(self._starts, self._ends, strict=True)

    @property
    def first(self) -> int | None:
        """The smallest number."""
        return self._starts[0] if self._starts else None

    @property
    def last(self) -> int | None:
        """The largest number."""
        return self._ends[-1] - 1 if self._ends else None

    def missing(self) -> int:
        """Return how many numbers between the first and the last were not met."""
        return sum(start - end for start, end in zip(self._starts[1:], self._ends[:-1], strict=True))

    def first_missing(self) -> int | None:
        """Return the first of them."""
        return self._ends[0] if len(self._ends) > 1 else None

    def add(self, start: int, end: int) -> None:
        """Add the numbers ``start <= n < end``."""
        low = bisect.bisect_left(self._ends, start)
        high = bisect.bisect_right(self._starts, end)
        for number in range(low, high):
            self.repeats += max(0, min(end, self._ends[number]) - max(start, self._starts[number]))
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def merge(self, other: "IntervalSet") -> None:
        """Add all numbers of another set; what both have came more than once."""
        self.repeats += other.repeats
        for start, end in other:
            self.add(start, end)

    def minus(self, other: "IntervalSet") -> list[tuple[int, int]]:
        """Return the runs of the numbers that the other set has not."""
        return [run for start, end in self for run in other.gaps(start, end)]

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the runs of the numbers ``start <= n < end`` that were not met."""
        for number in range(bisect.bisect_right(self._ends, start), len(self._ends)):
            if self._starts[number] >= end:
                break
            if start < self._starts[number]:
                yield start, self._starts[number]
            start = self._ends[number]
        if start < end:
            yield start, end


_MOST_WAITING: Final = 1 << 20
_Numbers = npt.NDArray[np.int64]


class ArrayIntervalSet:
    """A set of numbers that remembers what came more than once."""

    def __init__(self) -> None:
        self.count = 0
        self._starts: list[_Numbers] = []
        self._ends: list[_Numbers] = []
        self._repeated: list[_Numbers] = []
        self._waiting = 0

    def add(self, numbers: _Numbers) -> None:
        """Add numbers, at least one."""
        self.count += len(numbers)
        ordered = np.sort(numbers)
        self._note_repeated(ordered[1:][ordered[1:] == ordered[:-1]])
        breaks = np.flatnonzero(np.diff(ordered) > 1) + 1
        self._starts.append(ordered[np.append(0, breaks)])
        self._ends.append(ordered[np.append(breaks, len(ordered)) - 1] + 1)
        self._waiting += len(breaks) + 1
        if self._waiting > _MOST_WAITING:
            self._join()
            self._waiting = len(self._starts[0]) // 2  # what did not join once is not tried again at once

    def runs(self) -> list[tuple[int, int]]:
        """Return the numbers as runs: the first number of each, and the one behind its last."""
        if not self._starts:
            return []
        self._join()
        return list(zip(self._starts[0].tolist(), self._ends[0].tolist(), strict=True))

    def repeated(self) -> list[int]:
        """Return the numbers that came more than once, in order, each as often as it came again."""
        self.runs()
        return np.sort(np.concatenate([np.array([], np.int64), *self._repeated])).tolist()

    def _join(self) -> None:
        starts, ends = np.concatenate(self._starts), np.concatenate(self._ends)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        reached = np.maximum.accumulate(ends)
        places: list[int] = (np.flatnonzero(starts[1:] < reached[:-1]) + 1).tolist()
        for place in places:
            self._note_repeated(np.arange(int(starts[place]), min(int(ends[place]), int(reached[place - 1]))))
        is_new = np.append(True, starts[1:] > reached[:-1])
        self._starts = [starts[is_new]]
        self._ends = [reached[np.append(np.flatnonzero(is_new)[1:], len(starts)) - 1]]

    def _note_repeated(self, numbers: _Numbers) -> None:
        if len(numbers):
            self._repeated.append(numbers)
