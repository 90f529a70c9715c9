"""What is searched for behind the end of a log, and what a cut leaves."""

import logging
import os
import pathlib

import pytest
from census import count_descriptors
from logbuilder import FIRST_MS, LogBuilder

from rocketlet.common.errors import StoreDamagedError
from rocketlet.store.commitlog.log_end import (
    Stop,
    Validity,
    cut_log,
    damaged,
    find_record,
    find_valid,
    give_up,
    written_bytes,
)
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.files.segments import SegmentFile

MIB = 1 << 20


@pytest.fixture
def log(tmp_path: pathlib.Path) -> LogBuilder:
    """Give a saved log of three files, of which the first is not the first of the log."""
    made = LogBuilder(tmp_path / "log", 4_096, first_file=2)
    while made.end < 4 * 4_096 + 1_000:
        made.add(properties={"K": "v" * (len(made.offsets) % 5)})
    made.save()
    return made


def segments_of(log: LogBuilder) -> list[SegmentFile]:
    """Return the files of a log."""
    return [SegmentFile(str(path), int(path.name), path.stat().st_size) for path in log.files()]


def test_search_finds_the_first_record_at_or_behind_a_place(log: LogBuilder) -> None:
    """From every byte of the file on."""
    segment, view = segments_of(log)[1], memoryview(log.files()[1].read_bytes())
    places = [each - segment.base_offset for each in log.offsets if segment.holds(each)]
    for start in range(4_096):
        assert find_record(view, segment.base_offset, start) == next((at for at in places if at >= start), None), start
    assert find_record(view, segment.base_offset + 1, 0) is None


def test_search_passes_what_is_no_record(log: LogBuilder) -> None:
    """Damaged records, and a magic that stands elsewhere."""
    data = bytearray(log.files()[0].read_bytes())
    base = segments_of(log)[0].base_offset
    first, second, third = (each - base for each in log.offsets[:3])
    data[first + 88] ^= 1
    data[second + 88] ^= 1
    data[second + 50 : second + 54] = b"\xda\xa3\x20\xa7"
    assert find_record(memoryview(data), base, 0) == third


def test_search_goes_over_the_borders_of_its_pieces(tmp_path: pathlib.Path) -> None:
    """A record whose magic lies on the border of a mebibyte is found, of either form."""
    for at in range(MIB - 10, MIB + 2):
        for topic in ("T", "t" * 200):
            log = LogBuilder(tmp_path / f"{at}{topic[:1]}", 2 * MIB)
            log.add(bytes(at - 92), topic="T")
            log.add(topic=topic)
            log.save()
            data = bytearray(log.files()[0].read_bytes())
            found = log.offsets[1]
            data[0:8] = bytes(8)
            assert found == at
            assert find_record(memoryview(data), 0, 4) == at, (at, topic)
            log.files()[0].write_bytes(data)
            (segment,) = segments_of(log)
            assert find_valid(OS_FILES, segment, memoryview(data), 4, Validity(0)) == at


@pytest.mark.parametrize(
    ("last_at_ms", "sure_at_ms", "stored_at_ms", "is_covered"),
    [(5, None, 4, False), (5, None, 5, True), (5, None, 6, True),
     (5, 7, 4, False), (5, 7, 5, True), (5, 7, 7, True), (5, 7, 8, False), (5, 0, 5, False)],
)  # fmt: skip
def test_what_must_not_be_lost(last_at_ms: int, sure_at_ms: int | None, stored_at_ms: int, is_covered: bool) -> None:
    """What is no older than the last record before, and was surely on the disk; both bounds count."""
    assert Validity(last_at_ms, sure_at_ms).covers(stored_at_ms) is is_covered


def test_valid_record_is_searched_for_by_its_time(log: LogBuilder) -> None:
    """The first at or behind the place whose time counts, by its place in the log; none is none."""
    segment, view = segments_of(log)[1], memoryview(log.files()[1].read_bytes())
    rows = [row for row, each in enumerate(log.offsets) if segment.holds(each)]
    first, last = rows[0], rows[-1]
    for row in (first, first + 3, last):
        start = log.offsets[row] - segment.base_offset
        for last_at, sure_at, expected in [
            (0, None, row), (FIRST_MS + first + 5, None, max(row, first + 5)), (FIRST_MS + last, None, last),
            (FIRST_MS + last + 1, None, None), (0, FIRST_MS + row - 1, None), (0, FIRST_MS + row, row),
        ]:  # fmt: skip
            found = find_valid(OS_FILES, segment, view, start, Validity(last_at, sure_at))
            assert found == (None if expected is None else log.offsets[expected]), (row, last_at, sure_at)
        behind = None if row == last else log.offsets[row + 1]
        assert find_valid(OS_FILES, segment, view, start + 1, Validity(0)) == behind
    assert find_valid(OS_FILES, segment, view, 4_096, Validity(0)) is None


def test_record_without_room_behind_it_is_valid_where_none_is_asked_for(tmp_path: pathlib.Path) -> None:
    """A record at the very end of what is looked at."""
    log = LogBuilder(tmp_path / "log", 4_096)
    log.add()
    log.save()
    (segment,), view = segments_of(log), memoryview(log.files()[0].read_bytes())[: log.end]
    assert find_valid(OS_FILES, segment, view, 0, Validity(0)) is None
    assert find_valid(OS_FILES, segment, view, 0, Validity(0), reserved_bytes=0) == 0


def test_search_leaves_no_descriptor_open(log: LogBuilder) -> None:
    """Nor does counting what was written, whether something is found or not."""
    segment, view = segments_of(log)[0], memoryview(log.files()[0].read_bytes())
    before = count_descriptors()
    for start in (0, 4_096):
        find_valid(OS_FILES, segment, view, start, Validity(0))
        written_bytes(OS_FILES, segment, start)
    cut_log(OS_FILES, segments_of(log), 3 * 4_096 + 5)
    assert count_descriptors() == before


@pytest.mark.parametrize("size", [10, MIB - 1, MIB, MIB + 1, 2 * MIB + 5])
def test_written_bytes_end_with_the_last_that_is_not_zero(tmp_path: pathlib.Path, size: int) -> None:
    """Counted from a place on; zeros in between count, holes and zeros at the end do not."""
    path = tmp_path / f"{0:020d}"
    for last in {0, 1, size // 2, size - 2, size - 1, max(0, size - MIB), max(0, size - MIB - 1)}:
        path.write_bytes(b"")
        os.truncate(path, size)
        with path.open("r+b") as file:
            file.write(b"x")
            file.seek(last)
            file.write(b"y")
            file.write(bytes(min(3, size - last - 1)))
        segment = SegmentFile(str(path), 0, size)
        for position in {0, 1, last, last + 1, size - 1, size}:
            assert written_bytes(OS_FILES, segment, position) == max(0, last + 1 - position), (last, position)


@pytest.mark.parametrize("place", [-1, 0, 1, 100, 4_095, 4_096, 4_097, 3 * 4_096, 9 * 4_096])
def test_cut_leaves_what_is_before_it(log: LogBuilder, place: int) -> None:
    """Files behind go, zeros follow in the file that is cut, and the files that are left are told."""
    before, segments = [path.read_bytes() for path in log.files()], segments_of(log)
    end = segments[0].base_offset + place
    kept = cut_log(OS_FILES, segments, end)
    assert kept == [each for each in segments if each.base_offset < end]
    assert [str(path) for path in log.files()] == [each.path for each in kept]
    for segment, data, path in zip(kept, before, log.files(), strict=False):
        size = max(0, min(len(data), end - segment.base_offset))
        assert path.read_bytes() == data[:size] + bytes(len(data) - size)


def test_repair_names_what_is_lost_in_each_file(log: LogBuilder, caplog: pytest.LogCaptureFixture) -> None:
    """The file that is cut and those behind it; a file that ends at the damage is not named."""
    first, second, third = segments_of(log)
    written = [len(path.read_bytes().rstrip(b"\0")) for path in log.files()]
    with caplog.at_level(logging.WARNING):
        kept = give_up(OS_FILES, [first, second, third], damaged(Stop(second.path, 300, 0, "odd", is_torn=True), "/s"))
    assert kept == [first, second]
    assert [record.getMessage() for record in caplog.records][1:] == [
        f"{second.path}: truncating at position 300, {written[1] - 300} written bytes are lost",
        f"{third.path}: removing, {written[2]} written bytes are lost",
    ]


def test_repair_at_the_start_of_a_file_removes_it(log: LogBuilder, caplog: pytest.LogCaptureFixture) -> None:
    """The file before it is whole."""
    first, second, third = segments_of(log)
    with caplog.at_level(logging.WARNING):
        kept = give_up(OS_FILES, [first, second, third], damaged(Stop(second.path, 0, 0, "odd", is_torn=True), "/s"))
    assert kept == [first]
    assert [record.getMessage().split(":")[1].split(",")[0] for record in caplog.records][1:] == [" removing"] * 2


def test_damage_elsewhere_cannot_be_cut_off(log: LogBuilder) -> None:
    """It stays, and so do the files."""
    damage = damaged(Stop("/elsewhere", 5, 0, "odd", is_torn=True), "/s")
    with pytest.raises(
        StoreDamagedError, match="/elsewhere is damaged at position 5, before valid data: odd"
    ) as caught:
        give_up(OS_FILES, segments_of(log), damage)
    assert (caught.value, caught.value.path, caught.value.position) == (damage, "/elsewhere", 5)
    assert len(log.files()) == 3
