"""Counts what a reading met of one store, in numbers that can be added up, and written and read as JSON.

    StoreCounters -> QueueCounters per topic and queue     SplitRead per split     Skipped per damaged place

Rules:

- Counters of one split, and of many, are the same thing: ``merge`` adds them up, in any order. ``store_to_json`` writes
  them down and ``store_from_json`` reads them back without loss, so tasks that do not know each other can be counted
  together. Values that follow from others (``rows`` of a store, …) are for readers, and not read back.
- A message is a record, or one of the messages of an inner batch. All counts come from the reading itself; messages
  that an index told to be unwanted, so that nobody looked at them, are counted by ``pass_over``.
- Splits that touch must fit together: where the last record of one ends, the first of the next begins. So a record
  that both or neither of them took shows.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...common.errors import StoreDamagedError
from ..plan.log_end import LogStop
from ..plan.selection import Reason
from .interval_set import IntervalSet

QueueKey = tuple[str, int]
SUM_MASK: Final = (1 << 64) - 1


class SplitRead(NamedTuple):
    """A split that was read to its end.

    Its first record began at ``began`` and its last one ended at ``ended``; ``None`` where no record begins in it, or
    where it was not walked record by record.
    """

    path: str
    start: int
    stop: int
    began: int | None
    ended: int | None


class Skipped(NamedTuple):
    """Bytes that are no sound records and were skipped."""

    path: str
    position: int
    size_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.size_bytes} bytes skipped, {self.reason}"


@dataclass
class RowSums:
    """What is known of the rows that were handed out of a queue, for comparing them with what has become of them."""

    first: int | None = None
    last: int | None = None
    offset_sum: int = 0

    def add(self, first: int, last: int, offset_sum: int) -> None:
        """Add rows, by their smallest and largest queue offset and the sum of all, which is kept modulo 2 ** 64."""
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        self.offset_sum = (self.offset_sum + offset_sum) & SUM_MASK

    def merge(self, other: "RowSums") -> None:
        """Add other rows of the queue."""
        if other.first is not None and other.last is not None:
            self.add(other.first, other.last, other.offset_sum)


@dataclass
class QueueCounters:
    """What was met of one queue of a topic; ``expected`` are the offsets that the planner wanted read, if it knew."""

    messages: int = 0
    rows: int = 0
    record_bytes: int = 0
    crc_failures: int = 0
    splits: int = 1
    first_at_ms: int | None = None
    last_at_ms: int | None = None
    left_out: dict[Reason, int] = field(default_factory=dict[Reason, int])
    offsets: IntervalSet = field(default_factory=IntervalSet)
    expected: IntervalSet = field(default_factory=IntervalSet)
    delivered: RowSums = field(default_factory=RowSums)

    def count(self, reason: Reason, messages: int) -> None:
        """Add messages that are rows (``WANTED``) or are not."""
        self.messages += messages
        if reason is Reason.WANTED:
            self.rows += messages
        else:
            self.left_out[reason] = self.left_out.get(reason, 0) + messages

    def leave_out(self, reason: Reason, messages: int) -> None:
        """Turn rows into messages that were left out."""
        self.rows -= messages
        self.left_out[reason] = self.left_out.get(reason, 0) + messages

    def count_times(self, first_at_ms: int, last_at_ms: int) -> None:
        """Widen the range of store times."""
        self.first_at_ms = first_at_ms if self.first_at_ms is None else min(self.first_at_ms, first_at_ms)
        self.last_at_ms = last_at_ms if self.last_at_ms is None else max(self.last_at_ms, last_at_ms)

    def merge(self, other: "QueueCounters") -> None:
        """Add what another reading met of the queue."""
        self.messages += other.messages
        self.rows += other.rows
        self.record_bytes += other.record_bytes
        self.crc_failures += other.crc_failures
        self.splits += other.splits
        for reason, messages in other.left_out.items():
            self.left_out[reason] = self.left_out.get(reason, 0) + messages
        if other.first_at_ms is not None and other.last_at_ms is not None:
            self.count_times(other.first_at_ms, other.last_at_ms)
        self.offsets.merge(other.offsets)
        self.expected.merge(other.expected)
        self.delivered.merge(other.delivered)

    def faults(self, *, saw_all: bool = True) -> Iterator[str]:
        """Yield what is wrong with the queue; gaps are, if all of its messages were looked at."""
        if saw_all and (missing := self.offsets.missing()):
            yield f"missing queue offsets: {missing}, the first is {self.offsets.first_missing()}"
        for start, end in self._unread(saw_all=saw_all):
            yield f"queue offsets {start} to {end - 1} were to be read and were not"
        if self.offsets.repeats:
            yield f"repeated queue offsets: {self.offsets.repeats}"

    def _unread(self, *, saw_all: bool) -> Iterator[tuple[int, int]]:
        first, last = self.offsets.first, self.offsets.last
        for start, end in self.expected.minus(self.offsets):
            is_between = first is not None and last is not None and first < end and start <= last
            if not (saw_all and is_between):  # gaps are told already
                yield start, end


@dataclass
class StoreCounters:
    """What was met in one store; ``delivered_rows`` were counted where they were handed out.

    ``pushed`` names the filters by which records were not even looked at: then gaps in a queue prove nothing.
    """

    store: str
    records: int = 0
    blanks: int = 0
    log_bytes: int = 0
    seconds: float = 0.0
    checked_bodies: int = 0
    crc_failures: int = 0
    unreadable_bodies: int = 0
    delivered_rows: int = 0
    damage: StoreDamagedError | None = None
    end: LogStop | None = None
    pushed: list[str] = field(default_factory=list[str])
    splits: list[SplitRead] = field(default_factory=list[SplitRead])
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    queues: dict[QueueKey, QueueCounters] = field(default_factory=dict[QueueKey, QueueCounters])

    @property
    def messages(self) -> int:
        """Messages of all queues."""
        return sum(queue.messages for queue in self.queues.values())

    @property
    def rows(self) -> int:
        """Rows of all queues."""
        return sum(queue.rows for queue in self.queues.values())

    @property
    def skipped_bytes(self) -> int:
        """Bytes that are no sound records."""
        return sum(skipped.size_bytes for skipped in self.skipped)

    @property
    def left_out(self) -> dict[Reason, int]:
        """Messages that are no rows, by reason."""
        counts = {reason: sum(queue.left_out.get(reason, 0) for queue in self.queues.values()) for reason in Reason}
        return {reason: count for reason, count in counts.items() if count}

    def queue(self, topic: str, queue_id: int) -> QueueCounters:
        """Return the counters of a queue, new ones at first use."""
        return self.queues.setdefault((topic, queue_id), QueueCounters())

    def skip(self, path: str, position: int, size_bytes: int, reason: str) -> None:
        """Note bytes that were skipped because they are no sound records."""
        self.skipped.append(Skipped(path, position, size_bytes, reason))

    def fail_crc(self, topic: str, queue_id: int) -> None:
        """Count a record whose stored body has not its checksum, and which is skipped for it."""
        self.crc_failures += 1
        self.queue(topic, queue_id).crc_failures += 1

    def expect(self, key: QueueKey, first: int, end: int) -> None:
        """Say that the messages ``first <= n < end`` of a queue are to be read."""
        if first < end:
            self.queue(*key).expected.add(first, end)

    def pass_over(self, key: QueueKey, reason: Reason, first: int, end: int) -> None:
        """Count the messages ``first <= n < end`` of a queue as left out, though nobody looked at them."""
        queue = self.queue(*key)
        queue.count(reason, end - first)
        queue.offsets.add(first, end)

    def merge(self, other: "StoreCounters") -> None:
        """Add what another reading of the store met; of damages the one that stands first in the log is kept."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.damage is not None and (self.damage is None or _place(other.damage) < _place(self.damage)):
            self.damage = other.damage
        self.end = None if self.damage is not None else self.end or other.end
        self.pushed += [text for text in other.pushed if text not in self.pushed]
        self.splits += other.splits
        self.skipped += other.skipped
        for key, queue in other.queues.items():
            self.queues.setdefault(key, QueueCounters(splits=0)).merge(queue)

    def faults(self) -> list[str]:
        """Return what stands against the proof."""
        found = [
            f"{topic} queue {queue_id}: {fault}"
            for (topic, queue_id), queue in sorted(self.queues.items())
            for fault in queue.faults(saw_all=not self.pushed)
        ]
        left_out = sum(self.left_out.values())
        if self.messages != self.delivered_rows + left_out:
            found.append(f"{self.messages} messages are not {self.delivered_rows} rows and {left_out} left out")
        if self.unreadable_bodies:
            found.append(f"bodies that are not what their sysFlag says: {self.unreadable_bodies}")
        found += map(str, sorted(self.skipped))
        found += find_split_faults(self.splits)
        if self.damage is not None:
            found.append(f"stopped before the end of the log, {self.damage}")
        return found


_SUMS: Final = (
    "records", "blanks", "log_bytes", "seconds", "checked_bodies", "crc_failures", "unreadable_bodies",
    "delivered_rows",
)  # fmt: skip


def find_split_faults(splits: list[SplitRead]) -> Iterator[str]:
    """Yield where splits of one file overlap, or touch and do not fit together."""
    path, stop, ended = "", 0, None
    for split in sorted(splits, key=lambda split: split[:3]):
        if split.path != path:
            path, stop, ended = split.path, split.start, None
        place = f"{path} at position {split.start}"
        if split.start < stop:
            yield f"{place}: read twice"
        ended = ended if split.start == stop else None
        if split.began is not None and ended is not None and split.began != ended:
            yield f"{place}: the part before it ends at {ended}, it begins at {split.began}"
        stop, ended = max(stop, split.stop), ended if split.ended is None else split.ended


def _place(damage: StoreDamagedError) -> tuple[str, int]:
    return os.path.basename(damage.path), damage.position  # files of one log may lie in several directories


_REASONS: Final = {reason.label: reason for reason in Reason}


def store_to_json(counters: StoreCounters) -> dict[str, Any]:
    """Return counters as JSON values."""
    return {
        "store": counters.store,
        "records": counters.records,
        "blanks": counters.blanks,
        "logBytes": counters.log_bytes,
        "seconds": round(counters.seconds, 3),
        "messages": counters.messages,
        "rows": counters.rows,
        "deliveredRows": counters.delivered_rows,
        "leftOut": _reasons_to_json(counters.left_out),
        "checkedBodies": counters.checked_bodies,
        "crcFailures": counters.crc_failures,
        "unreadableBodies": counters.unreadable_bodies,
        "stopped": counters.damage and _damage_to_json(counters.damage),
        "end": counters.end and dict(zip(_END_NAMES, counters.end, strict=True)),
        "skippedBytes": counters.skipped_bytes,
        "skipped": [_skipped_to_json(skipped) for skipped in sorted(counters.skipped)],
        "pushed": counters.pushed,
        "splits": [_split_to_json(split) for split in sorted(counters.splits, key=lambda split: split[:3])],
        "queues": [_queue_to_json(key, queue) for key, queue in sorted(counters.queues.items())],
    }


def store_from_json(found: Mapping[str, Any]) -> StoreCounters:
    """Return the counters of JSON values; raises KeyError, TypeError or ValueError for others."""
    damage, end = found["stopped"], found["end"]
    return StoreCounters(
        found["store"],
        records=found["records"],
        blanks=found["blanks"],
        log_bytes=found["logBytes"],
        seconds=found["seconds"],
        checked_bodies=found["checkedBodies"],
        crc_failures=found["crcFailures"],
        unreadable_bodies=found["unreadableBodies"],
        delivered_rows=found["deliveredRows"],
        damage=damage and StoreDamagedError(damage["reason"], path=damage["file"], position=damage["position"]),
        end=end and LogStop(*(end[name] for name in _END_NAMES)),
        pushed=list(found["pushed"]),
        splits=[SplitRead(*(each[name] for name in _SPLIT_NAMES)) for each in found["splits"]],
        skipped=[Skipped(*(each[name] for name in _SKIPPED_NAMES)) for each in found["skipped"]],
        queues=dict(map(_queue_from_json, found["queues"])),
    )


_END_NAMES: Final = ("file", "position", "reason", "unproved")
_SPLIT_NAMES: Final = ("file", "start", "stop", "began", "ended")
_SKIPPED_NAMES: Final = ("file", "position", "bytes", "reason")


def _split_to_json(split: SplitRead) -> dict[str, Any]:
    return dict(zip(_SPLIT_NAMES, split, strict=True))


def _skipped_to_json(skipped: Skipped) -> dict[str, Any]:
    return dict(zip(_SKIPPED_NAMES, skipped, strict=True))


def _damage_to_json(damage: StoreDamagedError) -> dict[str, Any]:
    return {"file": damage.path, "position": damage.position, "reason": str(damage)}


def _queue_to_json(key: QueueKey, queue: QueueCounters) -> dict[str, Any]:
    return {
        "topic": key[0],
        "queueId": key[1],
        "messages": queue.messages,
        "rows": queue.rows,
        "leftOut": _reasons_to_json(queue.left_out),
        "firstOffset": queue.offsets.first,
        "lastOffset": queue.offsets.last,
        "missingOffsets": queue.offsets.missing(),
        "repeatedOffsets": queue.offsets.repeats,
        "recordBytes": queue.record_bytes,
        "crcFailures": queue.crc_failures,
        "splits": queue.splits,
        "firstStoredMs": queue.first_at_ms,
        "lastStoredMs": queue.last_at_ms,
        "firstRowOffset": queue.delivered.first,
        "lastRowOffset": queue.delivered.last,
        "rowOffsetSum": str(queue.delivered.offset_sum),  # readers that have only doubles keep it
        "ranges": list(queue.offsets),
        "expected": list(queue.expected),
    }


def _queue_from_json(found: Mapping[str, Any]) -> tuple[QueueKey, QueueCounters]:
    queue = QueueCounters(
        messages=found["messages"],
        rows=found["rows"],
        record_bytes=found["recordBytes"],
        crc_failures=found["crcFailures"],
        splits=found["splits"],
        first_at_ms=found["firstStoredMs"],
        last_at_ms=found["lastStoredMs"],
        left_out={_REASONS[label]: count for label, count in found["leftOut"].items()},
        offsets=IntervalSet(map(tuple, found["ranges"]), found["repeatedOffsets"]),
        expected=IntervalSet(map(tuple, found["expected"])),
        delivered=RowSums(found["firstRowOffset"], found["lastRowOffset"], int(found["rowOffsetSum"])),
    )
    return (found["topic"], found["queueId"]), queue


def _reasons_to_json(counts: Mapping[Reason, int]) -> dict[str, int]:
    return {reason.label: count for reason, count in counts.items()}
