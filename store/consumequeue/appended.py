"""A record that has its place in the log, on its way to queue and index."""

from collections.abc import Iterable, Sequence
from typing import final

import msgspec

from ...common.message import TRANSACTION_ROLLBACK
from ...common.properties import KEYS, TAGS, UNIQ_KEY
from ...common.record import NewRecord, decode_record
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
    properties: dict[str, str]
    queue: ConsumeQueue | BatchQueue | None
    tags_code: int = 0


def describe(record: memoryview) -> Appended:
    """Return what queue and index need of a stored record."""
    found = decode_record(record)
    return Appended(
        found.log_offset,
        found.queue_offset,
        found.total_size,
        found.topic,
        found.queue_id,
        found.sys_flag,
        found.stored_at_ms,
        found.properties,
        None,
    )


def leave_topic(records: Iterable[Appended], topic: str) -> None:
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
    parts: Sequence[NewRecord],
    encoded: Sequence[bytes],
    log_offset: int,
    queue: ConsumeQueue | BatchQueue | None,
    stored_at_ms: int,
) -> list[Appended]:
    """Give records that follow each other their places, in the log and in the queue, whose next offset moves on."""
    queue_offset = 0 if queue is None else queue.next_offset
    step = 0 if queue is None else 1
    placed: list[Appended] = []
    for new, data in zip(parts, encoded, strict=True):
        size = len(data)
        placed.append(
            Appended(
                log_offset,
                queue_offset,
                size,
                new.topic,
                new.queue_id,
                new.sys_flag,
                stored_at_ms,
                new.properties,
                queue,
            )
        )
        log_offset += size
        queue_offset += step
    if queue is not None:
        queue.next_offset = queue_offset
    return placed
