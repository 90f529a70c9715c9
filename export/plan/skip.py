"""Finds the next sound record behind a place of a log file that holds none.

Rules:

- Where only the content of a record is bad, its size tells where the next one begins, if a record or a blank begins
  there. Else the first sound record behind is taken, body checksum and log offset included, wherever it stands.
- A blank that fills the rest of its file is sound, too: nothing follows it.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from ...common.record import decode_record
from ...common.walk import BLANK_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Verdict
from ...store.commitlog.record_blocks import Longs
from .logfile import LogFile, check_at, size_at

_RECORDS: Final = (MAGIC_V1.to_bytes(4, "big")[:3], bytes((MAGIC_V1 & 0xFF, MAGIC_V2 & 0xFF)))
_BLANK: Final = (MAGIC_BLANK.to_bytes(4, "big")[:3], bytes((MAGIC_BLANK & 0xFF,)))
_MAGIC_AT: Final = 4
_MAGIC_BYTES: Final = 4
_CHUNK: Final = 1 << 20

Numbers = npt.NDArray[np.uint8]
_SIZED: Final = frozenset((Verdict.MAGIC, Verdict.PLACE, Verdict.QUEUE_OFFSET, Verdict.BODY_CRC))


def find_next(file: LogFile, position: int, stop: int, verdict: Verdict) -> int | None:
    """Return where the log goes on behind a bad record at ``position``, ``None`` where it does not before ``stop``.

    What stands there is a record that ends by ``stop``, or a blank.
    """
    if verdict in _SIZED:
        size = size_at(file.window(position, _MAGIC_BYTES), file, position)
        behind = position + size
        if size > 0 and behind + BLANK_BYTES <= stop and _is_sound(file, behind, stop, checks_crc=False):
            return behind
    behind = iter_candidates(file, position + 1, stop)
    return next((at for at in behind if _is_sound(file, at, stop, checks_crc=True)), None)


def find_sound(
    file: LogFile, start: int, stop: int, end: int | None = None, *, covers: Callable[[int], bool] | None = None
) -> int | None:
    """Return the first sound record from ``start`` to ``stop`` that ends by ``end``, and whose store time is covered.

    ``end`` is that of the file, unless it is given.
    """
    for position in iter_candidates(file, start, stop, blanks=False):
        if check_at(file, position, limit=end) > 0 and (covers is None or covers(stored_at(file, position))):
            return position
    return None


def stored_at(file: LogFile, position: int) -> int:
    """Return the store time of the sound record at a position."""
    window = file.window(position, size_at(file.window(position, _MAGIC_BYTES), file, position))
    return decode_record(window.view, position - (window.base_offset - file.base_offset)).stored_at_ms


def iter_candidates(file: LogFile, start: int, stop: int, *, blanks: bool = True) -> Iterator[int]:
    """Yield the positions from ``start`` to ``stop`` behind which a magic stands, where the file is no hole."""
    for found in find_candidates(file, start, stop, blanks=blanks):
        yield from found.tolist()


def find_candidates(file: LogFile, start: int, stop: int, *, blanks: bool = False) -> Iterator[Longs]:
    """Yield what ``iter_candidates`` does, many at once."""
    magics = (_RECORDS, _BLANK) if blanks else (_RECORDS,)
    position = start
    while position < stop:
        data_at = file.next_data(position)
        if data_at is None:
            return
        position = max(position, data_at)
        last = min(position + _CHUNK, stop)
        size = max(0, min(last + _MAGIC_AT + _MAGIC_BYTES - 1, file.size) - position)
        window = file.window(position, size)
        at = position - (window.base_offset - file.base_offset)
        found = [_find_magic(window.numbers[at + _MAGIC_AT : at + size], magic) for magic in magics]
        yield np.sort(np.concatenate(found)) + position
        position = last


def _find_magic(numbers: Numbers, magic: tuple[bytes, bytes]) -> Longs:
    """Return where a magic begins among bytes: a start, and one of several ends; few bytes are like the first one."""
    start, ends = magic
    found = np.flatnonzero(numbers[: -_MAGIC_BYTES + 1] == start[0])
    for place in range(1, len(start)):
        found = found[numbers[found + place] == start[place]]
    last = numbers[found + len(start)]
    return found[np.logical_or.reduce([last == end for end in ends])]


def _is_sound(file: LogFile, position: int, stop: int, *, checks_crc: bool) -> bool:
    found = check_at(file, position, checks_crc=checks_crc, limit=stop)
    if found == Verdict.BLANK:
        return size_at(file.window(position, _MAGIC_BYTES), file, position) == file.size - position
    return found > 0
