"""Proves that the log of a store that was cleanly closed ended where its records end, and was not cut later.

    queues      an entry that names a place behind the end: that record was there. Entries up to the end: it ended there
    checkpoint  the store time of the newest record; a later one than the log holds was there
    offsets     a group that has consumed more than a queue holds leaves a doubt: clients commit what they like

Rules (store.md §3.9, §6.2, §6.5):

- A store that is open, or whose broker was killed, is not judged: its queues grow while it is read, and lag behind the
  log after a kill. A broker may open a store while it is planned; so the mark is looked at once more at last.
- Of a queue's last files only the entries at the end are read, of however many queues there are; entries fill a file
  without holes, and zeros follow them.
- Of a store behind a URL only the checkpoint is asked.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from ...common.errors import JsonError
from ...common.json.javajson import read_json_as
from ...store.commitlog.record_blocks import Structs
from ...store.consumequeue.consume_queue import PRE_BLANK_SIZE
from ...store.files.files import OS_FILES, map_whole
from ...store.files.store_config import BATCH_UNIT_BYTES
from .places import Storage
from .queuefiles import ENTRY_TYPES, UNIT_BYTES
from .storequeues import list_names
from .stores import Marks, read_marks

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


def prove_end(end: FoundEnd, marks: Marks, queues: str | None, storage: Storage) -> EndProof:
    """Judge the end of a log by the store's marks and by the directory of its queues, if it is there."""
    if not marks.is_closed:
        return EndProof(unproved=_OPEN)
    told = _Told(end.log_offset)
    if queues is not None:
        _read_queues(os.path.dirname(queues), told)
    is_early = 0 < end.stored_at_ms < marks.newest_at_ms
    if told.lost or is_early:
        if not read_marks(end.store, storage).is_closed:
            return EndProof(unproved=_OPEN)
        parts = [f"queue entries name {told.lost_entries} records behind it"] if told.lost else []
        if is_early:
            stored = f"stored at {marks.newest_at_ms}, the last one here at {end.stored_at_ms}"
            parts.append(f"the checkpoint names a record {stored}")
        reason = f"the log ends here, but {', and '.join(parts)}"
        return EndProof(reason, None, told.lost, told.lost_until - end.log_offset if told.lost else 0)
    return EndProof(unproved=told.doubt or _doubt(end, marks, told))


def _doubt(end: FoundEnd, marks: Marks, told: "_Told") -> str | None:
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
class _Told:
    """What the queues of a store tell of the log up to an end, and behind it."""

    end: int
    known_until: int = 0
    lost: LostOffsets = field(default_factory=dict[tuple[str, int], tuple[int, int]])
    lost_entries: int = 0
    lost_until: int = 0
    doubt: str | None = None

    def add(self, topic: str, queue_id: int, entries: "_LastEntries") -> None:
        """Take the last entries of a queue."""
        self.known_until = max(self.known_until, entries.known_until)
        if entries.lost:
            self.lost[topic, queue_id] = entries.first, entries.end
            self.lost_entries += entries.lost
            self.lost_until = max(self.lost_until, entries.lost_until)


class _LastEntries(NamedTuple):
    """The entries of a queue behind the end of a log: ``first <= queue offset < end``; and those before it."""

    first: int = 0
    end: int = 0
    lost: int = 0
    lost_until: int = 0
    known_until: int = 0


def _read_queues(home: str, told: _Told) -> None:
    consumed = _consumed(home)
    for kind, unit_bytes in UNIT_BYTES.items():
        for topic, queue_id, directory in _directories(os.path.join(home, kind)):
            entries = _last_entries(directory, unit_bytes, told.end)
            told.add(topic, queue_id, entries)
            group, offset = consumed.get((topic, queue_id), ("", 0))
            if 0 < entries.end < offset:
                told.doubt = (
                    f"group {group} is at offset {offset} of {topic} queue {queue_id}, which ends at {entries.end}"
                )


def _directories(kind: str) -> Iterator[tuple[str, int, str]]:
    for topic in list_names(kind):
        for queue_id in list_names(os.path.join(kind, topic)):
            if queue_id.isascii() and queue_id.isdigit():
                yield topic, int(queue_id), os.path.join(kind, topic, queue_id)


def _last_entries(directory: str, unit_bytes: int, log_end: int) -> _LastEntries:
    found = _LastEntries()
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
        for queue_id, offset in queues.items():
            if queue_id.isdecimal() and offset > found.get((topic, int(queue_id)), ("", 0))[1]:
                found[topic, int(queue_id)] = group, offset
    return found
