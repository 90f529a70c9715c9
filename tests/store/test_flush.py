"""The flusher: what a request brings to the disk, the checkpoint, and what a failed flush means."""

import errno
import os
import struct
import threading

import pytest
from stores import LimitedFiles, StoreDirectory, new_record, read_all, sample

from rocketlet.common.errors import StoreFullError, StoreNotWritableError
from rocketlet.store.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rocketlet.store.files import OS_FILES
from rocketlet.store.message_store import MessageStore


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


class RecordedSyncs(LimitedFiles):
    """Knows what was flushed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: dict[int, str] = {}
        self.synced: list[str] = []

    def open(self, path: str, *, writable: bool = False) -> int:
        """Open and remember."""
        descriptor = super().open(path, writable=writable)
        self.opened[descriptor] = path
        return descriptor

    def create(self, path: str, size: int) -> int:
        """Create and remember."""
        descriptor = super().create(path, size)
        self.opened[descriptor] = path
        return descriptor

    def sync(self, descriptor: int) -> None:
        """Flush and remember."""
        super().sync(descriptor)
        self.synced.append(self.opened[descriptor].rsplit("/store/", 1)[1])

    def sync_directory(self, path: str) -> None:
        """Flush and remember."""
        super().sync_directory(path)
        self.synced.append(f"{path}/".rsplit("/store/", 1)[1])


def test_flush_brings_log_queues_and_checkpoint_in_this_order(directory: StoreDirectory) -> None:
    """New directories as well; the checkpoint comes last and says how far the store times went."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    disk.synced.clear()
    store.append(new_record())
    store.commit()
    assert store.flushed_offset == 0
    directory.now_ms += directory.config.flush_queue_interval_ms
    assert flush(store) is None
    assert store.flushed_offset == store.log_max_offset
    first, *middle, last = disk.synced
    assert (first, last) == ("commitlog/00000000000000000000", "checkpoint")
    assert sorted(middle) == ["commitlog/", "consumequeue/T/0/", "consumequeue/T/0/00000000000000000000"]
    assert checkpoint(directory)[:3] == (directory.now_ms - 1000, directory.now_ms - 1000, 0)


def test_queues_are_flushed_at_their_interval(directory: StoreDirectory) -> None:
    """Before ``flushIntervalConsumeQueue`` has passed only the log is flushed; an idle store writes nothing."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    disk.synced.clear()
    store.append(new_record())
    store.commit()
    assert flush(store) is None
    assert disk.synced == ["commitlog/00000000000000000000", "commitlog/"]
    directory.now_ms += 1000
    assert flush(store) is None
    disk.synced.clear()
    for _ in range(3):
        directory.now_ms += 1000
        assert flush(store) is None
    assert disk.synced == []


@pytest.mark.parametrize("keeps_order", [True, False])
def test_full_files_are_flushed_and_closed(directory: StoreDirectory, keeps_order: bool) -> None:
    """Every file that was written since the last flush is flushed, full ones too; none stays open."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    disk.synced.clear()
    for number in range(60):
        store.append(sample(number))
        if keeps_order:
            store.commit()
    store.commit()
    assert flush(store) is None
    names = [f"commitlog/{base:020d}" for base in range(0, store.log_max_offset, 4096)]
    assert disk.synced[: len(names)] == names
    before = read_all(store)
    directory.close_all()
    assert read_all(directory.open()) == before


def test_many_requests_are_all_answered(directory: StoreDirectory) -> None:
    """Requests that wait together are served together; each is answered once."""
    store = directory.open()
    answered: list[int] = []
    everything = threading.Event()

    def answer(number: int) -> None:
        answered.append(number)
        if len(answered) == 50:
            everything.set()

    for number in range(50):
        store.append(sample(number))
        store.commit()
        store.request_flush(lambda _, number=number: answer(number))
    assert everything.wait(30)
    assert sorted(answered) == list(range(50))
    assert store.flushed_offset == store.log_max_offset


def test_failed_flush_makes_the_store_unwritable(directory: StoreDirectory) -> None:
    """Every waiter gets the error, also later ones; appends are refused, reads go on, ``abort`` stays."""
    disk = LimitedFiles()
    store = directory.open(disk)
    store.append(new_record())
    store.commit()
    disk.fails_sync = True
    assert isinstance(flush(store), StoreNotWritableError)
    disk.fails_sync = False
    assert isinstance(flush(store), StoreNotWritableError)
    assert store.flushed_offset == 0
    with pytest.raises(StoreNotWritableError, match="a flush failed"):
        store.append(new_record())
    assert read_all(store) == {("T", 0): [(0, b"body")]}
    directory.close_all()
    assert directory.abort.exists()
    assert read_all(directory.open()) == {("T", 0): [(0, b"body")]}


def test_removed_queue_does_not_fail_the_flush(directory: StoreDirectory) -> None:
    """A topic may be deleted between the request and the flush of its files."""
    store = directory.open()
    store.append(new_record())
    store.commit()
    store.append(new_record("Gone"))
    store.commit()
    store.delete_topic("Gone")
    for path in (directory.root / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    directory.now_ms += 1000
    assert flush(store) is None
    assert store.refusal is None


def test_clean_stop_writes_the_checkpoint(directory: StoreDirectory) -> None:
    """Log and queue times are those of the last message; the index time is the end of the newest full file."""
    with directory.open() as store:
        for number in range(30):
            directory.now_ms += 10
            store.append(sample(number))
            store.commit()
    found = checkpoint(directory)
    assert (found.log_at_ms, found.queues_at_ms) == (directory.now_ms, directory.now_ms)
    assert directory.now_ms - 300 < found.index_at_ms <= directory.now_ms
    assert found.sure_at_ms == directory.now_ms - 3000


def test_checkpoint_file_is_javas(directory: StoreDirectory) -> None:
    """Five longs, 4096 bytes, the rest zero; missing and short files say nothing."""
    directory.root.mkdir()
    path = directory.root / "checkpoint"
    assert load_checkpoint(OS_FILES, str(path)) == Checkpoint()
    save_checkpoint(OS_FILES, str(path), Checkpoint(1, 2, 3, 4, 5))
    assert path.read_bytes() == struct.pack(">5q", 1, 2, 3, 4, 5) + bytes(4056)
    assert load_checkpoint(OS_FILES, str(path)) == Checkpoint(1, 2, 3, 4, 5)
    path.write_bytes(b"\x01\x02")
    assert load_checkpoint(OS_FILES, str(path)) == Checkpoint()


class CrowdedFiles(RecordedSyncs):
    """Other parts of the process have all its descriptors, while told so."""

    is_crowded = False

    def open(self, path: str, *, writable: bool = False) -> int:
        """Fail or open."""
        self._check(path)
        return super().open(path, writable=writable)

    def create(self, path: str, size: int) -> int:
        """Fail or create."""
        self._check(path)
        return super().create(path, size)

    def sync_directory(self, path: str) -> None:
        """Fail or flush."""
        self._check(path)
        super().sync_directory(path)

    def _check(self, path: str) -> None:
        if self.is_crowded:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def test_flush_without_descriptors_is_made_up_for(directory: StoreDirectory) -> None:
    """The log is flushed, queues and checkpoint are by the next request, and the store stays writable."""
    files = CrowdedFiles()
    store = directory.open(files)
    store.append(new_record())
    store.commit()
    files.synced.clear()
    files.is_crowded = True
    directory.now_ms += 2_000  # queues are flushed once a second
    assert flush(store) is None
    assert (files.synced, store.flushed_offset) == (["commitlog/00000000000000000000"], store.log_max_offset)
    files.is_crowded = False
    assert flush(store) is None
    assert {"commitlog/", "consumequeue/T/0/", "consumequeue/T/0/00000000000000000000"} <= set(files.synced)
    assert checkpoint(directory).queues_at_ms > 0
    assert store.refusal is None


def test_stop_without_descriptors_keeps_abort(directory: StoreDirectory) -> None:
    """Queues that could not be flushed are made good by the next start."""
    files = CrowdedFiles()
    store = directory.open(files)
    store.append(new_record())
    store.commit()
    files.is_crowded = True
    directory.close_all()
    assert directory.abort.exists()
    assert read_all(directory.open()) == {("T", 0): [(0, b"body")]}


def test_send_without_descriptors_works_later(directory: StoreDirectory) -> None:
    """A file that cannot be opened for want of descriptors refuses messages only as long as that lasts."""
    files = CrowdedFiles()
    store = directory.open(files)
    files.is_crowded = True
    store.append(new_record(body=b"refused"))
    with pytest.raises(StoreFullError, match="Too many open files"):
        store.commit()
    files.is_crowded = False
    store.append(new_record(body=b"taken"))
    store.commit()
    files.is_crowded = True
    store.append(new_record("Other", body=b"kept"))
    store.commit()
    assert isinstance(store.refusal, StoreFullError)
    files.is_crowded = False
    store.append(new_record())
    store.commit()
    assert read_all(store) == {("T", 0): [(0, b"taken"), (1, b"body")], ("Other", 0): [(0, b"kept")]}
