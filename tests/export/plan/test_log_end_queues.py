"""What queues, checkpoint and consumers tell of the end of a log, entry by entry."""

import json
import pathlib
import struct
from collections.abc import Mapping, Sequence

import pytest
from logbuilder import FIRST_MS, LogBuilder

from rocketlet.common.errors import StoreDamagedError
from rocketlet.export.plan.filesystems import Storage
from rocketlet.export.plan.log_end import EndProof, FoundEnd, LogEnd, find_end, prove_end
from rocketlet.export.plan.log_file import LogFile, map_log_file
from rocketlet.export.plan.store_files import StoreMarks
from rocketlet.store.consumequeue.consume_queue import PRE_BLANK_SIZE

END, AT_MS = 1_000, 7_000
NOTHING = "there are neither queues nor a checkpoint that tell"
Entry = tuple[int, int]
FILL = (0, PRE_BLANK_SIZE)


def evenly(first: int, stop: int) -> list[Entry]:
    """Return entries of records of 100 bytes, which follow each other."""
    return [(100 * number, 100) for number in range(first, stop)]


def write_files(home: pathlib.Path, queue: str, files: Mapping[int, Sequence[Entry]]) -> None:
    """Write files of a queue of ten entries each, by the number of their first entry."""
    directory = home / "consumequeue" / queue
    directory.mkdir(parents=True, exist_ok=True)
    for first, entries in files.items():
        content = b"".join(struct.pack(">qiq", at, size, 7) for at, size in entries)
        (directory / f"{first * 20:020d}").write_bytes(content.ljust(200, b"\0"))


def prove(home: pathlib.Path, newest_at_ms: int = 0, end: int = END, at_ms: int = AT_MS) -> EndProof:
    """Judge a log that ends at a place."""
    (home / "commitlog").mkdir(exist_ok=True)
    queues = home / "consumequeue"
    marks = StoreMarks(True, None, newest_at_ms)
    return prove_end(FoundEnd(str(home), end, at_ms), marks, str(queues) if queues.exists() else None, Storage())


@pytest.mark.parametrize(
    ("files", "unproved"),
    [
        ({0: evenly(0, 10)}, None),
        ({0: evenly(0, 10), 10: []}, None),
        ({0: [*evenly(0, 9), (900, 99)]}, "queue entries reach to log offset 999 only, there is no checkpoint"),
        ({0: evenly(0, 9)}, "queue entries reach to log offset 900 only, there is no checkpoint"),
        ({0: evenly(0, 1)}, "queue entries reach to log offset 100 only, there is no checkpoint"),
        ({0: []}, NOTHING),
        ({}, NOTHING),
        ({0: [*evenly(0, 4), FILL]}, NOTHING),
        ({0: [FILL, FILL, (900, 100)]}, None),
    ],
)
def test_queues_tell_how_far_the_log_came(
    tmp_path: pathlib.Path, files: Mapping[int, Sequence[Entry]], unproved: str | None
) -> None:
    """The end of the last record that any queue names; entries that only fill up name none."""
    write_files(tmp_path, "T/3", files)
    assert prove(tmp_path) == EndProof(unproved=unproved)
    write_files(tmp_path, "A/0", {0: evenly(0, 1)})
    if unproved != NOTHING:
        assert prove(tmp_path) == EndProof(unproved=unproved)
    write_files(tmp_path, "Z/0", {0: evenly(9, 10)})
    assert prove(tmp_path) == EndProof()


@pytest.mark.parametrize(
    ("files", "lost", "count", "lost_bytes"),
    [
        ({0: [(1_000, 100)]}, (0, 1), 1, 100),
        ({0: [(999, 1), (1_000, 50)]}, (1, 2), 1, 50),
        ({0: evenly(0, 10), 10: evenly(10, 11)}, (10, 11), 1, 100),
        ({0: evenly(0, 10), 10: evenly(10, 13), 20: []}, (10, 13), 3, 300),
        ({0: evenly(2, 12)}, (8, 10), 2, 200),
        ({0: evenly(2, 12), 10: evenly(12, 22), 20: evenly(22, 23)}, (8, 21), 13, 1_300),
        ({20: evenly(9, 14)}, (21, 25), 4, 400),
        ({0: [*evenly(9, 11), (1_500, PRE_BLANK_SIZE), *evenly(12, 13)]}, (3, 4), 1, 300),
        ({0: [(2_000, 100), (1_200, 100)]}, (0, 2), 2, 1_100),
    ],
)
def test_entries_behind_the_end_are_lost_records(
    tmp_path: pathlib.Path, files: Mapping[int, Sequence[Entry]], lost: tuple[int, int], count: int, lost_bytes: int
) -> None:
    """They are counted, named by queue offset, and measured up to the end of the last of them."""
    write_files(tmp_path, "T/3", files)
    reason = f"the log ends here, but queue entries name {count} records behind it"
    assert prove(tmp_path) == EndProof(reason, None, {("T", 3): lost}, lost_bytes)


def test_lost_records_of_queues_add_up(tmp_path: pathlib.Path) -> None:
    """Each queue has its own, and the farthest counts for the bytes; others have none."""
    write_files(tmp_path, "A/0", {0: evenly(9, 15)})
    write_files(tmp_path, "A/1", {0: evenly(8, 12)})
    write_files(tmp_path, "B/0", {0: evenly(0, 9)})
    found = prove(tmp_path, newest_at_ms=AT_MS + 1)
    assert found.refuted == (
        "the log ends here, but queue entries name 7 records behind it,"
        " and the checkpoint names a record stored at 7001, the last one here at 7000"
    )
    assert (found.lost, found.lost_bytes) == ({("A", 0): (1, 6), ("A", 1): (2, 4)}, 500)


def write_batches(home: pathlib.Path, units: Sequence[tuple[int, int, int, int]]) -> None:
    """Write a batch queue: log offset, size, first queue offset and number of messages of each unit."""
    directory = home / "batchconsumequeue" / "B" / "0"
    directory.mkdir(parents=True)
    (home / "consumequeue").mkdir()
    content = b"".join(struct.pack(">qiqqqh8x", at, size, 0, 1, first, count) for at, size, first, count in units)
    (directory / ("0" * 20)).write_bytes(content.ljust(46 * 6, b"\0"))


def test_units_of_batches_tell_the_offsets_of_their_messages(tmp_path: pathlib.Path) -> None:
    """Lost are all messages of the lost units."""
    write_batches(tmp_path, [(800, 100, 5, 3), (900, 100, 8, 2), (1_000, 50, 10, 4), (1_050, 50, 14, 7)])
    found = prove(tmp_path)
    assert (found.lost, found.lost_bytes) == ({("B", 0): (10, 21)}, 100)
    assert prove(tmp_path, end=1_100) == EndProof()


@pytest.mark.parametrize(
    ("newest_at_ms", "at_ms", "found"),
    [
        (AT_MS, AT_MS, EndProof()),
        (AT_MS - 1, AT_MS, EndProof(unproved="there are no queues, the checkpoint to 6999")),
        (0, AT_MS, EndProof(unproved=NOTHING)),
        (
            AT_MS + 1,
            AT_MS,
            EndProof("the log ends here, but the checkpoint names a record stored at 7001, the last one here at 7000"),
        ),
        (2, 1, EndProof("the log ends here, but the checkpoint names a record stored at 2, the last one here at 1")),
    ],
)
def test_checkpoint_tells_the_time_of_the_last_record(
    tmp_path: pathlib.Path, newest_at_ms: int, at_ms: int, found: EndProof
) -> None:
    """A later one than the log has was there; an earlier one proves nothing."""
    assert prove(tmp_path, newest_at_ms, at_ms=at_ms) == found


def test_log_without_a_record_is_proved_by_nothing(tmp_path: pathlib.Path) -> None:
    """There is no record that could be the last, and no doubt."""
    assert prove(tmp_path, 5, end=0, at_ms=0) == EndProof()


def test_checkpoint_and_queues_are_told_where_neither_proves(tmp_path: pathlib.Path) -> None:
    """How far both reach."""
    write_files(tmp_path, "T/3", {0: evenly(0, 9)})
    assert prove(tmp_path, 5).unproved == "queue entries reach to log offset 900 only, the checkpoint to 5"


def test_store_that_was_opened_meanwhile_is_not_judged(tmp_path: pathlib.Path) -> None:
    """Neither is one that was never closed."""
    opened = EndProof(unproved="abort is there: a broker has the store open, or was killed")
    write_files(tmp_path, "T/3", {0: evenly(0, 12)})
    (tmp_path / "abort").touch()
    assert prove(tmp_path) == opened
    (tmp_path / "abort").unlink()
    end = FoundEnd(str(tmp_path), END, AT_MS)
    assert prove_end(end, StoreMarks(False, None), str(tmp_path / "consumequeue"), Storage()) == opened


@pytest.mark.parametrize(
    ("offsets", "doubt"),
    [
        ({"T@g": {"3": 10}}, None),
        ({"T@g": {"3": 11}}, "group g is at offset 11 of T queue 3, which ends at 10"),
        ({"T@g": {"3": 11}, "T@h": {"3": 12}}, "group h is at offset 12 of T queue 3, which ends at 10"),
        ({"T@g": {"3": 12}, "T@h": {"3": 11}}, "group g is at offset 12 of T queue 3, which ends at 10"),
        ({"T@g": {"3": 12}, "T@h": {"3": 12}}, "group g is at offset 12 of T queue 3, which ends at 10"),
        ({"T@g": {"x": 12, "4": 99}, "U@g": {"3": 99}}, None),
        ({"E@g": {"0": 1}}, None),
    ],
)
def test_group_that_consumed_more_than_there_is_leaves_a_doubt(
    tmp_path: pathlib.Path, offsets: Mapping[str, Mapping[str, int]], doubt: str | None
) -> None:
    """The farthest of them is named; a queue without entries leaves none."""
    write_files(tmp_path, "T/3", {0: evenly(0, 10)})
    write_files(tmp_path, "E/0", {0: []})
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    assert prove(tmp_path) == EndProof(unproved=doubt)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_offsets_that_cannot_be_read_leave_no_doubt(tmp_path: pathlib.Path, text: str) -> None:
    """As if there were none."""
    write_files(tmp_path, "T/3", {0: evenly(0, 10)})
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(text)
    assert prove(tmp_path) == EndProof()


def test_foreign_and_empty_files_of_queues_are_passed_over(tmp_path: pathlib.Path) -> None:
    """What is before a file that cannot be read is not looked at."""
    write_files(tmp_path, "T/3", {0: evenly(0, 10)})
    directory = tmp_path / "consumequeue" / "T" / "3"
    for name in ("9" * 19, "9" * 21, "x" * 20):
        (directory / name).write_bytes(b"?" * 200)
    assert prove(tmp_path) == EndProof()
    (directory / f"{200:020d}").mkdir()
    assert prove(tmp_path) == EndProof(unproved=NOTHING)


def log_of(tmp_path: pathlib.Path, counts: Sequence[int]) -> tuple[LogBuilder, list[LogFile]]:
    """Return a log with so many records in each file, all of which but the last end in a blank."""
    log = LogBuilder(tmp_path / "log", first_file=3)
    for number, count in enumerate(counts):
        if number:
            log.roll()
        for _ in range(count):
            log.add(b"body")
    log.save()
    return log, [map_log_file(str(path), int(path.name), 4_096) for path in log.files()]


@pytest.mark.parametrize(
    ("counts", "number", "at_ms"), [([3], 0, FIRST_MS + 2), ([2, 3], 1, FIRST_MS + 4), ([1, 2, 1], 2, FIRST_MS + 3)]
)
def test_end_is_behind_the_last_record(tmp_path: pathlib.Path, counts: Sequence[int], number: int, at_ms: int) -> None:
    """In the last file that has records, and with the time of the last one."""
    log, files = log_of(tmp_path, counts)
    end = find_end(files)
    assert end == LogEnd(log.end - files[number].base_offset, stored_at_ms=at_ms, number=number)
    stop = end.stop(files)
    assert stop == (files[number].path, end.position, "nothing was written", None)


def test_end_of_full_files(tmp_path: pathlib.Path) -> None:
    """A blank fills the last file: the log ends in it, or at the start of the one that follows."""
    log, _ = log_of(tmp_path, [2, 1])
    log.roll()
    log.save()
    files: list[LogFile] = [map_log_file(str(path), int(path.name), 4_096) for path in log.files()]
    end = find_end(files)
    assert end == LogEnd(4_096, is_full=True, stored_at_ms=FIRST_MS + 2, number=1)
    assert end.stop(files) == (files[1].path, 4_096, "the file is full", None)
    (log.root / "commitlog" / f"{5 * 4096:020d}").write_bytes(bytes(4_096))
    files.append(map_log_file(str(log.files()[2]), 5 * 4_096, 4_096))
    assert find_end(files) == end
    assert end.stop(files) == (files[2].path, 0, "nothing was written", None)


def test_end_of_a_short_file_and_of_a_torn_record(tmp_path: pathlib.Path) -> None:
    """What stands there is named."""
    log, (file,) = log_of(tmp_path, [3])
    size = log.end - file.base_offset
    short = map_log_file(file.path, file.base_offset, size)
    assert find_end([short]).stop([short]) == (file.path, size, "the file ends", None)
    path = log.files()[0]
    last = log.offsets[2] - file.base_offset
    path.write_bytes(path.read_bytes().replace(b"body", b"bodY"))
    path.write_bytes(path.read_bytes().replace(b"bodY", b"body", 2))
    end = find_end([file])
    assert (end.position, end.damage) == (last, None)
    assert end.stop([file]).reason == "the body does not have its checksum"
    path.write_bytes(path.read_bytes()[:last] + bytes(4_096 - last))
    assert LogEnd(0).stop([file]).reason == "the record did not arrive whole"


def test_log_without_a_record_ends_at_its_start(tmp_path: pathlib.Path) -> None:
    """With no time."""
    _, (file,) = log_of(tmp_path, [0])
    assert find_end([file]) == LogEnd(0)


@pytest.mark.parametrize(("bad", "behind"), [(0, 1), (1, 2), (2, None), (3, 4), (5, None)])
def test_sound_record_behind_a_bad_one_is_damage(tmp_path: pathlib.Path, bad: int, behind: int | None) -> None:
    """In whichever file it is; where damage is skipped, the end is the last record."""
    log, files = log_of(tmp_path, [3, 3])
    offset = log.offsets[bad]
    path, position = log.files()[bad // 3], (offset - 3 * 4_096) % 4_096
    content = bytearray(path.read_bytes())
    content[position + 4] = 1
    path.write_bytes(content)
    files = [map_log_file(str(path), int(path.name), 4_096) for path in log.files()]
    end, skipped = find_end(files), find_end(files, skips_damage=True)
    if bad == 5:
        assert (end.damage, end.behind, end.number) == (None, None, 1)
    elif bad == 2:
        behind = 3
    if behind is not None:
        assert isinstance(end.damage, StoreDamagedError)
        assert (end.damage.path, end.damage.position, end.behind) == (str(path), position, log.offsets[behind])
        assert (skipped.damage, skipped.number) == (None, 1)
        assert skipped.position + files[1].base_offset == log.end
