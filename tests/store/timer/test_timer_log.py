"""The files of the timer log."""

import pathlib
from collections.abc import Iterator

import pytest
from stores import LimitedFiles

from rocketlet.store.files.files import OS_FILES
from rocketlet.store.timer.timer_log import UNIT_BYTES, TimerLog, TimerUnit, UnitReader, decode_unit, encode_unit

PER_FILE = 4
FILE_BYTES = PER_FILE * UNIT_BYTES + 40
JAVA_HASH = -650_349_302  # of TimerTopic


def unit(number: int, previous: int = -1, magic: int = 1) -> TimerUnit:
    """Return a unit that leads to some record."""
    return TimerUnit(previous, magic, 1_750_000_000_000, 2_000, 100 * number, 90, 7)


def put(log: TimerLog, count: int) -> None:
    """Append units one by one, as a broker does."""
    for number in range(count):
        if not log.room:
            log.roll()
        log.append(encode_unit(unit(number)))


@pytest.fixture
def log(tmp_path: pathlib.Path) -> Iterator[TimerLog]:
    """Give an empty log of tiny files."""
    made = TimerLog(OS_FILES, str(tmp_path / "timerlog"), FILE_BYTES)
    yield made
    made.close()


def test_unit_of_the_specification() -> None:
    """The first unit of a slot two seconds ahead has the bytes of store.md §15.3."""
    known = TimerUnit(-1, 1, 1_795_229_382_000, 2_000, 0, 238, 108_386_898)
    data = encode_unit(known)
    fields = [(52, 4), (-1, 8), (1, 4), (1_795_229_382_000, 8), (2_000, 4), (0, 8), (238, 4), (108_386_898, 4), (0, 8)]
    assert data == b"".join(value.to_bytes(size, "big", signed=True) for value, size in fields)
    assert (len(data), decode_unit(data), known.due_at_ms) == (52, known, 1_795_229_384_000)


@pytest.mark.feature("S26")
def test_units_are_those_of_java(unpacked: pathlib.Path) -> None:
    """We read each unit of the Java broker, with its slot, its roll and its deletion, and encode the same bytes."""
    log = TimerLog(OS_FILES, str(unpacked / "timerlog"), 102_400)
    with UnitReader(OS_FILES, log) as reader:
        units = dict(reader.scan(0))
        assert reader.scanned_to == 728
    assert list(units) == list(range(0, 728, UNIT_BYTES))
    assert units[364] == TimerUnit(312, 1, 1_795_249_666_000, 3_600_000, 5_687, 348, JAVA_HASH)
    assert [position for position, one in units.items() if one.is_rolling] == [416]
    assert [position for position, one in units.items() if one.is_deleting] == [520]
    content = (unpacked / "timerlog" / ("0" * 20)).read_bytes()
    assert b"".join(encode_unit(one) for one in units.values()) == content[:728]


def test_file_ends_in_a_blank(log: TimerLog, tmp_path: pathlib.Path) -> None:
    """A unit that would leave no room for a blank goes into the next file, which is named by its position."""
    put(log, PER_FILE + 1)
    files = sorted((tmp_path / "timerlog").iterdir())
    assert [path.name for path in files] == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert {path.stat().st_size for path in files} == {FILE_BYTES}
    blank = files[0].read_bytes()[PER_FILE * UNIT_BYTES :]
    assert blank.hex() == "00000028" + "00" * 8 + "cbd43194" + "00" * 24
    assert log.end == FILE_BYTES + UNIT_BYTES
    with UnitReader(OS_FILES, log) as reader:
        assert [one.log_offset for _, one in reader.scan(0)] == [0, 100, 200, 300, 400]
        assert reader.scanned_to == log.end


def test_units_of_a_file(tmp_path: pathlib.Path) -> None:
    """Whatever the length of a file, its last unit stands where Java looks for it (``getOffsetForLastUnit``)."""
    for file_bytes in range(68, 68 + 3 * UNIT_BYTES):
        log = TimerLog(OS_FILES, str(tmp_path / str(file_bytes)), file_bytes)
        put(log, 9)
        java = file_bytes - (file_bytes - 16) % UNIT_BYTES - 16 - UNIT_BYTES
        assert log.before(file_bytes) == java
        with UnitReader(OS_FILES, log) as reader:
            assert reader.unit(java) is not None
            assert reader.unit(java + UNIT_BYTES) is None
            assert len(list(reader.scan(0))) == 9
        log.close()


def test_walk_back_reads_blocks(log: TimerLog) -> None:
    """From unit to unit backwards, over the end of a file too."""
    put(log, 3 * PER_FILE)
    with UnitReader(OS_FILES, log) as reader:
        position: int | None = log.before(log.end)
        seen: list[int] = []
        while position is not None:
            found = reader.unit(position)
            assert found is not None
            seen.append(found.log_offset)
            position = log.before(position)
    assert seen == [100 * number for number in reversed(range(3 * PER_FILE))]


@pytest.mark.parametrize("kept", range(2 * PER_FILE + 2))
def test_cut_leaves_zeros(kept: int, log: TimerLog, tmp_path: pathlib.Path) -> None:
    """Behind a cut nothing stands, later files are gone, and the next unit goes there."""
    put(log, 2 * PER_FILE + 1)
    with UnitReader(OS_FILES, log) as reader:
        positions = [position for position, _ in reader.scan(0)]
    end = [*positions, log.end][kept]
    log.cut(end)
    with UnitReader(OS_FILES, log) as reader:
        assert [position for position, _ in reader.scan(0)] == positions[:kept]
    last = max((tmp_path / "timerlog").iterdir())
    assert int(last.name) <= max(0, end - 1)
    assert not any(last.read_bytes()[end - int(last.name) :])
    put(log, 1)
    with UnitReader(OS_FILES, log) as reader:
        assert len(list(reader.scan(0))) == kept + 1


def test_full_disk_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """A write that comes up short is undone, and the next one takes its place."""
    disk = LimitedFiles()
    log = TimerLog(disk, str(tmp_path), FILE_BYTES)
    put(log, 1)
    disk.room = 2 * UNIT_BYTES - 1
    with pytest.raises(OSError, match="No space"):
        log.append(encode_unit(unit(1)) + encode_unit(unit(2)))
    assert log.end == UNIT_BYTES
    assert not any((tmp_path / ("0" * 20)).read_bytes()[UNIT_BYTES:])
    disk.room = None
    put(log, 2)
    assert log.end == 3 * UNIT_BYTES
    log.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {0: b"\0\0\0\x33"},
        {12: b"\0\0\0\x10"},
        {28: b"\xff"},
        {36: b"\0\0\0\0"},
    ],
    ids=["size", "magic", "log offset", "record size"],
)
def test_what_is_no_unit(wrong: dict[int, bytes]) -> None:
    """Another size or magic, a place or a length that cannot be."""
    data = bytearray(encode_unit(unit(1)))
    for at, change in wrong.items():
        data[at : at + len(change)] = change
    assert decode_unit(bytes(data)) is None
    assert decode_unit(encode_unit(unit(1))[:-1]) is None


@pytest.mark.parametrize("previous", [UNIT_BYTES, 2 * UNIT_BYTES, 1 << 40])
def test_unit_that_does_not_lead_back_ends_the_log(previous: int, log: TimerLog) -> None:
    """A unit is written when the one before it in its slot is there: none leads to itself, or ahead."""
    for number, leads_to in enumerate((-1, previous, 0)):
        log.append(encode_unit(unit(number, leads_to)))
    with UnitReader(OS_FILES, log) as reader:
        assert [position for position, _ in reader.scan(0)] == [0]
        assert reader.scanned_to == UNIT_BYTES


def test_last_unit_of_each_instant(log: TimerLog) -> None:
    """Of the units between two positions the last one counts, over the end of a file."""
    put(log, PER_FILE + 2)
    start, due_at_ms = UNIT_BYTES, unit(0).due_at_ms
    with UnitReader(OS_FILES, log) as reader:
        assert reader.last_by_time(start, log.end) == {due_at_ms: FILE_BYTES + UNIT_BYTES}
        assert reader.last_by_time(start, 3 * UNIT_BYTES) == {due_at_ms: 2 * UNIT_BYTES}
        assert reader.last_by_time(0, 0) == {}
