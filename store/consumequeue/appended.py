"""Records that have their place in the log, on their way to queue and index: one, or a batch of them as one thing."""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import final

import msgspec

from ...common.message import HOSTS_V6, TRANSACTION_ROLLBACK
from ...common.properties import KEYS, TAGS, UNIQ_KEY, parse_properties
from ...common.record import MAGIC_V1, NewRecord, decode_record
from .batch_queue import BatchQueue
from .consume_queue import ConsumeQueue


@final
class Appended(msgspec.Struct, gc=False):
    """Where a record stands; ``queue`` is ``None`` when it gets no queue entry."""

    log_offset: int
    queue_offset: int
    size: int
    topic: str
    queue_id: int
    sys_flag: int
    stored_at_ms: int
    property_text: bytes
    queue: ConsumeQueue | BatchQueue | None
    tags_code: int = 0
    parsed: dict[str, str] | None = None
    """The properties, once somebody has asked for them."""

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties, which are parsed when they are needed first."""
        parsed = self.parsed
        if parsed is None:
            self.parsed = parsed = parse_properties(self.property_text)
        return parsed

    @property
    def is_newest(self) -> bool:
        """Whether it is the last record of its queue, and that holds no batches; its entry need not be there yet."""
        queue = self.queue
        return queue is not None and self.queue_offset + 1 == queue.next_offset and not queue.is_batch

    def records(self) -> Sequence["Appended"]:
        """Return the record."""
        return (self,)


@final
class AppendedRun(msgspec.Struct, gc=False):
    """Records that follow each other, in the log and in their queue, and differ only in what is listed.

    They become readable together.
    """

    log_offset: int
    queue_offset: int
    size: int
    topic: str
    queue_id: int
    sys_flag: int
    stored_at_ms: int
    property_texts: Sequence[bytes]
    queue: ConsumeQueue | BatchQueue | None
    log_offsets: Sequence[int]
    sizes: Sequence[int]
    tags_codes: Sequence[int] = ()
    """Those of the queue entries, once there are any."""

    def records(self) -> Sequence[Appended]:
        """Return the records one by one."""
        step = 0 if self.queue is None else 1
        codes = self.tags_codes or [0] * len(self.sizes)
        columns = zip(self.log_offsets, self.sizes, self.property_texts, codes, strict=True)
        return [
            Appended(
                log_offset, self.queue_offset + number * step, size, self.topic, self.queue_id, self.sys_flag,
                self.stored_at_ms, text, self.queue, code,
            )
            for number, (log_offset, size, text, code) in enumerate(columns)
        ]  # fmt: skip


Placed = Appended | AppendedRun


# TOTALSIZE, MAGIC, QUEUEID, QUEUEOFFSET, PHYSICALOFFSET, SYSFLAG, STORETIMESTAMP, BODYLENGTH (for IPv4 hosts)
_PLACED = struct.Struct(">iI4xi4xqqi16xq20xi")


def describe(record: memoryview) -> Appended:
    """Return what queue and index need of a stored record, which has been checked."""
    head: tuple[int, ...] = _PLACED.unpack_from(record)
    size, magic, queue_id, queue_offset, log_offset, sys_flag, stored_at_ms, body_bytes = head
    if sys_flag & HOSTS_V6:
        found = decode_record(record)
        topic, text, stored_at_ms = found.topic, found.property_text, found.stored_at_ms
    else:
        topic_at = _PLACED.size + body_bytes
        if magic == MAGIC_V1:
            topic_at, length = topic_at + 1, record[topic_at]
        else:
            topic_at, length = topic_at + 2, record[topic_at] << 8 | record[topic_at + 1]
        topic, text = _read_topic(bytes(record[topic_at : topic_at + length])), bytes(record[topic_at + length + 2 :])
    return Appended(log_offset, queue_offset, size, topic, queue_id, sys_flag, stored_at_ms, text, None)


@lru_cache(maxsize=4_096)
def _read_topic(text: bytes) -> str:
    return str(text, "utf-8", "replace")


def leave_topic(records: Iterable[Placed], topic: str) -> None:
    """Let the records of a topic have no queue."""
    for record in records:
        if record.topic == topic:
            record.queue = None


def has_keys(record: Appended) -> bool:
    """Tell whether the index has entries of the record (store.md §4.2)."""
    if record.sys_flag & TRANSACTION_ROLLBACK == TRANSACTION_ROLLBACK:
        return False
    get = record.properties.get
    return bool(get(UNIQ_KEY) or get(TAGS) or (get(KEYS) or "").strip(" "))


def place_run(
    head: NewRecord,
    texts: Sequence[bytes],
    sizes: Sequence[int],
    log_offset: int,
    queue: ConsumeQueue | BatchQueue | None,
    stored_at_ms: int,
) -> AppendedRun:
    """Give records that follow each other their places, in the log and in the queue, whose next offset moves on.

    They are alike but for their properties, of which the texts are given, and their sizes.
    """
    queue_offset = 0 if queue is None else queue.next_offset
    *log_offsets, end = accumulate(sizes, initial=log_offset)
    if queue is not None:
        queue.next_offset = queue_offset + len(sizes)
    return AppendedRun(
        log_offset, queue_offset, end - log_offset, head.topic, head.queue_id, head.sys_flag, stored_at_ms,
        texts, queue, log_offsets, sizes,
    )  # fmt: skip
