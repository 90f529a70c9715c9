"""Small stores for tests: tiny files, a clock that only tests move, a disk that fills up, and Java's truth files."""

import base64
import errno
import hashlib
import json
import os
import pathlib
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rocketlet.common.clock import Clock
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord, PlainPart, Record, iter_records
from rocketlet.store.consumequeue.queue_reader import ReadLimits, ReadStatus
from rocketlet.store.files.files import OS_FILES, Files
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
TINY: dict[str, Any] = {"segment_bytes": 4096, "queue_file_bytes": 200, "index_slots": 50, "index_entries": 40}


def new_record(topic: str = "T", queue_id: int = 0, body: bytes = b"body", **properties: str) -> NewRecord:
    """Return a record as a sender hands it over."""
    return NewRecord(
        topic, queue_id, body, encode_properties(properties), dict(properties), 0, 0, 1_700_000_000_000, HOST
    )


def new_part(body: bytes = b"body", **properties: str) -> PlainPart:
    """Return a message of a batch."""
    return 0, body, encode_properties(properties)


class LimitedFiles(Files):
    """A disk with room for so many bytes, whose flushes can be made to fail; counts its calls.

    As on a real disk, bytes that overwrite others need no room.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self.fails_sync = False
        self.gathered: list[int] = []

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write what there is room for."""
        return self._write(descriptor, bytes(data), position)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Write what there is room for."""
        self.gathered.append(len(buffers))
        return self._write(descriptor, b"".join(buffers), position)

    def sync(self, descriptor: int) -> None:
        """Fail when told to."""
        if self.fails_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)

    def _write(self, descriptor: int, data: bytes, position: int) -> int:
        if self.room is None or any(self.pread(descriptor, len(data), position)):
            return super().pwrite(descriptor, data, position)
        if data and not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(len(data), self.room)
        self.room -= taken
        return super().pwrite(descriptor, data[:taken], position)


class StoreDirectory:
    """A store directory that is opened, closed, copied and damaged; ``now_ms`` is its clock."""

    def __init__(self, root: pathlib.Path, **settings: Any) -> None:
        self.root = root
        self.config = StoreConfig(str(root), **{**TINY, **settings})
        self.now_ms = 1_750_000_000_000
        self._open: list[MessageStore] = []

    def open(self, files: Files = OS_FILES, *, repairs: bool = False) -> MessageStore:
        """Open the store; ``close_all`` closes it."""
        store = MessageStore.open(
            self.config, now_ms=lambda: self.now_ms, store_host=HOST, files=files, repairs=repairs
        )
        self._open.append(store)
        return store

    def open_at(self, clock: Clock) -> MessageStore:
        """Open the store under both clocks of a ``Clock``; ``close_all`` closes it."""
        store = MessageStore.open(self.config, now_ms=clock.now_ms, monotonic_ms=clock.monotonic_ms, store_host=HOST)
        self._open.append(store)
        return store

    def close_all(self) -> None:
        """Close what is open."""
        while self._open:
            self._open.pop().close()

    def copy(self, name: str, **settings: Any) -> "StoreDirectory":
        """Return a copy of what is on disk now, as a killed process would leave it."""
        root = self.root.with_name(name)
        shutil.copytree(self.root, root)
        twin = StoreDirectory(root, **{**_sizes(self.config), **settings})
        twin.now_ms = self.now_ms
        return twin

    def fill(self, count: int, queues: int = 3, size: int = 100, topic: str = "T") -> None:
        """Open, write messages with keys and tags, and close."""
        with self.open() as store:
            for number in range(count):
                self.now_ms += 10
                store.append(sample(number, topic, queues, size))
                store.commit()

    def segment(self, number: int = 0) -> pathlib.Path:
        """Return a file of the log."""
        return self.root / "commitlog" / f"{number * self.config.segment_bytes:020d}"

    def queue_file(self, topic: str = "T", queue_id: int = 0, number: int = 0) -> pathlib.Path:
        """Return a file of a queue."""
        name = f"{number * self.config.queue_file_bytes:020d}"
        return self.root / "consumequeue" / topic / str(queue_id) / name

    @property
    def abort(self) -> pathlib.Path:
        """The file that says "not cleanly closed"."""
        return self.root / "abort"


def sample(number: int, topic: str = "T", queues: int = 3, size: int = 100) -> NewRecord:
    """Return the message of that number."""
    body = b"%06d" % number + b"x" * (size + number % 7)
    keys = {"UNIQ_KEY": f"ID{number:08d}", "KEYS": f"k{number} all", "TAGS": f"t{number % 3}"}
    return new_record(topic, number % queues, body, **keys)


def _sizes(config: StoreConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in TINY}


def read_queue(store: MessageStore, topic: str, queue_id: int) -> list[Record]:
    """Return all messages of a queue, read as a consumer would."""
    offset, records = store.min_offset(topic, queue_id), list[Record]()
    while True:
        result = store.read(topic, queue_id, offset, ReadLimits())
        for part in result.records:
            records += iter_records(part)
        if result.status is not ReadStatus.FOUND:
            return records
        offset = result.next_offset


def read_all(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """Return (queue offset, body) of every message by queue."""
    return {
        key: [(record.queue_offset, bytes(record.body)) for record in read_queue(store, *key)]
        for key in sorted(store.queues())
    }


def assert_recovered(directory: StoreDirectory) -> None:
    """Check that closing leaves ``abort``, and that the next start finds the one message that was written."""
    directory.close_all()
    assert directory.abort.exists()
    assert read_all(directory.open()) == {("T", 0): [(0, b"body")]}


def file_bytes(folder: pathlib.Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@dataclass
class GoldenStore:
    """A directory that a Java broker wrote, and what a Java broker answered about it."""

    name: str
    directory: StoreDirectory
    truth: dict[str, Any]

    @classmethod
    def unpack(cls, vectors: pathlib.Path, name: str, folder: pathlib.Path) -> "GoldenStore":
        """Unpack the directory below a folder."""
        with tarfile.open(vectors / "store" / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        truth = json.loads((vectors / "store" / f"{name}.json").read_text())
        words = {"True": "true", "False": "false"}
        settings = {key: words.get(str(value), str(value)) for key, value in truth["settings"].items()}
        directory = StoreDirectory(folder / name)
        directory.config = StoreConfig.from_java({**settings, "storePathRootDir": str(folder / name)})
        return cls(name, directory, truth)

    def queues(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Yield topic, queue id and truth of every queue."""
        for topic in self.truth["topics"]:
            for queue in topic["queues"]:
                yield topic["topic"], queue["queueId"], queue

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the truth of every message."""
        for topic in self.truth["topics"]:
            for queue in topic["queues"]:
                yield from queue["messages"]


def as_truth(record: Record) -> dict[str, Any]:
    """Return a record in the form of the truth files, without what follows from other fields."""
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicOffset": record.log_offset,
        "storeSize": record.total_size,
        "storeTimestamp": record.stored_at_ms,
        "bornTimestamp": record.born_at_ms,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bodyCRC": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "properties": record.properties,
        "body": _body(bytes(record.body)),
    }


def _body(body: bytes) -> dict[str, Any]:
    if len(body) > 256:
        return {"length": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return {"length": len(body), "base64": base64.b64encode(body).decode()}


def records_of(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """Return what a queue holds."""
    found: list[Record] = []
    while True:
        result = store.read(topic, queue_id, len(found), ReadLimits())
        if not result.records:
            return found
        found += [record for data in result.records for record in iter_records(data)]
