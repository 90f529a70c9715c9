"""All batch consume queues of a store, and which topics have them.

    batchconsumequeue/<topic>/<queueId>/<20 digits>

Rules (``ConsumeQueueStore.queueTypeShouldBe``; store.md §2.6, §3.8):

- A topic's queues are of one kind. ``config/topics.json`` tells which (``queue.type``), for topics that it does not
  list the directories do. A directory of the other kind stops the start, as it stops the Java broker's.
- A queue directory that cannot be used is reported as broken, and written anew from the log.
"""

import os
from collections.abc import Iterator
from typing import Any, cast

from ...common.errors import ConfigError
from ...common.json.javajson import read_json
from ..files.config_files import load_config
from ..files.files import DirectoryEntry, Files
from ..files.store_config import BATCH_KEY, BATCH_UNIT_BYTES, StoreConfig
from .batch_queue import BatchQueue
from .consume_queue import QueueSpace

QUEUE_TYPE = "queue.type"
BATCH_TYPE = "BatchCQ"


class BatchQueues:
    """The batch queues of a store; ``topics`` are those whose queues are of this kind."""

    def __init__(self, space: QueueSpace) -> None:
        self._space = space
        self.topics: set[str] = set()
        self.by_key: dict[tuple[str, int], BatchQueue] = {}
        self.broken: list[BatchQueue] = []

    def __repr__(self) -> str:
        return f"<BatchQueues {len(self.by_key)} of {len(self.topics)} topics>"

    def __iter__(self) -> Iterator[BatchQueue]:
        return iter(self.by_key.values())

    def obtain(self, topic: str, queue_id: int) -> BatchQueue:
        """Return the queue, made in memory if need be."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            queue = self.by_key[topic, queue_id] = BatchQueue(self._space, topic, queue_id)
        return queue

    def clear(self, queue: BatchQueue) -> None:
        """Remove whatever files the queue's directory holds; the queue begins anew at 0."""
        queue.remove()
        for entry in self._space.files.list(queue.directory):
            if not entry.is_directory:
                self._space.files.unlink(f"{queue.directory}/{entry.name}")
                self._space.new_directories.add(queue.directory)

    def remove_topic(self, topic: str) -> None:
        """Remove all queues of a topic with their files; its next queues may be of the other kind."""
        self.topics.discard(topic)
        for key in [key for key in self.by_key if key[0] == topic]:
            queue = self.by_key.pop(key)
            self.clear(queue)
            self._remove_directory(queue.directory)
        self._remove_directory(f"{self._space.root}/{topic}")

    def load(self) -> None:
        """Find the queues on disk, their files and their ends.

        Raises:
            ConfigError: Files have another size than the configured one.
        """
        for topic, queue_id in _queue_directories(self._space.files, self._space.root):
            self.topics.add(topic)
            queue = self.obtain(topic, queue_id)
            entries = [entry for entry in self._space.files.list(queue.directory) if not entry.is_directory]
            if not self._take_files(queue, entries):
                self.broken.append(queue)
            queue.find_end()

    def _remove_directory(self, path: str) -> None:
        if self._space.files.exists(path):
            self._space.files.remove_directory(path)
            self._space.new_directories.add(os.path.dirname(path))

    def _take_files(self, queue: BatchQueue, entries: list[DirectoryEntry]) -> bool:
        if entries and entries[-1].size == 0:
            self._space.files.unlink(f"{queue.directory}/{entries.pop().name}")
        size = self._space.file_bytes
        sizes = {entry.size for entry in entries}
        if len(sizes) == 1 and sizes != {size} and min(sizes) % BATCH_UNIT_BYTES == 0:
            raise ConfigError(
                f"the files in {queue.directory} have {min(sizes)} bytes, {BATCH_KEY} is {size}", key=BATCH_KEY
            )
        if not entries:
            return True
        first = int(entries[0].name) if entries[0].name.isascii() and entries[0].name.isdigit() else -1
        names = [f"{first + size * number:020d}" for number in range(len(entries))]
        if first < 0 or first % size or sizes != {size} or names != [entry.name for entry in entries]:
            return False
        queue.slots.set_files(first, first + size * (len(entries) - 1))
        return True


def batch_space(config: StoreConfig, queues: QueueSpace) -> QueueSpace:
    """Return the space of the batch queues; what the next flush has to take is collected in that of the queues."""
    root = f"{config.root}/batchconsumequeue"
    space = QueueSpace(queues.files, root, config.batch_file_bytes, queues.descriptors, BATCH_UNIT_BYTES)
    space.dirty_paths, space.new_directories = queues.dirty_paths, queues.new_directories
    return space


def _queue_directories(files: Files, root: str) -> Iterator[tuple[str, int]]:
    for topic in files.list(root):
        for queue in files.list(f"{root}/{topic.name}") if topic.is_directory else ():
            if queue.is_directory and queue.name.isascii() and queue.name.isdigit():
                yield topic.name, int(queue.name)


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
