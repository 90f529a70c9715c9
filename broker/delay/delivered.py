"""What the log shows as delivered, of messages that waited: after a kill it knows more than the saved progress.

Rules

    1. Progress is saved every few seconds, behind a flush. A killed process has delivered more than that; what its log
       holds of it is not delivered again. What a power loss has taken from the log is.
    2. The copy of a message that waited says so by REAL_TOPIC, and keeps its unique key, the level or the time it
       waited for, its birth and its attempts. Together they name one message that waited; one without a unique key is
       delivered again.
    3. A copy is stored when its message is due, or later. So the log is read from a little before that time on, which
       is when progress was saved last, and not at all after a clean stop.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from ...common.errors import RecordError
from ...common.names import SCHEDULE_TOPIC
from ...common.properties import DELAY, REAL_TOPIC, TIMER_OUT_MS, TIMER_ROLL_TIMES, UNIQ_KEY
from ...common.record import NewRecord, Record, decode_record
from ...store.message_store import MessageStore

_MARGIN_MS: Final = 10_000  # of a clock that was set back: stamps lag behind the time that passes
_MARK: Final = f"{REAL_TOPIC}\x01".encode()
_TOLD_APART: Final = (UNIQ_KEY, DELAY, TIMER_OUT_MS, TIMER_ROLL_TIMES)
_log = logging.getLogger(__name__)


class DeliveredCopies:
    """The copies of a part of the log; ``take`` finds each of them once."""

    def __init__(self) -> None:
        self._counts = Counter[bytes]()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __repr__(self) -> str:
        return f"<DeliveredCopies {len(self)}>"

    def __len__(self) -> int:
        return self._counts.total()

    def add(self, record: Record) -> None:
        """Note a record of the log if it may be a copy."""
        key = _key_of(record) if record.topic != SCHEDULE_TOPIC else None
        if key is not None:
            self._counts[key] += 1

    def take(self, new: NewRecord) -> bool:
        """Tell whether a message that is to be delivered has been; each copy counts for one message."""
        key = _key_of(new) if self._counts else None
        if key is None or key not in self._counts:
            return False
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
        return True


def find_start(store: MessageStore, due_at_ms: int, log_offset: int) -> int:
    """Return from where on the log may hold copies of messages that stand behind a position and were due at a time."""
    at_ms = due_at_ms - _MARGIN_MS
    start = max(log_offset, store.file_start_before(at_ms))
    for topic, queue_id in store.queues():
        if topic == SCHEDULE_TOPIC:  # what waits there stands everywhere in the log
            before = store.offset_by_time(topic, queue_id, at_ms) - 1
            entries = store.entries(topic, queue_id, before, 1) if before >= store.min_offset(topic, queue_id) else []
            start = max(start, *(entry[0] for entry in entries if store.entry_stored_at(entry) < at_ms), 0)
    return start


def find_copies(store: MessageStore, start: int, end: int) -> DeliveredCopies:
    """Read the log between two positions; slow, may run in any thread (raises ``OSError``)."""
    copies = DeliveredCopies()
    with store.cold_records() as records:
        _add_all(copies, records.walk(start, end, _MARK))
    _log.info("recovery: log offsets %d to %d hold %d delivered delayed messages", start, end, len(copies))
    return copies


def _add_all(copies: DeliveredCopies, records: Iterable[bytes]) -> None:
    for data in records:
        try:
            copies.add(decode_record(data))
        except RecordError:  # a reader of its queue will find it
            continue


def _key_of(message: Record | NewRecord) -> bytes | None:
    properties = message.properties
    if UNIQ_KEY not in properties or REAL_TOPIC not in properties:
        return None
    told = [properties.get(name, "") for name in _TOLD_APART]
    place = (message.topic, message.queue_id, message.born_at_ms, message.reconsume_times)
    return blake2b(repr((told, place)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
