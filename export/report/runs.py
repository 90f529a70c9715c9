"""Which of the numbers of a row were met, as runs without a gap.

    add(0, 3), add(5, 7), add(6, 9) -> [0, 3) [5, 9), 2 missing, 1 repeated

In a sound queue there is one run for as long as it is read in order, so memory stays small however long it is.
"""

import bisect
from collections.abc import Iterable, Iterator


class Runs:
    """A set of numbers that remembers how many came more than once."""

    def __init__(self, runs: Iterable[tuple[int, int]] = (), repeats: int = 0) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.repeats = repeats
        for start, end in runs:
            self.add(start, end)

    def __repr__(self) -> str:
        return f"<Runs {list(self)} repeats={self.repeats}>"

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

    def merge(self, other: "Runs") -> None:
        """Add all numbers of another set; what both have came more than once."""
        self.repeats += other.repeats
        for start, end in other:
            self.add(start, end)

    def minus(self, other: "Runs") -> list[tuple[int, int]]:
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
