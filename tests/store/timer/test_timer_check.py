"""The file that says how far timer messages have come."""

import pathlib

import pytest

from rocketlet.store.files.files import OS_FILES
from rocketlet.store.timer.timer_check import TIMER_CHECK_BYTES, TimerCheck, load_timer_check, save_timer_check

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
