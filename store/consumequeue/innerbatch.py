"""Inner batches: several messages in one record, for topics with batch queues (store.md §2.6).

    body = the messages of a batch request, sysFlag |= 0xC0, properties += INNER_NUM (count), INNER_BASE (first offset)

A batch whose body is compressed is not opened: its sender has to say the count.
"""

import msgspec

from ...common.errors import MessageIllegalError, RecordError
from ...common.properties import INNER_BASE, INNER_NUM, encode_properties
from ...common.record import NewRecord, decode_batch
from ...common.sysflag import COMPRESSED, INNER_BATCH, NEEDS_UNWRAP
from .batch_queue import MOST_MESSAGES

INNER_BATCH_FLAGS = INNER_BATCH | NEEDS_UNWRAP


def number_inner_batch(new: NewRecord, queue_offset: int) -> tuple[NewRecord, int]:
    """Return the record with its count and first offset among the properties, and the count.

    Raises:
        MessageIllegalError: The body is no batch, or not one of that many messages.
    """
    count = _count(new)
    properties = {**new.properties, INNER_NUM: str(count), INNER_BASE: str(queue_offset)}
    numbered = msgspec.structs.replace(new, properties=properties, property_text=encode_properties(properties))
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
