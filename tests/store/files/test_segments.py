"""Directories of equal files: what is listed, what is refused, and what is removed."""

import os
import pathlib

import pytest
from census import count_descriptors

from rocketlet.common.errors import ConfigError, StoreDamagedError
from rocketlet.store.files.files import OS_FILES, Files
from rocketlet.store.files.segments import (
    Layout,
    SegmentFile,
    SegmentReader,
    complete_cut_off,
    empty_last_file,
    find_other_size,
    list_segments,
    remove_unused,
    repair_command,
)

SIZE = 100


class CountedFiles(Files):
    """Counts what is open."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed = 0

    def open(self, path: str, *, writable: bool = False) -> int:
        """Note the path."""
        descriptor = super().open(path, writable=writable)
        self.opened.append(os.path.basename(path))
        return descriptor

    def close(self, descriptor: int) -> None:
        """Count it."""
        super().close(descriptor)
        self.closed += 1


def make(folder: pathlib.Path, number: int, size: int = SIZE, text: bytes = b"") -> SegmentFile:
    """Make a file of the whole."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number * SIZE:020d}"
    path.write_bytes(text)
    os.truncate(path, size)
    return SegmentFile(str(path), number * SIZE, size)


def layout(*folders: pathlib.Path) -> Layout:
    """Return how the files lie."""
    return Layout([str(each) for each in folders], SIZE, "theKey", "/the store")


def test_file_holds_its_positions() -> None:
    """From its first byte to its last."""
    segment = SegmentFile("x", 200, 100)
    found = [segment.holds(position) for position in (199, 200, 299, 300)]
    assert found == [False, True, True, False]


def test_files_of_all_directories_are_listed_in_order(tmp_path: pathlib.Path) -> None:
    """Whichever directory they lie in; directories among them are passed over."""
    one, two = tmp_path / "one", tmp_path / "two"
    files = [make(folder, number) for folder, number in ((two, 3), (one, 4), (two, 5), (one, 6))]
    (one / "sub").mkdir()
    assert list_segments(OS_FILES, layout(one, two)) == files
    assert list_segments(OS_FILES, layout(tmp_path / "none")) == []


def test_last_file_of_no_bytes_is_left_out(tmp_path: pathlib.Path) -> None:
    """Its creation was cut off; one before the last is an error that names it and the way on."""
    files = [make(tmp_path / "log", number) for number in (3, 4)]
    make(tmp_path / "log", 5, 0)
    assert list_segments(OS_FILES, layout(tmp_path / "log")) == files
    make(tmp_path / "log", 6)
    with pytest.raises(ConfigError, match=r"500 has 0 bytes, theKey is 100.*store repair '/the store'`") as caught:
        list_segments(OS_FILES, layout(tmp_path / "log"))
    assert caught.value.key == "theKey"


@pytest.mark.parametrize("name", ["1", "0" * 19, "0" * 21, "0" * 19 + "x", "0" * 19 + "²", "0" * 19 + "٣"])
def test_foreign_name_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    """Java would refuse to start, or delete it."""
    make(tmp_path / "log", 0)
    (tmp_path / "log" / name).write_bytes(bytes(SIZE))
    with pytest.raises(ConfigError, match="does not belong into a store"):
        list_segments(OS_FILES, layout(tmp_path / "log"))


def test_place_that_is_no_multiple_of_the_size_is_refused(tmp_path: pathlib.Path) -> None:
    """With the name of the setting."""
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / f"{150:020d}").write_bytes(bytes(SIZE))
    with pytest.raises(ConfigError, match="does not begin at a multiple of theKey, which is 100"):
        list_segments(OS_FILES, layout(folder))


def test_missing_file_is_named_or_ends_the_list(tmp_path: pathlib.Path) -> None:
    """The first that is missing; whoever wants to judge the files behind it gets them."""
    files = [make(tmp_path / "log", number) for number in (3, 4, 7, 8)]
    with pytest.raises(StoreDamagedError, match=r"0500 is missing before .*0700") as caught:
        list_segments(OS_FILES, layout(tmp_path / "log"))
    assert (caught.value.path, caught.value.position) == (f"{tmp_path}/log/{500:020d}", 0)
    behind: list[SegmentFile] = []
    assert list_segments(OS_FILES, layout(tmp_path / "log"), behind) == files[:2]
    assert behind == files[2:]


def test_same_part_twice_is_refused(tmp_path: pathlib.Path) -> None:
    """The second is named as damaged, from its start."""
    one, two = tmp_path / "one", tmp_path / "two"
    make(one, 3)
    twice = [make(folder, 4) for folder in (one, two)]
    with pytest.raises(StoreDamagedError, match="hold the same part of the log") as caught:
        list_segments(OS_FILES, layout(one, two), [])
    assert (caught.value.path, caught.value.position) == (twice[1].path, 0)


def test_reader_reads_each_file_with_one_descriptor(tmp_path: pathlib.Path) -> None:
    """As many bytes as the file holds from there; nothing of a file that is not there; all is closed at the end."""
    for number in range(2, 4):
        make(tmp_path, number, text=bytes(range(number, number + 50)))
    files = CountedFiles()
    with SegmentReader(files, SIZE, lambda base: f"{tmp_path}/{base:020d}") as reader:
        assert reader.read_bytes(200, 3) == bytes([2, 3, 4])
        assert reader.read_bytes(310, 2) == bytes([13, 14])
        assert reader.read_bytes(299, 5) == b"\0"
        assert reader.read_bytes(399, 1) == b"\0"
        assert reader.read_bytes(400, 5) == reader.read_bytes(199, 1) == b""
        assert reader.read_bytes(249, 1) == bytes([51])
    assert files.opened == [f"{200:020d}", f"{300:020d}"]
    assert files.closed == 2
    reader.__exit__()
    assert files.closed == 2


def test_command_of_repair_can_be_typed() -> None:
    """Whatever the path holds."""
    assert repair_command("/a b") == "`rocketlet store repair '/a b'`"


def test_files_that_were_cut_off_are_completed(tmp_path: pathlib.Path) -> None:
    """All of 0 bytes but the last of all directories, which another rule removes; others stay as they are."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, number, size in ((one, 0, 0), (two, 1, SIZE), (one, 2, 0), (two, 3, 7), (one, 4, 0)):
        make(folder, number, size)
    (two / "sub").mkdir()
    assert empty_last_file(OS_FILES, [str(one), str(two)]) == f"{one}/{400:020d}"
    before = count_descriptors()
    complete_cut_off(OS_FILES, [str(one), str(two)], SIZE)
    sizes = {
        int(path.name): path.stat().st_size for folder in (one, two) for path in folder.iterdir() if path.is_file()
    }
    assert sizes == {0: SIZE, 100: SIZE, 200: SIZE, 300: 7, 400: 0}
    assert count_descriptors() == before


def test_last_file_with_bytes_is_none_that_was_cut_off(tmp_path: pathlib.Path) -> None:
    """Nor is there one in an empty directory."""
    make(tmp_path / "log", 0, 0)
    make(tmp_path / "log", 1, 1)
    assert empty_last_file(OS_FILES, [str(tmp_path / "log")]) is None
    assert empty_last_file(OS_FILES, [str(tmp_path / "none")]) is None


def test_files_that_nothing_was_written_to_are_removed_from_the_end(tmp_path: pathlib.Path) -> None:
    """Up to the first that holds something, but never the first file."""
    files = CountedFiles()
    segments = [make(tmp_path / "log", number, text=b"x" if number == 1 else b"") for number in range(5)]
    assert remove_unused(files, segments) == segments[:2]
    assert len(list((tmp_path / "log").iterdir())) == 2
    assert (len(files.opened), files.closed) == (4, 4)
    assert remove_unused(files, segments[:1]) == segments[:1]
    assert len(list((tmp_path / "log").iterdir())) == 2


@pytest.mark.parametrize(
    ("sizes", "found"),
    [([], None), ([100], None), ([100, 100], None), ([50], None), ([150], 150), ([101], 101), ([50, 50], 50),
     ([150, 150], 150), ([150, 100], None), ([50, 100], None), ([50, 60], None), ([50, 50, 50], 50)],
)  # fmt: skip
def test_setting_that_differs_shows_in_all_files(sizes: list[int], found: int | None) -> None:
    """One file that is short is damaged; several of one size, or one that is long, were made so."""
    assert find_other_size(sizes, 100) == found
