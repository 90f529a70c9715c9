"""Records read on another thread than that of the store.

The maps that everybody else reads through belong to the thread of the store, and a page that is not in memory would
stop it. Here files are opened anew and read from, which lets other threads go on meanwhile. What has left the log in
between is not there.
"""

import struct
from collections.abc import Iterator
from typing import Final

from ...common.record import MAGIC_V1, MAGIC_V2
from ..files.files import Files
from ..files.segments import SegmentReader
from .commit_log import CommitLog

RECORD_START: Final = struct.Struct(">iI20xqi")  # total size, magic, log offset, sys flag
_CHUNK_BYTES = 1 << 20


class ColdRecords(SegmentReader):
    """Reads the log beside its maps."""

    def __init__(self, files: Files, log: CommitLog) -> None:
        super().__init__(files, log.file_bytes, log.paths.path_of)
        self._log = log

    def read(self, log_offset: int, size: int) -> bytes | None:
        """Return the record of that size at the position, ``None`` when there is none (raises ``OSError``)."""
        if size < RECORD_START.size or not self._log.holds(log_offset, size):
            return None
        data = self.read_bytes(log_offset, size)
        if len(data) != size:
            return None
        total_size, magic, named_offset, _ = RECORD_START.unpack_from(data)
        return data if (total_size, named_offset) == (size, log_offset) and magic in (MAGIC_V1, MAGIC_V2) else None

    def walk(self, start: int, end: int, text: bytes) -> Iterator[bytes]:
        """Yield the records that hold a text, from a position on at which one begins (raises ``OSError``)."""
        while start < end:
            file_end = self._log.next_file(start)
            chunk = self.read_bytes(start, min(_CHUNK_BYTES, min(end, file_end) - start))
            position, has_text = 0, text in chunk
            for size in _whole_records(chunk, start):
                if has_text and chunk.find(text, position, position + size) >= 0:
                    yield chunk[position : position + size]
                position += size
            if not position:
                size = _record_size(chunk, 0, start)  # more than a chunk, or none: the blank that ends a file
                data = self.read(start, size)
                if data is not None and text in data:
                    yield data
                position = size or file_end - start
            start += position


def _whole_records(chunk: bytes, log_offset: int) -> Iterator[int]:
    """Yield the sizes of the records that are whole in a piece of the log."""
    position = 0
    while (size := _record_size(chunk, position, log_offset)) and position + size <= len(chunk):
        yield size
        position += size


def _record_size(chunk: bytes, position: int, log_offset: int) -> int:
    """Return the size of the record at a position, 0 when none begins there."""
    if position + RECORD_START.size > len(chunk):
        return 0
    size, magic, named_offset, _ = RECORD_START.unpack_from(chunk, position)
    return size if magic in (MAGIC_V1, MAGIC_V2) and named_offset == log_offset + position and size > 0 else 0
