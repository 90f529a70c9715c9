"""Read-only maps of files, and how a file that was cut short is noticed before its map is read.

Rules:

- Reading bytes that no file holds any more ends the process (SIGBUS). Somebody who cuts a file can do that at any
  moment; whoever keeps a map asks for the size of its file before a part is handed out or a block is read
  (``Files.mapped_size``, ``check_map``), so that it is an error in all but the moment in between.
- Reading a hole through a map of a tmpfs takes room there, and ends the process too when there is none. A walk to the
  end of a log reads holes. It reads ``map_written``: file where bytes were written, zeros of no file elsewhere. It
  does not see what is written into the holes later.
- A file with very many holes is mapped as one piece from its first to its last written byte.
"""

import errno
import mmap
import os
from collections.abc import Iterator
from types import FunctionType
from typing import Final, Self, TypeVar

from ...common.errors import StoreDamagedError

_MOST_PIECES: Final = 1_000
_Step = TypeVar("_Step")
_MAP_FIXED: Final = 0x10  # on Linux and macOS, and not in the module mmap


class FileMap(mmap.mmap):
    """A map that knows its file: ``size`` is how long that is now, ``len`` how much of it is mapped."""

    path = ""
    _file: mmap.mmap | None = None

    @classmethod
    def of(cls, descriptor: int, size: int, path: str) -> Self:
        """Map the first bytes of a file."""
        made = cls(descriptor, size, access=mmap.ACCESS_READ)
        made.path = path
        return made

    @classmethod
    def of_zeros(cls, descriptor: int, size: int, path: str) -> Self:
        """Map zeros, over which parts of a file can be laid."""
        made = cls(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        made.path, made._file = path, mmap.mmap(descriptor, 1, access=mmap.ACCESS_READ)  # it keeps the file open
        return made

    def size(self) -> int:
        """Return how long the file is now."""
        return super().size() if self._file is None else self._file.size()


def check_map(view: memoryview) -> None:
    """Raise ``StoreDamagedError`` if the file behind a map has become shorter; bytes that are no map always pass."""
    found = view.obj
    if isinstance(found, FileMap) and (size := found.size()) < len(found):
        raise damaged_by_cut(found.path, size, len(found))


def name_file(path: str, steps: Iterator[_Step]) -> Iterator[_Step]:
    """Take steps in a frame that is named after a file.

    When a file is cut between a check and the reading behind it, names of frames are all that ``faulthandler`` prints.
    """
    code = _take.__code__.replace(co_filename=f"<map of {path}>")
    return FunctionType(code, {})(steps)


def _take(steps: Iterator[_Step]) -> Iterator[_Step]:
    yield from steps


def say_cut(found: int, size: int) -> str:
    """Return the words for a file that somebody has cut."""
    return f"it has {found} bytes and had {size}, somebody has cut it"


def damaged_by_cut(path: str, found: int, size: int) -> StoreDamagedError:
    """Return the error of a reader whose file was cut while it was read."""
    return StoreDamagedError(f"{path} cannot be read: {say_cut(found, size)}", path=path, position=found)


def map_whole(descriptor: int, size: int, path: str) -> memoryview:
    """Map the first bytes of a file that has so many."""
    return memoryview(FileMap.of(descriptor, size, path))


def map_written(descriptor: int, size: int, path: str) -> memoryview:
    """Map the first bytes of a file that has so many as they are now, with zeros instead of holes."""
    pieces = _merge(list(_written(descriptor, size)))
    if pieces == [(0, size)]:
        return map_whole(descriptor, size, path)
    zeros = FileMap.of_zeros(descriptor, size, path)
    _lay_pieces(zeros, descriptor, pieces)
    return memoryview(zeros).toreadonly()


def written_end(descriptor: int, size: int) -> int:
    """Return where only a hole follows in a file that has so many bytes."""
    return max((end for _, end in _written(descriptor, size)), default=0)


def _lay_pieces(zeros: FileMap, descriptor: int, pieces: list[tuple[int, int]]) -> None:
    """Lay pieces of a file over zeros, which own the place and give all of it back; ``mmap`` has no fixed address."""
    import ctypes

    address = ctypes.addressof(ctypes.c_char.from_buffer(zeros))
    map_at = ctypes.CDLL(None, use_errno=True).mmap
    map_at.restype, map_at.argtypes = ctypes.c_void_p, (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)  # fmt: skip
    for start, end in pieces:
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if map_at(address + start, end - start, mmap.PROT_READ, flags, descriptor, start) != address + start:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


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
