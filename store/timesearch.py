"""Which offset of a queue belongs to a time.

Rules (``ConsumeQueue.getOffsetInQueueByTime``; store.md §3.6):

- The file first, then the entry; store times are read from the records.
- LOWER: the first entry stored at or after the time, UPPER: the last one stored at or before it. Entries whose record
  is gone count as too early, pre-blank entries as well.
- The result is brought into [min offset, max offset].
"""

from collections.abc import Callable
from typing import Literal

from .config import ENTRY_BYTES
from .consumequeue import PRE_BLANK_SIZE, ConsumeQueue, Entry

StoredAt = Callable[[Entry], int]


Boundary = Literal["LOWER", "UPPER"]


def offset_by_time(queue: ConsumeQueue, at_ms: int, boundary: Boundary, stored_at: StoredAt, log_min: int) -> int:
    """Return the offset for the time; ``stored_at`` reads the store time of an entry's record, -1 when it cannot."""
    if queue.max_offset <= queue.min_offset:
        return queue.min_offset
    times = _Times(queue, stored_at, log_min)
    low, high = times.file_range(at_ms, boundary)
    found = _search(times, at_ms, boundary, low, high)
    return min(max(found, queue.min_offset), queue.max_offset)


class _Times:
    """The store times of a queue's entries, -1 for those that count as too early."""

    def __init__(self, queue: ConsumeQueue, stored_at: StoredAt, log_min: int) -> None:
        self._queue = queue
        self._stored_at = stored_at
        self._log_min = log_min

    def at(self, offset: int) -> int:
        """Return the store time of an entry."""
        entry = self._queue.entry(offset)
        if entry is None or entry[0] < self._log_min or entry[1] == PRE_BLANK_SIZE:
            return -1
        return self._stored_at(entry)

    def file_range(self, at_ms: int, boundary: Boundary) -> tuple[int, int]:
        """Return first and last offset of the file to search in."""
        queue = self._queue
        step = queue.file_entries
        first = max(queue.first_base, 0) // ENTRY_BYTES
        ranges = [(start, min(start + step, queue.max_offset) - 1) for start in range(first, queue.max_offset, step)]
        chosen = ranges[-1]
        if boundary == "LOWER":
            chosen = next((one for one in ranges if self.at(one[1]) >= at_ms), chosen)
        else:
            chosen = next((one for one in reversed(ranges) if self.at(one[0]) <= at_ms), ranges[0])
        return max(chosen[0], queue.min_offset), chosen[1]


def _search(times: _Times, at_ms: int, boundary: Boundary, low: int, high: int) -> int:
    if times.at(high) < at_ms:
        return high + 1 if boundary == "LOWER" else high
    if times.at(low) > at_ms:
        return low if boundary == "LOWER" else 0
    if boundary == "LOWER":
        return _first(low, high + 1, lambda offset: times.at(offset) >= at_ms)
    return _first(low, high + 1, lambda offset: times.at(offset) > at_ms) - 1


def _first(low: int, high: int, is_reached: Callable[[int], bool]) -> int:
    while low < high:
        middle = (low + high) // 2
        if is_reached(middle):
            high = middle
        else:
            low = middle + 1
    return low
