"""The one place where the store touches the operating system's files.

Rules:

- Everything under ``store/`` that creates, reads, writes, syncs, renames or removes a file does it through a ``Files``
  object, so that a test can record the operations, cut writes short or fail a flush.
- Writes go through descriptors (``pwrite``, ``pwritev``); maps are read-only. A full disk is then a short count or
  an ``OSError``, never a signal.
- Errors are ``OSError`` here; the callers translate them, since only they know what was at stake.

macOS has no ``fdatasync``: ``sync`` falls back to ``fsync`` here and nowhere else.

Rules of read-only maps:

- Reading bytes that no file holds any more ends the process (SIGBUS). Somebody who cuts a file can do that at any
  moment; whoever keeps a map asks for the size of its file before a part is handed out or a block is read
  (``FileMap.size``, ``check_map``), so that it is an error in all but the moment in between.
- Reading a hole through a map of a tmpfs takes room there, and ends the process too when there is none. A walk to the
  end of a log reads holes. It reads ``map_written``: file where bytes were written, zeros of no file elsewhere. It
  does not see what is written into the holes later.
- A file with very many holes is mapped as one piece from its first to its last written byte.
"""

import errno
import mmap
import os
import resource
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Final, NamedTuple, Self, TypeVar

from ...common.errors import StoreDamagedError

_MOST_PIECES: Final = 1_000
_Step = TypeVar("_Step")
_MAP_FIXED: Final = 0x10  # on Linux and macOS, and not in the module mmap
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, *NO_DESCRIPTOR)
"""A full disk, or no descriptor left: what passes when others give something back, unlike a disk that fails."""
_ZEROS = bytes(1 << 20)


class FileMap(mmap.mmap):
    """A map that knows its file: ``size`` is how long that is now, ``len`` how much of it is mapped."""

    path = ""

    @classmethod
    def of(cls, descriptor: int, size: int, path: str) -> Self:
        """Map the first bytes of a file."""
        made = cls(descriptor, size, access=mmap.ACCESS_READ)
        made.path = path
        return made


class ZerosMap(FileMap):
    """Zeros, over which parts of a file are laid."""

    _file: mmap.mmap

    @classmethod
    def over(cls, descriptor: int, size: int, path: str) -> Self:
        """Map zeros for so many bytes of a file."""
        made = cls(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        made.path, made._file = path, mmap.mmap(descriptor, 1, access=mmap.ACCESS_READ)  # it keeps the file open
        return made

    def size(self) -> int:
        """Return how long the file is now."""
        return self._file.size()


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
    pieces = _merge(list(iter_written(descriptor, size)))
    if pieces == [(0, size)]:
        return map_whole(descriptor, size, path)
    zeros = ZerosMap.over(descriptor, size, path)
    _lay_pieces(zeros, descriptor, pieces)
    return memoryview(zeros).toreadonly()


def written_end(descriptor: int, size: int) -> int:
    """Return where only a hole follows in a file that has so many bytes."""
    return max((end for _, end in iter_written(descriptor, size)), default=0)


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


def iter_written(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
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


class DirectoryEntry(NamedTuple):
    """A name in a directory; ``size`` is 0 for directories."""

    name: str
    is_directory: bool
    size: int


class Files:
    """The file operations of the store, as the operating system offers them."""

    def open(self, path: str, *, writable: bool = False) -> int:
        """Open an existing file."""
        return os.open(path, os.O_RDWR if writable else os.O_RDONLY)

    def create(self, path: str, size: int, mode: int = 0o644) -> int:
        """Open a file for writing, made with these permissions if need be and brought to its full size as a hole."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, mode)
        try:
            if os.fstat(descriptor).st_size < size:
                os.ftruncate(descriptor, size)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def size(self, path: str) -> int:
        """Return the length of a file."""
        return os.stat(path).st_size

    def modified_at_ms(self, path: str) -> int:
        """Return when a file was last written."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def disk_usage(self, path: str) -> tuple[int, int]:
        """Return how many bytes of the disk behind the path are in use, and how many a user may still fill."""
        disk = os.statvfs(path)
        return (disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_bavail * disk.f_frsize

    def disk_capacity(self, path: str) -> tuple[int, int]:
        """Return how many bytes the disk behind the path has, and how many of them are not in use."""
        disk = os.statvfs(path)
        return disk.f_blocks * disk.f_frsize, disk.f_bfree * disk.f_frsize

    def exists(self, path: str) -> bool:
        """Tell whether the path exists."""
        return os.path.exists(path)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Read up to ``size`` bytes."""
        return os.pread(descriptor, size, position)

    def read_whole(self, descriptor: int, size: int, position: int, path: str) -> bytes:
        """Read ``size`` bytes (raises ``OSError`` naming the file, also if there are fewer: somebody has cut it)."""
        try:
            data = self.pread(descriptor, size, position)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        if len(data) != size:
            raise OSError(errno.EIO, f"read {len(data)} bytes of {size} at {position}, somebody may have cut it", path)
        return data

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write at a position and return how many bytes went out."""
        return os.pwrite(descriptor, data, position)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Write several buffers one after the other and return how many bytes went out."""
        return os.pwritev(descriptor, buffers, position)

    def truncate(self, descriptor: int, size: int) -> None:
        """Set the length of a file."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Return once the data of the file are on disk."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def has_name(self, descriptor: int) -> bool:
        """Tell whether a file is still in a directory; else its bytes end with the last descriptor."""
        return os.fstat(descriptor).st_nlink > 0

    def check_size(self, descriptor: int, size: int, path: str) -> None:
        """Raise ``OSError`` if a file is shorter than it was made."""
        if (found := os.fstat(descriptor).st_size) < size:
            raise cut_off(path, found, size)

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory are on disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing the target."""
        os.replace(source, target)

    def copy_mode(self, source: str, target: str) -> None:
        """Give a file the permissions of another."""
        os.chmod(target, os.stat(source).st_mode & 0o7777)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def make_directories(self, path: str) -> None:
        """Make a directory and those above it, where missing."""
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def list(self, path: str) -> list[DirectoryEntry]:
        """Return what a directory holds, sorted by name; nothing when it does not exist."""
        try:
            with os.scandir(path) as found:
                entries = [_describe(entry) for entry in found]
        except FileNotFoundError:
            return []
        return sorted(entry for entry in entries if entry is not None)

    def map(self, path: str, size: int) -> memoryview:
        """Map a file for reading; the map lives as long as a slice of it does."""
        return self._map(path, size, map_whole)

    def map_written(self, path: str, size: int) -> memoryview:
        """Map a file for reading as it is now; its holes take no room when they are read."""
        return self._map(path, size, map_written)

    def _map(self, path: str, size: int, to_view: Callable[[int, int, str], memoryview]) -> memoryview:
        descriptor = self.open(path)
        try:
            self.check_size(descriptor, size, path)
            return to_view(descriptor, size, path)
        finally:
            self.close(descriptor)

    def next_data(self, descriptor: int, position: int) -> int | None:
        """Return the first position at or after ``position`` that is not in a hole, ``None`` when only holes follow."""
        try:
            return os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else position


OS_FILES = Files()


class Descriptors:
    """Open files by path, at most ``limit`` of them: the least recently used one is closed for another.

    So 50,000 queues live with a few hundred descriptors. Only the thread that owns the store uses it; the flusher opens
    files of its own.
    """

    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._limit = max(4, limit)
        self._open: OrderedDict[str, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Descriptors {len(self._open)} of {self._limit}>"

    def get(self, path: str) -> int:
        """Return a descriptor for reading and writing an existing file, valid until the next call."""
        descriptor = self._open.get(path)
        if descriptor is None:
            return self._keep(path, self._files.open(path, writable=True))
        self._open.move_to_end(path)
        return descriptor

    def create(self, path: str, size: int) -> int:
        """Return a descriptor for a file that is made at its full size where missing."""
        return self._keep(path, self._files.create(path, size))

    def drop(self, path: str) -> None:
        """Close the file if it is open."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            self._files.close(descriptor)

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._files.close(self._open.popitem()[1])

    def _keep(self, path: str, descriptor: int) -> int:
        self.drop(path)
        if len(self._open) >= self._limit:
            self._files.close(self._open.popitem(last=False)[1])
        self._open[path] = descriptor
        return descriptor


def _describe(entry: os.DirEntry[str]) -> DirectoryEntry | None:
    """Return the name with its size, ``None`` when it has gone since the directory was read."""
    try:
        is_directory = entry.is_dir()
        return DirectoryEntry(entry.name, is_directory, 0 if is_directory else entry.stat().st_size)
    except FileNotFoundError:
        return None


def make_tree(files: Files, path: str) -> list[str]:
    """Make a directory and those above it, where missing; return those that got a new name and are to be flushed."""
    changed: list[str] = []
    missing = path or os.curdir
    while not files.exists(missing):
        missing = os.path.dirname(missing) or os.curdir
        changed.append(missing)
    if changed:
        files.make_directories(path)
    return changed


def make_lasting_directory(files: Files, path: str) -> None:
    """Make a directory and those above it, where missing, and bring their names to the disk."""
    made: list[str] = []
    path = path or os.curdir
    while not files.exists(path):
        made.append(path)
        path = os.path.dirname(path) or os.curdir
    if made:
        files.make_directories(made[0])
    for directory in reversed(made):
        with suppress(PermissionError):  # one may make names in a directory that one may not open
            files.sync_directory(os.path.dirname(directory) or os.curdir)


def write_label(files: Files, descriptor: int, text: bytes) -> None:
    """Write into a file what only people read; its name alone counts, so a full disk does not matter."""
    try:
        files.pwrite(descriptor, text, 0)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


def zero_range(files: Files, descriptor: int, start: int, end: int) -> None:
    """Overwrite ``[start, end)`` with zeros where it holds anything else; holes stay holes."""
    position = start
    while position < end:
        data_at = files.next_data(descriptor, position)
        if data_at is None or data_at >= end:
            return
        chunk = files.pread(descriptor, min(len(_ZEROS), end - data_at), data_at)
        if not chunk:
            return
        _zero_chunk(files, descriptor, chunk, data_at)
        position = data_at + len(chunk)


def cut_off(path: str, found: int, size: int) -> OSError:
    """Return the error that says that somebody has cut a file."""
    return OSError(errno.EIO, say_cut(found, size), path)


def _zero_chunk(files: Files, descriptor: int, chunk: bytes, position: int) -> None:
    used = len(chunk.rstrip(b"\0"))
    start = used - len(chunk[:used].lstrip(b"\0"))
    written = files.pwrite(descriptor, _ZEROS[start:used], position + start) if used > start else 0
    if written != used - start:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft > 0 else 65_536  # "no limit" is -1
