"""What lies behind the place where the records of a log end: nothing, a torn tail, or valid data.

Rules (store.md §7.6, §15.2):

- A sound record behind the end is valid data unless it is older than the last one before the end: such a one is what
  the Java broker leaves lying when it cuts its log after a crash and goes on writing.
- After an unclean stop, records that were stored after the last flush of the log (``sure_at_ms``) promise nothing: the
  disk may have kept them and lost others before them. Without a checkpoint everything counts as flushed.

Recovery and exports ask here, so that both find the same end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...common.record import BLANK_BYTES, MAGIC_V1, MAGIC_V2, check_record, decode_record
from ..files.files import Files
from ..files.maps import check_map
from ..files.segments import SegmentFile

_MAGICS: Final = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
_MAGIC_START: Final = _MAGICS[0][:3]
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Validity:
    """Which records behind the end of a log are valid data, by their store time."""

    last_at_ms: int
    sure_at_ms: int | None = None

    def covers(self, stored_at_ms: int) -> bool:
        """Tell whether cutting off a record of that time would lose a message."""
        return stored_at_ms >= self.last_at_ms and (self.sure_at_ms is None or stored_at_ms <= self.sure_at_ms)


def find_valid(
    files: Files,
    segment: SegmentFile,
    view: memoryview,
    start: int,
    validity: Validity,
    *,
    reserved_bytes: int = BLANK_BYTES,
) -> int | None:
    """Return the log offset of the first record at or behind ``start`` in a file that must not be lost."""
    for position in _candidates(files, segment, view, start):
        log_offset = segment.base_offset + position
        is_record = check_record(view, position, log_offset, reserved_bytes=reserved_bytes) > 0
        if is_record and validity.covers(decode_record(view, position).stored_at_ms):
            return log_offset
    return None


def _candidates(files: Files, segment: SegmentFile, view: memoryview, start: int) -> Iterator[int]:
    """Yield the positions behind which a magic stands, in the parts of the file that are written."""
    descriptor = files.open(segment.path)
    try:
        position = start
        while position < len(view):
            data_at = files.next_data(descriptor, position)
            if data_at is None:
                return
            position = max(position, data_at)
            check_map(view)
            chunk = bytes(view[position : position + _CHUNK + 8])
            at = chunk.find(_MAGIC_START, 4)
            while at >= 0:
                if chunk[at : at + 4] in _MAGICS:
                    yield position + at - 4
                at = chunk.find(_MAGIC_START, at + 1)
            position += _CHUNK
    finally:
        files.close(descriptor)
