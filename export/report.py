"""Counts what a reading of a log met, and proves from it that nothing is missing.

Rules:

- All numbers come from the reading itself: messages from the heads of records, rows from what is handed out. A
  message is a record, or one of the messages of an inner batch.
- The proof: every message of the log is a row or left out for a counted reason, every queue holds each offset from
  its first to its last exactly once, and the checksums of all bodies are right.
- Damage ends the reading of its store, and the report says where and why; then there is no proof, even if no message
  should be missing. Without damage it says where the log ends, and what stands there.
- Messages that are in no queue (``Reason.NOT_QUEUED``) have no queue offset that could be missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..common.errors import StoreDamagedError
from ..store.block import Block, Longs
from .runs import Runs
from .selection import Codes, Reason
from .tail import LogStop

QueueKey = tuple[str, int]
_QUEUE_ID_BITS: Final = 32
_QUEUE_ID_MASK: Final = 0xFFFFFFFF
_NAMED_FAULTS: Final = 5


@dataclass
class QueueTally:
    """What was met of one queue of a topic."""

    messages: int = 0
    rows: int = 0
    left_out: dict[Reason, int] = field(default_factory=dict[Reason, int])
    offsets: Runs = field(default_factory=Runs)

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

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with the queue."""
        if missing := self.offsets.missing():
            yield f"missing queue offsets: {missing}, the first is {self.offsets.first_missing()}"
        if self.offsets.repeats:
            yield f"repeated queue offsets: {self.offsets.repeats}"


@dataclass
class StoreTally:
    """What was met in one store; ``delivered_rows`` were counted where they were handed out."""

    store: str
    records: int = 0
    blanks: int = 0
    log_bytes: int = 0
    checked_bodies: int = 0
    unreadable_bodies: int = 0
    delivered_rows: int = 0
    damage: StoreDamagedError | None = None
    end: LogStop | None = None
    queues: dict[QueueKey, QueueTally] = field(default_factory=dict[QueueKey, QueueTally])

    @property
    def messages(self) -> int:
        """Messages of all queues."""
        return sum(queue.messages for queue in self.queues.values())

    @property
    def rows(self) -> int:
        """Rows of all queues."""
        return sum(queue.rows for queue in self.queues.values())

    @property
    def left_out(self) -> dict[Reason, int]:
        """Messages that are no rows, by reason."""
        counts = {reason: sum(queue.left_out.get(reason, 0) for queue in self.queues.values()) for reason in Reason}
        return {reason: count for reason, count in counts.items() if count}

    def faults(self) -> list[str]:
        """Return what stands against the proof."""
        found = [
            f"{topic} queue {queue_id}: {fault}"
            for (topic, queue_id), queue in sorted(self.queues.items())
            for fault in queue.faults()
        ]
        left_out = sum(self.left_out.values())
        if self.messages != self.delivered_rows + left_out:
            found.append(f"{self.messages} messages are not {self.delivered_rows} rows and {left_out} left out")
        if self.unreadable_bodies:
            found.append(f"bodies that are not what their sysFlag says: {self.unreadable_bodies}")
        if self.damage is not None:
            found.append(f"stopped before the end of the log, {self.damage}")
        return found


class BlockCount:
    """Sorts the records of a block by queue, once for all that is counted of them."""

    def __init__(self, tally: StoreTally, block: Block, topic_codes: Longs, topics: Sequence[str]) -> None:
        queue_ids = block.number("queue_id").astype(np.int64) & _QUEUE_ID_MASK
        groups = pa.array(topic_codes << _QUEUE_ID_BITS | queue_ids).dictionary_encode()
        self._of_record = np.asarray(groups.indices, np.int64)
        keys: list[int] = groups.dictionary.to_pylist()
        self._queues = [
            tally.queues.setdefault((topics[key >> _QUEUE_ID_BITS], _signed(key)), QueueTally()) for key in keys
        ]
        self._block = block

    def count(self, reasons: Codes, messages: Longs) -> None:
        """Count the messages of each record for its reason, and their queue offsets."""
        for reason in Reason:
            chosen = reasons == reason
            if chosen.any():
                for queue, count in self._per_queue(chosen, messages):
                    queue.count(reason, count)
        self._count_offsets(reasons != Reason.NOT_QUEUED, messages)

    def leave_out(self, reason: Reason, records: Longs) -> None:
        """Turn a row of each of these records, which may repeat, into a message that was left out."""
        messages = np.bincount(records, minlength=len(self._block))
        for queue, count in self._per_queue(messages > 0, messages):
            queue.leave_out(reason, count)

    def _per_queue(self, chosen: npt.NDArray[np.bool_], messages: Longs) -> Iterator[tuple[QueueTally, int]]:
        counts = np.bincount(self._of_record[chosen], messages[chosen], len(self._queues))
        for number in np.flatnonzero(counts).tolist():
            yield self._queues[number], int(counts[number])

    def _count_offsets(self, queued: npt.NDArray[np.bool_], messages: Longs) -> None:
        numbers = self._of_record if queued.all() else self._of_record[queued]
        order: Longs = np.argsort(numbers.astype(np.uint16 if len(self._queues) < 65_536 else np.int64), kind="stable")
        groups = numbers[order]
        firsts = self._block.number("queue_offset")[queued][order]
        behind = firsts + messages[queued][order]
        starts = np.flatnonzero((groups[1:] != groups[:-1]) | (firsts[1:] != behind[:-1])) + 1
        starts = np.concatenate(([0], starts))[: len(groups)]
        ends = np.concatenate((starts[1:], [len(groups)]))[: len(starts)]
        queues: list[QueueTally] = [self._queues[group] for group in groups[starts].tolist()]
        for queue, first, end in zip(queues, firsts[starts].tolist(), behind[ends - 1].tolist(), strict=True):
            queue.offsets.add(first, end)


@dataclass
class Report:
    """What the reading of some stores met, and what it proves."""

    stores: list[StoreTally] = field(default_factory=list[StoreTally])
    checks_crc: bool = True

    @property
    def rows(self) -> int:
        """Rows of all stores."""
        return sum(tally.rows for tally in self.stores)

    def of_store(self, store: str) -> StoreTally:
        """Return the tally of a store, a new one at first use."""
        for tally in self.stores:
            if tally.store == store:
                return tally
        self.stores.append(StoreTally(store))
        return self.stores[-1]

    def faults(self) -> list[str]:
        """Return what stands against the proof; nothing when it holds."""
        return [f"{tally.store}: {fault}" for tally in self.stores for fault in tally.faults()]

    def lines(self) -> Iterator[str]:
        """Yield the report as text: counts by queue, what was left out, and the proof."""
        for tally in self.stores:
            yield f"{tally.store}: {tally.records} records and {tally.blanks} blanks in {tally.log_bytes} bytes of log"
            yield from _queue_lines(tally)
            for reason, count in tally.left_out.items():
                yield f"  left out, {reason.label}: {count}"
            yield f"  {tally.messages} messages = {tally.rows} rows + {sum(tally.left_out.values())} left out"
            if tally.end is not None:
                yield f"  the log ends in {tally.end}"
        yield from self._proof_lines()

    def _proof_lines(self) -> Iterator[str]:
        faults = self.faults()
        for fault in faults[:_NAMED_FAULTS]:
            yield f"fault: {fault}"
        if len(faults) > _NAMED_FAULTS:
            yield f"fault: {len(faults) - _NAMED_FAULTS} more"
        bodies = "all body checksums are right" if self.checks_crc else "body checksums were not looked at"
        if not faults:
            yield f"proof holds: every message is counted, every queue offset is there once, {bodies}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "proved": self.checks_crc and not self.faults(),
            "checksCrc": self.checks_crc,
            "faults": self.faults(),
            "stores": [_store_to_json(tally) for tally in self.stores],
        }


def _queue_lines(tally: StoreTally) -> Iterator[str]:
    for (topic, queue_id), queue in sorted(tally.queues.items()):
        if queue.rows:
            offsets = f"offsets {queue.offsets.first} to {queue.offsets.last}"
            yield f"  {topic} queue {queue_id}: {queue.rows} rows, {offsets}"


def _store_to_json(tally: StoreTally) -> dict[str, Any]:
    return {
        "store": tally.store,
        "records": tally.records,
        "blanks": tally.blanks,
        "logBytes": tally.log_bytes,
        "messages": tally.messages,
        "rows": tally.rows,
        "leftOut": _reasons_to_json(tally.left_out),
        "checkedBodies": tally.checked_bodies,
        "unreadableBodies": tally.unreadable_bodies,
        "stopped": tally.damage and _damage_to_json(tally.damage),
        "end": tally.end and {"file": tally.end.path, "position": tally.end.position, "reason": tally.end.reason},
        "queues": [_queue_to_json(key, queue) for key, queue in sorted(tally.queues.items())],
    }


def _damage_to_json(damage: StoreDamagedError) -> dict[str, Any]:
    return {"file": damage.path, "position": damage.position, "reason": str(damage)}


def _queue_to_json(key: QueueKey, queue: QueueTally) -> dict[str, Any]:
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
    }


def _reasons_to_json(counts: Mapping[Reason, int]) -> dict[str, int]:
    return {reason.label: count for reason, count in counts.items()}


def _signed(key: int) -> int:
    queue_id = key & _QUEUE_ID_MASK
    return queue_id - (1 << _QUEUE_ID_BITS) if queue_id >> (_QUEUE_ID_BITS - 1) else queue_id
