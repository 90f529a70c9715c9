"""One index file: its header, its name, look-ups in it, and disks that fail."""

import errno
import os
import pathlib
import struct
from datetime import datetime

import pytest
from stores import LimitedFiles

from rocketlet.store.files.files import OS_FILES, Descriptors, Files
from rocketlet.store.index.index_file import HEADER, INDEX_ENTRY, IndexFile, IndexSpace

SLOTS, ENTRIES = 5, 20
BEGIN_MS = 1_700_000_000_000
ENTRIES_AT = HEADER.size + 4 * SLOTS


def make_space(folder: pathlib.Path, descriptors: Descriptors, files: Files = OS_FILES) -> IndexSpace:
    """Return a space of small files."""
    return IndexSpace(files, str(folder / "index"), (SLOTS, ENTRIES), descriptors)


@pytest.fixture
def space(tmp_path: pathlib.Path, descriptors: Descriptors) -> IndexSpace:
    """Give a space without files."""
    return make_space(tmp_path, descriptors)


def put_entries(space: IndexSpace, file: IndexFile, *entries: tuple[int, int, int, int]) -> None:
    """Write entries from number 1 on, and the slot of each hash."""
    for number, entry in enumerate(entries, 1):
        file.write(INDEX_ENTRY.pack(*entry), file.entry_position(number))
        file.write(struct.pack(">i", number), HEADER.size + 4 * (entry[0] % SLOTS))
    file.count = 1 + len(entries)


def test_places_in_a_file(space: IndexSpace) -> None:
    """40 bytes of header, 4 for each slot, 20 for each entry; entry 0 is there and not used."""
    assert space.file_bytes == 40 + 4 * SLOTS + 20 * ENTRIES
    file = space.create(BEGIN_MS, None)
    assert os.path.getsize(file.path) == space.file_bytes
    assert [file.entry_position(number) for number in (0, 1, ENTRIES)] == [60, 80, space.file_bytes]
    put_entries(space, file, (1, 10, 0, 0), (2, 20, 0, 0), (6, 30, 0, 1))
    assert file.read_entries(2, 2) == INDEX_ENTRY.pack(2, 20, 0, 0) + INDEX_ENTRY.pack(6, 30, 0, 1)
    assert file.read_slots() == struct.pack(">5i", 0, 3, 2, 0, 0)
    assert repr(file) == f"<IndexFile {file.path} 4 of 20>"


def test_file_is_full_at_its_last_entry(space: IndexSpace) -> None:
    """The number of the next entry is counted, so one fewer than there are places fits."""
    file = space.create(BEGIN_MS, None)
    assert (file.is_full, file.room) == (False, ENTRIES - 1)
    file.count = ENTRIES - 1
    assert (file.is_full, file.room) == (False, 1)
    file.count = ENTRIES
    assert (file.is_full, file.room) == (True, 0)
    file.count = ENTRIES + 5
    assert (file.is_full, file.room) == (True, 0)


@pytest.mark.parametrize(
    ("said", "count"), [(-5, 1), (0, 1), (1, 1), (2, 2), (19, 19), (20, 20), (21, 20), (1 << 30, 20)]
)
def test_count_of_a_header_is_brought_into_its_bounds(space: IndexSpace, said: int, count: int) -> None:
    """The other numbers are believed."""
    file = space.create(BEGIN_MS, None)
    file.write(HEADER.pack(1, 2, 3, 4, 5, said), 0)
    file.load_header()
    assert (file.begin_at_ms, file.end_at_ms, file.begin_log_offset, file.end_log_offset) == (1, 2, 3, 4)
    assert (file.used_slots, file.count) == (5, count)


@pytest.mark.parametrize(
    ("end_ms", "has_slots", "written_ms"),
    [
        (BEGIN_MS, True, 0),
        (BEGIN_MS, False, 1),
        (BEGIN_MS + 1, False, 1),
        (BEGIN_MS + 2, False, 2),
        (BEGIN_MS + 2, True, 2),
    ],
)
def test_end_in_the_header_lies_behind_the_begin_without_slots(
    space: IndexSpace, end_ms: int, has_slots: bool, written_ms: int
) -> None:
    """By a millisecond at least, so that Java does not take the file for a whole one after a kill."""
    file = space.create(BEGIN_MS, None)
    file.begin_at_ms, file.end_at_ms = BEGIN_MS, end_ms
    file.write_header(has_slots=has_slots)
    assert HEADER.unpack(pathlib.Path(file.path).read_bytes()[:40])[1] == BEGIN_MS + written_ms
    assert file.end_at_ms == end_ms


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "overlaps"),
    [(0, 9, False), (0, 10, True), (15, 16, True), (20, 99, True), (21, 99, False), (0, 99, True)],
)
def test_times_of_a_file(space: IndexSpace, begin_ms: int, end_ms: int, overlaps: bool) -> None:
    """Both ends count."""
    file = space.create(BEGIN_MS, None)
    file.begin_at_ms, file.end_at_ms = 10, 20
    assert file.overlaps(begin_ms, end_ms) == overlaps


@pytest.mark.parametrize(
    ("begin_s", "end_s", "limit", "found"),
    [
        (0, 99, 9, [40, 30, 10]),
        (0, 99, 2, [40, 30]),
        (0, 99, 0, []),
        (0, 4, 9, [30, 10]),
        (4, 4, 9, [30]),
        (5, 99, 9, [40]),
        (1, 3, 9, []),
        (0, 0, 9, [10]),
        (8, 99, 9, []),
    ],
)
def test_look_up_goes_back_through_a_slot(
    space: IndexSpace, begin_s: int, end_s: int, limit: int, found: list[int]
) -> None:
    """The newest first, of the hash and the times that are asked for, and no more than wanted."""
    file = space.create(BEGIN_MS, None)
    file.begin_at_ms = BEGIN_MS
    put_entries(space, file, (1, 10, 0, 0), (6, 20, 2, 1), (1, 30, 4, 2), (1, 40, 7, 3))
    times = BEGIN_MS + 1_000 * begin_s, BEGIN_MS + 1_000 * end_s
    assert file.select(1, *times, limit) == found
    assert file.select(3, 0, 1 << 62, 9) == []
    assert file.select(6, 0, 1 << 62, 9) == [20]


def test_look_up_ends_at_a_negative_time(space: IndexSpace) -> None:
    """No entry has one; what is behind it is not read."""
    file = space.create(BEGIN_MS, None)
    put_entries(space, file, (1, 10, 0, 0), (1, 20, -1, 1), (1, 30, 4, 2))
    assert file.select(1, 0, 1 << 62, 9) == [30]


def test_files_are_named_by_local_time(space: IndexSpace) -> None:
    """To the millisecond; one of the same or of an earlier time gets the next millisecond, over midnight, too."""
    at_ms = int(datetime(2024, 2, 29, 23, 59, 59, 999_000).astimezone().timestamp() * 1_000)
    first = space.create(at_ms, None)
    second = space.create(at_ms, first)
    third = space.create(at_ms - 5_000, second)
    fourth = space.create(at_ms + 7, third)
    names = [os.path.basename(file.path) for file in (first, second, third, fourth)]
    assert names == ["20240229235959999", "20240301000000000", "20240301000000001", "20240301000000006"]
    space.remove(fourth)
    assert sorted(os.listdir(space.directory)) == names[:3]


def test_next_file_begins_with_the_end_of_the_one_before(space: IndexSpace) -> None:
    """As ``IndexService.getAndCreateLastIndexFile`` has it, on disk as well; the first one begins with zeros."""
    first = space.create(BEGIN_MS, None)
    assert HEADER.unpack(pathlib.Path(first.path).read_bytes()[:40]) == (0, 0, 0, 0, 0, 1)
    first.end_at_ms, first.end_log_offset = BEGIN_MS + 5, 700
    second = space.create(BEGIN_MS, first)
    assert HEADER.unpack(pathlib.Path(second.path).read_bytes()[:40]) == (BEGIN_MS + 5, BEGIN_MS + 5, 700, 700, 0, 1)
    assert (second.begin_at_ms, second.begin_log_offset, second.end_log_offset) == (BEGIN_MS + 5, 700, 700)


def test_flush_takes_files_and_names(space: IndexSpace) -> None:
    """Those that were written; a removed one leaves its directory to be flushed, one that goes otherwise does not."""
    first = space.create(BEGIN_MS, None)
    second = space.create(BEGIN_MS, first)
    assert space.dirty_paths == {first.path, second.path}
    assert space.new_directories == {space.directory, os.path.dirname(space.directory)}
    space.new_directories.clear()
    space.forget(first)
    assert (space.dirty_paths, space.new_directories, repr(space.descriptors)) == (
        {second.path},
        set(),
        "<Descriptors 1 of 8>",
    )
    assert os.path.exists(first.path)
    space.remove(second)
    assert (space.dirty_paths, space.new_directories) == (set(), {space.directory})
    assert repr(space.descriptors) == "<Descriptors 0 of 8>"


def test_file_whose_header_finds_no_room_is_removed(tmp_path: pathlib.Path) -> None:
    """The next try succeeds under the same name or another one; what was there before stays."""
    disk = LimitedFiles()
    descriptors = Descriptors(disk, 8)
    space = make_space(tmp_path, descriptors, disk)
    first = space.create(BEGIN_MS, None)
    first.end_at_ms = BEGIN_MS
    disk.room = 10
    with pytest.raises(OSError, match="No space") as caught:
        space.create(BEGIN_MS, first)
    assert caught.value.errno == errno.ENOSPC
    assert [str(path) for path in pathlib.Path(space.directory).iterdir()] == [first.path]
    assert (space.dirty_paths, repr(descriptors)) == ({first.path}, "<Descriptors 1 of 8>")
    disk.room = None
    second = space.create(BEGIN_MS, first)
    disk.room = 3
    with pytest.raises(OSError, match="No space") as caught:
        second.write(b"\xff" * 20, ENTRIES_AT)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, second.path)
    descriptors.close()
