"""Cutting a log: what is behind its end becomes zeros, files behind it go.

Rules (store.md §7.6):

- Java trusts whatever chain of records follows, so bytes behind the end are zeroed before anything is written.
- A repair gives up what lies behind damage. It says how much that is, one line for each file.
"""

import logging
from collections.abc import Sequence

from ...common.errors import StoreDamagedError
from ..files.files import Files, zero_range
from ..files.segments import SegmentFile, repair_command
from .log_end import Stop

_log = logging.getLogger(__name__)


def damaged(stop: Stop, store: str) -> StoreDamagedError:
    """Return the error that says where the log of a store is damaged, and how to go on."""
    return StoreDamagedError(
        f"{stop.path} is damaged at position {stop.position}, before valid data: {stop.reason}",
        path=stop.path,
        position=stop.position,
        way_on=f"{repair_command(store)}, or a start with --repair, goes on without what lies behind",
    )


def cut_log(files: Files, segments: Sequence[SegmentFile], end: int) -> list[SegmentFile]:
    """Make the log end at a position; return the files that are left (raises ``OSError``)."""
    kept: list[SegmentFile] = []
    for segment in segments:
        if segment.base_offset >= end:
            files.unlink(segment.path)
            continue
        if segment.base_offset + segment.size > end:
            _zero_tail(files, segment, end - segment.base_offset)
        kept.append(segment)
    return kept


def give_up(files: Files, segments: Sequence[SegmentFile], damage: StoreDamagedError) -> list[SegmentFile]:
    """Cut the log at the damage and say what goes; return the files that are left.

    Raises:
        StoreDamagedError: The damage is none that can be cut off.
        OSError: The disk failed.
    """
    hit = next((one for one in segments if one.path == damage.path), None)
    if hit is None:
        raise damage
    _log.warning("%s", damage.finding)
    end = hit.base_offset + damage.position
    for segment in segments:
        position = max(0, end - segment.base_offset)
        if position < segment.size:
            lost = written_bytes(files, segment, position)
            what = "removing" if position == 0 else f"truncating at position {position}"
            _log.warning("%s: %s, %d written bytes are lost", segment.path, what, lost)
    return cut_log(files, segments, end)


def written_bytes(files: Files, segment: SegmentFile, position: int) -> int:
    """Return how many bytes from a position of a file on lie before its last byte that is not zero."""
    descriptor = files.open(segment.path)
    try:
        end = segment.size
        while end > position:
            start = max(position, end - (1 << 20))
            data_at = files.next_data(descriptor, start)
            if data_at is not None and data_at < end:
                left = files.pread(descriptor, end - start, start).rstrip(b"\0")
                if left:
                    return start + len(left) - position
            end = start
        return 0
    finally:
        files.close(descriptor)


def _zero_tail(files: Files, segment: SegmentFile, position: int) -> None:
    descriptor = files.open(segment.path, writable=True)
    try:
        zero_range(files, descriptor, position, segment.size)
    finally:
        files.close(descriptor)
