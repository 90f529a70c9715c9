"""Finds where a log ends: the end of the prefix that every reader of it agrees on.

    … record | record | record | torn, or nothing …
                               ^ end

Rules (store.md §7.6):

- Records at the end whose body or properties did not arrive whole are not part of the log: a broker is writing them,
  or was killed while it did. A writer writes upwards, so properties that end in a zero byte did not arrive whole.
- A bad record with a sound one behind it is damage, for ending there would lose messages. Which sound ones count is
  the rule of ``store.logtail``, so that a reading and a broker's start find the same end.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ..common.errors import StoreDamagedError
from ..common.record import MAGIC_V1, MAGIC_V2
from ..common.walk import Verdict, check_record
from ..store.block import Block, Mask, has_body_crc
from ..store.blockscan import Scan, ScanLimits
from ..store.files import OS_FILES
from ..store.logtail import Validity, find_valid
from ..store.segments import SegmentFile
from .segment import Segment

_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_MAGIC_START: Final = _MAGICS[0][:3]
_UNCHECKED: Final = ScanLimits(checks_crc=False)


class LogStop(NamedTuple):
    """Where the records of a log end, and what stands there instead of one more."""

    path: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"


class LogEnd(NamedTuple):
    """Where a log ends in its last segment with records (``number``); ``is_full`` when a blank fills the rest of that.

    With ``damage``, this is not the end of what was written: sound records follow the bad one that stands there.
    """

    position: int
    is_full: bool = False
    stored_at_ms: int = 0
    damage: StoreDamagedError | None = None
    number: int = 0

    def stop(self, segments: Sequence[Segment]) -> LogStop:
        """Say what ends the log in the segments that ``find_end`` was given."""
        segment, position = segments[self.number], self.position
        if self.is_full and self.number + 1 < len(segments):
            segment, position = segments[self.number + 1], 0
        if position == segment.size:
            return LogStop(segment.path, position, "the file is full" if self.is_full else "the file ends")
        found = check_at(segment, position)
        reason = Verdict(found).reason if found <= 0 else "the record did not arrive whole"
        return LogStop(segment.path, position, reason)


def find_end(segments: Sequence[Segment], sure_at_ms: int | None = None) -> LogEnd:
    """Return where the log ends in these segments.

    What was stored after ``sure_at_ms`` was not flushed before the store was left: the first bad record there is the
    end. Without it the log ends in the first segment, and the others should be spare ones.
    """
    end = LogEnd(0)
    for number, segment in enumerate(segments):
        end = _last_whole(segment, sure_at_ms)._replace(number=number)
        if not end.is_full or number + 1 == len(segments) or check_at(segments[number + 1], 0) <= 0:
            break
    last = segments[end.number]
    if not end.position and not end.number and check_at(last, 0) == Verdict.MAGIC:
        return end._replace(damage=_damage(last, 0, "the file does not begin with a record"))
    places = [(segment, 0) for segment in segments[end.number + 1 :]]
    if not end.is_full:
        places.insert(0, (last, end.position + 1))
    for segment, start in places:
        file = SegmentFile(segment.path, segment.base_offset, segment.size)
        validity = Validity(end.stored_at_ms, sure_at_ms)
        valid = find_valid(OS_FILES, file, segment.view, start, validity, reserved_bytes=0)
        if valid is not None:
            first, position = (last, end.position) if not end.is_full else places[0]
            return end._replace(damage=_find_damage(first, position, valid))
    return end


def check_at(segment: Segment, position: int) -> int:
    """Return what ``common.walk.check_record`` says of a position, be the file cut off or not."""
    return check_record(segment.view, position, segment.base_offset + position, reserved_bytes=0)


def _find_damage(segment: Segment, position: int, newer: int) -> StoreDamagedError | None:
    found = check_at(segment, position)
    # A size means that a broker, which is writing now, has completed the record since it was looked at.
    if found > 0:
        return None
    return _damage(segment, position, f"{Verdict(found).reason}, but a sound record follows at log offset {newer}")


def _damage(segment: Segment, position: int, reason: str) -> StoreDamagedError:
    message = f"{segment.path} at position {position}: {reason}"
    return StoreDamagedError(message, path=segment.path, position=position)


def _last_whole(segment: Segment, sure_at_ms: int | None) -> LogEnd:
    scan = Scan(segment, 0, segment.size, _UNCHECKED)
    starts: list[int] = []
    stop = None
    for block in scan:
        starts.append(int(block.positions[0]))
        stop = _first_unsure(block, sure_at_ms)
        if stop is not None:
            break
    for start in reversed(starts):
        block = next(iter(Scan(segment, start, scan.position if stop is None else stop, _UNCHECKED)), None)
        whole = np.flatnonzero(_is_whole(block)).tolist() if block is not None else []
        if block is not None and whole:
            end = int(block.positions[whole[-1]] + block.number("size")[whole[-1]])
            is_full = stop is None and scan.verdict is Verdict.BLANK and end == scan.position
            stored_at_ms = int(block.number("stored_at_ms")[whole[-1]])
            return LogEnd(segment.size if is_full else end, is_full, stored_at_ms)
    return LogEnd(0)


def _first_unsure(block: Block, sure_at_ms: int | None) -> int | None:
    """Return the position of the first record that is not whole among those that were not flushed for certain."""
    if sure_at_ms is None:
        return None
    unsure = block.select(np.flatnonzero(block.number("stored_at_ms") > sure_at_ms))
    bad = np.flatnonzero(~_is_whole(unsure)).tolist() if len(unsure) else []
    return int(unsure.positions[bad[0]]) if bad else None


def _is_whole(block: Block) -> Mask:
    ends = block.properties_at + block.properties_bytes
    return has_body_crc(block) & ((block.properties_bytes == 0) | (block.segment.numbers[ends - 1] != 0))
