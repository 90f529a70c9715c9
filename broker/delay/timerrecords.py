"""What a timer message becomes when it comes out of the wheel (``TimerMessageStore.convert``; store.md §10.3, §10.6).

    delivered    the message where it belongs, as REAL_TOPIC and REAL_QID say
    rolled       the message in the timer topic once more, with one roll more

Rules

    1. Both keep body, flags, born time and host, attempts, and all properties; so consumers see TIMER_OUT_MS and where
       the message was bound for. TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS are added.
    2. A message that was late when it was to be put into the wheel has the greatest number as TIMER_ENQUEUE_MS.
    3. When its properties leave no room for that, they stay as they are: the message matters more.

Pure: it knows no clock and no store.
"""

from typing import Final

import msgspec

from ...common.hashing import java_hash
from ...common.names import TIMER_TOPIC
from ...common.properties import (
    CRC32,
    MAX_PROPERTIES_BYTES,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
    encode_properties,
)
from ...common.record import NewRecord, Record
from ...store.timer.timers import TimedMessage
from .delay import deliverable

NEVER_PUT_MS: Final = 2**63 - 1
_ROOM_BYTES: Final = 64  # of the encoder, for what it adds


def timed(record: Record) -> TimedMessage | None:
    """Return when a record of the timer topic is due, None when it does not say so."""
    properties = record.properties
    text = properties.get(TIMER_OUT_MS, "")
    if record.topic != TIMER_TOPIC or not text.isdecimal() or int(text) >= NEVER_PUT_MS:
        return None
    topic_hash = java_hash(properties.get(REAL_TOPIC, ""))
    return TimedMessage(int(text), record.log_offset, record.total_size, topic_hash, TIMER_DEL_UNIQKEY in properties)


def delivered(record: Record, put_at_ms: int, now_ms: int) -> NewRecord:
    """Return the message of a timer record, as it is stored where it belongs.

    Raises:
        MessageIllegalError: It is never to be delivered.
    """
    return _stamped(deliverable(record), put_at_ms, now_ms)


def rolled(record: Record, put_at_ms: int, now_ms: int) -> NewRecord:
    """Return the record that keeps a message for another round."""
    times = record.properties.get(TIMER_ROLL_TIMES, "")
    new = NewRecord(
        record.topic,
        record.queue_id,
        bytes(record.body),
        record.property_text,
        record.properties | {TIMER_ROLL_TIMES: str(int(times) + 1 if times.isdecimal() else 1)},
        record.flag,
        record.sys_flag,
        record.born_at_ms,
        record.born_host,
        record.reconsume_times,
    )
    return _stamped(new, put_at_ms, now_ms)


def deletion_keys(record: Record) -> tuple[str, ...]:
    """Return by which texts another message may delete this one."""
    properties = record.properties
    unique_key = properties.get(UNIQ_KEY)
    return () if unique_key is None else (unique_key, f"{properties.get(REAL_TOPIC)}+{unique_key}")


def _stamped(new: NewRecord, put_at_ms: int, now_ms: int) -> NewRecord:
    properties = new.properties | {TIMER_ENQUEUE_MS: str(put_at_ms), TIMER_DEQUEUE_MS: str(now_ms)}
    properties.pop(CRC32, None)
    text = encode_properties(properties)
    if len(text) > MAX_PROPERTIES_BYTES - _ROOM_BYTES:
        return new
    return msgspec.structs.replace(new, property_text=text, properties=properties)
