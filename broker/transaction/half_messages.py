"""The forms of a message of a transaction: as it is sent, waits, is asked about, and ends (store.md §11).

    sent         TRAN_MSG=true, to its topic; PGROUP names the producers that can be asked
    half         queue 0 of RMQ_SYS_TRANS_HALF_TOPIC; REAL_TOPIC, REAL_QID: where it belongs; __transactionId__: its
                 unique key; the transaction bits of its flags are cleared, so it is an ordinary record of that topic
    half again   a copy further on in the same queue: with TRANSACTION_CHECK_TIMES, as it is before its producers are
                 asked; or with TRAN_PREPARED_QUEUE_OFFSET, its first offset, while they may not be asked
    committed    its own topic and queue, flag 8, the log offset of the half message beside it; the same properties but
                 REAL_TOPIC and REAL_QID, so that consumers still see TRAN_MSG, PGROUP and __transactionId__
    given up     queue 0 of TRANS_CHECK_MAX_TIME_TOPIC, the same properties
    op message   queue 0 of RMQ_SYS_TRANS_OP_HALF_TOPIC, tag ``d``, body: queue offsets of half messages that are done
                 with, a comma behind each

Rules (``TransactionalMessageBridge``, ``TransactionalMessageServiceImpl``)
    1. Delay levels and timers wait for the commit: a half message keeps their properties and is not parked by them.
       (Java parks it, and throws it away when it is due.) Copies keep the message's own flag and its attempts; Java
       clears them.
    2. An op message names what was committed, rolled back, given up, or copied further on. Java writes none for the
       last two; to it they are harmless, and after a crash nobody is asked twice for what was copied before.
    3. A check copies a half message that it asks about; so the answer to the send, the first offset that the producer
       knows, may come when there is a copy further on. Java commits by the old one then, goes on asking about the copy,
       and delivers the message again. The index knows all copies by their unique key, and what was delivered; without
       an index we do as Java (``HalfCopies``).
"""

from collections.abc import Iterable, Iterator, Mapping

from ...common.errors import MessageIllegalError, RecordError
from ...common.message import TRANSACTION_COMMIT, TRANSACTION_MASK
from ...common.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_DISCARD_TOPIC
from ...common.properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from ...common.record import NewRecord, Record, decode_record
from ...store.message_store import MessageStore
from ..delay.delayed_messages import parked


def is_transactional(properties: Mapping[str, str], *, is_delayed_retry: bool) -> bool:
    """Tell whether a sent message opens a transaction; one that comes back to be consumed again does not."""
    return properties.get(TRANSACTION_PREPARED, "").lower() == "true" and not is_delayed_retry


def half_of(new: NewRecord) -> NewRecord:
    """Return the half message of a sent one."""
    half = parked(new, HALF_TOPIC, 0, new.properties | {TRANSACTION_ID: new.properties[UNIQ_KEY]})
    half.sys_flag &= ~TRANSACTION_MASK
    return half


def committed(half: Record) -> NewRecord:
    """Return the message that consumers get.

    Raises:
        MessageIllegalError: The record does not say where it belongs.
    """
    properties = half.properties
    topic, queue_id = real_place(half)
    del properties[REAL_TOPIC], properties[REAL_QUEUE_ID]
    copy = _copy(half, topic, queue_id, properties)
    copy.sys_flag = half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
    copy.prepared_transaction_offset = half.log_offset
    return copy


def asked_again(half: Record, check_times: int) -> NewRecord:
    """Return the copy whose producers are asked for the so-and-so-manieth time."""
    return _copy(half, HALF_TOPIC, 0, {**half.properties, TRANSACTION_CHECK_TIMES: str(check_times)})


def spared(half: Record) -> NewRecord:
    """Return the copy of a half message whose producers may not be asked yet."""
    properties = half.properties
    properties.setdefault(TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    return _copy(half, HALF_TOPIC, 0, properties)


def resumed(half: Record) -> NewRecord:
    """Return the copy of a message that was given up, as if its producers had never been asked."""
    return asked_again(half, 0)


def given_up(half: Record) -> NewRecord:
    """Return what is kept of a half message that nobody has decided about."""
    return _copy(half, TRANSACTION_DISCARD_TOPIC, 0, half.properties)


def real_place(half: Record) -> tuple[str, int]:
    """Return topic and queue that a half message belongs to.

    Raises:
        MessageIllegalError: It does not say so.
    """
    properties = half.properties
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID, "")
    if topic is None or not (queue_id.isascii() and queue_id.isdecimal()):
        raise MessageIllegalError(f"it belongs to topic {topic}, queue {queue_id or None}")
    return topic, int(queue_id)


def _copy(half: Record, topic: str, queue_id: int, properties: dict[str, str]) -> NewRecord:
    return NewRecord(
        topic,
        queue_id,
        bytes(half.body),
        encode_properties(properties),
        properties,
        half.flag,
        half.sys_flag,
        half.born_at_ms,
        half.born_host,
        half.reconsume_times,
    )


_TAG = "d"
_PROPERTIES = {WAIT: "true", TAGS: _TAG}
_TEXT = encode_properties(_PROPERTIES)


def op_messages(half_offsets: Iterable[int], most_bytes: int, now_ms: int, host: bytes) -> Iterator[NewRecord]:
    """Yield the messages that settle these; one ends with the offset that brings it above ``most_bytes``."""
    text = ""
    for half_offset in half_offsets:
        text += f"{half_offset},"
        if len(text) > most_bytes:
            yield _op_message(text, now_ms, host)
            text = ""
    if text:
        yield _op_message(text, now_ms, host)


def settled_offsets(op: Record) -> Iterator[int]:
    """Yield the offsets that a message names; what is no number is passed over, as is a message with another tag."""
    if op.properties.get(TAGS) != _TAG:
        return
    for word in bytes(op.body).split(b","):
        if word.isdigit():
            yield int(word)


def _op_message(text: str, now_ms: int, host: bytes) -> NewRecord:
    return NewRecord(OP_HALF_TOPIC, 0, text.encode(), _TEXT, _PROPERTIES, 0, 0, now_ms, host)


_MOST = 64
_NO_END_MS = 2**62


class HalfCopies:
    """Finds copies in one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def half_offsets(self, half: Record) -> list[int]:
        """Return the queue offsets of a half message and of its copies."""
        return [copy.queue_offset for copy in self._with_key(HALF_TOPIC, half)]

    def is_delivered(self, half: Record) -> bool:
        """Tell whether the message was committed, by this half message or by a copy of it."""
        places = {copy.log_offset for copy in self._with_key(HALF_TOPIC, half)} | {half.log_offset}
        topic, _ = real_place(half)
        return any(
            record.prepared_transaction_offset in places
            for name in (topic, SCHEDULE_TOPIC, TIMER_TOPIC)
            for record in self._with_key(name, half)
        )

    def _with_key(self, topic: str, half: Record) -> list[Record]:
        key = half.properties.get(UNIQ_KEY)
        if key is None:
            return []
        found = self._store.query(topic, key, _MOST, 0, _NO_END_MS, kind="U").records
        records = [record for data in found if (record := _decode(data)) is not None]
        return [record for record in records if record.topic == topic and record.properties.get(UNIQ_KEY) == key]


def _decode(data: memoryview) -> Record | None:
    try:
        return decode_record(data)
    except RecordError:
        return None
