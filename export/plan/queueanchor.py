"""Finds a record near a place of the log in the queues of a store.

    consumequeue/TOPIC/QUEUE ID/20 digits     entries of 20 bytes: log offset 8, record size 4, tags code 8

Rules:

- A queue is searched by halving: its entries are in the order of the log (store.md §3.1), zeros follow them.
- An entry is believed if the record that it points to is sound, of that size, and of that place in that queue. So
  queues that are old, foreign or damaged do no harm, they only do not help.
- A store may have very many queues: some are looked at, the nearest entry is taken, and none if it is far away.
"""

import os
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from ...common.record import decode_record
from ...common.walk import check_record
from ...store.files.store_config import ENTRY_BYTES
from .logfile import LogFile, size_at

_ENTRY: Final = struct.Struct(">qi")
_QUEUES: Final = 64
_NEAR_BYTES: Final = 1 << 20
_FAR_BYTES: Final = 64 << 20


class _Entry(NamedTuple):
    log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int


def find_anchor(file: LogFile, start: int, queues: str) -> int | None:
    """Return the position of a record at or before ``start`` in a file, ``None`` when queues name none near it."""
    best: int | None = None
    for topic, queue_id, directory in islice(_queues(queues), _QUEUES):
        entry = _last_before(topic, queue_id, directory, file.base_offset + start)
        position = -1 if entry is None else entry.log_offset - file.base_offset
        if entry is None or position < max(0, start - _FAR_BYTES) or (best is not None and position <= best):
            continue
        if _is_there(file, position, entry):
            best = position
            if start - best <= _NEAR_BYTES:
                break
    return best


def is_queued(file: LogFile, position: int, queues: str) -> bool:
    """Tell whether the entry of the record at a position is there; that of one which a cut left over is not."""
    window = file.window(position, size_at(file.window(position, ENTRY_BYTES), file, position))
    record = decode_record(window.view, position - (window.base_offset - file.base_offset))
    entry_at = record.queue_offset * ENTRY_BYTES
    directory = os.path.join(queues, record.topic, str(record.queue_id))
    names = [name for name in _names(directory) if name.isdecimal() and int(name) <= entry_at]
    if not names:
        return False
    try:
        with open(os.path.join(directory, names[-1]), "rb") as entries:
            entries.seek(entry_at - int(names[-1]))
            data = entries.read(_ENTRY.size)
    except OSError:  # a broker deleted it just now
        return False
    return data == _ENTRY.pack(file.base_offset + position, record.total_size)


def _queues(directory: str) -> Iterator[tuple[str, int, str]]:
    for topic in _names(directory):
        for queue in _names(os.path.join(directory, topic)):
            if queue.isdecimal():
                yield topic, int(queue), os.path.join(directory, topic, queue)


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _last_before(topic: str, queue_id: int, directory: str, log_offset: int) -> _Entry | None:
    """Return the last entry of a queue whose record begins at or before a place of the log."""
    for name in reversed([name for name in _names(directory) if name.isdecimal()]):
        try:
            descriptor = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = _search(descriptor, os.fstat(descriptor).st_size // ENTRY_BYTES, log_offset)
        finally:
            os.close(descriptor)
        if found is not None:
            number, at, size = found
            return _Entry(at, size, topic, queue_id, int(name) // ENTRY_BYTES + number)
    return None


def _search(descriptor: int, count: int, log_offset: int) -> tuple[int, int, int] | None:
    low, found = 0, None
    while low < count:
        middle = (low + count) // 2
        data = os.pread(descriptor, _ENTRY.size, middle * ENTRY_BYTES)
        at, size = _ENTRY.unpack(data) if len(data) == _ENTRY.size else (0, 0)
        if size > 0 and at <= log_offset:
            low, found = middle + 1, (middle, at, size)
        else:
            count = middle
    return found


def _is_there(file: LogFile, position: int, entry: _Entry) -> bool:
    if position + entry.size > file.size:
        return False
    window = file.window(position, entry.size)
    at = position - (window.base_offset - file.base_offset)
    if check_record(window.view, at, entry.log_offset, reserved_bytes=0) != entry.size:
        return False
    record = decode_record(window.view, at)
    return (record.topic, record.queue_id, record.queue_offset) == (entry.topic, entry.queue_id, entry.queue_offset)
