"""Ranges of queue offsets, and how they are divided among tasks.

Rules:

- A range is of one queue, so its messages come in order. Without other wishes each queue is one task.
- ``max_records`` cuts every range into equal parts that hold no more. If there are still fewer than ``min_partitions``,
  ranges are cut in proportion to what they hold (``KafkaOffsetRangeCalculator``).
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..common.message import MessageQueue


class Extent(NamedTuple):
    """What a queue holds: the messages ``first <= queue_offset < end``."""

    first: int
    end: int


@dataclass(frozen=True)
class LiveRange:
    """The messages ``start <= queue_offset < stop`` of a queue, and where it was when this was planned."""

    broker: str
    address: str
    topic: str
    queue_id: int
    start: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.start)

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} on {self.broker}"

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return MessageQueue(self.topic, self.broker, self.queue_id)


def plan_ranges(
    ranges: Iterable[LiveRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[LiveRange]:
    """Return the ranges that are not empty, cut as is wished, by queue and offset."""
    whole = sorted((each for each in ranges if len(each)), key=lambda each: (each.queue, each.start))
    parts = {number: -(-len(each) // max_records) if max_records else 1 for number, each in enumerate(whole)}
    missing = (min_partitions or 0) - sum(parts.values())
    largest = [(-len(each) / parts[number], number) for number, each in enumerate(whole) if len(each) > parts[number]]
    heapq.heapify(largest)
    while missing > 0 and largest:
        _, number = heapq.heappop(largest)
        parts[number] += 1
        missing -= 1
        if len(whole[number]) > parts[number]:
            heapq.heappush(largest, (-len(whole[number]) / parts[number], number))
    return [part for number, each in enumerate(whole) for part in _cut(each, parts[number])]


def _cut(whole: LiveRange, parts: int) -> Iterator[LiveRange]:
    for number in range(parts):
        start = whole.start + len(whole) * number // parts
        stop = whole.start + len(whole) * (number + 1) // parts
        yield replace(whole, start=start, stop=stop)
