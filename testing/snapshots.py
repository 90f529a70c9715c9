"""Snapshots: the store of a broker that is not running, in one small file that a broker starts from in milliseconds.

A snapshot is a tar of the format PAX, which GNU tar and Python's ``tarfile`` read:

    comment                        in the global header: ``rocketlet snapshot 1: <files> files``
    GNUSparseFile.0/<name>         a file with holes, in the format GNU.sparse 1.0, its path in a header: its data
                                   begins with the places of what it holds, decimal numbers; blocks of zeros are holes
    <path>                         a file without holes

Rules

    1. Only files are in it that brokers make in a store (``store_names.py``), in the order of their paths. Same store,
       same bytes: owners, modes and times of the files are left out, so that old log files are as new as the directory
       that they are unpacked into, and no clean-up takes them for expired.
    2. What says otherwise is refused, and nothing is trusted: neither paths nor kinds nor the number of the files. A
       tar ends silently where it is cut between two files; so the comment tells how many there are.
    3. Both work on streams that nobody can seek, and hold no more than a block of a file in memory.
"""

import io
import os
import pathlib
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Any, Final, NamedTuple, cast

from ..common.errors import DecodeError
from ..store.files.files import OS_FILES, iter_written
from ..store.files.store_lock import StoreLock
from ..store.files.store_names import STORE_FILE, STORE_FOLDERS

_BLOCK: Final = 512
_CHUNK: Final = 128 * _BLOCK
_COMMENT: Final = "rocketlet snapshot 1: {} files"
_COUNT: Final = re.compile(re.escape(_COMMENT).replace(r"\{\}", r"(\d{1,9})"))


class DataRange(NamedTuple):
    """A part of a file that holds more than zeros."""

    position: int
    size: int


def pack(directory: str | os.PathLike[str], stream: IO[bytes]) -> None:
    """Write the files of a store, which no broker has open.

    Raises:
        ValueError: the directory is not that of a store.
        StoreInUseError: a broker has it open.
    """
    root = pathlib.Path(directory)
    if not (root / "commitlog").is_dir():
        raise ValueError(f"{root} is not the directory of a store: it has no commitlog")
    with ExitStack() as stack:
        if (root / "lock").exists():
            lock = StoreLock(OS_FILES, str(root))
            lock.acquire()
            stack.callback(lock.release)
        names = sorted(_find_files(root))
        headers = {"comment": _COMMENT.format(len(names))}
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
            for name in names:
                _add_file(archive, root / name, name)


def unpack(stream: IO[bytes], directory: str | os.PathLike[str]) -> None:
    """Make the files of a snapshot in a directory that has none of them yet; errors name the stream's file.

    Raises:
        DecodeError: it is not a whole snapshot of a store. What had been unpacked before that is left.
    """
    source = getattr(stream, "name", None) or "the stream"
    count = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extraction_filter = lambda member, _: member  # each is checked here
            promised = _COUNT.fullmatch(archive.pax_headers.get("comment", ""))
            if promised is None:
                raise DecodeError(f"{source} is not a snapshot of a store: it is a tar that does not say so")
            for member in archive:
                _unpack_file(archive, member, pathlib.Path(directory), source)
                count += 1
    except (tarfile.TarError, ValueError, RecursionError) as error:  # a hostile header may be of any kind
        raise DecodeError(f"{source} is not a snapshot of a store, or is damaged: {error}") from error
    if count != int(promised[1]):
        raise DecodeError(f"{source} is cut off or damaged: it holds {count} of {promised[1]} files")


def pack_file(directory: pathlib.Path, path: pathlib.Path) -> None:
    """Write a snapshot as a file, which is there when it is whole (raises what ``pack`` raises)."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            pack(directory, file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def unpack_file(path: pathlib.Path, directory: pathlib.Path) -> None:
    """Make the files of the snapshot that a file holds (raises what ``unpack`` raises)."""
    with path.open("rb") as file:
        unpack(file, directory)


class StoreExchange:
    """A directory whose files take the place of a store, which comes back if need be; ``close`` removes the other."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self._beside = tempfile.TemporaryDirectory(prefix="rocketlet-", dir=root.parent)
        self.new = pathlib.Path(self._beside.name) / "new"
        """Where the files are to be made."""
        self._old = pathlib.Path(self._beside.name) / "old"

    def __repr__(self) -> str:
        return f"<StoreExchange in {self._root}>"

    def make(self) -> None:
        """Put them into the place of the store, which no broker has open."""
        _move_all(self._root, self._old)
        _move_all(self.new, self._root)

    def undo(self) -> None:
        """Put the store back."""
        empty(self._root)
        _move_all(self._old, self._root)

    def close(self) -> None:
        """Remove what is not in place."""
        self._beside.cleanup()


def empty(directory: pathlib.Path) -> None:
    """Remove all that is in a directory."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _move_all(source: pathlib.Path, target: pathlib.Path) -> None:
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        path.rename(target / path.name)


def _find_files(root: pathlib.Path) -> Iterator[str]:
    places = [root, *(root / folder for folder in STORE_FOLDERS)]
    for place in places:
        for parent, folders, names in os.walk(place):
            if place == root:
                folders.clear()
            inside = pathlib.Path(parent).relative_to(root)
            paths = ((inside / name).as_posix() for name in names)
            yield from (path for path in paths if STORE_FILE.fullmatch(path) and not (root / path).is_symlink())


# writing


def _add_file(archive: tarfile.TarFile, path: pathlib.Path, name: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        ranges = _find_data(descriptor, size)
        member = tarfile.TarInfo(name)
        head = b""
        if ranges != [(0, size)] and size:
            head = _encode_map(ranges, size)
            member.name = f"GNUSparseFile.0/{path.name}"  # short enough for the header itself
            member.pax_headers = {
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.name": name,
                "GNU.sparse.realsize": str(size),
            }
        content = _FileContent(descriptor, head, ranges)
        member.size = content.size
        archive.addfile(member, io.BufferedReader(content, _CHUNK))
    finally:
        os.close(descriptor)


def _find_data(descriptor: int, size: int) -> list[DataRange]:
    """Return what is to be kept of a file, block by block; neighbours are one range."""
    ranges: list[DataRange] = []
    for start, end in iter_written(descriptor, size):
        for position in range(start, end, _CHUNK):
            chunk = os.pread(descriptor, min(_CHUNK, end - position), position)
            for at in range(0, len(chunk), _BLOCK):
                block = chunk[at : at + _BLOCK]
                if block.rstrip(b"\0"):
                    _extend(ranges, DataRange(position + at, len(block)))
    return ranges


def _extend(ranges: list[DataRange], found: DataRange) -> None:
    if ranges and sum(ranges[-1]) == found.position:
        ranges[-1] = DataRange(ranges[-1].position, ranges[-1].size + found.size)
    else:
        ranges.append(found)


def _encode_map(ranges: Sequence[DataRange], size: int) -> bytes:
    """Return the places as GNU tar wants them: an empty one at the end is what makes it set the length of the file."""
    places = [*ranges, DataRange(size, 0)]
    numbers = [len(places), *(number for place in places for number in place)]
    text = b"".join(b"%d\n" % number for number in numbers)
    return text.ljust(-(-len(text) // _BLOCK) * _BLOCK, b"\0")


class _FileContent(io.RawIOBase):
    """What a member holds: the places, then what is there."""

    def __init__(self, descriptor: int, head: bytes, ranges: Sequence[DataRange]) -> None:
        super().__init__()
        self.size = len(head) + sum(part.size for part in ranges)
        self._descriptor = descriptor
        self._head = head
        self._left = iter(ranges)
        self._range = DataRange(0, 0)

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read on."""
        room = len(buffer)
        if self._head:
            data, self._head = self._head[:room], self._head[room:]
        else:
            if not self._range.size:
                self._range = next(self._left, self._range)
            position, size = self._range
            data = os.pread(self._descriptor, min(room, size), position)
            self._range = DataRange(position + len(data), size - len(data))
        buffer[: len(data)] = data
        return len(data)


# reading


def _unpack_file(archive: tarfile.TarFile, member: tarfile.TarInfo, root: pathlib.Path, source: str) -> None:
    if not member.isreg():
        raise DecodeError(f"{source}: {member.name!r} is not a file, and a snapshot holds nothing else")
    if not STORE_FILE.fullmatch(member.name) or {".", ".."} & set(member.name.split("/")):
        raise DecodeError(f"{source}: {member.name!r} is not the name of a file that a store has")
    path = root / member.name
    if path.exists():
        raise DecodeError(f"{source}: {member.name!r} comes twice, or was there before")
    try:
        _check_places(member)
        archive.extract(member, root, set_attrs=False)
    except (OSError, OverflowError, ValueError, tarfile.TarError) as error:
        raise DecodeError(f"{source}: {member.name!r} cannot be unpacked: {error}") from error


def _check_places(member: tarfile.TarInfo) -> None:
    """Raise ``ValueError`` when data cannot be where a file with holes says."""
    if not member.issparse():
        return
    end = 0
    for position, size in cast("list[tuple[int, int]]", member.sparse):
        if position < end or size < 0:
            raise ValueError(f"data at {position} follows data up to {end}")
        end = position + size
    if end > member.size:
        raise ValueError(f"it has data up to {end}, its size is {member.size}")
