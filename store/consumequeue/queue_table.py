"""All consume queues of a store, by topic and queue id.

    consumequeue/<topic>/<queueId>/<20 digits>

Rules:

- A queue directory that cannot be used (a short, foreign or missing file) is reported as broken; its files are
  removed by recovery and written anew from the log.
- Files that all have one other size are a wrong setting, not damage: the start is refused. A single short file is
  damage: nothing else says that it was made that way.
- Topics whose queues count by messages have none here, but in ``batches``: the Java broker would not start otherwise.
"""

import os
from collections.abc import Iterator

from ...common.errors import ConfigError
from ..files.files import DirectoryEntry
from ..files.segments import find_other_size
from ..files.store_config import ENTRY_BYTES, QUEUE_KEY
from .batch_queue import BatchQueue
from .batchqueues import BatchQueues
from .consume_queue import ConsumeQueue, QueueSpace
from .extqueue import ExtQueues

QueueKey = tuple[str, int]


class Queues:
    """The queues of a store; a queue that does not exist is empty and gets its files with its first entry."""

    def __init__(self, space: QueueSpace, batches: BatchQueues) -> None:
        self.space = space
        self.by_key: dict[QueueKey, ConsumeQueue] = {}
        self.batches = batches
        self.ext: ExtQueues | None = None
        """Extended entries of a Java broker, where there are any."""
        self.broken: list[ConsumeQueue] = []
        self.known_topics: frozenset[str] | None = None
        """Topics that may have lost their queues; the others were deleted. ``None``: nothing is known about that."""
        self.leaving: set[QueueKey] = set()

    def __repr__(self) -> str:
        return f"<Queues {len(self.by_key)}>"

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)

    @property
    def batch_topics(self) -> set[str]:
        """Topics whose queues are batch queues."""
        return self.batches.topics

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | BatchQueue | None:
        """Return a queue that exists, of either kind."""
        return self.by_key.get((topic, queue_id)) or self.batches.by_key.get((topic, queue_id))

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, made in memory if need be."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            queue = self.by_key[topic, queue_id] = ConsumeQueue(self.space, topic, queue_id)
        return queue

    def is_deleted(self, topic: str) -> bool:
        """Tell whether records of the topic are what a deletion left in the log."""
        return self.known_topics is not None and topic not in self.known_topics

    def set_batch_topic(self, topic: str) -> None:
        """Make a topic one with batch queues (raises ``ConfigError`` when it has queues of the other kind)."""
        if any(key[0] == topic for key in self.by_key):
            raise ConfigError(f"topic {topic} has queues that are no batch queues")
        self.batch_topics.add(topic)

    def leave(self, queue: ConsumeQueue | BatchQueue) -> None:
        """Forget a queue whose files are about to go; it may be made anew once it is no longer among ``leaving``."""
        key = queue.topic, queue.queue_id
        self.by_key.pop(key, None)
        self.batches.by_key.pop(key, None)
        self.leaving.add(key)

    def stay(self, queue: ConsumeQueue | BatchQueue) -> None:
        """Take a queue again that could not be removed."""
        key = queue.topic, queue.queue_id
        self.leaving.discard(key)
        if isinstance(queue, BatchQueue):
            self.batches.by_key[key] = queue
        else:
            self.by_key[key] = queue

    def clear(self, queue: ConsumeQueue) -> None:
        """Remove whatever files the queue's directory holds; the queue begins anew at 0."""
        queue.remove()
        for entry in self.space.files.list(queue.directory):
            if not entry.is_directory:
                self.space.files.unlink(f"{queue.directory}/{entry.name}")
                self.space.new_directories.add(queue.directory)

    def remove_topic(self, topic: str) -> None:
        """Remove all queues of a topic with their files."""
        for key in [key for key in self.by_key if key[0] == topic]:
            queue = self.by_key.pop(key)
            self.clear(queue)
            self._remove_directory(queue.directory)
        self._remove_directory(f"{self.space.root}/{topic}")
        self.batches.remove_topic(topic)
        if self.ext is not None:
            self.ext.remove_topic(topic)

    def load(self) -> None:
        """Find the queues on disk, their files and their ends.

        Raises:
            ConfigError: The files have one size that is not the configured one.
        """
        sizes: list[int] = []
        for topic, queue_id in self._directories():
            queue = self.obtain(topic, queue_id)
            entries = [entry for entry in self.space.files.list(queue.directory) if not entry.is_directory]
            sizes += [entry.size for entry in entries if entry.size]
            if not self._take_files(queue, entries):
                self.broken.append(queue)
        self._check_size(sizes)
        for queue in self:
            queue.find_end()

    def _remove_directory(self, path: str) -> None:
        if self.space.files.exists(path):
            self.space.files.remove_directory(path)
            self.space.new_directories.add(os.path.dirname(path))

    def _directories(self) -> Iterator[QueueKey]:
        for topic in self.space.files.list(self.space.root):
            if not topic.is_directory:
                continue
            for queue in self.space.files.list(f"{self.space.root}/{topic.name}"):
                if queue.is_directory and queue.name.isascii() and queue.name.isdigit():
                    yield topic.name, int(queue.name)

    def _take_files(self, queue: ConsumeQueue, entries: list[DirectoryEntry]) -> bool:
        if entries and entries[-1].size == 0:
            self.space.files.unlink(f"{queue.directory}/{entries.pop().name}")
        size = self.space.file_bytes
        bases = [int(entry.name) if entry.name.isascii() and entry.name.isdigit() else -1 for entry in entries]
        if any(entry.size != size or len(entry.name) != 20 for entry in entries):
            return False
        if bases != [bases[0] + size * number for number in range(len(bases))] if bases else False:
            return False
        if bases:
            queue.set_files(bases[0], bases[-1])
        return not bases or (bases[0] >= 0 and bases[0] % size == 0)

    def _check_size(self, sizes: list[int]) -> None:
        size = find_other_size(sizes, self.space.file_bytes)
        if size is not None and size % ENTRY_BYTES == 0:
            raise ConfigError(
                f"the files in {self.space.root} have {size} bytes, {QUEUE_KEY} is {self.space.file_bytes}",
                key=QUEUE_KEY,
            )
