"""What an audit takes for the end of the log, and what it makes of older bytes behind it."""

import os
import pathlib
import shutil
import struct

import pytest
from damage import audit, overwrite, record_start
from logbuilder import LogBuilder
from stores import HOST, StoreDirectory, new_record, sample

from rocketlet.common.record import MAGIC_BLANK, encode_record
from rocketlet.store.audit.audit_report import AuditReport
from rocketlet.store.audit.log_audit import LogAudit
from rocketlet.store.audit.store_audit import StoreAudit
from rocketlet.store.files.files import OS_FILES, Files
from rocketlet.store.files.segments import SegmentFile
from rocketlet.store.message_store import MessageStore


@pytest.mark.parametrize("is_killed", [False, True])
def test_records_older_than_the_last_one_do_not_count(directory: StoreDirectory, *, is_killed: bool) -> None:
    """Java's broker leaves them behind the end when it cuts: they are sound, and no part of the log any more."""
    directory.fill(12, queues=1)
    old = directory.segment().read_bytes()
    cut = record_start(directory, 4)
    directory.segment().write_bytes(old[:cut] + bytes(len(old) - cut))
    for name in ("consumequeue", "index"):
        shutil.rmtree(directory.root / name)
    directory.abort.touch()
    directory.now_ms += 100_000
    with directory.open() as store:
        store.append(new_record(body=b"shorter"))
        store.commit()
        end = store.log_max_offset
    data = directory.segment().read_bytes()
    directory.segment().write_bytes(data[:end] + old[end:])
    if is_killed:
        directory.abort.touch()
    report = audit(directory)
    assert (report.end, report.counts["records"], report.counts["queue entries"]) == (end, 5, 5)
    assert (report.totals, report.cut_at) == (({}, None) if is_killed else ({"log": 1}, end))
    told = report.notes[-1] if is_killed else str(report.findings[0])
    assert f"at position {end} (log offset {end}): the end of the log is torn: " in told
    assert report.sound_behind == 0


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_record_right_behind_bad_bytes_is_found(directory: StoreDirectory, size: int) -> None:
    """However few they are: what follows them counts as sound records that a cut would lose."""
    directory.fill(3, queues=1)
    with directory.open() as store:
        end = store.log_max_offset
    start = end + size
    record = encode_record(sample(3, queues=1), 3, start, directory.now_ms + 1, HOST)
    data = directory.segment().read_bytes()
    directory.segment().write_bytes(data[:end] + b"\xee" * size + record + data[start + len(record) :])
    report = audit(directory)
    assert f"; {size} bytes are unreadable up to position {start}" in str(report.findings[0])
    assert (report.cut_at, report.sound_behind, report.end) == (end, 1, start + len(record))


def read_log(folder: pathlib.Path, *, sure_at_ms: int = 0, is_open: bool = False) -> tuple[LogAudit, list[int]]:
    """Return the audit of a log, and where the records are that it has handed on."""
    paths = sorted((folder / "commitlog").iterdir())
    segments = [SegmentFile(str(path), int(path.name), path.stat().st_size) for path in paths]
    report = AuditReport(str(folder))
    report.is_open = is_open
    log = LogAudit(OS_FILES, segments, report, sure_at_ms=sure_at_ms, needs_seal=False)
    return log, [at for block in log.blocks() for at in block.heads["log_offset"].tolist()]


@pytest.mark.parametrize("position", [0, 1, 7, 4095])
@pytest.mark.parametrize("number", [1, 2])
def test_bytes_in_files_behind_the_end_are_told(directory: StoreDirectory, number: int, position: int) -> None:
    """Wherever in them; they should be zeros."""
    directory.fill(12, queues=1)
    for each in (1, 2):
        directory.segment(each).write_bytes(bytes(4096))
    overwrite(directory.segment(number), position, b"\xee")
    report = audit(directory)
    at = f"{directory.segment(number)} at position {position} (log offset {4096 * number + position})"
    assert list(map(str, report.findings)) == [f"{at}: bytes stand behind the end of the log"]
    assert report.counts["log files"] == 3


def test_what_begins_a_file_behind_the_end(tmp_path: pathlib.Path) -> None:
    """A record that is older than the last one was left there; a blank has no place there."""
    log = LogBuilder(tmp_path, 4096)
    log.add()
    log.save()
    next_file = tmp_path / "commitlog" / f"{4096:020d}"
    old = LogBuilder(tmp_path / "old", 4096, first_file=1)
    old.next_ms -= 1
    old.add()
    old.save()
    shutil.copyfile(old.files()[0], next_file)
    found, places = read_log(tmp_path)
    assert (places, found.end, found.report.findings) == ([0], log.end, [])
    next_file.write_bytes(struct.pack(">iI", 4096, MAGIC_BLANK).ljust(4096, b"\0"))
    found, places = read_log(tmp_path)
    assert (places, found.end) == ([0], log.end)
    assert [(one.path, one.position, one.log_offset) for one in found.report.findings] == [(str(next_file), 2, 4098)]


class LateFiles(Files):
    """A broker writes records when the place behind the last one is looked at."""

    def __init__(self, store: MessageStore, count: int) -> None:
        self._store = store
        self._count = count

    def next_data(self, descriptor: int, position: int) -> int | None:
        """Write, then look."""
        for number in range(self._count):
            self._store.append(sample(50 + number, queues=1))
        self._store.commit()
        self._count = 0
        return super().next_data(descriptor, position)


@pytest.mark.parametrize(
    ("count", "has_checkpoint", "is_read"),
    [(0, False, 0), (1, False, 0), (2, False, 2), (3, False, 3), (1, True, 0), (3, True, 0)],
)
def test_records_that_come_at_the_end_are_no_damage(
    directory: StoreDirectory, count: int, has_checkpoint: bool, is_read: int
) -> None:
    """They are read, or left to the next audit; nothing stands behind the end but them."""
    directory.fill(5, queues=1)
    store = directory.open()
    if not has_checkpoint:
        (directory.root / "checkpoint").unlink()
    end = store.log_max_offset
    report = StoreAudit(directory.config, files=LateFiles(store, count)).run()
    assert report.counts["records"] == 5 + is_read
    assert report.end == (store.log_max_offset if is_read else end)
    assert (report.findings, [note for note in report.notes if "end of the log" in note]) == ([], [])


class CutFiles(Files):
    """Somebody cuts a file of the log once it is mapped."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def map_written(self, path: str, size: int) -> memoryview:
        """Map and cut."""
        view = super().map_written(path, size)
        if path == str(self._path):
            os.truncate(path, 100)
        return view


@pytest.mark.parametrize("number", [0, 1])
def test_file_that_is_cut_while_it_is_read(directory: StoreDirectory, number: int) -> None:
    """It is damage that names the file and how long it is; a repair would cut the log there."""
    directory.fill(60)
    path = directory.segment(number)
    report = StoreAudit(directory.config, files=CutFiles(path)).run()
    at = 4096 * number + 100
    told = f"{path} at position 100 (log offset {at}): cannot be read: it has 100 bytes and had 4096"
    assert [str(one).partition(",")[0] for one in report.findings if one.kind == "log"] == [told]
    assert report.cut_at == at


@pytest.mark.parametrize("size", [1, 30, 200])
def test_place_of_unreadable_bytes_is_known(tmp_path: pathlib.Path, size: int) -> None:
    """From their first to their last; in what is read there is no finding."""
    log = LogBuilder(tmp_path, 4096, first_file=2)
    first = log.add()
    start = log.end
    record = log.add()
    end = log.add()
    log.add()
    path = log.save() / "commitlog" / f"{2 * 4096:020d}"
    overwrite(path, record - 2 * 4096, b"\xee" * (end - record))
    found, places = read_log(tmp_path)
    assert places[:2] == [first, end]
    (damage,) = found.report.findings
    known = [found.finding_at(at) for at in (first, start - 1, start, end - 1, end, log.end)]
    assert known == [None, None, damage, damage, None, None]


@pytest.mark.parametrize(
    ("behind_ms", "sure_ms", "is_open", "is_damage"),
    [
        (-1, 0, False, False), (0, 0, False, True), (1, 0, False, True), (1, 1, False, True), (2, 1, False, True),
        (-1, 0, True, False), (0, 0, True, True), (1, 0, True, True), (1, 1, True, True), (2, 1, True, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_next_file", [False, True])
def test_records_behind_bad_bytes_that_were_part_of_the_log(
    tmp_path: pathlib.Path, behind_ms: int, sure_ms: int, is_open: bool, is_damage: bool, is_next_file: bool
) -> None:
    """Those that are no older than the last one before; after a kill only what the checkpoint is sure of."""
    log = LogBuilder(tmp_path, 4096)
    last_ms = log.next_ms
    log.add()
    bad = log.add()
    log.next_ms = last_ms + behind_ms
    if is_next_file:
        log.roll()
    behind = log.add()
    path = log.save() / "commitlog" / f"{0:020d}"
    overwrite(path, bad, b"\xee" * 50)
    found, places = read_log(tmp_path, sure_at_ms=last_ms + sure_ms if sure_ms else 0, is_open=is_open)
    assert places == ([0, behind] if is_damage else [0])
    assert found.report.cut_at == (None if is_open and not is_damage else bad)
    assert found.end == (log.end if is_damage else bad)


@pytest.mark.parametrize("left", [8, 9, 12, 100])
@pytest.mark.parametrize("room", [0, 7, 8, 9, 300, -1])
def test_blank_that_names_another_length(tmp_path: pathlib.Path, left: int, room: int) -> None:
    """It is told with both numbers, and how to correct it; the log goes on in the next file."""
    log = LogBuilder(tmp_path, 1024, first_file=3)
    first = log.add(bytes(1024 - left - len(encode_first(tmp_path))))
    size, end = 1024 - left, log.end
    assert end == first + size
    log.roll()
    second = log.add()
    path = log.save() / "commitlog" / f"{first:020d}"
    overwrite(path, size, room.to_bytes(4, "big", signed=True))
    found, places = read_log(tmp_path)
    assert (places, found.end) == ([first, second], log.end)
    reason = f"the blank that ends the file names {room} bytes, {left} are left"
    is_right = room == left
    told = [(one.reason, one.position, one.log_offset) for one in found.report.findings]
    assert told == ([] if is_right else [(reason, size, end)])
    assert found.report.wrong_blanks == ([] if is_right else [(str(path), size, left)])


def encode_first(folder: pathlib.Path) -> bytes:
    """Return a record without a body, as the first one of a log."""
    log = LogBuilder(folder / "other")
    log.add(b"")
    return log.files()[0].read_bytes()[: log.end] if log.save() else b""


def test_store_times_that_go_back_are_counted(tmp_path: pathlib.Path) -> None:
    """Equal ones do not; one of 0 or less is damage."""
    log = LogBuilder(tmp_path, 1 << 16)
    for at_ms in (5, 5, 6, 4, 4, 3, 7, 1, 0, -1):
        log.next_ms = at_ms
        log.add()
    log.save()
    found, places = read_log(tmp_path)
    assert (len(places), found.last_at_ms) == (10, -1)
    assert found.report.counts["store times that go back"] == 5
    assert [one.reason for one in found.report.findings] == ["the store time is 0", "the store time is -1"]
