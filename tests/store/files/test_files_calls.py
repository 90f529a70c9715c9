"""Single calls of the file seam: what they return, which errors name the file, what is closed."""

import errno
import os
import pathlib
import resource
from collections.abc import Iterator

import pytest
from census import count_descriptors

from rocketlet.store.files import files as seam
from rocketlet.store.files.files import (
    OS_FILES,
    FileMap,
    Files,
    descriptor_limit,
    map_written,
    written_end,
    zero_range,
)


class WatchedFiles(Files):
    """Knows which files are open, and in which order directories were synced."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.synced: list[str] = []

    def open(self, path: str, *, writable: bool = False) -> int:
        """Open a file and remember it."""
        self.opened.append(super().open(path, writable=writable))
        return self.opened[-1]

    def close(self, descriptor: int) -> None:
        """Forget a file."""
        self.opened.remove(descriptor)
        super().close(descriptor)

    def sync_directory(self, path: str) -> None:
        """Note the directory."""
        self.synced.append(path)
        super().sync_directory(path)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    """Give a file of ten bytes."""
    (tmp_path / "file").write_bytes(b"0123456789")
    return str(tmp_path / "file")


@pytest.fixture
def descriptor(path: str) -> Iterator[int]:
    """Give that file, open for reading and writing."""
    opened = OS_FILES.open(path, writable=True)
    yield opened
    OS_FILES.close(opened)


def test_file_is_opened_for_reading_unless_that_is_said(path: str) -> None:
    """Nobody writes by mistake; a program that is started does not get the descriptor."""
    opened = OS_FILES.open(path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        OS_FILES.pwrite(opened, b"x", 0)
    assert not os.get_inheritable(opened)
    OS_FILES.close(opened)


def test_created_file_keeps_what_it_has(path: str) -> None:
    """A short one is made longer, one that is long enough is left as it is; it may be written."""
    for size, expected in ((5, b"x123456789"), (10, b"x123456789"), (12, b"x123456789\0\0")):
        opened = OS_FILES.create(path, size)
        assert OS_FILES.pwrite(opened, b"x", 0) == 1
        OS_FILES.close(opened)
        assert pathlib.Path(path).read_bytes() == expected


def test_file_that_cannot_have_its_size_is_closed(tmp_path: pathlib.Path) -> None:
    """As a pipe in its place; the error is that of the system, and no descriptor is left."""
    os.mkfifo(tmp_path / "pipe")
    before = count_descriptors()
    with pytest.raises(OSError, match="Invalid argument"):
        OS_FILES.create(str(tmp_path / "pipe"), 10)
    assert count_descriptors() == before


def test_facts_of_a_file(path: str, descriptor: int) -> None:
    """Length, time of the last write in milliseconds, whether it is there, and whether it still has a name."""
    os.utime(path, ns=(5, 1_234_567_890))
    assert (OS_FILES.size(path), OS_FILES.modified_at_ms(path)) == (10, 1_234)
    assert (OS_FILES.exists(path), OS_FILES.has_name(descriptor)) == (True, True)
    OS_FILES.rename(path, f"{path}2")
    assert (OS_FILES.exists(path), OS_FILES.exists(f"{path}2"), OS_FILES.has_name(descriptor)) == (False, True, True)
    OS_FILES.unlink(f"{path}2")
    assert (OS_FILES.exists(f"{path}2"), OS_FILES.has_name(descriptor)) == (False, False)


def test_facts_of_a_disk(tmp_path: pathlib.Path) -> None:
    """What is in use and what is not make the whole; a user may fill no more than what is not in use."""
    used, usable = OS_FILES.disk_usage(str(tmp_path))
    size, free = OS_FILES.disk_capacity(str(tmp_path))
    assert size >= free >= usable >= 0
    assert abs(size - free - used) < size // 10
    disk = os.statvfs(tmp_path)
    assert size == disk.f_blocks * disk.f_frsize


def test_reading_less_than_was_asked_for_names_the_file(path: str, descriptor: int) -> None:
    """Also an error of the system does."""
    assert OS_FILES.read_whole(descriptor, 4, 6, path) == b"6789"
    with pytest.raises(OSError, match="read 3 bytes of 4 at 7, somebody may have cut it") as caught:
        OS_FILES.read_whole(descriptor, 4, 7, path)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, path)
    with pytest.raises(OSError, match="Invalid argument") as caught:
        OS_FILES.read_whole(descriptor, 4, -1, path)
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, path)


def test_size_is_checked_before_a_map(path: str, descriptor: int) -> None:
    """A file that is longer passes; a shorter one is named."""
    OS_FILES.check_size(descriptor, 10, path)
    OS_FILES.check_size(descriptor, 9, path)
    with pytest.raises(OSError, match="it has 10 bytes and had 11, somebody has cut it") as caught:
        OS_FILES.check_size(descriptor, 11, path)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, path)


def test_maps_close_the_file_they_are_of(path: str) -> None:
    """A map needs no descriptor, nor does one that could not be made."""
    files = WatchedFiles()
    views = [files.map(path, 10), files.map_written(path, 10)]
    assert [bytes(view) for view in views] == [b"0123456789"] * 2
    for to_view in (files.map, files.map_written):
        with pytest.raises(OSError, match="somebody has cut it"):
            to_view(path, 11)
    assert files.opened == []


def test_map_of_a_byte_that_was_never_written(tmp_path: pathlib.Path) -> None:
    """It is zero, and knows how long its file is."""
    opened = OS_FILES.create(str(tmp_path / "file"), 1)
    view = map_written(opened, 1, "file")
    assert bytes(view) == b"\0"
    found = view.obj
    assert isinstance(found, FileMap)
    assert (found.size(), found.path, written_end(opened, 1)) == (1, "file", 0)
    OS_FILES.close(opened)


def test_holes_that_the_system_does_not_tell(
    path: str, descriptor: int, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Where it cannot, all of a file counts as written; what is read is the same."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "lseek", refuse)
    assert [OS_FILES.next_data(descriptor, at) for at in (0, 5, 99)] == [0, 5, 99]
    assert written_end(descriptor, 10) == 10
    assert bytes(map_written(descriptor, 10, path)) == b"0123456789"
    zero_range(OS_FILES, descriptor, 2, 5)
    zero_range(OS_FILES, descriptor, 8, 20)
    assert pathlib.Path(path).read_bytes() == b"01\0\0\x00567\0\0"


def test_next_data_behind_the_last_is_none(descriptor: int) -> None:
    """Where a file ends nothing follows."""
    assert [OS_FILES.next_data(descriptor, at) for at in (0, 9, 10, 11)] == [0, 9, None, None]


def test_zeros_that_find_no_room_are_an_error(path: str) -> None:
    """A cut that is not done must not look as if it were."""

    class Full(Files):
        """Writes no more than two bytes."""

        def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
            """Write two bytes."""
            return super().pwrite(descriptor, bytes(data)[:2], position)

    opened = OS_FILES.open(path, writable=True)
    with pytest.raises(OSError, match="No space") as caught:
        zero_range(Full(), opened, 0, 10)
    assert caught.value.errno == errno.ENOSPC
    OS_FILES.close(opened)


@pytest.mark.parametrize(("soft", "limit"), [(1, 1), (1_024, 1_024), (-1, 65_536)])
def test_descriptor_limit_is_that_of_the_process(soft: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, which the system tells as -1, there are plenty."""

    def tell(_: int) -> tuple[int, int]:
        return soft, -1

    monkeypatch.setattr(resource, "getrlimit", tell)
    assert descriptor_limit() == limit


def test_holes_are_mapped_without_taking_room(tmp_path: pathlib.Path) -> None:
    """What is between written pages belongs to no file; a file without holes is mapped as it is."""
    page = resource.getpagesize()
    opened = OS_FILES.create(str(tmp_path / "file"), 8 * page)
    OS_FILES.pwrite(opened, b"x", page)
    OS_FILES.pwrite(opened, b"x", 3 * page)
    assert [written_end(opened, size * page) for size in (1, 2, 3, 4, 8)] == [0, 2 * page, 2 * page, 4 * page, 4 * page]
    assert type(map_written(opened, 8 * page, "file").obj) is seam.ZerosMap
    OS_FILES.pwrite(opened, b"x" * 8 * page, 0)
    assert type(map_written(opened, 8 * page, "file").obj) is FileMap
    assert type(map_written(opened, 5, "file").obj) is FileMap
    OS_FILES.close(opened)


def test_directories_are_made_where_missing(tmp_path: pathlib.Path) -> None:
    """With those above them; one that is there already stays as it is."""
    for _ in range(2):
        OS_FILES.make_directories(str(tmp_path / "a" / "b"))
        (tmp_path / "a" / "b" / "kept").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["kept"]
