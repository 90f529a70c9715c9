"""The queues of a store that is only read, and how far they can be trusted to know the log.

Rules:

- Of a store that was cleanly closed, queues know the log up to the last record that any of them names. Of another one
  they know what was stored before the times of the checkpoint, less a margin for what was not flushed: Java raises the
  time of the queues before their files are flushed, which may take a minute.
- Where the first record of a log file is not in its queue, queues know nothing from the end of that queue on: they are
  a copy of another age, or the store keeps its queues elsewhere now.
- A topic's queues are those of ``config/topics.json``. When one of them has no files, nobody knows whether it had none
  or lost them, and nothing is known of the topic.
- What a broker dropped, it knows no more: of a topic that was deleted and made again, only what came after.
"""

import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Final

import msgspec

from ...common.errors import JsonError
from ...common.json.javajson import read_json_as
from ...common.names import is_system_topic
from ...common.record import Record
from ...store.files.checkpoint import Checkpoint, load_checkpoint
from ...store.files.files import OS_FILES
from .planned import PlannedLog, is_queued
from .queuefiles import BATCH_QUEUES, QUEUES, QueueView, open_queue

_KINDS: Final = (QUEUES, BATCH_QUEUES)
MARGIN_MS: Final = 120_000
_MOST_CHECKED: Final = 64
_MOST_OPENED: Final = 128


class StoreQueues:
    """The queues of the store in a directory, beside the log that was planned."""

    def __init__(self, home: str, log: PlannedLog) -> None:
        self.home = home
        self.log = log
        self._views: dict[tuple[str, int], QueueView | None] = {}

    @cached_property
    def is_closed(self) -> bool:
        """Whether the store was cleanly closed."""
        return not os.path.exists(os.path.join(self.home, "abort"))

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """What the store says to be flushed."""
        try:
            return load_checkpoint(OS_FILES, os.path.join(self.home, "checkpoint"))
        except OSError:
            return Checkpoint()

    def view(self, topic: str, queue_id: int) -> QueueView | None:
        """Return a queue, ``None`` when nothing is known of it."""
        key = topic, queue_id
        if key not in self._views:
            files = open_queue(self.home, topic, queue_id, self.log.end)
            self._views[key] = None if files is None else QueueView(files)
        return self._views[key]

    def views_of(self, topic: str, queue_ids: Iterable[int] | None) -> list[QueueView] | None:
        """Return the queues of a topic, or those with some ids; ``None`` when one of them is not known."""
        if queue_ids is None:
            expected = self._queue_count(topic)
            if expected is None:
                return None
            queue_ids = {*range(expected), *self.queue_ids(topic)}
        found: list[QueueView] = []
        for queue_id in sorted(queue_ids):
            view = self.view(topic, queue_id)
            if view is None:
                return None
            found.append(view)
        return found

    def queue_ids(self, topic: str) -> list[int]:
        """Return the ids for which there are directories."""
        names = [name for kind in _KINDS for name in list_names(os.path.join(self.home, kind, topic))]
        return [int(name) for name in names if name.isdecimal()]

    def every_queue(self) -> Iterator[tuple[str, int]]:
        """Yield topic and id of each directory."""
        for topic in self._directories():
            for queue_id in self.queue_ids(topic):
                yield topic, queue_id

    @cached_property
    def _configured(self) -> dict[str, "_TopicCounts"]:
        """The topics of ``config/topics.json``, none where that cannot be read."""
        try:
            with open(os.path.join(self.home, "config", "topics.json"), "rb") as file:
                return read_json_as(file.read(), _TopicTable).topics
        except (OSError, JsonError):
            return {}

    def knows(self, topic: str) -> bool:
        """Tell whether the store has, or had, such a topic."""
        return topic in self._configured or any(os.path.isdir(os.path.join(self.home, kind, topic)) for kind in _KINDS)

    def known_topics(self) -> set[str]:
        """Return all topics that the store has or had."""
        return {*self._configured, *self._directories()}

    def _directories(self) -> list[str]:
        return [topic for kind in _KINDS for topic in list_names(os.path.join(self.home, kind))]

    def has_every_queue(self) -> bool:
        """Tell whether topics that have queues have all of theirs; but for system topics, which use few of them."""
        return all(self._has_all_of(topic) for topic in self._directories() if not is_system_topic(topic))

    def _has_all_of(self, topic: str) -> bool:
        expected = self._queue_count(topic)
        return expected is not None and set(range(expected)) <= set(self.queue_ids(topic))

    def sure_until(self, views: Iterable[QueueView]) -> int:
        """Return the log offset before which these queues know all of their records."""
        until = self._closed_until() if self.is_closed else self._flushed_until(views)
        for base, record in _some(list(self.log.first_records())):
            if base < until and record is not None:
                until = min(until, self._known_until(record))
        return until

    def _closed_until(self) -> int:
        """Return where the last record ends that a queue names, if there are not too many queues to ask."""
        keys = list(islice(self.every_queue(), _MOST_OPENED + 1))
        if len(keys) > _MOST_OPENED:
            return self.log.end
        views = [view for key in keys if (view := self.view(*key)) is not None]
        ends = [view.record_end(view.files.stop - 1) for view in views if view.files.stop > view.files.first]
        return min(max(ends, default=0), self.log.end)

    def _flushed_until(self, views: Iterable[QueueView]) -> int:
        limit_ms = self.checkpoint.sure_at_ms - MARGIN_MS
        firsts = [base for base, record in self.log.first_records() if record and record.stored_at_ms <= limit_ms]
        return max((*firsts, *(self._flushed_by(view, limit_ms) for view in views)), default=0)

    def _flushed_by(self, view: QueueView, limit_ms: int) -> int:
        low, high = view.first_at(self.log.start), view.files.stop
        first = low
        while low < high:
            middle = (low + high) // 2
            record = self.log.record_at(view.log_offset(middle))
            if record is not None and record.stored_at_ms <= limit_ms:
                low = middle + 1
            else:
                high = middle
        return view.record_end(low - 1) if low > first else 0

    def _known_until(self, record: Record) -> int:
        """Return where the queue of a record ends in the log if the record is not in it."""
        view = self.view(record.topic, record.queue_id)
        if view is None or not is_queued(record) or view.end_offset > record.queue_offset:
            return self.log.end
        files = view.files
        return view.record_end(files.stop - 1) if files.stop > files.first else 0

    def _queue_count(self, topic: str) -> int | None:
        counts = self._configured.get(topic)
        return None if counts is None else max(counts.readable, counts.writable)


class _TopicCounts(msgspec.Struct):
    readable: int = msgspec.field(name="readQueueNums", default=0)
    writable: int = msgspec.field(name="writeQueueNums", default=0)


class _TopicTable(msgspec.Struct):
    topics: dict[str, _TopicCounts] = msgspec.field(name="topicConfigTable", default_factory=dict[str, _TopicCounts])


def list_names(directory: str) -> list[str]:
    """Return the names in a directory, none where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _some(items: list[tuple[int, Record | None]]) -> list[tuple[int, Record | None]]:
    """Return a bounded number of them, the last one always."""
    step = -(-len(items) // _MOST_CHECKED)
    return [*items[:-1:step], *items[-1:]]
