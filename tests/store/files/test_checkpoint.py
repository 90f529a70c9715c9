"""The file ``checkpoint``: what is sure, and what is taken for senseless."""

import errno
import pathlib

import pytest
from census import count_descriptors

from rocketlet.store.files.checkpoint import (
    CHECKPOINT_BYTES,
    Checkpoint,
    load_checkpoint,
    parse_checkpoint,
    save_checkpoint,
)
from rocketlet.store.files.files import OS_FILES, Files


def test_file_is_written_and_read(tmp_path: pathlib.Path) -> None:
    """Five numbers of eight bytes, zeros behind them, and 4096 bytes in all, as Java's."""
    path = tmp_path / "checkpoint"
    assert load_checkpoint(OS_FILES, str(path)) == (0, 0, 0, 0, 0)
    saved = Checkpoint(1_750_000_000_003, 1_750_000_000_002, 1_750_000_000_001, 1 << 62, 1 << 61)
    save_checkpoint(OS_FILES, str(path), saved)
    data = path.read_bytes()
    assert data == b"".join(number.to_bytes(8, "big") for number in saved).ljust(CHECKPOINT_BYTES, b"\0")
    assert len(data) == 4096
    assert load_checkpoint(OS_FILES, str(path)) == saved
    assert [parse_checkpoint(data[:size]) for size in (40, 39, 0)] == [saved, Checkpoint(), Checkpoint()]


@pytest.mark.parametrize("field", range(3))
@pytest.mark.parametrize(
    ("at_ms", "is_plausible"), [(-1, False), (0, True), (4_102_444_799_999, True), (4_102_444_800_000, False)]
)
def test_times_that_make_no_sense(field: int, at_ms: int, is_plausible: bool) -> None:
    """One before 1970 or after 2099 was not written as a time: nothing is sure then."""
    numbers = [5, 5, 5, 5, 5]
    numbers[field] = at_ms
    found = parse_checkpoint(b"".join(number.to_bytes(8, "big", signed=True) for number in numbers))
    assert found == (Checkpoint(*numbers) if is_plausible else Checkpoint())


@pytest.mark.parametrize(
    ("log_at_ms", "queues_at_ms", "sure"), [(9_000, 8_000, 5_000), (7_000, 9_000, 4_000), (2_999, 9_000, 0)]
)
def test_sure_is_what_lies_three_seconds_before_the_lesser_time(log_at_ms: int, queues_at_ms: int, sure: int) -> None:
    """As in Java, whose records may be a little out of order; it is never negative."""
    assert Checkpoint(log_at_ms, queues_at_ms).sure_at_ms == sure


def test_checkpoint_does_not_stay_open(tmp_path: pathlib.Path) -> None:
    """Whether it is written or read; a disk that fails does not keep it either."""

    class BrokenFiles(Files):
        """Cannot flush."""

        def sync(self, descriptor: int) -> None:
            """Fail."""
            raise OSError(errno.EIO, "Input/output error")

    path, before = str(tmp_path / "checkpoint"), count_descriptors()
    save_checkpoint(OS_FILES, path, Checkpoint(5))
    assert load_checkpoint(OS_FILES, path) == Checkpoint(5)
    with pytest.raises(OSError, match="Input/output error"):
        save_checkpoint(BrokenFiles(), path, Checkpoint(6))
    assert count_descriptors() == before
