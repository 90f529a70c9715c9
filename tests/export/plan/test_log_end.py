import os
import pathlib
import random

import pytest
from javastores import JavaStores, Read, Row
from logbuilder import FIRST_MS, LogBuilder
from stores import StoreDirectory

from rocketlet.common.errors import StoreDamagedError
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.plan.selection import Selection
from rocketlet.export.write.log_reader import ReadOptions
from rocketlet.store.files.checkpoint import Checkpoint, save_checkpoint
from rocketlet.store.files.files import OS_FILES


def fill(log: LogBuilder, count: int = 90) -> None:
    """Write a log of several files."""
    for number in range(count):
        log.add(b"body %d" % number * (number % 5 + 1), properties={"KEYS": f"k{number}"}, queue_id=number % 3)
    log.save()


def offsets(rows: list[Row]) -> list[int]:
    """Return the log offsets of rows."""
    return [row["logOffset"] for row in rows]


@pytest.mark.parametrize("seed", range(40))
def test_torn_tail_ends_the_log(seed: int, log: LogBuilder, read: Read) -> None:
    """A last file that is zeroed from a random byte on gives the records that end before it, without an error."""
    fill(log)
    path, base = log.files()[-1], int(log.files()[-1].name)
    cut = random.Random(seed).randrange(log.end - base + 1)
    content = path.read_bytes()
    path.write_bytes(content[:cut] + bytes(len(content) - cut))
    rows, report = read(log.root)
    ends = [*log.offsets[1:], log.end]
    assert offsets(rows) == [start for start, end in zip(log.offsets, ends, strict=True) if end <= base + cut]
    assert not report.faults()


@pytest.mark.parametrize("seed", range(20))
def test_copy_without_a_part_of_the_last_file_is_read(seed: int, log: LogBuilder, read: Read) -> None:
    """A last file that is cut off at a random byte gives the records that are whole."""
    fill(log)
    path, base = log.files()[-1], int(log.files()[-1].name)
    cut = random.Random(seed).randrange(1, log.end - base + 1)
    os.truncate(path, cut)
    rows, _ = read(log.root)
    ends = [*log.offsets[1:], log.end]
    assert offsets(rows) == [start for start, end in zip(log.offsets, ends, strict=True) if end <= base + cut]


def test_copy_of_the_java_store_is_read_up_to_each_cut(
    java_stores: JavaStores, tmp_path: pathlib.Path, read: Read
) -> None:
    """The killed store, cut anywhere in its last written file, is a prefix of what it was."""
    whole, _ = read(java_stores["killed"])
    files = sorted((java_stores["killed"] / "commitlog").iterdir())[:6]
    folder = tmp_path / "copy" / "commitlog"
    folder.mkdir(parents=True)
    for path in files:
        (folder / path.name).write_bytes(path.read_bytes())
    for cut in random.Random(1).sample(range(1, 58_000), 12):
        (folder / files[-1].name).write_bytes(files[-1].read_bytes()[:cut].ljust(65_536, b"\0"))
        rows, report = read(folder.parent)
        assert rows == whole[: len(rows)]
        assert len(rows) >= 572
        assert not report.faults()


def test_damage_in_the_middle_of_the_last_file_is_refused(log: LogBuilder) -> None:
    """Sound records behind a bad one are not cut off; the error names file, position, reason and the next record."""
    fill(log)
    path, base = log.files()[-1], int(log.files()[-1].name)
    bad, behind = log.offsets[-4], log.offsets[-3]
    with path.open("r+b") as file:
        file.seek(bad - base)
        file.write(bytes(8))
    with pytest.raises(StoreDamagedError, match=f"{path} at position {bad - base}: .* log offset {behind}$") as caught:
        plan_stores([str(log.root)])
    assert (caught.value.path, caught.value.position) == (str(path), bad - base)


def test_changed_body_in_the_middle_is_refused_when_read(log: LogBuilder, read: Read) -> None:
    """A body that lost its checksum, with sound records behind it, ends the reading after the rows before it."""
    fill(log)
    path = log.files()[0]
    path.write_bytes(path.read_bytes().replace(b"body 7", b"bodY 7", 1))
    with pytest.raises(StoreDamagedError, match=r"position \d+: the body does not have its checksum"):
        read(log.root)


@pytest.mark.parametrize("place", ["first record", "last record", "blank"])
def test_damage_before_the_last_file_is_refused_when_read(place: str, log: LogBuilder, read: Read) -> None:
    """A file before the last must be whole: its first record, its last one and its blank."""
    fill(log)
    path = log.files()[1]
    base, end = int(path.name), int(log.files()[2].name)
    inside = [offset for offset in log.offsets if base <= offset < end]
    content = bytearray(path.read_bytes())
    blank_at = content.index(b"\xcb\xd4\x31\x94") - 4
    at = {"first record": 0, "last record": inside[-1] - base, "blank": blank_at}[place]
    content[at + 4] = 0
    path.write_bytes(content)
    with pytest.raises(StoreDamagedError, match=f"{path} at position {at}: the magic is unknown"):
        read(log.root)


def test_older_records_behind_the_end_are_left_over(log: LogBuilder, read: Read) -> None:
    """What a broker left lying when it cut its log after a crash is not part of it, sound as it may be."""
    fill(log)
    path, base = log.files()[-1], int(log.files()[-1].name)
    old = path.read_bytes()
    cut = log.offsets[-5] - base
    torn = old[:cut] + b"\xff" * 60 + old[cut + 60 :]
    stored_at = cut - (log.offsets[-5] - log.offsets[-6]) + 56
    newer = (log.next_ms + 1000).to_bytes(8, "big")
    path.write_bytes(torn[:stored_at] + newer + torn[stored_at + 8 :])
    rows, _ = read(log.root)
    assert offsets(rows) == log.offsets[:-5]


def test_properties_that_did_not_arrive_are_not_made_up(log: LogBuilder, read: Read) -> None:
    """A last record whose properties are zeros has a sound body, but is not whole."""
    log.add(b"one", properties={"KEYS": "first"})
    log.add(b"two", properties={"KEYS": "second"})
    path = log.save() / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"KEYS\x01second\x02", b"KEYS\x01se" + bytes(5)))
    rows, _ = read(log.root)
    assert [row["body"] for row in rows] == [b"one"]


@pytest.mark.parametrize("spares", [1, 2])
def test_spare_files_end_the_log(spares: int, log: LogBuilder, read: Read) -> None:
    """All-zero files behind the last record are no part of the log, be the file before them full or not."""
    fill(log)
    last = int(log.files()[-1].name)
    for number in range(1, spares + 1):
        (log.root / "commitlog" / f"{last + number * 4096:020d}").write_bytes(bytes(4096))
    rows, report = read(log.root)
    assert offsets(rows) == log.offsets
    assert not report.faults()


def test_log_that_ends_with_a_full_file_is_whole(log: LogBuilder, read: Read) -> None:
    """A blank at the end of the last file is counted, and the end is the end of the file."""
    fill(log)
    log.roll()
    log.save()
    rows, report = read(log.root)
    assert offsets(rows) == log.offsets
    assert report.stores[0].log_bytes == log.end
    assert report.stores[0].blanks == len(log.files())


def test_torn_first_record_of_a_new_file_ends_the_log(log: LogBuilder, read: Read) -> None:
    """A broker killed while it began a file leaves the log ending with the file before."""
    fill(log)
    log.roll()
    behind = log.end
    log.save()
    new = log.root / "commitlog" / f"{behind:020d}"
    new.write_bytes((log.files()[0].read_bytes()[:40] + bytes(4096))[:4096])
    rows, _ = read(log.root)
    assert offsets(rows) == log.offsets


def test_foreign_file_is_refused(tmp_path: pathlib.Path) -> None:
    """A file that does not begin with a record, as other log formats do not, is no empty log."""
    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(b"some other format of a log".ljust(4096, b"."))
    with pytest.raises(StoreDamagedError, match="does not begin with a record"):
        plan_stores([str(folder.parent)])


def test_empty_log_has_no_rows(tmp_path: pathlib.Path, read: Read) -> None:
    """A file that a broker made and did not write to yet gives no rows and no fault."""
    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(4096))
    assert plan_stores([str(folder.parent)]) == []
    assert read(folder.parent, options=ReadOptions(Selection()))[0] == []


def spoil(draw: random.Random, log: LogBuilder) -> None:
    """Flip a bit, lose a page, or lose the end, somewhere in the written part of one of the last files."""
    path = draw.choice(log.files()[-3:])
    data = bytearray(path.read_bytes())
    written = len(data.rstrip(b"\x00")) or 1
    at = draw.randrange(written)
    kind = draw.randrange(3)
    if kind == 0:
        data[at] ^= 1 << draw.randrange(8)
    else:
        end = len(data) if kind == 1 else min(len(data), at + draw.randrange(1, 600))
        data[at:end] = bytes(end - at)
    path.write_bytes(data)


def open_and_find_end(log: LogBuilder) -> int | StoreDamagedError:
    """Return where a broker goes on, or why it does not."""
    directory = StoreDirectory(log.root, segment_bytes=log.segment_bytes)
    try:
        with directory.open() as store:
            return store.log_max_offset
    except StoreDamagedError as error:
        return error


def read_offsets(log: LogBuilder, read: Read) -> list[int] | StoreDamagedError:
    """Return the log offsets of all rows, or why there are none."""
    try:
        return offsets(read(log.root)[0])
    except StoreDamagedError as error:
        return error


@pytest.mark.parametrize("seed", range(24))
def test_reading_ends_where_a_broker_would_go_on(seed: int, log: LogBuilder, read: Read) -> None:
    """Cleanly closed, killed, with and without a checkpoint: both find the same end, or damage in the same file."""
    draw = random.Random(seed)
    fill(log)
    spoil(draw, log)
    if draw.random() < 0.8:
        (log.root / "abort").touch()
    if draw.random() < 0.8:
        checkpoint = Checkpoint(log_at_ms=FIRST_MS + draw.randrange(90))
        save_checkpoint(OS_FILES, str(log.root / "checkpoint"), checkpoint)
    found, end = read_offsets(log, read), open_and_find_end(log)
    if isinstance(end, StoreDamagedError):
        assert isinstance(found, StoreDamagedError)
        assert found.path == end.path
        assert found.position >= end.position  # a record without the end of its properties is delivered
    else:
        assert found == [at for at in log.offsets if at < end]
