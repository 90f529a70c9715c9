"""Read-only access to the log of a store, also while a broker writes to it.

Rules:

- No lock and no other file than those of the log is opened; nothing is written.
- What is read is a consistent prefix: the walk ends at the first position that holds no sound record. ``stop`` says
  where and why, and whether valid data lie behind (then it is damage, not the end).
- Every file begins with a record, so each can be read by another process (``segments``).
"""

from collections.abc import Iterator, Sequence

from ..common.record import Record, decode_record
from .config import SEGMENT_KEY
from .files import OS_FILES, Files
from .scan import Stop, Walk
from .segments import SegmentFile, list_segments


class SegmentReader:
    """The files of a log; iterating yields (log offset, record) of the consistent prefix."""

    def __init__(self, segments: Sequence[SegmentFile], files: Files = OS_FILES, *, checks_crc: bool = True) -> None:
        self.segments = list(segments)
        self._files = files
        self._walk = Walk(self.segments, self.map, checks_crc=checks_crc)

    def __repr__(self) -> str:
        return f"<SegmentReader of {len(self.segments)} files{f', stopped at {self.stop}' if self.stop else ''}>"

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        """Yield every record with its log offset."""
        for log_offset, data in self._walk:
            yield log_offset, decode_record(data)

    @property
    def stop(self) -> Stop | None:
        """Where the last iteration ended and why, ``None`` while it has not."""
        return self._walk.stop

    def iter_slices(self, log_offset: int | None = None) -> Iterator[tuple[int, memoryview]]:
        """Yield (log offset, bytes) of every record, from a position on that a record or a file begins at."""
        return iter(self._walk) if log_offset is None else self._walk.walk_from(log_offset)

    def map(self, segment: SegmentFile) -> memoryview:
        """Map a file; the map lives as long as a slice of it does."""
        descriptor = self._files.open(segment.path)
        try:
            return self._files.map(descriptor, segment.size)
        finally:
            self._files.close(descriptor)


def open_segments(
    paths: str | Sequence[str], segment_bytes: int | None = None, files: Files = OS_FILES, *, checks_crc: bool = True
) -> SegmentReader:
    """Find the files of a log in one or several directories (``commitlog``).

    Without ``segment_bytes`` the size is that of the first file.

    Raises:
        ConfigError: A foreign file, or files of different sizes.
        StoreDamagedError: A file is missing between others.
    """
    directories = [paths] if isinstance(paths, str) else list(paths)
    segments = list_segments(files, directories, segment_bytes, SEGMENT_KEY)
    return SegmentReader(segments, files, checks_crc=checks_crc)
