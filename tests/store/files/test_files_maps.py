"""Maps of files: holes are read without taking room, and a file that somebody cuts is an error that names it."""

import errno
import mmap
import os
import pathlib
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import StoreDirectory, new_record, read_all

from rocketlet.common.errors import StoreNotWritableError
from rocketlet.store.audit.store_audit import StoreAudit
from rocketlet.store.consumequeue.queue_reader import ReadLimits
from rocketlet.store.files import files as maps
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.message_store import MessageStore

PAGE = mmap.PAGESIZE
SHM = "/dev/shm"  # noqa: S108 # the tmpfs that Linux has for everybody


@pytest.fixture
def on_tmpfs() -> Iterator[pathlib.Path]:
    """Give a directory where reading a hole through a map takes room, where the system has such a place."""
    with tempfile.TemporaryDirectory(dir=SHM if os.path.isdir(SHM) else None) as path:
        yield pathlib.Path(path)


@given(st.lists(st.tuples(st.integers(0, 12 * PAGE), st.integers(1, 2 * PAGE)), max_size=6), st.integers(1, 14 * PAGE))
def test_map_of_what_is_written_is_the_file(pieces: list[tuple[int, int]], size: int) -> None:
    """Whatever was written, at whatever places, up to a size that need not be one of whole pages."""
    with tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), 14 * PAGE)
        for at, length in pieces:
            os.pwrite(file.fileno(), os.urandom(length), at)
        view = maps.map_written(file.fileno(), size, file.name)
        assert view.readonly
        assert bytes(view) == os.pread(file.fileno(), size, 0)


def test_file_with_very_many_holes_is_mapped_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have some ten thousand maps only."""
    monkeypatch.setattr(maps, "_MOST_PIECES", 3)
    with tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), 20 * PAGE)
        for number in range(2, 12, 2):
            os.pwrite(file.fileno(), b"written", number * PAGE + 5)
        assert bytes(maps.map_written(file.fileno(), 20 * PAGE, file.name)) == os.pread(file.fileno(), 20 * PAGE, 0)


def test_piece_that_cannot_be_mapped_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no zeros: as where pages are larger than the places where the file system says that data begin."""
    monkeypatch.setattr(mmap, "PAGESIZE", 3 * PAGE // 4)
    with tempfile.TemporaryFile() as file:
        os.pwrite(file.fileno(), b"written", 5 * PAGE)
        with pytest.raises(OSError, match="Invalid argument") as caught:
            maps.map_written(file.fileno(), 6 * PAGE, file.name)
        assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("is_killed", [False, True])
def test_start_and_audit_take_no_room_for_holes(on_tmpfs: pathlib.Path, is_killed: bool) -> None:
    """The walk looks behind the end of the log, for records that must not be lost, and at the end of a page."""
    directory = StoreDirectory(on_tmpfs / "store", segment_bytes=64 * PAGE)
    size = len(bytes(read_first(directory)))
    record_bytes = size + (PAGE - size % PAGE) % PAGE
    with directory.open() as store:
        store.append(new_record(body=bytes(len(b"body") + record_bytes - size)))
        store.commit()
        assert store.log_max_offset % PAGE == size
        store.append(new_record(body=bytes(len(b"body") + PAGE - 2 * size)))
        store.commit()
        assert store.log_max_offset % PAGE == 0
    taken = blocks(directory)
    if is_killed:
        directory.abort.touch()
    assert StoreAudit(directory.config).run().is_sound
    with directory.open() as store:
        assert len(read_all(store)[("T", 0)]) == 3
    assert blocks(directory) == taken


def read_first(directory: StoreDirectory) -> memoryview:
    """Write a message and return its record."""
    with directory.open() as store:
        store.append(new_record())
        store.commit()
        record = store.record_at(0)
        assert record is not None
        return record


def blocks(directory: StoreDirectory) -> int:
    """Return how many blocks the first file of the log takes."""
    return os.stat(directory.segment()).st_blocks


def filled(directory: StoreDirectory, count: int) -> MessageStore:
    """Open the store and write messages of 1,000 bytes."""
    store = directory.open()
    for _ in range(count):
        store.append(new_record(body=bytes(1_000)))
        store.commit()
    return store


@pytest.mark.parametrize("is_mapped", [False, True])
def test_reading_a_file_that_was_cut_names_it(directory: StoreDirectory, is_mapped: bool) -> None:
    """Both lengths are in the sentence, instead of a signal; other files of the log are read as before."""
    store = filled(directory, 10)
    last = store.log_max_offset - len(bytes(read_last(store)))
    if is_mapped:
        assert store.record_at(0) is not None
    os.truncate(directory.segment(0), 100)
    with pytest.raises(OSError, match="it has 100 bytes and had 4096, somebody has cut it") as caught:
        store.record_at(0)
    assert caught.value.filename == str(directory.segment(0))
    assert store.record_at(last) is not None


def read_last(store: MessageStore) -> memoryview:
    """Return the record at the end of queue T-0."""
    return store.read("T", 0, store.max_offset("T", 0) - 1, ReadLimits()).records[-1]


def test_store_takes_no_messages_once_its_last_file_was_cut(directory: StoreDirectory) -> None:
    """What is written behind the cut would be lost at the next start, so the first flush that sees it is the last."""
    store = filled(directory, 2)
    store.flush()
    os.truncate(directory.segment(0), 100)
    store.append(new_record())
    store.commit()
    with pytest.raises(StoreNotWritableError, match="had 4096, somebody has cut it"):
        store.flush()
    with pytest.raises(StoreNotWritableError, match=str(directory.segment(0))):
        store.append(new_record())


def test_map_of_a_file_that_is_too_short_names_it(tmp_path: pathlib.Path) -> None:
    """Both ways to map say so, before they do."""
    path = tmp_path / "short"
    path.write_bytes(bytes(10))
    for to_view in (OS_FILES.map, OS_FILES.map_written):
        with pytest.raises(OSError, match="it has 10 bytes and had 11") as caught:
            to_view(str(path), 11)
        assert caught.value.filename == str(path)
