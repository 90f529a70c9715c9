"""Which bytes of the log are held, which files may go, and when the next one is prepared."""

import pathlib

import pytest

from rocketlet.store.commitlog.commit_log import CommitLog
from rocketlet.store.files.files import OS_FILES


def bounded(folder: pathlib.Path, min_offset: int, max_offset: int) -> CommitLog:
    """Return a log of 4096-byte files with these bounds; no file is needed."""
    log = CommitLog(OS_FILES, str(folder), 4_096)
    log.set_bounds(min_offset, max_offset)
    return log


@pytest.mark.parametrize(
    ("log_offset", "size", "is_held"),
    [
        (4_096, 1, True),
        (4_095, 1, False),
        (4_096, 0, False),
        (4_096, 4_096, True),
        (4_096, 4_097, False),
        (8_191, 1, True),
        (8_191, 2, False),
        (8_192, 500, True),
        (8_192, 501, False),
        (8_692, 1, False),
    ],
)
def test_bytes_are_held_when_written_and_in_one_file(
    tmp_path: pathlib.Path, log_offset: int, size: int, is_held: bool
) -> None:
    """Not before the first file, not behind the end, and not over the border of two files."""
    assert bounded(tmp_path, 4_096, 8_692).holds(log_offset, size) == is_held


@pytest.mark.parametrize(
    ("max_offset", "end", "most", "count"),
    [
        (20_000, 20_000, 9, 3),
        (20_000, 20_000, 2, 2),
        (20_000, 12_287, 9, 1),
        (20_000, 12_288, 9, 2),
        (20_000, 4_096, 9, 0),
        (20_000, 8_192, 9, 1),
        (20_480, 20_480, 9, 3),
        (20_481, 20_480, 9, 4),
        (4_096, 4_096, 9, 0),
    ],
)
def test_files_may_go_up_to_a_position(
    tmp_path: pathlib.Path, max_offset: int, end: int, most: int, count: int
) -> None:
    """Those that end there or before, so many at most, and never the file of the last record."""
    names = [pathlib.Path(path).name for path in bounded(tmp_path, 4_096, max_offset).removable_files(end, most)]
    assert names == [f"{4_096 * (number + 1):020d}" for number in range(count)]


@pytest.mark.parametrize(("written", "is_due"), [(2_048, False), (2_049, True), (4_095, True), (0, False)])
def test_next_file_is_prepared_behind_the_half_of_one(tmp_path: pathlib.Path, written: int, is_due: bool) -> None:
    """Not before, since the log may never need it."""
    spare = bounded(tmp_path, 0, 4_096 + written).spare()
    assert spare == ((f"{tmp_path}/{8_192:020d}", 4_096) if is_due else None)
