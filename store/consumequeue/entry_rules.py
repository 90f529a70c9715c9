"""Which entry a record gets: in which queue, and with which code.

One rule set for records that were just sent, that recovery finds in the log, and that are copied from a master. Blocks
of records have a second form of it, made with numpy (``recovery.block_dispatch``); a test holds both equal.

Rules (store.md §3.2, §3.3, §3.8, §10.1)

- Prepared and rolled-back records of the old transaction kind get no entry; inner batches get one in batch queues only.
- The code of an entry is the hash of the record's tag. That of a delayed message is the time when it is due: the store
  time plus the delay of its level (``messageDelayLevel``); a level above the highest is the highest.
- An entry keeps the time that it was given, when the levels are others after a restart; Java's broker leaves it alone,
  too. Delays are whole seconds, so the old time and the one that the levels give now are whole seconds apart: that
  tells other levels from damage, a single wrong bit always.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from ...common.errors import MessageIllegalError, StoreNotWritableError
from ...common.hashing import tags_code
from ...common.message import INNER_BATCH, TRANSACTION_PREPARED
from ...common.names import SCHEDULE_TOPIC
from ...common.properties import DELAY, TAGS
from .appended import Appended
from .batch_queue import BatchQueue, count_of, encode_unit
from .consume_queue import ENTRY, ConsumeQueue
from .queue_table import QueueTable

WITHOUT_ENTRY: Final = INNER_BATCH | TRANSACTION_PREPARED
"""Flags of records that get no entry in a consume queue; the prepared bit is also set in "rolled back"."""
UNKNOWN_LEVEL_MS: Final = 1_000
_CODE: Final = struct.Struct(">12xq")
_pack = ENTRY.pack


class EntryRules:
    """Decides about the entries of one store, whose delay levels are ``delays_ms``."""

    def __init__(self, queues: QueueTable, delays_ms: tuple[int, ...]) -> None:
        self._queues = queues
        self.delays_ms = delays_ms

    def queue_for_new(self, topic: str, queue_id: int, sys_flag: int) -> ConsumeQueue | BatchQueue | None:
        """Return the queue of a record that somebody sends; ``None`` for one without an entry.

        Raises:
            MessageIllegalError: An inner batch for a topic of another kind.
            StoreNotWritableError: The queue is just being removed.
        """
        if sys_flag & INNER_BATCH and topic not in self._queues.batch_topics:
            raise MessageIllegalError(f"topic {topic} does not keep messages in batches")
        if (topic, queue_id) in self._queues.leaving and not sys_flag & TRANSACTION_PREPARED:
            raise StoreNotWritableError(f"queue {topic}-{queue_id} is being removed, try again")
        return self.queue_of(topic, queue_id, sys_flag)

    def queue_of(self, topic: str, queue_id: int, sys_flag: int) -> ConsumeQueue | BatchQueue | None:
        """Return the queue of a record of the log, made if need be; ``None`` for one without an entry."""
        if sys_flag & TRANSACTION_PREPARED:
            return None
        if topic in self._queues.batch_topics:
            return self._queues.batches.obtain(topic, queue_id)
        return None if sys_flag & INNER_BATCH else self._queues.obtain(topic, queue_id)

    def entry_of(self, record: Appended) -> bytes:
        """Return what stands in the queue of a record, and note the code in the record."""
        tags = record.properties.get(TAGS)
        code = tags_code(tags) if tags else 0
        if record.topic == SCHEDULE_TOPIC:
            code = entry_code(record.topic, record.properties, record.stored_at_ms, self.delays_ms)
        record.tags_code = code
        if record.queue is None or not record.queue.is_batch:
            return _pack(record.log_offset, record.size, code)
        entry, count = (record.log_offset, record.size, code), count_of(record.sys_flag, record.properties)
        return encode_unit(entry, record.stored_at_ms, record.queue_offset, count)


def entry_code(topic: str, properties: Mapping[str, str], stored_at_ms: int, delays_ms: Sequence[int]) -> int:
    """Return the code of a record's entry: the tag's hash, or when to deliver a delayed message."""
    if topic == SCHEDULE_TOPIC and (due_at_ms := due_at(properties, stored_at_ms, delays_ms)) is not None:
        return due_at_ms
    return tags_code(properties.get(TAGS))


def due_at(properties: Mapping[str, str], stored_at_ms: int, delays_ms: Sequence[int]) -> int | None:
    """Return when a message of the schedule topic is due, None when it is not delayed."""
    text = properties.get(DELAY, "").removeprefix("+")
    if not text.isdecimal() or not (level := int(text)):
        return None
    return stored_at_ms + (delays_ms[min(level, len(delays_ms)) - 1] if delays_ms else UNKNOWN_LEVEL_MS)


def is_entry_of_other_levels(topic: str, known: bytes, wanted: bytes) -> bool:
    """Tell whether an entry is right but for a time that other levels gave its message."""
    if topic != SCHEDULE_TOPIC or known[:12] != wanted[:12]:
        return False
    (known_code,), (wanted_code,) = _CODE.unpack(known), _CODE.unpack(wanted)
    return known_code > 0 and wanted_code > 0 and (known_code - wanted_code) % 1_000 == 0
