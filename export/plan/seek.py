"""Finds the first record of a split that begins inside a file, so that all splits of a file agree.

    … | record | record | record | …          the chain of a file: each record begins where the one before it ends
              anchor    ^ start  ^ first      a walk from any record of the chain leads to the first one of the split

Rules:

- An anchor is a place that is in the chain for certain: an entry of a queue whose record is there, or else a record
  near the start of the split, in a stretch in which nothing but its chain looks like a record; else the file's start.
- A body may hold copies of records, even such that name the log offset at which they stand. In a stretch with more of
  them than the chain has records, the chain cannot be told from them, and the walk begins at the start of the file.
- The stretch is longer than a record is (``maxMessageSize`` is 4 MiB). Of a larger one without entries in queues,
  a copy inside could be taken for a record; then the seams of the splits show it (``tally.find_bad_seams``).
- The walk goes on behind damage as a reading that skips it does (``skip``), so that both go on at one place.
"""

from typing import Final

import numpy as np

from ...common.walk import Verdict
from ...store.commitlog.record_blocks import Longs
from .chain import HEADS_ONLY, Chain
from .logfile import LogFile
from .queueanchor import find_anchor
from .skip import find_candidates, find_next, find_sound

STRETCH_BYTES: Final = 5 << 20
_OFFSET_AT: Final = 28
_OFFSET_BYTES: Final = 8


def find_first(
    file: LogFile, start: int, end: int, queues: str | None = None, stretch_bytes: int = STRETCH_BYTES
) -> int:
    """Return where the first record at or behind ``start`` begins in the chain of a file that ends at ``end``.

    ``end`` where there is none. ``queues`` is the directory of the store's queues, if it may be looked at.
    """
    if not start:
        return 0
    if queues is not None and (anchor := find_anchor(file, start, queues)) is not None:
        return _walk(file, anchor, start, end)
    if start > stretch_bytes and (found := _find_in_stretch(file, start - stretch_bytes, start, end)) is not None:
        return found
    return _walk(file, 0, start, end)


def _walk(file: LogFile, position: int, start: int, end: int) -> int:
    while position < start:
        chain = Chain(file, position, start, HEADS_ONLY, end)
        for _ in chain:
            pass
        position = chain.position
        if chain.verdict is Verdict.BLANK:
            return end
        if chain.verdict is not None:
            behind = find_next(file, position, end, chain.verdict)
            position = end if behind is None else behind
    return position


def _find_in_stretch(file: LogFile, first: int, start: int, end: int) -> int | None:
    """Return the first record from ``start`` on if nothing else from ``first`` to there could be one."""
    anchor = find_sound(file, first, start, end)
    if anchor is None:
        return None
    chain = Chain(file, anchor, start, HEADS_ONLY, end)
    parts = [block.positions + (block.segment.base_offset - file.base_offset) for block in chain]
    if chain.verdict is not None or _has_rivals(file, np.concatenate(parts), chain.position):
        return None
    return chain.position


def _has_rivals(file: LogFile, positions: Longs, stop: int) -> bool:
    """Tell whether anything else up to ``stop`` looks like a record than those of a chain."""
    for found in find_candidates(file, int(positions[0]), stop):
        nearest = positions[np.minimum(np.searchsorted(positions, found), len(positions) - 1)]
        if any(_names_its_place(file, at) for at in found[found != nearest].tolist()):
            return True
    return False


def _names_its_place(file: LogFile, position: int) -> bool:
    """Tell whether what looks like a record at a position names its own place in the log."""
    at = position + _OFFSET_AT
    window = file.window(position, min(_OFFSET_AT + _OFFSET_BYTES, file.size - position))
    at -= window.base_offset - file.base_offset
    return int.from_bytes(window.view[at : at + _OFFSET_BYTES], "big") == file.base_offset + position
