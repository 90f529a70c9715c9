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
LATEST_MS: Final = 4_102_444_800_000  # the year 2100: what lies behind it was not written as a time


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
    return parse_checkpoint(read_head(files, path, _FIELDS.size))


def parse_checkpoint(data: bytes) -> Checkpoint:
    """Return what the file's content says; all zeros if it is short or senseless."""
    data = data[: _FIELDS.size]
    found = Checkpoint(*_FIELDS.unpack(data)) if len(data) == _FIELDS.size else Checkpoint()
    is_plausible = all(0 <= at_ms < LATEST_MS for at_ms in found[:3])
    return found if is_plausible else Checkpoint()


def save_checkpoint(files: Files, path: str, checkpoint: Checkpoint) -> None:
    """Write the file in place and flush it (raises ``OSError``)."""
    write_head(files, path, _FIELDS.pack(*checkpoint), CHECKPOINT_BYTES)


def read_head(files: Files, path: str, size: int) -> bytes:
    """Return the first bytes of a file, none without it."""
    if not files.exists(path):
        return b""
    descriptor = files.open(path)
    try:
        return files.pread(descriptor, size, 0)
    finally:
        files.close(descriptor)


def write_head(files: Files, path: str, data: bytes, file_bytes: int) -> None:
    """Write the first bytes of a file in place, made with that length if need be, and flush it."""
    descriptor = files.create(path, file_bytes)
    try:
        files.pwrite(descriptor, data, 0)
        files.sync(descriptor)
    finally:
        files.close(descriptor)
