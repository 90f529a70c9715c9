"""Reading single records from the files of the log, in any thread.

The maps that everybody else reads through belong to the thread of the store, and a page that is not in memory would
stop it. Here files are opened anew and read from, which lets other threads go on meanwhile.
"""

from types import TracebackType
from typing import Self

from ..common.record import MAGIC_V1, MAGIC_V2
from .commitlog import CommitLog
from .files import Files
from .reading import RECORD_START


class ColdRecords:
    """A context manager that keeps the files open which it has read from."""

    def __init__(self, files: Files, log: CommitLog) -> None:
        self._files = files
        self._log = log
        self._open: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for descriptor in self._open.values():
            self._files.close(descriptor)
        self._open.clear()

    def read(self, log_offset: int, size: int) -> bytes | None:
        """Return the record of that size at the position, ``None`` when there is none (raises ``OSError``)."""
        if size < RECORD_START.size or not self._log.holds(log_offset, size):
            return None
        base = log_offset - log_offset % self._log.file_bytes
        try:
            descriptor = self._open.get(base)
            if descriptor is None:
                descriptor = self._open[base] = self._files.open(self._log.paths.path_of(base))
        except FileNotFoundError:  # it has just been removed
            return None
        data = self._files.pread(descriptor, size, log_offset - base)
        if len(data) != size:
            return None
        total_size, magic, named_offset, _ = RECORD_START.unpack_from(data)
        return data if (total_size, named_offset) == (size, log_offset) and magic in (MAGIC_V1, MAGIC_V2) else None
