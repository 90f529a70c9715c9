"""Finds where a log ends: the end of the prefix that every reader of it agrees on.

    … record | record | record | torn, or nothing …
                               ^ end

Rules (store.md §7.6):

- Records at the end whose body or properties did not arrive whole are not part of the log: a broker is writing them,
  or was killed while it did. A writer writes upwards, so properties that end in a zero byte did not arrive whole.
- A large file is not walked from its start, but from a record that is found by halving: where a record stands that is
  not older than those before it, and whose queue has its entry, the log has come at least so far. From there to the
  end the chain is walked. Sound records that a cut left over behind the end have no entries, but where neither queues
  nor times tell them from others, a reading meets damage where the log was cut.
- A bad record with a sound one behind it is damage, for ending there would lose messages. Which sound ones count is
  the rule of ``store.logtail``, so that a reading and a broker's start find the same end.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ...common.errors import StoreDamagedError
from ...common.walk import Verdict
from ...store.commitlog.log_end import Validity
from ...store.commitlog.record_blocks import Block, Mask, has_body_crc
from .chain import HEADS_ONLY, Chain
from .logfile import LogFile, check_at
from .queueanchor import is_queued
from .seek import STRETCH_BYTES, find_first
from .skip import find_sound, stored_at

_LARGE_BYTES: Final = 8 * STRETCH_BYTES
_PROBE_BYTES: Final = 1 << 20


class LogStop(NamedTuple):
    """Where the records of a log end, and what stands there instead of one more.

    ``unproved`` says why nothing proves that more was never written.
    """

    path: str
    position: int
    reason: str
    unproved: str | None = None

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"


class LogEnd(NamedTuple):
    """Where a log ends in its last segment with records (``number``); ``is_full`` when a blank fills the rest of that.

    With ``damage``, this is not the end of what was written: sound records follow the bad one that stands there, the
    first of them at the log offset ``behind``.
    """

    position: int
    is_full: bool = False
    stored_at_ms: int = 0
    damage: StoreDamagedError | None = None
    number: int = 0
    behind: int | None = None

    def stop(self, files: Sequence[LogFile]) -> LogStop:
        """Say what ends the log in the files that ``find_end`` was given."""
        file, position = files[self.number], self.position
        if self.is_full and self.number + 1 < len(files):
            file, position = files[self.number + 1], 0
        if position == file.size:
            return LogStop(file.path, position, "the file is full" if self.is_full else "the file ends")
        found = check_at(file, position)
        reason = Verdict(found).reason if found <= 0 else "the record did not arrive whole"
        return LogStop(file.path, position, reason)


def find_end(
    files: Sequence[LogFile], sure_at_ms: int | None = None, queues: str | None = None, *, skips_damage: bool = False
) -> LogEnd:
    """Return where the log ends in these files.

    What was stored after ``sure_at_ms`` was not flushed before the store was left: the first bad record there is the
    end. Without it the log ends in the first file, and the others should be spare ones. With ``skips_damage``, the log
    goes on where a sound record stands behind damage. ``queues`` is the directory of the store's queues, if it is
    there.
    """
    number = start = 0
    while True:
        end = _find_end(files[number:], start, sure_at_ms, queues)
        end = end._replace(number=number + end.number)
        if end.damage is None or end.behind is None or not skips_damage:
            return end
        number, start = next(
            (place, end.behind - file.base_offset)
            for place, file in enumerate(files)
            if file.base_offset <= end.behind < file.base_offset + file.size
        )


def _find_end(files: Sequence[LogFile], start: int, sure_at_ms: int | None, queues: str | None) -> LogEnd:
    end = LogEnd(0)
    for number, file in enumerate(files):
        end = _last_whole(file, start if not number else 0, sure_at_ms, queues)._replace(number=number)
        if not end.is_full or number + 1 == len(files) or check_at(files[number + 1], 0) <= 0:
            break
    last = files[end.number]
    covers = Validity(end.stored_at_ms, sure_at_ms).covers
    if not end.position and not end.number and check_at(last, 0) == Verdict.MAGIC:
        behind = find_sound(last, 1, last.size, covers=covers)
        damage = _damage(last, 0, "the file does not begin with a record")
        return end._replace(damage=damage, behind=None if behind is None else last.base_offset + behind)
    places = [(file, 0) for file in files[end.number + 1 :]]
    if not end.is_full:
        places.insert(0, (last, end.position + 1))
    for file, begin in places:
        valid = find_sound(file, begin, file.size, covers=covers)
        if valid is not None:
            first, position = (last, end.position) if not end.is_full else places[0]
            behind = file.base_offset + valid
            return end._replace(damage=_find_damage(first, position, behind), behind=behind)
    return end


def _find_damage(file: LogFile, position: int, newer: int) -> StoreDamagedError | None:
    found = check_at(file, position)
    # A size means that a broker, which is writing now, has completed the record since it was looked at.
    if found > 0:
        return None
    return _damage(file, position, f"{Verdict(found).reason}, but a sound record follows at log offset {newer}")


def _damage(file: LogFile, position: int, reason: str) -> StoreDamagedError:
    message = f"{file.path} at position {position}: {reason}"
    return StoreDamagedError(message, path=file.path, position=position)


def _last_whole(file: LogFile, start: int, sure_at_ms: int | None, queues: str | None) -> LogEnd:
    late = _late_record(file, start, sure_at_ms, queues)
    end = _walk_to_end(file, late, sure_at_ms)
    return end if end.position or late == start else _walk_to_end(file, start, sure_at_ms)


def _walk_to_end(file: LogFile, start: int, sure_at_ms: int | None) -> LogEnd:
    chain = Chain(file, start, file.size, HEADS_ONLY)
    starts: list[int] = []
    stop = None
    for block in chain:
        starts.append(block.segment.base_offset - file.base_offset + int(block.positions[0]))
        stop = _first_unsure(file, block, sure_at_ms)
        if stop is not None:
            break
    for begin in reversed(starts):
        block = next(iter(Chain(file, begin, file.size, HEADS_ONLY, chain.position if stop is None else stop)), None)
        whole = np.flatnonzero(_is_whole(block)).tolist() if block is not None else []
        if block is not None and whole:
            end = block.segment.base_offset - file.base_offset + int(block.positions[whole[-1]])
            end += int(block.number("size")[whole[-1]])
            is_full = stop is None and chain.verdict is Verdict.BLANK and end == chain.position
            stored_at_ms = int(block.number("stored_at_ms")[whole[-1]])
            return LogEnd(file.size if is_full else end, is_full, stored_at_ms)
    return LogEnd(0)


def _late_record(file: LogFile, start: int, sure_at_ms: int | None, queues: str | None) -> int:
    """Return where a record begins that is near the end of a large file, or ``start``."""
    low, high, at_ms = start, file.size, 0
    while high - low > _LARGE_BYTES:
        middle = (low + high) // 2
        found = find_sound(file, middle, middle + _PROBE_BYTES)
        found_at_ms = -1 if found is None else stored_at(file, found)
        is_sure = found_at_ms >= at_ms and (sure_at_ms is None or found_at_ms <= sure_at_ms)
        if found is not None and is_sure and (queues is None or is_queued(file, found, queues)):
            low, at_ms = middle, found_at_ms
        else:
            high = middle
    return start if low == start else find_first(file, low, file.size, queues)


def _first_unsure(file: LogFile, block: Block, sure_at_ms: int | None) -> int | None:
    """Return the position of the first record that is not whole among those that were not flushed for certain."""
    if sure_at_ms is None:
        return None
    unsure = block.select(np.flatnonzero(block.number("stored_at_ms") > sure_at_ms))
    bad = np.flatnonzero(~_is_whole(unsure)).tolist() if len(unsure) else []
    shift = block.segment.base_offset - file.base_offset
    return shift + int(unsure.positions[bad[0]]) if bad else None


def _is_whole(block: Block) -> Mask:
    ends = block.properties_at + block.properties_bytes
    return has_body_crc(block) & ((block.properties_bytes == 0) | (block.segment.numbers[ends - 1] != 0))
