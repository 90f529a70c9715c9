"""Where a queue begins when the log has lost its first files (``ConsumeQueue.deleteExpiredFile``; store.md §8.3).

    view     what the queue is at a moment, taken on the thread that owns the store
    cut      what of it lies before the log, read from its files in any thread
    applied  on the owner's thread again: the queue forgets its first files; then somebody removes them

Rules:

- The leading files whose last entry lies before the log go, never the last file: the numbering stays in it.
- The first entry is then the first one whose record is in the log, the end of the queue when there is none; pre-blank
  entries count as lying before everything.
- What a queue gets meanwhile lies in the log, so a cut is right also for a queue that has grown. For one that has lost
  its files in between it is nothing.
"""

from typing import NamedTuple

from ..files.files import Files
from ..files.segments import segment_path
from .consume_queue import ENTRY, PRE_BLANK_SIZE, ConsumeQueue, Entry


class HeadView(NamedTuple):
    """A queue's files and entries at a moment; ``unit_bytes`` is the length of an entry."""

    directory: str
    first_base: int
    last_base: int
    min_offset: int
    max_offset: int
    file_bytes: int
    unit_bytes: int


class HeadCut(NamedTuple):
    """Where the queue begins, and the files before that; ``last_log_offset`` is where its last record lies."""

    first_base: int
    min_offset: int
    paths: tuple[str, ...]
    last_log_offset: int


def view_head(queue: ConsumeQueue) -> HeadView:
    """Return what the queue is now."""
    return HeadView(
        queue.directory,
        queue.first_base,
        queue.last_base,
        queue.min_offset,
        queue.max_offset,
        queue.file_entries * queue.unit_bytes,
        queue.unit_bytes,
    )


def find_cut(files: Files, view: HeadView, log_min_offset: int) -> HeadCut | None:
    """Return what lies before the log, ``None`` when the queue has no entries or its files are gone; reads them."""
    if view.first_base < 0 or not view.max_offset:
        return None
    try:
        return _find_cut(files, view, log_min_offset)
    except FileNotFoundError:
        return None


def _find_cut(files: Files, view: HeadView, log_min_offset: int) -> HeadCut:
    def is_in_log(offset: int) -> bool:
        log_offset, size, _ = _read_entry(files, view, offset)
        return log_offset >= log_min_offset and size != PRE_BLANK_SIZE

    step = view.file_bytes // view.unit_bytes
    base = view.first_base
    while base < view.last_base and not is_in_log(base // view.unit_bytes + step - 1):
        base += view.file_bytes
    low = max(view.min_offset, base // view.unit_bytes)
    high = min(view.max_offset, base // view.unit_bytes + step)
    while low < high:
        middle = low if low == view.min_offset else (low + high) // 2
        if is_in_log(middle):
            high = middle
        else:
            low = middle + 1
    paths = tuple(segment_path(view.directory, gone) for gone in range(view.first_base, base, view.file_bytes))
    return HeadCut(base, low, paths, _read_entry(files, view, view.max_offset - 1)[0])


def _read_entry(files: Files, view: HeadView, offset: int) -> Entry:
    position = offset * view.unit_bytes
    base = position - position % view.file_bytes
    path = segment_path(view.directory, base)
    descriptor = files.open(path)
    try:
        return ENTRY.unpack(files.read_whole(descriptor, ENTRY.size, position - base, path))
    finally:
        files.close(descriptor)
