"""The log's files by themselves: plans and commits, failed writes, copies of another log, maps, several directories."""

import errno
import os
import pathlib
from collections.abc import Iterator, Sequence

import pytest
from logbuilder import LogBuilder
from stores import HOST, new_record

from rocketlet.common.errors import MessageIllegalError, StoreFullError, StoreNotWritableError
from rocketlet.common.record import iter_records
from rocketlet.store.commitlog.commit_log import CommitLog, LogPaths, RecordEncoder
from rocketlet.store.files.files import OS_FILES, Files
from rocketlet.store.files.segments import SegmentFile
from rocketlet.store.files.store_config import StoreConfig

FILE_BYTES = 4096


class WatchedFiles(Files):
    """Knows which files are open and how many buffers each write had, and fails as the test says."""

    def __init__(self) -> None:
        self.open_descriptors: set[int] = set()
        self.buffers: list[int] = []
        self.synced: list[str] = []
        self.room: int | None = None
        self.failure: OSError | None = None
        self.unlink_failure: OSError | None = None

    def create(self, path: str, size: int, mode: int = 0o644) -> int:
        """Make a file and remember that it is open."""
        descriptor = super().create(path, size, mode)
        self.open_descriptors.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        """Forget that it is open."""
        self.open_descriptors.discard(descriptor)
        super().close(descriptor)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Write as much as there is room for."""
        if self.failure is not None:
            raise self.failure
        data = b"".join(buffers)
        self.buffers.append(len(buffers))
        if self.room is not None:
            data = data[: self.room]
            self.room -= len(data)
        return super().pwrite(descriptor, data, position)

    def unlink(self, path: str) -> None:
        """Remove a file or fail."""
        if self.unlink_failure is not None:
            raise self.unlink_failure
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        """Note the directory."""
        self.synced.append(os.path.basename(path))
        super().sync_directory(path)


@pytest.fixture
def files() -> WatchedFiles:
    """Give a disk that is watched."""
    return WatchedFiles()


@pytest.fixture
def log(tmp_path: pathlib.Path, files: WatchedFiles) -> Iterator[CommitLog]:
    """Give an empty log that is closed after the test."""
    made = CommitLog(files, str(tmp_path / "log"), FILE_BYTES)
    yield made
    made.close()


def content(folder: pathlib.Path) -> dict[int, bytes]:
    """Return what each file of a log holds, without the zeros at its end."""
    return {int(path.name) // FILE_BYTES: path.read_bytes().rstrip(b"\0") for path in sorted(folder.glob("*/0*"))}


def state(log: CommitLog) -> tuple[int, int, int]:
    """Return the end of what is written, of what is planned, and the room behind it."""
    return log.max_offset, log.append_offset, log.room


def written(log: CommitLog) -> list[tuple[int, bool]]:
    """Return the files that wait for a flush, and whether they are full."""
    return [(segment.base_offset // FILE_BYTES, segment.is_full) for segment in log.take_unflushed()]


def fill_files(log: CommitLog, letters: bytes) -> None:
    """Write whole files, each of one letter and with a commit of its own."""
    for letter in letters:
        log.add_copy(log.append_offset, bytes([letter]) * FILE_BYTES)
        log.commit()


def test_plans_are_written_by_one_commit(log: CommitLog, tmp_path: pathlib.Path) -> None:
    """Over three files, with a blank at the end of each but the last; the next commit goes on where it ended."""
    log.add(b"a" * 100 + b"b" * 50, 150)
    log.roll()
    log.add(b"c" * 4_000, 4_000)
    log.roll()
    log.add(b"d" * 10, 10)
    assert state(log) == (0, 8_202, 4_086)
    log.commit()
    assert state(log) == (8_202, 8_202, 4_086)
    log.add(b"e" * 5, 5)
    log.commit()
    assert content(tmp_path) == {
        0: b"a" * 100 + b"b" * 50 + (3_946).to_bytes(4, "big") + b"\xcb\xd4\x31\x94",
        1: b"c" * 4_000 + (96).to_bytes(4, "big") + b"\xcb\xd4\x31\x94",
        2: b"d" * 10 + b"e" * 5,
    }
    assert written(log) == [(0, True), (1, True), (2, False)]
    assert written(log) == []
    log.add(b"f", 1)
    log.commit()
    log.roll()
    log.commit()
    assert state(log) == (12_288, 12_288, FILE_BYTES)
    assert written(log) == [(2, True)]
    log.add(b"g", 1)
    log.commit()
    assert (written(log), content(tmp_path)[3]) == ([(3, False)], b"g")


@pytest.mark.parametrize(("count", "buffers"), [(1, 1), (1_024, 1_024), (1_025, 1), (3_000, 1)])
def test_write_has_no_more_buffers_than_the_system_takes(
    log: CommitLog, files: WatchedFiles, count: int, buffers: int, tmp_path: pathlib.Path
) -> None:
    """Linux and macOS take 1024 at once; more are joined before."""
    for _ in range(count):
        log.add(b"x", 1)
    log.commit()
    assert (files.buffers, content(tmp_path)) == ([buffers], {0: b"x" * count})


def test_dropped_plans_leave_no_trace(log: CommitLog, tmp_path: pathlib.Path) -> None:
    """Those of the file that is open, of the next ones, and of the blank between."""
    log.add(b"kept", 4)
    log.commit()
    log.add(b"a" * 10, 10)
    log.roll()
    log.add(b"b" * 10, 10)
    log.drop_plans()
    assert state(log) == (4, 4, FILE_BYTES - 4)
    log.commit()
    assert (state(log), content(tmp_path)) == ((4, 4, FILE_BYTES - 4), {0: b"kept"})


# --- failed writes


@pytest.mark.parametrize("room", [0, 7, 100, 107, 108, 4_195, 4_196, 4_295])
@pytest.mark.parametrize("is_first", [True, False])
def test_short_write_is_taken_back(
    log: CommitLog, files: WatchedFiles, room: int, is_first: bool, tmp_path: pathlib.Path
) -> None:
    """Zeros where it was, new files removed and closed, the plans gone; the same is written when there is room."""
    if not is_first:
        log.add(b"kept", 4)
        log.commit()
        log.take_unflushed()
    before, bounds, opened = content(tmp_path), state(log), set(files.open_descriptors)
    for is_full in (True, False):
        log.add(b"a" * 100, 100)
        log.roll()
        log.add(b"b" * 4_080, 4_080)
        log.roll()
        log.add(b"c" * 100, 100)
        if is_full:
            files.room = room
            with pytest.raises(StoreFullError, match=f"no room to write to {tmp_path}/log: "):
                log.commit()
            files.room = None
            assert (content(tmp_path), state(log)) == (before, bounds)
            assert (files.open_descriptors, written(log)) == (opened, [])
        else:
            log.commit()
            assert content(tmp_path)[1][:4_080] == b"b" * 4_080
            assert content(tmp_path)[2] == b"c" * 100
            assert written(log) == [(0, True), (1, True), (2, False)]


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, StoreFullError), (errno.EDQUOT, StoreFullError), (errno.EIO, StoreNotWritableError)],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_failed_write_says_what_happened(
    log: CommitLog, files: WatchedFiles, number: int, kind: type[Exception], is_first: bool, tmp_path: pathlib.Path
) -> None:
    """A disk without room is told apart from one that fails; the directory is named."""
    if not is_first:
        log.add(b"kept", 4)
        log.commit()
    log.add(b"lost", 4)
    files.failure = OSError(number, os.strerror(number))
    words = "no room to write to" if kind is StoreFullError else "cannot write to"
    with pytest.raises(kind, match=f"^{words} {tmp_path}/log: {os.strerror(number)}$") as caught:
        log.commit()
    assert (type(caught.value), caught.value.__cause__) == (kind, files.failure)


def test_write_that_cannot_be_taken_back_says_so(log: CommitLog, files: WatchedFiles, tmp_path: pathlib.Path) -> None:
    """Also when there was no room only: what stands there now must not be read."""
    log.add(b"lost", 4)
    files.room = 2
    files.unlink_failure = OSError(errno.EIO, "broken")
    with pytest.raises(StoreNotWritableError, match=f"cannot take back a failed write to {tmp_path}/log: .*broken"):
        log.commit()
    files.unlink_failure = None


def test_new_file_that_was_taken_back_is_read_anew(log: CommitLog, files: WatchedFiles) -> None:
    """A map of it, made while it was prepared, does not stay."""
    fill_files(log, b"a")
    OS_FILES.close(OS_FILES.create(log.paths.path_of(FILE_BYTES), FILE_BYTES))
    assert bytes(log.segment_view(FILE_BYTES)[:1]) == b"\0"
    log.add(b"b", 1)
    files.room = 0
    with pytest.raises(StoreFullError):
        log.commit()
    files.room = None
    log.add(b"c", 1)
    log.commit()
    assert bytes(log.segment_view(FILE_BYTES)[:1]) == b"c"


def test_closed_log_has_no_open_files(log: CommitLog, files: WatchedFiles) -> None:
    """Neither the active one nor those that wait for a flush; a file that somebody has taken is his to close."""
    for _ in range(3):
        log.add(b"a", 1)
        log.commit()
        log.roll()
    log.add(b"b", 1)
    log.commit()
    assert len(files.open_descriptors) == 4
    log.close()
    log.close()
    assert (files.open_descriptors, written(log)) == (set(), [])
    log.add(b"c", 1)
    log.commit()
    log.take_unflushed()
    assert len(files.open_descriptors) == 1
    log.close()
    assert files.open_descriptors == set()


# --- copies of another log


def test_copy_begins_where_a_file_of_the_other_log_does(log: CommitLog, tmp_path: pathlib.Path) -> None:
    """An empty log takes over its numbering; a full file ends without a blank, and the copy goes on in the next."""
    log.add_copy(3 * FILE_BYTES, b"a" * 4_000)
    assert (log.min_offset, *state(log)) == (3 * FILE_BYTES, 3 * FILE_BYTES, 3 * FILE_BYTES + 4_000, 96)
    log.add_copy(3 * FILE_BYTES + 4_000, b"b" * 96)
    assert log.room == FILE_BYTES
    log.add_copy(4 * FILE_BYTES, b"c" * 10)
    log.commit()
    assert state(log) == (4 * FILE_BYTES + 10, 4 * FILE_BYTES + 10, FILE_BYTES - 10)
    assert content(tmp_path) == {3: b"a" * 4_000 + b"b" * 96, 4: b"c" * 10}
    assert written(log) == [(3, True), (4, False)]


@pytest.mark.parametrize("end", [0, 10])
@pytest.mark.parametrize("log_offset", [1, 9, 11, 4_095, 4_096, 4_097])
def test_copy_at_another_place_is_refused(log: CommitLog, end: int, log_offset: int) -> None:
    """It would leave a gap; only an empty log begins anywhere, and only with a file."""
    if end:
        log.add_copy(0, b"x" * end)
    if not end and not log_offset % FILE_BYTES:
        log.add_copy(log_offset, b"a")
        return
    with pytest.raises(ValueError, match=f"^copied bytes stand at {log_offset}, the log ends at {end}$"):
        log.add_copy(log_offset, b"a")
    assert state(log) == (0, end, FILE_BYTES - end)


def test_copy_over_the_end_of_a_file_is_refused(log: CommitLog) -> None:
    """What it does not fit is not cut; what just fits is taken."""
    log.add_copy(0, b"a" * 4_000)
    with pytest.raises(
        ValueError,
        match=r"^copied bytes are 97, the file has room for 96: mappedFileSizeCommitLog must be that of the master$",
    ):
        log.add_copy(4_000, b"b" * 97)
    log.add_copy(4_000, b"b" * 96)
    assert log.append_offset == FILE_BYTES


# --- reading


def test_bounds_drop_the_maps_of_files_that_are_gone(log: CommitLog, tmp_path: pathlib.Path) -> None:
    """Another file in the place of one that was cut off is read as it is; the file before it needs no new map."""
    fill_files(log, b"ab")
    kept, cut = (log.segment_view(base) for base in (0, FILE_BYTES))
    for number in (0, 1):
        path = tmp_path / "log" / f"{number * FILE_BYTES:020d}"
        path.unlink()
        path.write_bytes(b"z" * FILE_BYTES)
    log.set_bounds(0, FILE_BYTES)
    assert bytes(log.segment_view(0)[:1]) == bytes(kept[:1]) == b"a"
    assert (bytes(log.segment_view(FILE_BYTES)[:1]), bytes(cut[:1])) == (b"z", b"b")
    log.close()
    assert bytes(log.segment_view(0)[:1]) == b"z"


def test_cut_file_is_an_error_with_its_name(log: CommitLog, tmp_path: pathlib.Path) -> None:
    """Also for one that has a map: to read behind its end would end the process."""
    fill_files(log, b"a")
    log.segment_view(0)
    path = tmp_path / "log" / f"{0:020d}"
    os.truncate(path, FILE_BYTES - 1)
    with pytest.raises(OSError, match="it has 4095 bytes and had 4096") as caught:
        log.slice(0, 10)
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("segment_bytes", [4_096, 2_048])
def test_records_are_walked_over_files(tmp_path: pathlib.Path, segment_bytes: int) -> None:
    """From any record, up to the end of the log, over blanks of any size, and to what is no record."""
    made = LogBuilder(tmp_path, segment_bytes)
    for number in range(60):
        made.add(b"x" * (number * 7 % 50))
    made.save()
    log = CommitLog(OS_FILES, str(tmp_path / "commitlog"), segment_bytes)
    log.set_bounds(0, made.end)

    def walk(start: int) -> list[int]:
        return [record.log_offset for part in log.records_from(start) for record in iter_records(part)]

    for number in (0, 1, 20, 59):
        assert walk(made.offsets[number]) == made.offsets[number:]
    assert walk(made.end) == []
    assert walk(made.offsets[1] + 1) == []
    log.set_bounds(0, made.offsets[30])
    assert walk(0) == made.offsets[:30]
    log.set_bounds(0, made.offsets[30] + 50)
    assert walk(0) == made.offsets[:30]
    file_end = next(offset for offset in made.offsets[1:] if offset % segment_bytes == 0)
    log.set_bounds(0, file_end)
    assert walk(0) == [offset for offset in made.offsets if offset < file_end]
    log.set_bounds(0, file_end - 1)
    assert walk(0) == [offset for offset in made.offsets if offset < file_end]
    log.close()


# --- first and next files


def test_first_file_leaves_and_returns(log: CommitLog) -> None:
    """The caller that cannot remove it gives it back; a file that is gone has no map."""
    fill_files(log, b"abc")
    assert bytes(log.segment_view(0)[:1]) == b"a"
    path = log.drop_first()
    assert (log.min_offset, log.slice(0, 1)) == (FILE_BYTES, None)
    log.keep_first(path)
    assert (log.min_offset, bytes(log.slice(0, 1) or b"")) == (0, b"a")
    assert log.drop_first() == path
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        log.segment_view(0)


def test_spare_file_that_is_removed_may_be_made_elsewhere(tmp_path: pathlib.Path) -> None:
    """Once asked for, the next file has its place; when it was not needed, it is chosen anew."""
    paths = LogPaths((str(tmp_path / "a"), str(tmp_path / "b")), FILE_BYTES)
    log = CommitLog(OS_FILES, paths, FILE_BYTES)
    log.set_bounds(0, 3_000)
    spare = f"{tmp_path}/b/{FILE_BYTES:020d}"
    assert log.spare() == (spare, FILE_BYTES)
    paths.full = frozenset({str(tmp_path / "b")})
    assert log.spare() == (spare, FILE_BYTES)
    os.mkdir(tmp_path / "b")
    pathlib.Path(spare).touch()
    log.remove_spare()
    assert (list((tmp_path / "b").iterdir()), log.take_new_directories()) == ([], {f"{tmp_path}/b"})
    assert log.spare() == (f"{tmp_path}/a/{FILE_BYTES:020d}", FILE_BYTES)
    log.remove_spare()
    assert log.take_new_directories() == set()


# --- several directories


def test_places_of_files_in_several_directories(tmp_path: pathlib.Path) -> None:
    """In turn, by name, where there is room; a file that is known, held or set stays until it is forgotten."""
    paths = LogPaths(("/c", "/a", "/b", "/a"), FILE_BYTES, read_only=("/b",))
    first, second, third = (FILE_BYTES * number for number in range(3))
    assert paths.are_several
    assert [paths.path_of(base)[:2] for base in (first, second, third)] == ["/a", "/c", "/a"]
    assert not LogPaths(("/a", "/b"), FILE_BYTES, read_only=("/b",)).are_several
    paths.set_files([SegmentFile(f"/b/{0:020d}", 0, FILE_BYTES)])
    paths.set_file(second, "/b/x")
    assert [paths.path_of(base) for base in (first, second)] == [f"/b/{0:020d}", "/b/x"]
    paths.forget_from(second)
    assert [paths.path_of(base)[:2] for base in (first, second)] == ["/b", "/c"]
    paths.forget(first)
    paths.forget(first)
    paths.full = frozenset({"/a"})
    assert [paths.path_of(base)[:2] for base in (first, second, third)] == ["/c", "/c", "/c"]
    assert paths.hold(third)[:2] == "/c"
    paths.full = frozenset({"/a", "/c"})
    assert [paths.path_of(base)[:2] for base in (first, second, third)] == ["/a", "/c", "/c"]
    paths.full = frozenset()
    assert paths.hold(third)[:2] == "/c"
    paths.set_files([])
    assert paths.path_of(third)[:2] == "/a"


@pytest.mark.parametrize("names", [("a",), ("a/b/c/d", "e")])
def test_new_names_in_other_directories_are_on_disk_first(
    tmp_path: pathlib.Path, files: WatchedFiles, names: Sequence[str]
) -> None:
    """A power loss must not keep the next file without the one before it; one directory keeps its order itself."""
    log = CommitLog(files, LogPaths([str(tmp_path / name) for name in names], FILE_BYTES), FILE_BYTES)
    fill_files(log, b"aaa")
    if len(names) == 1:
        assert (files.synced, log.take_new_directories()) == ([], {str(tmp_path), str(tmp_path / "a")})
    else:
        assert files.synced == [tmp_path.name, "a", "b", "c", "d", tmp_path.name, "e"]
        assert log.take_new_directories() == {f"{tmp_path}/a/b/c/d"}
    assert log.take_new_directories() == set()
    log.close()


def test_bounds_forget_where_later_files_lay(tmp_path: pathlib.Path) -> None:
    """Files that are made in their place go where there is room now."""
    paths = LogPaths((str(tmp_path / "a"), str(tmp_path / "b")), FILE_BYTES)
    log = CommitLog(OS_FILES, paths, FILE_BYTES)
    fill_files(log, b"aaa")
    paths.full = frozenset({str(tmp_path / "b")})
    assert paths.path_of(FILE_BYTES).startswith(f"{tmp_path}/b")
    log.set_bounds(0, FILE_BYTES + 1)
    assert paths.path_of(FILE_BYTES).startswith(f"{tmp_path}/b")
    log.set_bounds(0, FILE_BYTES)
    assert paths.path_of(FILE_BYTES).startswith(f"{tmp_path}/a")
    log.close()


# --- limits of records


def test_limits_of_a_record(tmp_path: pathlib.Path) -> None:
    """64 KiB may stand beside the largest body, and 8 bytes must stay free in a file."""
    encoder = RecordEncoder(StoreConfig(str(tmp_path), segment_bytes=1 << 20, max_message_bytes=10), HOST)
    record = new_record(body=bytes(10))
    record.property_text = b"k" * 32_767
    assert len(encoder.encode(record, 0, 0, 1)) < 10 + 65_536
    record.body = bytes(11)
    with pytest.raises(MessageIllegalError, match=r"^body is 11 bytes, limit is 10$"):
        encoder.encode(record, 0, 0, 1)
    record.body = bytes(70_000)
    with pytest.raises(MessageIllegalError, match=r"^record is \d+ bytes, limit is 65546$"):
        encoder.encode(record, 0, 0, 1)
