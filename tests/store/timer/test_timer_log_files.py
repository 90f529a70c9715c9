"""The timer log's files by themselves: what the next flush takes, what is closed and removed, and long scans."""

import os
import pathlib
from collections.abc import Iterator

import pytest
from census import count_descriptors

from rocketlet.store.files.files import OS_FILES, Files
from rocketlet.store.timer.timer_log import (
    UNIT_BYTES,
    TimerLog,
    TimerUnit,
    UnitReader,
    decode_unit,
    encode_unit,
    find_log_start,
)

PER_FILE = 4
FILE_BYTES = PER_FILE * UNIT_BYTES + 40


class NotingFiles(Files):
    """Notes what is removed and which directories are synced."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def unlink(self, path: str) -> None:
        """Note the name."""
        self.calls.append(f"remove {int(os.path.basename(path))}")
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        """Note it."""
        self.calls.append("sync")
        super().sync_directory(path)


def unit(number: int, previous: int = -1, magic: int = 1, at_ms: int = 5_000) -> TimerUnit:
    """Return a unit that leads to some record."""
    return TimerUnit(previous, magic, at_ms, 2_000, 100 * number, 90, 7)


def put(log: TimerLog, count: int) -> None:
    """Append units one by one, as a broker does."""
    for number in range(count):
        if not log.room:
            log.roll()
        log.append(encode_unit(unit(number)))


@pytest.fixture
def files() -> NotingFiles:
    """Give a disk that notes removals."""
    return NotingFiles()


@pytest.fixture
def log(tmp_path: pathlib.Path, files: NotingFiles) -> Iterator[TimerLog]:
    """Give an empty log of tiny files."""
    made = TimerLog(files, str(tmp_path / "timerlog"), FILE_BYTES)
    yield made
    made.close()


def names(log: TimerLog) -> list[int]:
    """Return where the files on disk begin."""
    return sorted(int(name) for name in os.listdir(log.directory) if name.isdigit())


@pytest.mark.parametrize(
    ("magic", "is_rolling", "is_deleting"), [(1, 0, 0), (3, 1, 0), (5, 0, 1), (7, 1, 0), (0, 0, 0)]
)
def test_magic_tells_what_becomes_of_a_message(magic: int, is_rolling: int, is_deleting: int) -> None:
    """A unit that rolls is put again, whatever else it would do."""
    found = unit(1, magic=magic)
    assert (found.is_rolling, found.is_deleting) == (bool(is_rolling), bool(is_deleting))
    assert decode_unit(encode_unit(found)) == found
    assert found.due_at_ms == 7_000


@pytest.mark.parametrize("change", [{"magic": 15}, {"log_offset": 0}, {"size": 1}])
def test_least_and_greatest_numbers_of_a_unit(change: dict[str, int]) -> None:
    """They are taken; the next ones make no unit, nor does a unit that is not there whole."""
    found = unit(1)._replace(**change)
    data = b"x" * 3 + encode_unit(found)
    assert decode_unit(data, 3) == found
    assert decode_unit(data, 4) is None
    (name, value), *_ = change.items()
    beyond = value + 1 if name == "magic" else value - 1
    assert decode_unit(encode_unit(found._replace(**{name: beyond}))) is None


def test_room_is_counted_in_units(log: TimerLog) -> None:
    """So many as leave 16 bytes for the blank."""
    rooms: list[int] = []
    for number in range(PER_FILE + 1):
        rooms.append(log.room)
        if log.room:
            log.append(encode_unit(unit(number)))
    assert rooms == [4, 3, 2, 1, 0]
    log.roll()
    assert (log.room, log.end) == (PER_FILE, FILE_BYTES)


def test_flush_takes_files_and_their_names(log: TimerLog, tmp_path: pathlib.Path) -> None:
    """Those that were written or cut; the directory and the one above it when they got names."""
    put(log, PER_FILE + 1)
    assert log.dirty_paths == {log.path_of(0), log.path_of(FILE_BYTES)}
    assert log.new_directories == {log.directory, str(tmp_path)}
    log.dirty_paths.clear()
    log.new_directories.clear()
    put(log, 1)
    assert (log.dirty_paths, log.new_directories) == ({log.path_of(FILE_BYTES)}, set())
    log.dirty_paths.clear()
    log.cut(UNIT_BYTES)
    assert (log.dirty_paths, log.new_directories, names(log)) == ({log.path_of(0)}, {log.directory}, [0])


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (0, [0]),
        (UNIT_BYTES, [0]),
        (FILE_BYTES, [0]),
        (FILE_BYTES + UNIT_BYTES, [0, FILE_BYTES]),
        (2 * FILE_BYTES, [0, FILE_BYTES]),
        (3 * FILE_BYTES, [0, FILE_BYTES, 2 * FILE_BYTES]),
    ],
)
def test_cut_removes_later_files(log: TimerLog, end: int, left: list[int]) -> None:
    """From the last one on; the first one stays, emptied, and a directory is no file."""
    put(log, 3 * PER_FILE)
    os.mkdir(f"{log.directory}/{9 * FILE_BYTES:020d}")
    log.cut(end)
    os.rmdir(f"{log.directory}/{9 * FILE_BYTES:020d}")
    assert (names(log), log.end) == (left, end)
    put(log, 1)
    with UnitReader(OS_FILES, log) as reader:
        assert reader.unit(end) == unit(0)


def test_first_file_of_a_cleaned_log_stays_when_it_is_cut(log: TimerLog) -> None:
    """It is emptied; a file that is not there is not made."""
    put(log, 3 * PER_FILE)
    for path in log.drop_before(FILE_BYTES):
        os.unlink(path)
    log.cut(FILE_BYTES)
    assert names(log) == [FILE_BYTES]
    log.remove_all()
    log.cut(0)
    assert names(log) == []


def test_files_before_a_position_are_forgotten(log: TimerLog) -> None:
    """That of the position stays; what is forgotten once is not told again."""
    put(log, 3 * PER_FILE)
    assert log.drop_before(FILE_BYTES - 1) == []
    assert log.drop_before(2 * FILE_BYTES + UNIT_BYTES) == [log.path_of(0), log.path_of(FILE_BYTES)]
    assert log.first_base == 2 * FILE_BYTES
    assert log.drop_before(FILE_BYTES) == []
    assert log.first_base == 2 * FILE_BYTES


def test_position_before_the_first_file_is_none(log: TimerLog) -> None:
    """Where a file begins, the last unit of the file before it stands before, if that file is there."""
    put(log, 3 * PER_FILE)
    last = (PER_FILE - 1) * UNIT_BYTES
    assert [log.before(base) for base in (0, FILE_BYTES, 2 * FILE_BYTES)] == [None, last, FILE_BYTES + last]
    assert log.before(FILE_BYTES + UNIT_BYTES) == FILE_BYTES
    log.first_base = FILE_BYTES
    assert [log.before(base) for base in (FILE_BYTES, 2 * FILE_BYTES)] == [None, FILE_BYTES + last]


def test_all_files_are_removed_from_the_last_on(log: TimerLog, files: NotingFiles) -> None:
    """The name of each is gone for certain before the next goes; the log begins anew at 0."""
    put(log, 2 * PER_FILE + 1)
    os.mkdir(f"{log.directory}/directory")
    log.drop_before(FILE_BYTES)
    files.calls.clear()
    before = count_descriptors()
    log.remove_all()
    assert count_descriptors() == before - 1
    assert files.calls == [f"remove {2 * FILE_BYTES}", "sync", f"remove {FILE_BYTES}", "sync", "remove 0", "sync"]
    assert (log.first_base, log.end, log.dirty_paths, os.listdir(log.directory)) == (0, 0, set(), ["directory"])
    put(log, 1)
    assert names(log) == [0]


def test_one_file_is_open_at_a_time(log: TimerLog) -> None:
    """It is closed when the next one begins, and with the log."""
    before = count_descriptors()
    for _ in range(3):
        put(log, PER_FILE)
        assert count_descriptors() == before + 1
    log.close()
    log.close()
    assert count_descriptors() == before


@pytest.mark.parametrize("count", [63, 64, 65, 4_095, 4_096, 4_097, 9_000])
def test_long_files_are_read_in_parts(tmp_path: pathlib.Path, count: int) -> None:
    """However many units are read together: forwards, from any place, backwards, and the last one of each instant."""
    log = TimerLog(OS_FILES, str(tmp_path / "long"), 10_000 * UNIT_BYTES)
    log.append(b"".join(encode_unit(unit(number, at_ms=number % 3)) for number in range(count)))
    last = (count - 1) * UNIT_BYTES
    with UnitReader(OS_FILES, log) as reader:
        assert [one.log_offset for _, one in reader.scan(0)] == [100 * number for number in range(count)]
        assert reader.scanned_to == log.end
        assert [position for position, _ in reader.scan(last)] == [last]
        for number in (count - 1, count - 2, count // 2 + 1, count // 2, 65, 1, 0):
            if number < count:
                assert reader.unit(number * UNIT_BYTES) == unit(number, at_ms=number % 3)
        assert reader.unit(log.end) is None
        expected = {2_000 + number % 3: number * UNIT_BYTES for number in range(count)}
        assert reader.last_by_time(0, log.end) == expected
        assert reader.last_by_time(last, log.end) == {2_000 + (count - 1) % 3: last}
        assert reader.last_by_time(0, last + 1)[2_000 + (count - 2) % 3] == last - UNIT_BYTES
    log.close()


def test_what_is_no_unit_has_no_instant(log: TimerLog) -> None:
    """A blank and what has another magic are passed over."""
    put(log, PER_FILE + 1)
    with open(log.path_of(0), "r+b") as file:
        file.seek(UNIT_BYTES)
        file.write(encode_unit(unit(1, magic=16, at_ms=1)))
        file.write(encode_unit(unit(1, at_ms=2)).replace(b"\0\0\0\x34", b"\0\0\0\x35", 1))
        file.write(encode_unit(unit(1, magic=15, at_ms=3)))
    with UnitReader(OS_FILES, log) as reader:
        assert reader.last_by_time(0, log.end) == {7_000: FILE_BYTES, 2_003: 3 * UNIT_BYTES}


@pytest.mark.parametrize(
    ("log_min", "start"), [(0, 0), (300, 0), (301, 1), (700, 1), (701, 2), (1_100, 2), (1_101, 2), (1 << 40, 2)]
)
def test_start_moves_with_the_commit_log(log: TimerLog, log_min: int, start: int) -> None:
    """Over files all of whose units lead before it, but never over the last; a file without a last unit stays."""
    for number in range(3 * PER_FILE):
        if not log.room:
            log.roll()
        log.append(encode_unit(unit(number)))
    assert find_log_start(OS_FILES, log, log_min) == start * FILE_BYTES
    log.drop_before(FILE_BYTES)
    assert find_log_start(OS_FILES, log, log_min) == max(1, start) * FILE_BYTES
    with open(log.path_of(FILE_BYTES), "r+b") as file:
        file.seek((PER_FILE - 1) * UNIT_BYTES)
        file.write(bytes(UNIT_BYTES))
    assert find_log_start(OS_FILES, log, log_min) == FILE_BYTES
