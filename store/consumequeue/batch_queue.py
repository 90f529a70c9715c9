"""One batch consume queue: where the records of a queue that counts by messages lie in the log.

    log offset 8 | record size 4 | tags code 8 | store time 8 | first offset 8 | messages 2 | -1 4 | 0 4     = 46 bytes

Rules (``BatchConsumeQueue``; store.md §2.6, §3.8):

- One unit for each record: an inner batch holds several messages and takes as many queue offsets, another record one.
- Offsets are those of messages. The place of a unit in the files is its slot; the unit of a message is found by its
  first offset, which grows from slot to slot. Whoever reads from inside a batch gets the whole record.
- Writing, cutting and the files are those of a consume queue, with longer entries: ``slots``.

``number_inner_batch`` gives the batch of a sender its place in such a queue (store.md §2.6):

    body = the messages of a batch request, sysFlag |= 0xC0, properties += INNER_NUM (count), INNER_BASE (first offset)

A batch whose body is compressed is not opened: its sender has to say the count.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from ...common.errors import MessageIllegalError, RecordError
from ...common.message import COMPRESSED, INNER_BATCH, NEEDS_UNWRAP
from ...common.properties import INNER_BASE, INNER_NUM, encode_properties
from ...common.record import NewRecord, decode_batch
from ..files.store_config import BATCH_UNIT_BYTES
from .consume_queue import ConsumeQueue, Entry, QueueSpace

UNIT: Final = struct.Struct(">qiqqqhii")
MOST_MESSAGES: Final = 32_767
NO_MIN_OFFSET: Final = -1
"""The least offset of a queue without messages, as Java tells it of batch queues."""
_READ_UNITS: Final = 256
INNER_BATCH_FLAGS = INNER_BATCH | NEEDS_UNWRAP


class Unit(NamedTuple):
    """One record of the queue, and which messages it holds."""

    log_offset: int
    size: int
    tags_code: int
    stored_at_ms: int
    first_offset: int
    message_count: int

    @property
    def next_offset(self) -> int:
        """The offset behind the last message."""
        return self.first_offset + self.message_count

    @property
    def entry(self) -> Entry:
        """What a consume queue would hold of it."""
        return self.log_offset, self.size, self.tags_code


class BatchQueue:
    """The units of one queue; ``min_offset``, ``max_offset`` and ``next_offset`` count messages."""

    is_batch = True

    def __init__(self, space: QueueSpace, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.slots = ConsumeQueue(space, topic, queue_id)
        self.directory = self.slots.directory
        self.min_offset, self.max_offset, self.next_offset = NO_MIN_OFFSET, 0, 0

    def __repr__(self) -> str:
        return f"<BatchQueue {self.topic}-{self.queue_id} {self.min_offset}..{self.max_offset}>"

    @property
    def pending(self) -> bytearray:
        """Units that wait for ``write_pending``."""
        return self.slots.pending

    def find_end(self) -> None:
        """Find the end of the units, and the offsets that follow from it."""
        self.slots.find_end()
        self.take_over_slots()

    def take_over_slots(self) -> None:
        """Take the offsets from the units that are there; nothing is on its way."""
        last = self.unit(self.slots.max_offset - 1)
        self.max_offset = self.next_offset = last.next_offset if last is not None else 0
        self._take_min()

    def begin_at(self, queue_offset: int) -> None:
        """Begin a queue without units at an offset; its first unit says so."""
        if not self.max_offset:
            self.max_offset = self.next_offset = queue_offset

    def write_pending(self) -> None:
        """Write the units collected in ``pending`` behind the last one.

        Raises:
            OSError: They were not written (all of those that go into one file, or none); ``pending`` holds the rest.
        """
        if not self.pending:
            return
        first, last = _unit(self.pending, 0), _unit(self.pending, len(self.pending) - BATCH_UNIT_BYTES)
        if not self.slots.max_offset:
            self.min_offset = first.first_offset
        try:
            self.slots.write_pending()
        except OSError:
            self.max_offset = _unit(self.pending, 0).first_offset
            raise
        self.max_offset = last.next_offset

    def correct_min_offset(self, log_min_offset: int) -> None:
        """Move ``min_offset`` to the first message whose record is still in the log (``correctMinOffset``)."""
        self.slots.correct_min_offset(log_min_offset)
        self._take_min()

    def cut_slots(self, slot: int) -> None:
        """Drop the units from a slot on: zeros in their file, later files removed."""
        self.slots.cut(slot)
        self.take_over_slots()

    def remove(self) -> None:
        """Remove all files; the queue begins anew at 0."""
        self.slots.remove()
        self.min_offset, self.max_offset, self.next_offset = NO_MIN_OFFSET, 0, 0

    def unit(self, slot: int) -> Unit | None:
        """Return the unit of a slot, ``None`` when there is none."""
        data = self.slots.read(slot, 1) if slot >= 0 else b""
        return _unit(data, 0) if len(data) == BATCH_UNIT_BYTES else None

    def slot_of(self, queue_offset: int) -> int | None:
        """Return the slot of the unit that holds a message, ``None`` when the message is not there."""
        low, high = self.slots.min_offset, self.slots.max_offset
        while low < high:
            middle = (low + high) // 2
            found = self.unit(middle)
            if found is not None and found.next_offset > queue_offset:
                high = middle
            else:
                low = middle + 1
        unit = self.unit(low)
        return low if unit is not None and unit.first_offset <= queue_offset else None

    def entry(self, queue_offset: int) -> Entry | None:
        """Return log offset, size and tags code of the record that holds a message."""
        slot = self.slot_of(queue_offset)
        unit = self.unit(slot) if slot is not None else None
        return None if unit is None else unit.entry

    def units_of_file(self, slot: int) -> Iterator[Unit]:
        """Yield the units from a slot to the end of its file."""
        end = min(self.slots.file_start(slot) + self.slots.file_entries, self.slots.max_offset)
        while slot < end:
            data = self.slots.read(slot, min(_READ_UNITS, end - slot))
            for position in range(0, len(data), BATCH_UNIT_BYTES):
                yield _unit(data, position)
            slot += max(1, len(data) // BATCH_UNIT_BYTES)

    def first_slots(self) -> range:
        """Return the first slots of the files, in order."""
        slots = self.slots
        return range(max(slots.first_base, 0) // BATCH_UNIT_BYTES, slots.max_offset, slots.file_entries)

    def _take_min(self) -> None:
        first = self.unit(self.slots.min_offset)
        self.min_offset = first.first_offset if first is not None else self.max_offset or NO_MIN_OFFSET


def encode_unit(entry: Entry, stored_at_ms: int, first_offset: int, message_count: int) -> bytes:
    """Return the unit of a record."""
    return UNIT.pack(*entry, stored_at_ms, first_offset, message_count, -1, 0)


def count_of(sys_flag: int, properties: Mapping[str, str]) -> int:
    """Return how many messages a stored record holds."""
    if not sys_flag & INNER_BATCH:
        return 1
    number = properties.get(INNER_NUM, "")
    return int(number) if number.isascii() and number.isdigit() and 0 < int(number) <= MOST_MESSAGES else 1


def _unit(data: bytes | bytearray, position: int) -> Unit:
    return Unit(*UNIT.unpack_from(data, position)[:6])


def number_inner_batch(new: NewRecord, queue_offset: int) -> tuple[NewRecord, int]:
    """Return the record with its count and first offset among the properties, and the count.

    Raises:
        MessageIllegalError: The body is no batch, or not one of that many messages.
    """
    count = _count(new)
    properties = {**new.properties, INNER_NUM: str(count), INNER_BASE: str(queue_offset)}
    numbered = msgspec.structs.replace(new, parsed=properties, property_text=encode_properties(properties))
    return numbered, count


def _count(new: NewRecord) -> int:
    said = new.properties.get(INNER_NUM)
    if new.sys_flag & COMPRESSED:
        count = int(said) if said is not None and said.isascii() and said.isdigit() else 0
    else:
        try:
            count = len(decode_batch(new.body))
        except RecordError as error:
            raise MessageIllegalError(f"inner batch: {error}") from error
    if not 0 < count <= MOST_MESSAGES or said not in (None, str(count)):
        raise MessageIllegalError(f"inner batch of {count} messages, {INNER_NUM} is {said}, limit is {MOST_MESSAGES}")
    return count
