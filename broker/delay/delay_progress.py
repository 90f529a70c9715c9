"""How far each delay level has been delivered: what ``config/delayOffset.json`` says, and what the log shows beyond it.

    {"dataVersion": …, "offsetTable": {level: offset of the next message in queue level - 1}}       store.md §9.5

Rules
    1. What is saved is on disk: an offset counts as certain only when the messages that were delivered before it have
       been flushed. A crash never skips one then.
    2. It is saved every ``flushDelayOffsetInterval`` and when the broker stops. The file is Java's, and so is its data
       version: it moves every ``delayOffsetUpdateVersionStep`` deliveries.
    3. A loaded offset is moved into its queue, which may have lost its beginning or, with its log, its end; and that is
       saved before a message can arrive there.
    4. A killed process has delivered more than it has saved; what its log holds of that is not delivered again. What a
       power loss has taken from the log is.
    5. The copy of a message that waited says so by REAL_TOPIC, and keeps its unique key, the level or the time it
       waited for, its birth and its attempts. Together they name one message that waited; one without a unique key is
       delivered again.
    6. A copy is stored when its message is due, or later. So the log is read from a little before that time on, which
       is when progress was saved last, and not at all after a clean stop.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct, field

from ...common.errors import RecordError, StoreNotWritableError
from ...common.metadata import DataVersion
from ...common.names import SCHEDULE_TOPIC
from ...common.properties import DELAY, REAL_TOPIC, TIMER_OUT_MS, TIMER_ROLL_TIMES, UNIQ_KEY
from ...common.record import NewRecord, Record, decode_record
from ...store.message_store import MessageStore
from ..outcomes.group_commit import wait_flushed
from ..topic.config_table import ConfigFolder, next_version

_MARGIN_MS: Final = 10_000  # of a clock that was set back: stamps lag behind the time that passes
_MARK: Final = f"{REAL_TOPIC}\x01".encode()
_TOLD_APART: Final = (UNIQ_KEY, DELAY, TIMER_OUT_MS, TIMER_ROLL_TIMES)


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
    from hashlib import blake2b  # of use after a kill only

    told = [properties.get(name, "") for name in _TOLD_APART]
    place = (message.topic, message.queue_id, message.born_at_ms, message.reconsume_times)
    return blake2b(repr((told, place)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


_log = logging.getLogger(__name__)


class DelayFile(msgspec.Struct, rename="camel", kw_only=True):
    """The content of ``delayOffset.json`` (``DelayOffsetSerializeWrapper``)."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[int, int] = field(default_factory=dict[int, int])


class DelayProgress:
    """The next offset of each level: the latest, and what is certain."""

    file_name = "delayOffset.json"
    content_type = DelayFile

    def __init__(self, now_ms: Callable[[], int], *, version_step: int) -> None:
        self.change_count = 0
        self._now_ms = now_ms
        self._version_step = version_step
        self._version = DataVersion()
        self._moves = 0
        self._latest: dict[int, int] = {}
        self._certain: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<DelayProgress {self._latest}>"

    def next_offset(self, level: int) -> int:
        """Return the offset of the next message of a level."""
        return self._latest.get(level, 0)

    @property
    def is_certain(self) -> bool:
        """Whether nothing has moved since ``confirm``."""
        return self._latest == self._certain

    def move(self, level: int, next_offset: int) -> None:
        """Note where a level is now."""
        before = self._moves // self._version_step
        self._moves += abs(next_offset - self._latest.get(level, 0))
        self._latest[level] = next_offset
        if self._moves // self._version_step != before:
            self._version = next_version(self._version, self._now_ms())

    def latest(self) -> dict[int, int]:
        """Return where the levels are, to be given to ``confirm`` when the log up to now is on disk."""
        return dict(self._latest)

    def confirm(self, offsets: Mapping[int, int]) -> None:
        """Take offsets for certain: the log that was there when they were asked for is on disk."""
        self._certain = dict(offsets)
        self.change_count += 1

    def content(self) -> DelayFile:
        """Return what ``delayOffset.json`` shall hold."""
        return DelayFile(data_version=self._version, offset_table=self._certain)

    def load(self, content: DelayFile) -> None:
        """Take over what ``delayOffset.json`` held."""
        self._version = content.data_version
        self._latest, self._certain = dict(content.offset_table), dict(content.offset_table)

    def take_copy(self, content: DelayFile) -> None:
        """Take over what a master holds; certain is what its log shows, which this broker has by now."""
        if content != self.content() or not self.is_certain:
            self.load(content)
            self.change_count += 1


class DelaySaveJob(Struct, frozen=True):
    """Writes the progress, after the log has been flushed."""

    store: MessageStore
    folder: ConfigFolder
    progress: DelayProgress
    period_ms: int

    async def run(self) -> int:
        """Write it if it has changed; return the pause (raises ``OSError``, ``StoreNotWritableError``)."""
        if not self.progress.is_certain:
            latest = self.progress.latest()
            await wait_flushed(self.store)
            self.progress.confirm(latest)
        await self.folder.save(self.progress)
        return self.period_ms

    async def run_once(self) -> None:
        """Write it for the last time; what the disk does not take is logged, and is delivered once more."""
        try:
            await self.run()
        except (OSError, StoreNotWritableError) as error:
            text = "saving config/delayOffset.json failed, some delayed messages come again after the restart: %s"
            _log.warning(text, error)
