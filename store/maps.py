"""Read-only maps of files, and how a file that was cut short is noticed before its map is read.

Rules:

- Reading bytes that no file holds any more ends the process (SIGBUS). Somebody who cuts a file can do that at any
  moment; whoever keeps a map asks for the size of its file before a part is handed out (``Files.mapped_size``), so
  that it is an error in all but the moment in between.
- Reading a hole through a map of a tmpfs takes room there, and ends the process too when there is none. A walk to the
  end of a log reads holes. It reads ``map_written``: file where bytes were written, zeros of no file elsewhere. It
  does not see what is written into the holes later.
- A file with very many holes is mapped as one piece from its first to its last written byte.
"""

import errno
import mmap
import os
from collections.abc import Iterator
from typing import Final

_MOST_PIECES: Final = 1_000
_MAP_FIXED: Final = 0x10  # on Linux and macOS, and not in the module mmap


def map_whole(descriptor: int, size: int) -> memoryview:
    """Map the first bytes of a file that has so many."""
    return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))


def map_written(descriptor: int, size: int) -> memoryview:
    """Map the first bytes of a file that has so many as they are now, with zeros instead of holes."""
    pieces = _merge(list(_written(descriptor, size)))
    if pieces == [(0, size)]:
        return map_whole(descriptor, size)
    return _map_pieces(descriptor, size, pieces)


def _map_pieces(descriptor: int, size: int, pieces: list[tuple[int, int]]) -> memoryview:
    """Lay pieces of a file over zeros, which own the place and give all of it back; ``mmap`` has no fixed address."""
    import ctypes

    zeros = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(zeros))
    map_at = ctypes.CDLL(None, use_errno=True).mmap
    map_at.restype, map_at.argtypes = ctypes.c_void_p, (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)  # fmt: skip
    for start, end in pieces:
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if map_at(address + start, end - start, mmap.PROT_READ, flags, descriptor, start) != address + start:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return memoryview(zeros).toreadonly()


def _written(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the pages that hold what was written; all of them where the file system cannot tell."""
    end = 0
    try:
        while end < size:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = min(size, _page_up(os.lseek(descriptor, start, os.SEEK_HOLE)))
            if start < size:
                yield start - start % mmap.PAGESIZE, end
    except OSError as error:
        if error.errno != errno.ENXIO:  # only holes follow
            yield 0, size


def _page_up(position: int) -> int:
    return -(-position // mmap.PAGESIZE) * mmap.PAGESIZE


def _merge(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return pieces if len(pieces) <= _MOST_PIECES else [(pieces[0][0], pieces[-1][1])]
