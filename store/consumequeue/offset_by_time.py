"""Which offset of a queue belongs to a time (``ConsumeQueue.getOffsetInQueueByTime``; store.md §3.6).

- The file first, then the entry; store times are read from the records.
- LOWER: the first entry stored at or after the time, UPPER: the last one stored at or before it. Entries whose record
  is gone count as too early, pre-blank entries as well.
- The result is brought into [min offset, max offset].
- In a batch queue the units hold the times, and the answer is the first offset of a unit. Java's search there is an own
  one, which may return the first unit behind the time for UPPER; the answers are kept.
"""

from collections.abc import Callable
from typing import Literal

from ..files.store_config import ENTRY_BYTES
from .batch_queue import BatchQueue
from .consume_queue import PRE_BLANK_SIZE, ConsumeQueue, Entry

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


def batch_offset_by_time(queue: BatchQueue, at_ms: int, boundary: Boundary) -> int:
    """Return the offset for the time in a batch queue (``BatchConsumeQueue.getOffsetInQueueByTime``)."""
    starts = queue.first_slots()
    if not starts:
        return queue.min_offset
    first = next((slot for slot in reversed(starts) if _unit_time(queue, slot) <= at_ms), starts[0])
    last = min(first + starts.step, queue.slots.max_offset) - 1
    slot = last if at_ms >= _unit_time(queue, last) else _search_slots(queue, at_ms, boundary, range(first, last + 1))
    unit = queue.unit(slot) if slot is not None else None
    return min(max(unit.first_offset if unit is not None else 0, queue.min_offset), queue.max_offset)


def _search_slots(queue: BatchQueue, at_ms: int, boundary: Boundary, slots: range) -> int | None:
    """Return the slot that ``BatchConsumeQueue.binarySearchRight`` stops at."""
    left, right = slots[0], slots[-1]
    while left <= right:
        middle = (left + right) // 2
        time = _unit_time(queue, middle)
        if middle == right:
            return middle if time >= at_ms else None
        if middle == left:
            if time >= at_ms:
                return middle
            left = middle + 1
        elif boundary == "LOWER":
            left, right = (middle + 1, right) if time < at_ms else (left, middle)
        else:
            left, right = (middle, right) if time <= at_ms else (left, middle - 1)
    return None


def _unit_time(queue: BatchQueue, slot: int) -> int:
    unit = queue.unit(slot)
    assert unit is not None, "the slot lies between the first file and the end"
    return unit.stored_at_ms


class _Times:
    """The store times of a queue's entries, -1 for those that count as too early."""

    def __init__(self, queue: ConsumeQueue, stored_at: StoredAt, log_min: int) -> None:
        self._queue = queue
        self._stored_at = stored_at
        self._log_min = log_min

    def at(self, queue_offset: int) -> int:
        """Return the store time of an entry."""
        entry = self._queue.entry(queue_offset)
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
        return _first(low, high + 1, lambda queue_offset: times.at(queue_offset) >= at_ms)
    return _first(low, high + 1, lambda queue_offset: times.at(queue_offset) > at_ms) - 1


def _first(low: int, high: int, is_reached: Callable[[int], bool]) -> int:
    while low < high:
        middle = (low + high) // 2
        if is_reached(middle):
            high = middle
        else:
            low = middle + 1
    return low
