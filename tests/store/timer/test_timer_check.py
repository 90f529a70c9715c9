"""The file that says how far timer messages have come."""

import pathlib

import pytest
from syncs import RecordedSyncs

from rocketlet.store.files.checkpoint import LATEST_MS
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.timer.timer_check import (
    TIMER_CHECK_BYTES,
    TimerCheck,
    load_timer_check,
    save_timer_check,
    timer_check_path,
)

JAVA = TimerCheck(1_795_249_707_000, 728, 14, 14, 0, 1_795_249_707_346, 44)


@pytest.mark.feature("S26")
def test_file_is_that_of_java(unpacked: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """We read the seven numbers that the Java broker wrote, and write the same bytes."""
    theirs = unpacked / "config" / "timercheck"
    assert load_timer_check(OS_FILES, str(theirs)) == JAVA
    ours = tmp_path / "config" / "timercheck"
    save_timer_check(OS_FILES, str(ours), JAVA)
    assert ours.read_bytes() == theirs.read_bytes()
    assert len(ours.read_bytes()) == TIMER_CHECK_BYTES


def test_file_of_zeros_is_the_begin(tmp_path: pathlib.Path) -> None:
    """As a check that is given no numbers."""
    (tmp_path / "timercheck").write_bytes(bytes(TIMER_CHECK_BYTES))
    assert load_timer_check(OS_FILES, str(tmp_path / "timercheck")) == TimerCheck()


def test_lesser_offset_counts() -> None:
    """What a master has enqueued, or a slave, whichever is less, is sure."""
    assert JAVA._replace(queue_offset=12).sure_queue_offset == 12
    assert JAVA._replace(master_queue_offset=9).sure_queue_offset == 9


@pytest.mark.parametrize(
    "content",
    [None, b"", bytes(55), b"\xff" * 56, (1 << 62).to_bytes(8, "big") + bytes(48)],
    ids=["missing", "empty", "short", "negative", "far future"],
)
def test_file_that_says_nothing(content: bytes | None, tmp_path: pathlib.Path) -> None:
    """A missing, short or senseless file is nothing known, no error."""
    path = tmp_path / "timercheck"
    if content is not None:
        path.write_bytes(content)
    assert load_timer_check(OS_FILES, str(path)) is None


@pytest.mark.parametrize("field", range(7))
@pytest.mark.parametrize("number", [-1, 0, LATEST_MS - 1, LATEST_MS])
def test_numbers_that_make_sense(field: int, number: int, tmp_path: pathlib.Path) -> None:
    """No place and no time is negative, and the time lies before 2100; of the version nothing is known."""
    check = TimerCheck(*[number if each == field else 5 for each in range(7)])
    path = str(tmp_path / "config" / "timercheck")
    save_timer_check(OS_FILES, path, check)
    is_senseless = (number < 0 and field < 4) or (number == LATEST_MS and field == 0)
    assert load_timer_check(OS_FILES, path) == (None if is_senseless else check)


def test_new_file_has_its_name_on_disk(tmp_path: pathlib.Path) -> None:
    """And that of its directory; a file that is there is only written to."""
    disk, root = RecordedSyncs(), str(tmp_path / "store")
    save_timer_check(disk, timer_check_path(root), JAVA)
    assert disk.synced[-2:] == ["config/timercheck", "config/"]
    assert "/" in disk.synced
    disk.synced.clear()
    save_timer_check(disk, timer_check_path(root), JAVA)
    assert disk.synced == ["config/timercheck"]
    assert disk.opened == {}
