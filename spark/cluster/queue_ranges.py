"""Ranges of queue offsets, and how they are divided among tasks.

Rules:

- A range is of one queue, so its messages come in order. Without other wishes each queue is one task.
- Where there are more ranges than tasks are of use, small ones of one broker are packed into one task
  (``pack_ranges``): as many tasks are left as ``min_partitions`` asks for, or some dozens, or as the bytes need.
- ``max_records`` cuts every range into equal parts that hold no more. If there are still fewer than ``min_partitions``,
  ranges are cut in proportion to what they hold (``KafkaOffsetRangeCalculator``).
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ...common.message import MessageQueue

MESSAGE_BYTES: Final = 1024.0
USUAL_TASKS: Final = 64
_TASK_BYTES: Final = 64 << 20
_NO_SIZES: Final[Mapping[str, float]] = {}


class QueueExtent(NamedTuple):
    """What a queue holds: the messages ``first <= queue_offset < end``."""

    first: int
    end: int


def describe_queue(queue: MessageQueue) -> str:
    """Return how messages and logs name a queue."""
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"


@dataclass(frozen=True)
class QueueRange:
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
        return describe_queue(self.queue)

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return MessageQueue(self.topic, self.broker, self.queue_id)


@dataclass(frozen=True)
class RangePack:
    """Small ranges of one broker that one task reads."""

    ranges: tuple[QueueRange, ...]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))


def plan_ranges(
    ranges: Iterable[QueueRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[QueueRange]:
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


def pack_ranges(
    ranges: Sequence[QueueRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
    message_bytes: Mapping[str, float] = _NO_SIZES,
) -> list[QueueRange | RangePack]:
    """Return the ranges, small ones of a broker together; ``message_bytes`` is what messages have by topic."""
    sizes = {each: len(each) * message_bytes.get(each.topic, MESSAGE_BYTES) for each in ranges}
    wanted = max(min_partitions or USUAL_TASKS, sum(sizes.values()) / _TASK_BYTES)
    if len(ranges) <= wanted:
        return list(ranges)
    room = _room(sizes.values(), wanted)
    packs: list[list[QueueRange]] = []
    held, records = 0.0, 0
    for each in sorted(ranges, key=lambda each: (each.broker, each.queue, each.start)):
        is_full = held + sizes[each] > room or (max_records is not None and records + len(each) > max_records)
        if not packs or packs[-1][0].broker != each.broker or is_full:
            packs.append([])
            held, records = 0.0, 0
        packs[-1].append(each)
        held += sizes[each]
        records += len(each)
    return [pack[0] if len(pack) == 1 else RangePack(tuple(pack)) for pack in packs]


def _room(sizes: Collection[float], wanted: float) -> float:
    """Return what a task may hold so that there are as many as are wanted: large ranges, each alone, leave less."""
    left, room = wanted, sum(sizes) / wanted
    while (large := sum(size > room for size in sizes)) > wanted - left and wanted > large:
        left = wanted - large
        room = sum(size for size in sizes if size <= room) / left
    return room


def ranges_of(planned: QueueRange | RangePack) -> tuple[QueueRange, ...]:
    """Return the ranges of a task."""
    return planned.ranges if isinstance(planned, RangePack) else (planned,)


def _cut(whole: QueueRange, parts: int) -> Iterator[QueueRange]:
    for number in range(parts):
        start = whole.start + len(whole) * number // parts
        stop = whole.start + len(whole) * (number + 1) // parts
        yield replace(whole, start=start, stop=stop)
