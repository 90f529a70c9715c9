"""The other copies of a half message, found by its unique key: for answers that come after a check has passed it.

A check copies a half message that it asks about; so the answer to the send, the first offset that the producer knows,
may come when there is a copy further on. Java commits by the old one then, goes on asking about the copy, and delivers
the message again. The index knows all of them, and what was delivered; without an index we do as Java.
"""

from ...common.errors import RecordError
from ...common.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ...common.properties import UNIQ_KEY
from ...common.record import Record, decode_record
from ...store.message_store import MessageStore
from .halfmessages import real_place

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
