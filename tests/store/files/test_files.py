"""The file seam: zeroing only what is not zero, full-size holes, listing."""

import os
import pathlib
from collections.abc import Iterator

import pytest

from rocketlet.store.files.files import OS_FILES, DirectoryEntry, descriptor_limit, zero_range

SIZE = 3 << 20


@pytest.fixture
def descriptor(tmp_path: pathlib.Path) -> Iterator[int]:
    """Give a file of 3 MiB that is one hole."""
    opened = OS_FILES.create(str(tmp_path / "file"), SIZE)
    yield opened
    OS_FILES.close(opened)


def test_created_file_is_a_hole_of_full_size(descriptor: int, tmp_path: pathlib.Path) -> None:
    """No disk space is taken, and creating it again changes nothing."""
    assert os.fstat(descriptor).st_size == SIZE
    assert os.fstat(descriptor).st_blocks == 0
    OS_FILES.pwrite(descriptor, b"data", 10)
    OS_FILES.close(OS_FILES.create(str(tmp_path / "file"), SIZE))
    assert OS_FILES.pread(descriptor, 6, 9) == b"\x00data\x00"


@pytest.mark.parametrize(("start", "end"), [(0, SIZE), (5, SIZE - 5), (1 << 20, (1 << 20) + 3), (100, 100), (0, 1)])
def test_zeroing_touches_only_its_range(descriptor: int, start: int, end: int) -> None:
    """Bytes at the borders of the range and of the chunks it is read in."""
    places = [0, 1, 4, 5, 99, 100, (1 << 20) - 1, 1 << 20, (1 << 20) + 2, (1 << 20) + 3, SIZE - 6, SIZE - 5, SIZE - 1]
    for place in places:
        OS_FILES.pwrite(descriptor, b"x", place)
    zero_range(OS_FILES, descriptor, start, end)
    for place in places:
        assert (OS_FILES.pread(descriptor, 1, place) == b"x") is not (start <= place < end), place


def test_zeroing_leaves_holes_alone(descriptor: int) -> None:
    """A cut in a file of 1 GiB does not fill the disk with zeros."""
    OS_FILES.pwrite(descriptor, b"x" * 100, 0)
    before = os.fstat(descriptor).st_blocks
    zero_range(OS_FILES, descriptor, 0, SIZE)
    assert os.fstat(descriptor).st_blocks == before


def test_listing_is_sorted_and_forgiving(tmp_path: pathlib.Path) -> None:
    """Directories have size 0; a directory that does not exist holds nothing."""
    (tmp_path / "b").write_text("12")
    (tmp_path / "a").mkdir()
    assert [tuple(entry) for entry in OS_FILES.list(str(tmp_path))] == [("a", True, 0), ("b", False, 2)]
    assert OS_FILES.list(str(tmp_path / "none")) == []


def test_descriptor_limit_is_a_usable_number() -> None:
    """Also where the process has no limit."""
    assert descriptor_limit() > 0


def test_list_leaves_out_what_goes_while_it_is_made(tmp_path: pathlib.Path) -> None:
    """A name without a file behind it does not hide the others; a directory that is not there is empty."""
    (tmp_path / "kept").write_bytes(b"12")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    assert OS_FILES.list(str(tmp_path)) == [DirectoryEntry("kept", is_directory=False, size=2)]
    assert OS_FILES.list(str(tmp_path / "nothing")) == []
