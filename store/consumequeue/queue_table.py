"""All queues of a store, by topic and queue id: consume queues, batch queues, and extended entries of a Java broker.

    consumequeue/<topic>/<queueId>/<20 digits>            consume queues
    batchconsumequeue/<topic>/<queueId>/<20 digits>       queues that count by messages and keep batches whole
    consumequeue_ext/<topic>/<queueId>/<20 digits>        extended entries of a Java broker

Rules of the directories (``ConsumeQueueStore.queueTypeShouldBe``; store.md §2.6, §3.8):

- A topic's queues are of one kind. ``config/topics.json`` tells which (``queue.type``), for topics that it does not
  list the directories do. A directory of the other kind stops the start, as it stops the Java broker's.
- A queue directory that cannot be used (a short, foreign or missing file) is reported as broken; its files are
  removed by recovery and written anew from the log.
- Files that all have one other size are a wrong setting, not damage: the start is refused. A single short file is
  damage: nothing else says that it was made that way.

Rules of extended entries, which are read and never written (``enableConsumeQueueExt``, ``ConsumeQueueExt``; store.md
§3.7):

    unit: size 2 | tags code 8 | store time 8 | bits 2 | bitmap        a size of -1 ends a file

- A tags code of -2147483649 and below is an address: -2^63 plus the position of a unit in all files. A hash is never
  that small.
- What cannot be read means that the message may be wanted: the client compares tags anyway.
- Queues that are written here have plain tags codes; both kinds may stand in one queue.
"""

import struct
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple, TypeVar, cast

from ...common.errors import ConfigError
from ...common.java_json import read_json
from ...common.properties import to_int
from ..files.config_files import load_config
from ..files.files import Descriptors, DirectoryEntry, Files
from ..files.segments import find_other_size, segment_path
from ..files.store_config import BATCH_KEY, BATCH_UNIT_BYTES, ENTRY_BYTES, QUEUE_KEY, StoreConfig
from .batch_queue import BatchQueue
from .consume_queue import ConsumeQueue, QueueSpace

LAST_ADDRESS: Final = -2_147_483_649
_LEAST: Final = -(2**63)
_UNIT: Final = struct.Struct(">hqqh")
QUEUE_TYPE = "queue.type"
BATCH_TYPE = "BatchCQ"
QueueKey = tuple[str, int]


class ExtUnit(NamedTuple):
    """What stands at an address."""

    tags_code: int
    stored_at_ms: int
    bitmap: bytes


class ExtQueues:
    """The extended entries of a store."""

    def __init__(self, files: Files, root: str, descriptors: Descriptors) -> None:
        self._files = files
        self._root = root
        self._descriptors = descriptors
        self._file_bytes: dict[tuple[str, int], int] = {}

    def unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """Return the unit at an address, ``None`` when it cannot be read."""
        file_bytes = self._size_of_files(topic, queue_id)
        if address > LAST_ADDRESS or file_bytes == 0:
            return None
        place = address - _LEAST
        position = place % file_bytes
        path = segment_path(f"{self._root}/{topic}/{queue_id}", place - position)
        try:
            descriptor = self._descriptors.get(path)
            head = self._files.pread(descriptor, _UNIT.size, position)
            size, tags_code, stored_at_ms, bits = _UNIT.unpack(head)
            bitmap = self._files.pread(descriptor, bits, position + _UNIT.size) if bits > 0 else b""
        except (OSError, struct.error):
            return None
        is_whole = size == _UNIT.size + len(bitmap) and len(bitmap) == max(bits, 0)
        return ExtUnit(tags_code, stored_at_ms, bitmap) if is_whole else None

    def resolve(self, topic: str, queue_id: int, code: int) -> int | None:
        """Return the tags code that an entry stands for, ``None`` when it cannot be known."""
        if code > LAST_ADDRESS:
            return code
        unit = self.unit(topic, queue_id, code)
        return None if unit is None else unit.tags_code

    def accepting(self, topic: str, queue_id: int, accepts: Callable[[int], bool]) -> Callable[[int], bool]:
        """Return the filter for entries whose codes may be addresses."""

        def accepts_entry(code: int) -> bool:
            found = self.resolve(topic, queue_id, code)
            return found is None or accepts(to_int(found))

        return accepts_entry

    def remove_topic(self, topic: str) -> None:
        """Remove the files of a topic."""
        root = f"{self._root}/{topic}"
        for queue in self._files.list(root):
            for file in self._files.list(f"{root}/{queue.name}"):
                self._descriptors.drop(f"{root}/{queue.name}/{file.name}")
                self._files.unlink(f"{root}/{queue.name}/{file.name}")
            self._files.remove_directory(f"{root}/{queue.name}")
        if self._files.exists(root):
            self._files.remove_directory(root)

    def _size_of_files(self, topic: str, queue_id: int) -> int:
        """Return the length of a queue's files, which all have the same; 0 without any."""
        key = topic, queue_id
        if key not in self._file_bytes:
            found = self._files.list(f"{self._root}/{topic}/{queue_id}")
            self._file_bytes[key] = max((entry.size for entry in found if not entry.is_directory), default=0)
        return self._file_bytes[key]


def is_same_entry(known: bytes, wanted: bytes) -> bool:
    """Tell whether two entries name the same record; an address stands for whatever code the record has."""
    if known == wanted:
        return True
    return known[:12] == wanted[:12] and int.from_bytes(known[12:20], "big", signed=True) <= LAST_ADDRESS


QueueT = TypeVar("QueueT", ConsumeQueue, BatchQueue)


def _remove_topic(space: QueueSpace, by_key: dict[QueueKey, QueueT], topic: str) -> None:
    for key in [key for key in by_key if key[0] == topic]:
        queue = by_key.pop(key)
        queue.remove()
        space.clear_directory(queue.directory)
        space.remove_directory(queue.directory)
    space.remove_directory(f"{space.root}/{topic}")


def _find_files(space: QueueSpace, directory: str) -> list[DirectoryEntry]:
    """Return the files of a queue; a last one of 0 bytes, which a cut-off creation leaves, is removed."""
    entries = [entry for entry in space.files.list(directory) if not entry.is_directory]
    if entries and entries[-1].size == 0:
        space.files.unlink(f"{directory}/{entries.pop().name}")
    return entries


def _take_files(queue: ConsumeQueue, entries: list[DirectoryEntry], size: int) -> bool:
    """Let a queue have its files; tell whether they follow each other, have one size, and nothing else is there."""
    name = entries[0].name if entries else ""
    first = int(name) if len(name) == 20 and name.isascii() and name.isdigit() else 0
    bases = range(first, first + size * len(entries), size)
    if first % size or [(entry.name, entry.size) for entry in entries] != [(f"{base:020d}", size) for base in bases]:
        return False
    if bases:
        queue.set_files(bases[0], bases[-1])
    return True


class BatchQueueTable:
    """The batch queues of a store; ``topics`` are those whose queues are of this kind."""

    def __init__(self, space: QueueSpace) -> None:
        self.space = space
        self.topics: set[str] = set()
        self.by_key: dict[tuple[str, int], BatchQueue] = {}
        self.change_count = 0
        self.broken: list[BatchQueue] = []

    def __repr__(self) -> str:
        return f"<BatchQueueTable {len(self.by_key)} of {len(self.topics)} topics>"

    def __iter__(self) -> Iterator[BatchQueue]:
        return iter(self.by_key.values())

    def obtain(self, topic: str, queue_id: int) -> BatchQueue:
        """Return the queue, made in memory if need be."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            queue = self.by_key[topic, queue_id] = BatchQueue(self.space, topic, queue_id)
            self.change_count += 1
        return queue

    def remove_topic(self, topic: str) -> None:
        """Remove all queues of a topic with their files; its next queues may be of the other kind."""
        self.topics.discard(topic)
        self.change_count += 1
        _remove_topic(self.space, self.by_key, topic)

    def load(self) -> None:
        """Find the queues on disk, their files and their ends.

        Raises:
            ConfigError: Files have another size than the configured one.
        """
        for topic, queue_id in self.space.find_queues():
            self.topics.add(topic)
            queue = self.obtain(topic, queue_id)
            entries = _find_files(self.space, queue.directory)
            size = self.space.file_bytes
            sizes = {entry.size for entry in entries}
            if len(sizes) == 1 and sizes != {size} and min(sizes) % BATCH_UNIT_BYTES == 0:
                raise ConfigError(
                    f"the files in {queue.directory} have {min(sizes)} bytes, {BATCH_KEY} is {size}", key=BATCH_KEY
                )
            if not _take_files(queue.slots, entries, size):
                self.broken.append(queue)
            queue.find_end()


def batch_space(config: StoreConfig, queues: QueueSpace) -> QueueSpace:
    """Return the space of the batch queues; what the next flush has to take is collected in that of the queues."""
    root = f"{config.root}/batchconsumequeue"
    space = QueueSpace(queues.files, root, config.batch_file_bytes, queues.descriptors, BATCH_UNIT_BYTES)
    space.dirty_paths, space.new_directories = queues.dirty_paths, queues.new_directories
    return space


def load_batch_topics(files: Files, root: str) -> dict[str, bool]:
    """Return the topics of ``config/topics.json`` and whether their queues are batch queues; empty without the file.

    Raises:
        ConfigError: The file cannot be read, nor its backup.
    """
    content = load_config(f"{root}/config/topics.json", read_json, files)
    topics = _object(_object(content).get("topicConfigTable"))
    kinds = {name: _object(_object(one).get("attributes")).get(QUEUE_TYPE) for name, one in topics.items()}
    return {name: kind == BATCH_TYPE for name, kind in kinds.items()}


def check_kinds(files: Files, root: str, kinds: dict[str, bool]) -> None:
    """Compare the directories with what the topics say.

    Raises:
        ConfigError: A topic has queues of the other kind.
    """
    for topic in files.list(f"{root}/batchconsumequeue"):
        if (
            topic.is_directory
            and not kinds.get(topic.name, True)
            and files.list(f"{root}/batchconsumequeue/{topic.name}")
        ):
            raise _wrong_kind(f"{root}/batchconsumequeue", root, topic.name)
    for topic_name in (name for name, is_batch in kinds.items() if is_batch):
        if files.list(f"{root}/consumequeue/{topic_name}"):
            raise _wrong_kind(f"{root}/consumequeue", root, topic_name)


def _wrong_kind(folder: str, root: str, topic: str) -> ConfigError:
    return ConfigError(
        f"{folder}/{topic} cannot be used: {root}/config/topics.json says the other {QUEUE_TYPE} for topic {topic}",
        key="storePathRootDir",
    )


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class QueueTable:
    """The queues of a store; a queue that does not exist is empty and gets its files with its first entry."""

    def __init__(self, space: QueueSpace, batches: BatchQueueTable) -> None:
        self.space = space
        self.by_key: dict[QueueKey, ConsumeQueue] = {}
        self.batches = batches
        self.ext: ExtQueues | None = None
        """Extended entries of a Java broker, where there are any."""
        self.broken: list[ConsumeQueue] = []
        self.known_topics: frozenset[str] | None = None
        """Topics that may have lost their queues; the others were deleted. ``None``: nothing is known about that."""
        self.leaving: set[QueueKey] = set()
        self._change_count = 0

    def __repr__(self) -> str:
        return f"<QueueTable {len(self.by_key)}>"

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.by_key.values())

    @property
    def batch_topics(self) -> set[str]:
        """Topics whose queues are batch queues."""
        return self.batches.topics

    @property
    def change_count(self) -> int:
        """A number that is another one after queues have come or gone."""
        return self._change_count + self.batches.change_count

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | BatchQueue | None:
        """Return a queue that exists, of either kind."""
        return self.by_key.get((topic, queue_id)) or self.batches.by_key.get((topic, queue_id))

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, made in memory if need be."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            queue = self.by_key[topic, queue_id] = ConsumeQueue(self.space, topic, queue_id)
            self._change_count += 1
        return queue

    def is_deleted(self, topic: str) -> bool:
        """Tell whether records of the topic are what a deletion left in the log."""
        return self.known_topics is not None and topic not in self.known_topics

    def set_batch_topics(self, topics: Collection[str]) -> None:
        """Make topics such with batch queues, all or none (raises ``ConfigError`` when one has the other kind)."""
        refused = {key[0] for key in self.by_key}.intersection(topics) if topics else ()
        if refused:
            raise ConfigError(f"topic {min(refused)} has queues that are no batch queues")
        self.batch_topics.update(topics)

    def leave(self, queue: ConsumeQueue | BatchQueue) -> None:
        """Forget a queue whose files are about to go; it may be made anew once it is no longer among ``leaving``."""
        key = queue.topic, queue.queue_id
        self.by_key.pop(key, None)
        self.batches.by_key.pop(key, None)
        self.leaving.add(key)
        self._change_count += 1

    def stay(self, queue: ConsumeQueue | BatchQueue) -> None:
        """Take a queue again that could not be removed."""
        key = queue.topic, queue.queue_id
        self.leaving.discard(key)
        self._change_count += 1
        if isinstance(queue, BatchQueue):
            self.batches.by_key[key] = queue
        else:
            self.by_key[key] = queue

    def clear(self, queue: ConsumeQueue | BatchQueue) -> None:
        """Remove whatever files the queue's directory holds; the queue begins anew at 0."""
        self._change_count += 1
        queue.remove()
        self.space.clear_directory(queue.directory)

    def remove_topic(self, topic: str) -> None:
        """Remove all queues of a topic with their files."""
        self._change_count += 1
        _remove_topic(self.space, self.by_key, topic)
        self.batches.remove_topic(topic)
        if self.ext is not None:
            self.ext.remove_topic(topic)

    def load(self) -> None:
        """Find the queues on disk, their files and their ends.

        Raises:
            ConfigError: The files have one size that is not the configured one.
        """
        sizes: list[int] = []
        for topic, queue_id in self.space.find_queues():
            queue = self.obtain(topic, queue_id)
            entries = _find_files(self.space, queue.directory)
            sizes += [entry.size for entry in entries if entry.size]
            if not _take_files(queue, entries, self.space.file_bytes):
                self.broken.append(queue)
        self._check_size(sizes)
        for queue in self:
            queue.find_end()

    def _check_size(self, sizes: list[int]) -> None:
        size = find_other_size(sizes, self.space.file_bytes)
        if size is not None and size % ENTRY_BYTES == 0:
            raise ConfigError(
                f"the files in {self.space.root} have {size} bytes, {QUEUE_KEY} is {self.space.file_bytes}",
                key=QUEUE_KEY,
            )
