"""The file ``config/timercheck``: how far timer messages have come.

    lastReadTimeMs 8 | lastTimerLogFlushPos 8 | lastTimerQueueOffset 8 | masterTimerQueueOffset 8
    dataVersion: stateVersion 8, timestamp 8, counter 8 | zeros up to 4096 bytes

Rules (``TimerCheckpoint``; store.md §9.7, §10.7):

- Each number is raised only after what it stands for is on disk: slots before the first are delivered and their
  messages flushed, units of the timer log before the second are flushed and in the wheel, messages of the timer topic
  before the third have such a unit or are delivered.
- The third and the fourth are the same on a master; what lies behind the lesser is taken from the topic again.
- A missing file, or one that makes no sense, is ``None``: nothing is known.
"""

import os
import struct
from typing import Final, NamedTuple

from ..files.checkpoint import LATEST_MS, read_head, write_head
from ..files.files import Files, make_lasting_directory

TIMER_CHECK_BYTES: Final = 4_096
REBUILDING: Final = 1 << 62
"""Saved as the end of the timer log while it is made anew: more than any log has."""
_FIELDS: Final = struct.Struct(">7q")


class TimerCheck(NamedTuple):
    """The seven numbers."""

    read_at_ms: int = 0
    log_end: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    changed_at_ms: int = 0
    counter: int = 0

    @property
    def sure_queue_offset(self) -> int:
        """Messages of the timer topic before it need not be looked at again."""
        return min(self.queue_offset, self.master_queue_offset)


def encode_timer_check(check: TimerCheck) -> bytes:
    """Return the numbers as the file begins, and as slaves are told them."""
    return _FIELDS.pack(*check)


def decode_timer_check(data: bytes) -> TimerCheck | None:
    """Return the numbers; ``None`` when they are too few or senseless."""
    if len(data) != _FIELDS.size:
        return None
    found = TimerCheck(*_FIELDS.unpack(data))
    return found if min(found[:4]) >= 0 and found.read_at_ms < LATEST_MS else None


def timer_check_path(root: str) -> str:
    """Return where the file lies below a store directory."""
    return f"{root}/config/timercheck"


def load_timer_check(files: Files, path: str) -> TimerCheck | None:
    """Read the file; ``None`` when there is none, or when it is short or senseless."""
    return decode_timer_check(read_head(files, path, _FIELDS.size))


def save_timer_check(files: Files, path: str, check: TimerCheck) -> None:
    """Write the file in place and flush it (raises ``OSError``)."""
    directory = os.path.dirname(path)
    make_lasting_directory(files, directory)
    is_new = not files.exists(path)
    write_head(files, path, encode_timer_check(check), TIMER_CHECK_BYTES)
    if is_new:
        files.sync_directory(directory)
