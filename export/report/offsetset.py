"""Which numbers were met, and which more than once, for numbers that come in any order and in great number.

Rule: runs are kept as arrays and put together now and then, so that memory and time follow the number of runs.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

_MOST_WAITING: Final = 1 << 20
_Numbers = npt.NDArray[np.int64]


class OffsetSet:
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
