"""The file ``checkpoint``: how far the files were flushed, in store times.

    physicMsgTimestamp 8 | logicsMsgTimestamp 8 | indexMsgTimestamp 8 | masterFlushedOffset 8 | confirmPhyOffset 8
    zeros up to 4096 bytes

Rules (``StoreCheckpoint``; store.md §6.2):

- A time is raised only after what it stands for is on disk. 0, and a missing or short file, mean "nothing is sure".
- ``indexMsgTimestamp`` is the end of the newest full index file.
"""

import struct
from typing import Final, NamedTuple

from .files import Files

CHECKPOINT_BYTES: Final = 4096
_FIELDS: Final = struct.Struct(">qqqqq")
_MARGIN_MS: Final = 3_000
_LATEST_MS: Final = 4_102_444_800_000  # the year 2100: what lies behind it was not written as a time


class Checkpoint(NamedTuple):
    """The five numbers; instants are store times of messages."""

    log_at_ms: int = 0
    queues_at_ms: int = 0
    index_at_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    @property
    def sure_at_ms(self) -> int:
        """Records stored up to here are on disk, in the log and in their queues (``getMinTimestamp``)."""
        return max(0, min(self.log_at_ms, self.queues_at_ms) - _MARGIN_MS)


def load_checkpoint(files: Files, path: str) -> Checkpoint:
    """Read the file; a missing, short or senseless one is all zeros."""
    if not files.exists(path):
        return Checkpoint()
    descriptor = files.open(path)
    try:
        data = files.pread(descriptor, _FIELDS.size, 0)
    finally:
        files.close(descriptor)
    return parse_checkpoint(data)


def parse_checkpoint(data: bytes) -> Checkpoint:
    """Return what the file's content says; all zeros if it is short or senseless."""
    data = data[: _FIELDS.size]
    found = Checkpoint(*_FIELDS.unpack(data)) if len(data) == _FIELDS.size else Checkpoint()
    is_plausible = all(0 <= at_ms < _LATEST_MS for at_ms in found[:3])
    return found if is_plausible else Checkpoint()


def save_checkpoint(files: Files, path: str, checkpoint: Checkpoint) -> None:
    """Write the file in place and flush it (raises ``OSError``)."""
    descriptor = files.create(path, CHECKPOINT_BYTES)
    try:
        files.pwrite(descriptor, _FIELDS.pack(*checkpoint), 0)
        files.sync(descriptor)
    finally:
        files.close(descriptor)
