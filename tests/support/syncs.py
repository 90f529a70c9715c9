"""Flushes that are recorded, or that find no descriptor."""

import errno
import os
import re
import threading
from collections.abc import Callable

from stores import LimitedFiles, StoreDirectory, new_record

from rocketlet.common.errors import StoreNotWritableError
from rocketlet.store.files.checkpoint import Checkpoint, load_checkpoint
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.message_store import MessageStore

Copy = Callable[..., StoreDirectory]


def flush(store: MessageStore) -> StoreNotWritableError | None:
    """Flush and return what the flusher reported."""
    answers: list[StoreNotWritableError | None] = []
    done = threading.Event()

    def answer(error: StoreNotWritableError | None) -> None:
        answers.append(error)
        done.set()

    store.request_flush(answer)
    assert done.wait(30)
    return answers[0]


def checkpoint(directory: StoreDirectory) -> Checkpoint:
    """Read the checkpoint file."""
    return load_checkpoint(OS_FILES, str(directory.root / "checkpoint"))


def write(store: MessageStore, *topics: str, count: int = 1) -> None:
    """Commit so many messages to each topic."""
    for topic in topics:
        for _ in range(count):
            store.append(new_record(topic))
    store.commit()


def _name(path: str) -> str:
    return re.split(r"/(?:store|copy0)(?:/|$)", path)[-1]


class NamedFiles(LimitedFiles):
    """Knows the path of each descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: dict[int, str] = {}

    def open(self, path: str, *, writable: bool = False) -> int:
        """Open and remember."""
        descriptor = super().open(path, writable=writable)
        self.opened[descriptor] = path
        return descriptor

    def create(self, path: str, size: int, mode: int = 0o644) -> int:
        """Create and remember."""
        descriptor = super().create(path, size, mode)
        self.opened[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        """Close and forget."""
        del self.opened[descriptor]
        super().close(descriptor)


class RecordedSyncs(NamedFiles):
    """Knows what was flushed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync(self, descriptor: int) -> None:
        """Flush and remember."""
        super().sync(descriptor)
        self.synced.append(_name(self.opened[descriptor]))

    def sync_directory(self, path: str) -> None:
        """Flush and remember."""
        super().sync_directory(path)
        self.synced.append(f"{_name(path)}/")


class CrowdedFiles(RecordedSyncs):
    """Other parts of the process have all its descriptors, while told so."""

    is_crowded = False

    def open(self, path: str, *, writable: bool = False) -> int:
        """Fail or open."""
        self._check(path)
        return super().open(path, writable=writable)

    def create(self, path: str, size: int, mode: int = 0o644) -> int:
        """Fail or create."""
        self._check(path)
        return super().create(path, size, mode)

    def sync_directory(self, path: str) -> None:
        """Fail or flush."""
        self._check(path)
        super().sync_directory(path)

    def _check(self, path: str) -> None:
        if self.is_crowded:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def flush_what_is_due(store: MessageStore) -> None:
    """Flush the log to its end, which is due."""
    done = threading.Event()
    store.flush_when_due(lambda _: done.set())
    assert done.wait(30)
    assert store.flushed_offset == store.log_max_offset


LOG = "commitlog/00000000000000000000"
QUEUE = "consumequeue/T/0/00000000000000000000"
NAMES = ["/", "consumequeue/", "consumequeue/T/", "consumequeue/T/0/"]
