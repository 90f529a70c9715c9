"""Finds where a log ends, the end of the prefix that every reader of it agrees on, and proves that it ended there.

    … | record | record | record | torn, or nothing …
                               ^ end

Rules of the end (store.md §7.6):

- Records at the end whose body or properties did not arrive whole are not part of the log: a broker is writing them,
  or was killed while it did. A writer writes upwards, so properties that end in a zero byte did not arrive whole.
- A large file is not walked from its start, but from a record that is found by halving: where a record stands that is
  not older than those before it, and whose queue has its entry, the log has come at least so far. From there to the
  end the chain is walked. Sound records that a cut left over behind the end have no entries, but where neither queues
  nor times tell them from others, a reading meets damage where the log was cut.
- A bad record with a sound one behind it is damage, for ending there would lose messages. Which sound ones count is
  the rule of ``store.logtail``, so that a reading and a broker's start find the same end.

Rules of the proof (store.md §3.9, §6.2, §6.5), for the log of a store that was cleanly closed:

    queues      an entry that names a place behind the end: that record was there. Entries up to the end: it ended there
    checkpoint  the store time of the newest record; a later one than the log holds was there
    offsets     a group that has consumed more than a queue holds leaves a doubt: clients commit what they like

- A store that is open, or whose broker was killed, is not judged: its queues grow while it is read, and lag behind the
  log after a kill. A broker may open a store while it is planned; so the mark is looked at once more at last.
- Of a queue's last files only the entries at the end are read, of however many queues there are; entries fill a file
  without holes, and zeros follow them. Of a store behind a URL only the checkpoint is asked.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from ...common.errors import JsonError, StoreDamagedError
from ...common.java_json import read_json_as
from ...common.record import Verdict
from ...store.commitlog.log_end import Validity
from ...store.commitlog.record_blocks import Block, Mask, Structs, has_body_crc
from ...store.consumequeue.consume_queue import PRE_BLANK_SIZE
from ...store.files.files import OS_FILES, map_whole
from ...store.files.store_config import BATCH_UNIT_BYTES
from .filesystems import Storage, list_names
from .log_file import LogFile, check_at
from .record_walk import (
    HEADS_ONLY,
    STRETCH_BYTES,
    RecordWalk,
    find_first_record,
    find_sound_record,
    has_queue_entry,
    list_queues,
    stored_at,
)
from .store_files import StoreMarks, read_store_marks
from .store_queues import ENTRY_TYPES, UNIT_BYTES

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
        behind = find_sound_record(last, 1, last.size, covers=covers)
        damage = _damage(last, 0, "the file does not begin with a record")
        return end._replace(damage=damage, behind=None if behind is None else last.base_offset + behind)
    places = [(file, 0) for file in files[end.number + 1 :]]
    if not end.is_full:
        places.insert(0, (last, end.position + 1))
    for file, begin in places:
        valid = find_sound_record(file, begin, file.size, covers=covers)
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
    chain = RecordWalk(file, start, file.size, HEADS_ONLY)
    starts: list[int] = []
    stop = None
    for block in chain:
        starts.append(block.segment.base_offset - file.base_offset + int(block.positions[0]))
        stop = _first_unsure(file, block, sure_at_ms)
        if stop is not None:
            break
    for begin in reversed(starts):
        block = next(
            iter(RecordWalk(file, begin, file.size, HEADS_ONLY, chain.position if stop is None else stop)), None
        )
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
        found = find_sound_record(file, middle, middle + _PROBE_BYTES)
        found_at_ms = -1 if found is None else stored_at(file, found)
        is_sure = found_at_ms >= at_ms and (sure_at_ms is None or found_at_ms <= sure_at_ms)
        if found is not None and is_sure and (queues is None or has_queue_entry(file, found, queues)):
            low, at_ms = middle, found_at_ms
        else:
            high = middle
    return start if low == start else find_first_record(file, low, file.size, queues)


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


_OPEN: Final = "abort is there: a broker has the store open, or was killed"
_NOTHING: Final = "there are neither queues nor a checkpoint that tell"
_NAME_DIGITS: Final = 20

LostOffsets = dict[tuple[str, int], tuple[int, int]]


class FoundEnd(NamedTuple):
    """Where the records of a store's log end, and when the last of them was stored; 0 where there is none."""

    store: str
    log_offset: int
    stored_at_ms: int


@dataclass(frozen=True)
class EndProof:
    """What is known of the end of a log: why it is not where the records end, or why that is not proved.

    ``lost`` are the queue offsets of records behind it by queue, ``lost_bytes`` of log are known to be missing.
    """

    refuted: str | None = None
    unproved: str | None = None
    lost: LostOffsets = field(default_factory=LostOffsets)
    lost_bytes: int = 0


def prove_end(end: FoundEnd, marks: StoreMarks, queues: str | None, storage: Storage) -> EndProof:
    """Judge the end of a log by the store's marks and by the directory of its queues, if it is there."""
    if not marks.is_closed:
        return EndProof(unproved=_OPEN)
    told = _QueueEvidence(end.log_offset)
    if queues is not None:
        _read_queues(os.path.dirname(queues), told)
    is_early = 0 < end.stored_at_ms < marks.newest_at_ms
    if told.lost or is_early:
        if not read_store_marks(end.store, storage).is_closed:
            return EndProof(unproved=_OPEN)
        parts = [f"queue entries name {told.lost_entries} records behind it"] if told.lost else []
        if is_early:
            stored = f"stored at {marks.newest_at_ms}, the last one here at {end.stored_at_ms}"
            parts.append(f"the checkpoint names a record {stored}")
        reason = f"the log ends here, but {', and '.join(parts)}"
        return EndProof(reason, None, told.lost, told.lost_until - end.log_offset if told.lost else 0)
    return EndProof(unproved=told.doubt or _doubt(end, marks, told))


def _doubt(end: FoundEnd, marks: StoreMarks, told: "_QueueEvidence") -> str | None:
    if not end.log_offset or told.known_until == end.log_offset or marks.newest_at_ms == end.stored_at_ms:
        return None
    if not told.known_until and not marks.newest_at_ms:
        return _NOTHING
    parts = (
        [f"queue entries reach to log offset {told.known_until} only"] if told.known_until else ["there are no queues"]
    )
    parts.append(f"the checkpoint to {marks.newest_at_ms}" if marks.newest_at_ms else "there is no checkpoint")
    return ", ".join(parts)


@dataclass
class _QueueEvidence:
    """What the queues of a store tell of the log up to an end, and behind it."""

    end: int
    known_until: int = 0
    lost: LostOffsets = field(default_factory=dict[tuple[str, int], tuple[int, int]])
    lost_entries: int = 0
    lost_until: int = 0
    doubt: str | None = None

    def add(self, topic: str, queue_id: int, entries: "_QueueTail") -> None:
        """Take the last entries of a queue."""
        self.known_until = max(self.known_until, entries.known_until)
        if entries.lost:
            self.lost[topic, queue_id] = entries.first, entries.end
            self.lost_entries += entries.lost
            self.lost_until = max(self.lost_until, entries.lost_until)


class _QueueTail(NamedTuple):
    """The entries of a queue behind the end of a log: ``first <= queue offset < end``; and those before it."""

    first: int = 0
    end: int = 0
    lost: int = 0
    lost_until: int = 0
    known_until: int = 0


def _read_queues(home: str, told: _QueueEvidence) -> None:
    consumed = _consumed(home)
    for kind, unit_bytes in UNIT_BYTES.items():
        for topic, queue_id, directory in list_queues(os.path.join(home, kind)):
            entries = _last_entries(directory, unit_bytes, told.end)
            told.add(topic, queue_id, entries)
            group, queue_offset = consumed.get((topic, queue_id), ("", 0))
            if 0 < entries.end < queue_offset:
                place = f"{topic} queue {queue_id}, which ends at {entries.end}"
                told.doubt = f"group {group} is at offset {queue_offset} of {place}"


def _last_entries(directory: str, unit_bytes: int, log_end: int) -> _QueueTail:
    found = _QueueTail()
    for name in reversed([name for name in list_names(directory) if len(name) == _NAME_DIGITS and name.isdigit()]):
        try:
            entries = _written(os.path.join(directory, name), unit_bytes)
        except (OSError, ValueError):  # no bytes, or a broker deleted it just now
            break
        if not len(entries):
            continue
        first, end = _offsets(entries, int(name) // unit_bytes)
        found = found._replace(end=found.end or end)
        behind = _behind(entries, log_end)
        if behind:
            until = int((entries["log_offset"][-behind:].astype(np.int64) + entries["size"][-behind:]).max())
            lost = entries[-behind:]
            first = _offsets(lost, int(name) // unit_bytes + len(entries) - behind)[0]
            found = found._replace(first=first, lost=found.lost + behind, lost_until=max(found.lost_until, until))
        if behind < len(entries):
            at, size = (int(entries[name][-behind - 1]) for name in ("log_offset", "size"))
            return found._replace(known_until=at + size if size != PRE_BLANK_SIZE else 0)
    return found


def _written(path: str, unit_bytes: int) -> Structs:
    """Return the entries of a file, found by halving, without the zeros behind them, which are not read by a map."""
    kind = ENTRY_TYPES[unit_bytes]
    descriptor = OS_FILES.open(path)
    try:
        low, high = 0, os.fstat(descriptor).st_size // unit_bytes
        while low < high:
            middle = (low + high) // 2
            entry = np.frombuffer(OS_FILES.pread(descriptor, unit_bytes, middle * unit_bytes), kind)
            if entry["size"][0] > 0:
                low = middle + 1
            else:
                high = middle
        return np.frombuffer(map_whole(descriptor, low * unit_bytes, path) if low else b"", kind)
    finally:
        OS_FILES.close(descriptor)


def _behind(entries: Structs, log_end: int) -> int:
    """Return how many of the last entries name records behind the end of the log."""
    if entries["log_offset"][-1] < log_end:
        return 0
    is_behind = (entries["log_offset"] >= log_end) & (entries["size"] != PRE_BLANK_SIZE)
    before = np.flatnonzero(~is_behind)
    return len(entries) - 1 - int(before[-1]) if len(before) else len(entries)


def _offsets(entries: Structs, slot: int) -> tuple[int, int]:
    """Return the first queue offset of entries that begin at a slot, and the one behind the last."""
    if entries.dtype.itemsize != BATCH_UNIT_BYTES:
        return slot, slot + len(entries)
    return int(entries["first_offset"][0]), int(entries["first_offset"][-1]) + int(entries["messages"][-1])


class _OffsetTable(msgspec.Struct):
    offsets: dict[str, dict[str, int]] = msgspec.field(name="offsetTable", default_factory=dict[str, dict[str, int]])


def _consumed(home: str) -> dict[tuple[str, int], tuple[str, int]]:
    """Return by queue the group that has come farthest, and its offset."""
    try:
        with open(os.path.join(home, "config", "consumerOffset.json"), "rb") as file:
            table = read_json_as(file.read(), _OffsetTable).offsets
    except (OSError, JsonError):
        return {}
    found: dict[tuple[str, int], tuple[str, int]] = {}
    for place, queues in table.items():
        topic, _, group = place.partition("@")
        for queue_id, queue_offset in queues.items():
            if queue_id.isdecimal() and queue_offset > found.get((topic, int(queue_id)), ("", 0))[1]:
                found[topic, int(queue_id)] = group, queue_offset
    return found
