"""The files of the key index: which are loaded, which go, when entries are built, and what a failed disk means."""

import errno
import os
import pathlib
import sys

import pytest
from damage import overwrite
from stores import LimitedFiles, StoreDirectory, new_record

from rocketlet.common.errors import ConfigError
from rocketlet.common.properties import encode_properties
from rocketlet.store.consumequeue.appended import Appended
from rocketlet.store.files.files import OS_FILES, Descriptors, Files
from rocketlet.store.index.index_file import IndexSpace
from rocketlet.store.index.key_index import IndexHits, KeyIndex, KeyRange, query

SLOTS, ENTRIES = 5, 10
FILE_BYTES = 40 + 4 * SLOTS + 20 * ENTRIES
AT_MS = 1_700_000_000_000
ALWAYS = 0, 1 << 62


class BrokenFiles(Files):
    """A disk that fails to write when told to."""

    is_broken = False

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write or fail."""
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        return super().pwrite(descriptor, data, position)


def record(number: int, key: str = "") -> Appended:
    """Return a record with one key, stored a second after the one before it."""
    properties = {"UNIQ_KEY": key or f"k{number}"}
    return Appended(100 * number, 0, 100, "T", 0, 0, AT_MS + 1_000 * number, encode_properties(properties), None)


def make_index(folder: pathlib.Path, descriptors: Descriptors, files: Files = OS_FILES) -> KeyIndex:
    """Return an index that has not looked for its files."""
    return KeyIndex(IndexSpace(files, str(folder / "index"), (SLOTS, ENTRIES), descriptors), lambda: AT_MS)


@pytest.fixture
def index(tmp_path: pathlib.Path, descriptors: Descriptors) -> KeyIndex:
    """Give an index of three files, with nine, nine and two entries."""
    made = make_index(tmp_path, descriptors)
    made.add([record(number) for number in range(20)])
    made.save()
    return made


def names(folder: pathlib.Path) -> list[str]:
    """Return the names of the files on disk."""
    return sorted(path.name for path in (folder / "index").iterdir())


def loaded(folder: pathlib.Path, descriptors: Descriptors) -> KeyIndex:
    """Return an index that has found its files."""
    index = make_index(folder, descriptors)
    index.load()
    return index


def test_index_without_files_knows_nothing(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Neither a record nor a time; a look-up makes no file."""
    index = loaded(tmp_path, descriptors)
    assert index.find("T#k", 9, *ALWAYS) == IndexHits([], 0, 0)
    assert (index.end_log_offset, index.full_paths(), index.drop_first(1 << 62)) == (-1, set(), None)
    index.build()
    index.save()
    assert not (tmp_path / "index").exists()


def test_files_are_found_in_order(index: KeyIndex, tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """With their headers; what has no name of such a file, and a directory, is left alone."""
    for other in ("1" * 16, "1" * 18, "x" * 17, "²" * 17):
        (tmp_path / "index" / other).write_bytes(b"foreign")
    (tmp_path / "index" / ("2" * 17)).mkdir()
    again = loaded(tmp_path, descriptors)
    assert [file.path for file in again.files] == [file.path for file in index.files]
    assert [file.count for file in again.files] == [10, 10, 3]
    assert again.full_paths() == {file.path for file in index.files[:2]}
    assert again.find("T#k7", 9, *ALWAYS) == IndexHits([700], 1_900, AT_MS + 19_000)
    assert again.end_log_offset == 1_900
    assert len(names(tmp_path)) == 3 + 5


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ([FILE_BYTES, FILE_BYTES - 1, FILE_BYTES], 1),
        ([FILE_BYTES - 4, FILE_BYTES, FILE_BYTES], 0),
        ([FILE_BYTES, FILE_BYTES, 0], 2),
        ([FILE_BYTES, FILE_BYTES, FILE_BYTES + 4], 2),
        ([FILE_BYTES - 1] * 3, 0),
        ([40] * 3, 0),
    ],
)
def test_file_of_another_length_goes_with_those_behind_it(
    index: KeyIndex, tmp_path: pathlib.Path, descriptors: Descriptors, sizes: list[int], left: int
) -> None:
    """They are written anew from the log; a length that no setting makes is damage, too."""
    before = names(tmp_path)
    for name, size in zip(before, sizes, strict=True):
        path = tmp_path / "index" / name
        path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))
    again = loaded(tmp_path, descriptors)
    assert len(again.files) == left
    assert names(tmp_path) == before[:left]


@pytest.mark.parametrize("size", [44, FILE_BYTES - 4, FILE_BYTES + 20])
def test_files_of_another_setting_stop_the_start(
    index: KeyIndex, tmp_path: pathlib.Path, descriptors: Descriptors, size: int
) -> None:
    """All have one other length that numbers of slots and entries could make; nothing is removed."""
    before = names(tmp_path)
    for name in before:
        (tmp_path / "index" / name).write_bytes(bytes(size))
    words = f"have {size} bytes, maxHashSlotNum and maxIndexNum make {FILE_BYTES}$"
    with pytest.raises(ConfigError, match=words) as caught:
        loaded(tmp_path, descriptors)
    assert (caught.value.key, names(tmp_path)) == ("maxIndexNum", before)


def test_end_of_an_index_whose_last_file_is_empty(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """It is that of the file before, which its header tells; a single empty file tells nothing."""
    index = make_index(tmp_path, descriptors)
    space = IndexSpace(OS_FILES, str(tmp_path / "index"), (SLOTS, ENTRIES), descriptors)
    first = space.create(AT_MS, None)
    assert loaded(tmp_path, descriptors).end_log_offset == -1
    space.remove(first)
    index.add([record(number) for number in range(9)])
    index.save()
    assert loaded(tmp_path, descriptors).end_log_offset == 800
    space.create(AT_MS, index.files[-1])
    again = loaded(tmp_path, descriptors)
    assert (len(again.files), again.end_log_offset) == (2, 800)


@pytest.mark.parametrize(
    ("log_min", "count"), [(0, 0), (800, 0), (801, 1), (1_700, 1), (1_701, 2), (1_900, 2), (9_999, 2)]
)
def test_first_files_go_with_their_records(
    index: KeyIndex, log_min: int, count: int, tmp_path: pathlib.Path, descriptors: Descriptors
) -> None:
    """Those all of whose records lie before the log, one by one, never the last; the caller removes them."""
    paths = [file.path for file in index.files]
    dropped: list[str] = []
    while (path := index.drop_first(log_min)) is not None:
        dropped.append(path)
    assert dropped == paths[:count]
    assert [file.path for file in index.files] == paths[count:]
    assert repr(descriptors) == f"<Descriptors {3 - count} of 8>"
    assert len(names(tmp_path)) == 3


def test_file_that_goes_is_not_flushed_any_more(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Nor kept open; the others are."""
    space = IndexSpace(OS_FILES, str(tmp_path / "index"), (SLOTS, ENTRIES), descriptors)
    index = KeyIndex(space, lambda: AT_MS)
    index.add([record(number) for number in range(20)])
    index.save()
    paths = [file.path for file in index.files]
    assert space.dirty_paths == set(paths)
    assert index.drop_first(801) == paths[0]
    assert space.dirty_paths == set(paths[1:])


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("count", [1, 2, 5, 10])
def test_files_behind_one_that_is_not_full_are_written_anew(
    number: int, count: int, index: KeyIndex, tmp_path: pathlib.Path, descriptors: Descriptors
) -> None:
    """As after a kill that took the end of one; the last record goes too, that of the file before if none is left."""
    path = pathlib.Path(index.files[number].path)
    written = [9, 9, 2][number] + 1
    count = min(count, written)
    overwrite(path, 36, count.to_bytes(4, "big"))
    again = loaded(tmp_path, descriptors)
    again.restore(-1)
    left = 19 if count == written else 9 * number + count - 2
    if count == 2 and number:
        left -= 1
    assert again.end_log_offset == (100 * (left - 1) if left > 0 else -1)
    assert names(tmp_path) == [os.path.basename(file.path) for file in index.files][: -(-left // 9)]


def test_look_up_stays_within_the_times(index: KeyIndex) -> None:
    """In the files that hold them, as many as wanted, the newest ones, in the order of the log."""
    index.add([record(number, "all") for number in range(20, 60)])
    found = index.find("T#all", 99, *ALWAYS).log_offsets
    assert found == [100 * number for number in range(20, 60)]
    assert index.find("T#all", 3, *ALWAYS).log_offsets == found[-3:]
    for first, last in ((20, 20), (30, 31), (25, 44), (59, 59), (0, 30)):
        # the first entry of a file counts from the end of the file before it, as Java has it: those are no ends here
        hits = index.find("T#all", 99, AT_MS + 1_000 * first, AT_MS + 1_000 * last)
        assert hits.log_offsets == [100 * number for number in range(max(20, first), last + 1)]
        assert hits[1:] == (5_900, AT_MS + 59_000)


def test_query_leaves_out_what_is_not_there(index: KeyIndex) -> None:
    """Records that have left the log are no hits; how many were asked for counts before that."""
    index.add([record(number, "all") for number in range(20, 30)])
    asked: list[int] = []

    def record_at(log_offset: int) -> memoryview | None:
        asked.append(log_offset)
        return memoryview(b"%d" % log_offset) if log_offset >= 2_700 else None

    result = query(index, "T#all", KeyRange(5, *ALWAYS), record_at)
    assert asked == [2_500, 2_600, 2_700, 2_800, 2_900]
    assert result.log_offsets == [2_700, 2_800, 2_900]
    assert [bytes(one) for one in result.records] == [b"2700", b"2800", b"2900"]
    assert (result.last_log_offset, result.last_at_ms) == (2_900, AT_MS + 29_000)


# --- when entries are built


@pytest.mark.parametrize(("waiting", "is_due"), [(0, False), (8_191, False), (8_192, True)])
def test_batch_may_grow_until_numpy_is_loaded(
    tmp_path: pathlib.Path,
    descriptors: Descriptors,
    monkeypatch: pytest.MonkeyPatch,
    waiting: int,
    is_due: bool,
) -> None:
    """Loading it takes long, so it is put off; with it any batch may be built."""
    index = make_index(tmp_path, descriptors)
    index.add([record(0)] * waiting)
    index.prepare()
    assert (index.may_build, index.is_due) == (True, True)
    monkeypatch.delitem(sys.modules, "rocketlet.store.index.index_build")
    assert (index.may_build, index.is_due) == (False, is_due)
    monkeypatch.setitem(sys.modules, "rocketlet.store.index.index_build", sys)
    assert not index.may_build


def test_what_cannot_be_loaded_is_an_error_of_the_system(index: KeyIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when there are no descriptors left: the records wait."""
    index.add([record(20)])
    monkeypatch.delattr("rocketlet.store.index.index_build", raising=True)
    monkeypatch.setitem(sys.modules, "rocketlet.store.index.index_build", None)
    with pytest.raises(OSError, match="cannot load what builds the index") as caught:
        index.build()
    assert (caught.value.errno, index.waiting_records) == (errno.EMFILE, 1)
    monkeypatch.undo()
    assert index.find("T#k20", 9, *ALWAYS).log_offsets == [2_000]


def test_store_builds_a_thousand_records_together(directory: StoreDirectory) -> None:
    """With the 1024th, or before a look-up; until then there is no file."""
    directory = StoreDirectory(directory.root, index_slots=500, index_entries=3_000, segment_bytes=1 << 20)
    with directory.open() as store:
        for number in range(1_023):
            store.append(new_record(KEYS=f"k{number}"))
        store.commit()
        assert not (directory.root / "index").exists()
        store.append(new_record(KEYS="last"))
        store.commit()
        assert len(list((directory.root / "index").iterdir())) == 1


def test_broken_disk_is_told_by_a_look_up(tmp_path: pathlib.Path) -> None:
    """What waits may be written by a later try."""
    disk = BrokenFiles()
    descriptors = Descriptors(disk, 8)
    index = make_index(tmp_path, descriptors, disk)
    index.add([record(number, "all") for number in range(5)])
    disk.is_broken = True
    with pytest.raises(OSError, match="Input/output error"):
        index.find("T#all", 9, *ALWAYS)
    disk.is_broken = False
    assert index.find("T#all", 9, *ALWAYS).log_offsets == [0, 100, 200, 300, 400]
    descriptors.close()


def test_full_disk_is_not_told_by_a_look_up(tmp_path: pathlib.Path) -> None:
    """What waits is looked at in memory, the newest first, up to the limit."""
    disk = LimitedFiles()
    descriptors = Descriptors(disk, 8)
    index = make_index(tmp_path, descriptors, disk)
    index.add([record(number, "all") for number in range(5)])
    index.build()
    disk.room = 0
    index.add([record(number, "all") for number in range(5, 15)])
    assert index.find("T#all", 3, *ALWAYS).log_offsets == [1_200, 1_300, 1_400]
    index.add([record(number, "all") for number in range(15, 20)])
    assert index.find("T#all", 17, *ALWAYS).log_offsets == [100 * number for number in range(3, 20)]
    assert index.is_behind
    disk.room = None
    index.build()
    assert not index.is_behind
    descriptors.close()
