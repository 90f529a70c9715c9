"""How far each delay level has been delivered: ``config/delayOffset.json`` (spec store.md §9.5).

    {"dataVersion": …, "offsetTable": {level: offset of the next message in queue level - 1}}

Rules

    1. What is saved is on disk: an offset counts as certain only when the messages that were delivered before it have
       been flushed. A crash never skips one then; what the log shows as delivered is passed (``delivered.py``).
    2. It is saved every ``flushDelayOffsetInterval`` and when the broker stops. The file is Java's, and so is its data
       version: it moves every ``delayOffsetUpdateVersionStep`` deliveries.
    3. A loaded offset is moved into its queue, which may have lost its beginning or, with its log, its end; and that is
       saved before a message can arrive there.
"""

import logging
from collections.abc import Callable, Mapping

import msgspec
from msgspec import field

from ...common.errors import StoreNotWritableError
from ...remoting.bodies.route import DataVersion
from ...store.message_store import MessageStore
from ..outcomes.flushed import wait_flushed
from ..topic.configtable import ConfigFolder, next_version

_log = logging.getLogger(__name__)


class DelayFile(msgspec.Struct, rename="camel", kw_only=True):
    """The content of ``delayOffset.json`` (``DelayOffsetSerializeWrapper``)."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[int, int] = field(default_factory=dict[int, int])


class DelayProgress:
    """The next offset of each level: the latest, and what is certain."""

    file_name = "delayOffset.json"
    content_type = DelayFile

    def __init__(self, now_ms: Callable[[], int], *, version_step: int = 200) -> None:
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


class DelaySaveJob:
    """Writes the progress, after the log has been flushed."""

    def __init__(self, store: MessageStore, folder: ConfigFolder, progress: DelayProgress, period_ms: int) -> None:
        self._store = store
        self._folder = folder
        self._progress = progress
        self.period_ms = period_ms

    async def run(self) -> int:
        """Write it if it has changed; return the pause (raises ``OSError``, ``StoreNotWritableError``)."""
        if not self._progress.is_certain:
            latest = self._progress.latest()
            await wait_flushed(self._store)
            self._progress.confirm(latest)
        await self._folder.save(self._progress)
        return self.period_ms

    async def run_once(self) -> None:
        """Write it for the last time; what the disk does not take is logged, and is delivered once more."""
        try:
            await self.run()
        except (OSError, StoreNotWritableError) as error:
            text = "saving config/delayOffset.json failed, some delayed messages come again after the restart: %s"
            _log.warning(text, error)
