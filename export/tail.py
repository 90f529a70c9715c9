"""Finds where a log ends: the end of the prefix that every reader of it agrees on.

    … record | record | record | torn, or nothing …
                               ^ end

Rules (store.md §7.6):

- Records at the end whose body or properties did not arrive whole are not part of the log: a broker is writing them,
  or was killed while it did. A writer writes upwards, so properties that end in a zero byte did not arrive whole.
- A bad record with a sound and not older one behind it is damage, for ending there would lose messages. An older one
  is what a broker left lying when it cut its log after a crash and went on writing.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from ..common.errors import StoreDamagedError
from ..common.record import MAGIC_V1, MAGIC_V2
from ..common.walk import Verdict, check_record
from .scan import Scan, ScanLimits, has_body_crc
from .segment import LEAST_RECORD_BYTES, Block, Mask, Segment, measure

_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_MAGIC_START: Final = _MAGICS[0][:3]
_UNCHECKED: Final = ScanLimits(checks_crc=False)


class LogEnd(NamedTuple):
    """Where a log ends in its last segment with records; ``is_full`` when a blank fills the rest of that."""

    position: int
    is_full: bool = False
    stored_at_ms: int = 0


def find_end(segments: Sequence[Segment]) -> LogEnd:
    """Return where the log ends in the first of these segments; the others should be spare ones.

    Raises:
        StoreDamagedError: Sound records follow a bad one, or there are none in a file that is written.
    """
    end = _last_whole(segments[0])
    if not end.position and check_at(segments[0], 0) == Verdict.MAGIC:
        raise _damage(segments[0], 0, "the file does not begin with a record")
    places = [(segment, 0) for segment in segments[1:]]
    if not end.is_full:
        places.insert(0, (segments[0], end.position))
    for segment, position in places:
        newer = next(_newer_records(segment, position, end.stored_at_ms), None)
        if newer is not None:
            _refuse_damage(*places[0], newer)
            break
    return end


def check_at(segment: Segment, position: int) -> int:
    """Return what ``common.walk.check_record`` says of a position, be the file cut off or not."""
    return check_record(segment.view, position, segment.base_offset + position, reserved_bytes=0)


def _refuse_damage(segment: Segment, position: int, newer: int) -> None:
    found = check_at(segment, position)
    # A size means that a broker, which is writing now, has completed the record since it was looked at.
    if found <= 0:
        reason = f"{Verdict(found).reason}, but a sound record follows at log offset {newer}"
        raise _damage(segment, position, reason)


def _damage(segment: Segment, position: int, reason: str) -> StoreDamagedError:
    message = f"{segment.path} at position {position}: {reason}"
    return StoreDamagedError(message, path=segment.path, position=position)


def _last_whole(segment: Segment) -> LogEnd:
    scan = Scan(segment, 0, segment.size, _UNCHECKED)
    starts = [int(block.positions[0]) for block in scan]
    for start in reversed(starts):
        block = next(iter(Scan(segment, start, scan.position, _UNCHECKED)))
        whole = np.flatnonzero(_is_whole(block))
        if len(whole):
            end = int(block.positions[whole[-1]] + block.number("size")[whole[-1]])
            is_full = scan.verdict is Verdict.BLANK and end == scan.position
            stored_at_ms = int(block.number("stored_at_ms")[whole[-1]])
            return LogEnd(segment.size if is_full else end, is_full, stored_at_ms)
    return LogEnd(0)


def _is_whole(block: Block) -> Mask:
    ends = block.properties_at + block.properties_bytes
    return has_body_crc(block) & ((block.properties_bytes == 0) | (block.segment.numbers[ends - 1] != 0))


def _newer_records(segment: Segment, start: int, stored_at_ms: int) -> Iterator[int]:
    """Yield the log offset of each sound record from ``start`` on that is not older."""
    for first, end in _written_ranges(segment, start):
        at = segment.map.find(_MAGIC_START, max(first, start + 5), end + 3)
        while 0 <= at < end:
            position = at - 4
            if bytes(segment.view[at : at + 4]) in _MAGICS and position <= segment.size - LEAST_RECORD_BYTES:
                block = measure(segment, np.array([position]), segment.size)
                if len(block) and has_body_crc(block)[0] and block.number("stored_at_ms")[0] >= stored_at_ms:
                    yield segment.base_offset + position
            at = segment.map.find(_MAGIC_START, at + 1, end + 3)


def _written_ranges(segment: Segment, start: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the file that are not holes; the whole file where the system cannot tell."""
    with open(segment.path, "rb") as file:
        end = start
        while end < segment.size:
            try:
                first = os.lseek(file.fileno(), end, os.SEEK_DATA)
                end = os.lseek(file.fileno(), first, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                first, end = end, segment.size
            yield first, min(end, segment.size)
