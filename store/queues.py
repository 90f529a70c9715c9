"""All consume queues of a store, by topic and queue id.

    consumequeue/<topic>/<queueId>/<20 digits>

Rules:

- A queue directory that cannot be used (a short, foreign or missing file) is reported as broken; its files are
  removed by recovery and written anew from the log.
- Files that all have one other size are a wrong setting, not damage: the start is refused.
- Topics that have a directory under ``batchconsumequeue/`` never get one here: the Java broker would not start.
"""

from collections.abc import Iterable, Iterator

from ..common.errors import ConfigError
from .config import ENTRY_BYTES, QUEUE_KEY
from .consumequeue import ConsumeQueue, QueueSpace
from .files import DirectoryEntry

QueueKey = tuple[str, int]


class Queues:
    """The queues of a store; a queue that does not exist is empty and gets its files with its first entry."""

    def __init__(self, space: QueueSpace, batch_topics: Iterable[str] = ()) -> None:
        self._space = space
        self.by_key: dict[QueueKey, ConsumeQueue] = {}
        self.batch_topics = set(batch_topics)
        self.broken: list[ConsumeQueue] = []

    def __repr__(self) -> str:
        return f"<Queues {len(self.by_key)}>"

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue that exists."""
        return self.by_key.get((topic, queue_id))

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, made in memory if need be."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            queue = self.by_key[topic, queue_id] = ConsumeQueue(self._space, topic, queue_id)
        return queue

    def clear(self, queue: ConsumeQueue) -> None:
        """Remove whatever files the queue's directory holds; the queue begins anew at 0."""
        queue.remove()
        for entry in self._space.files.list(queue.directory):
            if not entry.is_directory:
                self._space.files.unlink(f"{queue.directory}/{entry.name}")

    def remove_topic(self, topic: str) -> None:
        """Remove all queues of a topic with their files."""
        for key in [key for key in self.by_key if key[0] == topic]:
            queue = self.by_key.pop(key)
            self.clear(queue)
            self._remove_directory(queue.directory)
        self._remove_directory(f"{self._space.root}/{topic}")

    def load(self) -> None:
        """Find the queues on disk, their files and their ends.

        Raises:
            ConfigError: All files have one size that is not the configured one.
        """
        sizes: set[int] = set()
        for topic, queue_id in self._directories():
            queue = self.obtain(topic, queue_id)
            entries = [entry for entry in self._space.files.list(queue.directory) if not entry.is_directory]
            sizes.update(entry.size for entry in entries)
            if not self._take_files(queue, entries):
                self.broken.append(queue)
        self._check_size(sizes)
        for queue in self:
            queue.find_end()

    def _remove_directory(self, path: str) -> None:
        if self._space.files.exists(path):
            self._space.files.remove_directory(path)

    def _directories(self) -> Iterator[QueueKey]:
        for topic in self._space.files.list(self._space.root):
            if not topic.is_directory:
                continue
            for queue in self._space.files.list(f"{self._space.root}/{topic.name}"):
                if queue.is_directory and queue.name.isascii() and queue.name.isdigit():
                    yield topic.name, int(queue.name)

    def _take_files(self, queue: ConsumeQueue, entries: list[DirectoryEntry]) -> bool:
        if entries and entries[-1].size == 0:
            self._space.files.unlink(f"{queue.directory}/{entries.pop().name}")
        size = self._space.file_bytes
        bases = [int(entry.name) if entry.name.isascii() and entry.name.isdigit() else -1 for entry in entries]
        if any(entry.size != size or len(entry.name) != 20 for entry in entries):
            return False
        if bases != [bases[0] + size * number for number in range(len(bases))] if bases else False:
            return False
        if bases:
            queue.set_files(bases[0], bases[-1])
        return not bases or (bases[0] >= 0 and bases[0] % size == 0)

    def _check_size(self, sizes: set[int]) -> None:
        size = min(sizes, default=0)
        if len(sizes) == 1 and size and size != self._space.file_bytes and size % ENTRY_BYTES == 0:
            raise ConfigError(
                f"the files in {self._space.root} have {size} bytes, {QUEUE_KEY} is {self._space.file_bytes}",
                key=QUEUE_KEY,
            )
