"""Directories of equal files that are named by the first byte they hold.

    commitlog/00000000001073741824     20 digits: the position of the file's first byte in the whole

Rules (``MappedFileQueue.doLoad``, store.md §1):

- Files have their full size from the start, follow each other without a gap, and nothing else lies beside them; the
  Java broker refuses to start, or deletes, what breaks this. Here it is an error that names the file.
- A last file of 0 bytes is a creation that was cut off; it is removed. Sub-directories are skipped. After an unclean
  stop, one before the last may be the same (``complete_cut_off``).
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from ...common.errors import ConfigError, StoreDamagedError
from .files import Files

_HEAD_BYTES = 4_096


class Layout(NamedTuple):
    """Where the files of a kind lie, how long they are, the setting that says so, and the store they belong to."""

    directories: Sequence[str]
    file_bytes: int
    key: str
    store: str


class SegmentFile(NamedTuple):
    """One file of such a directory."""

    path: str
    base_offset: int
    size: int

    def holds(self, position: int) -> bool:
        """Tell whether a position of the whole lies in this file."""
        return self.base_offset <= position < self.base_offset + self.size


def segment_path(directory: str, base_offset: int) -> str:
    """Return the name of the file that begins at the position."""
    return f"{directory}/{base_offset:020d}"


class SegmentReader:
    """Reads files of a kind with descriptors of its own, in any thread; a context manager that keeps them open."""

    def __init__(self, files: Files, file_bytes: int, path_of: Callable[[int], str]) -> None:
        self._files = files
        self._file_bytes = file_bytes
        self._path_of = path_of
        self._open: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open.values():
            self._files.close(descriptor)
        self._open.clear()

    def read_bytes(self, position: int, size: int) -> bytes:
        """Return bytes of one file, as many as it holds; none when it is not there (raises ``OSError``)."""
        base = position - position % self._file_bytes
        descriptor = self._open.get(base)
        if descriptor is None:
            try:
                descriptor = self._open[base] = self._files.open(self._path_of(base))
            except FileNotFoundError:
                return b""
        return self._files.pread(descriptor, size, position - base)


def repair_command(store: str) -> str:
    """Return the command that repairs a store, as it stands in the sentences of errors."""
    from shlex import quote

    return f"`rocketlet store repair {quote(store)}`"


def list_segments(files: Files, layout: Layout, behind: list[SegmentFile] | None = None) -> list[SegmentFile]:
    """Return the files of all directories in order.

    With ``behind``, the files behind a missing one go there, and are for the caller to judge.

    Raises:
        ConfigError: A foreign file, or one whose size is not that of the setting.
        StoreDamagedError: A file is missing between others.
    """
    found = [
        _named(directory, entry.name, entry.size)
        for directory in layout.directories
        for entry in files.list(directory)
        if not entry.is_directory
    ]
    found.sort(key=lambda segment: segment.base_offset)
    if found and found[-1].size == 0:
        found.pop()
    for position, segment in enumerate(found):
        _check_size(segment, layout)
        if position and segment.base_offset == found[position - 1].base_offset:
            raise StoreDamagedError(
                f"{found[position - 1].path} and {segment.path} hold the same part of the log",
                path=segment.path,
                position=0,
            )
        if segment.base_offset != found[0].base_offset + position * layout.file_bytes:
            if behind is None:
                raise missing_before(segment, found[position - 1], layout.store)
            behind += found[position:]
            return found[:position]
    return found


def _check_size(segment: SegmentFile, layout: Layout) -> None:
    _, expected, key, store = layout
    if segment.size != expected:
        raise ConfigError(
            f"{segment.path} has {segment.size} bytes, {key} is {expected}: set it as it was when the store was made; "
            f"if the file was cut off, {repair_command(store)} goes on without what lies behind",
            key=key,
        )
    if segment.base_offset % expected:
        raise ConfigError(f"{segment.path} does not begin at a multiple of {key}, which is {expected}", key=key)


def missing_before(segment: SegmentFile, last: SegmentFile, store: str) -> StoreDamagedError:
    """Return the error that says that files between two are missing, and how to go on."""
    missing = segment_path(os.path.dirname(segment.path), last.base_offset + last.size)
    return StoreDamagedError(
        f"{missing} is missing before {segment.path}",
        path=missing,
        position=0,
        way_on=f"put it back, or {repair_command(store)} goes on without what lies behind",
    )


def complete_cut_off(files: Files, directories: Sequence[str], file_bytes: int) -> None:
    """Bring files of 0 bytes to their full size, but for the last one: names may survive a power loss alone.

    They hold zeros then, where the log ends, unless something that is surely on disk follows (raises ``OSError``).
    """
    empty = [
        (entry.name, directory)
        for directory in directories
        for entry in files.list(directory)
        if not entry.is_directory and entry.size == 0
    ]
    last = empty_last_file(files, directories)
    for path in (os.path.join(directory, name) for name, directory in empty):
        if path != last:
            files.close(files.create(path, file_bytes))


def empty_last_file(files: Files, directories: Sequence[str]) -> str | None:
    """Return the path of a last file of 0 bytes, which a cut-off creation leaves."""
    found = [
        (entry.name, directory, entry.size)
        for directory in directories
        for entry in files.list(directory)
        if not entry.is_directory
    ]
    name, directory, size = max(found, default=("", "", 1))
    return os.path.join(directory, name) if size == 0 else None


def remove_unused(files: Files, segments: Sequence[SegmentFile]) -> list[SegmentFile]:
    """Remove files at the end that nothing was ever written to, but the first; return those that stay.

    They were prepared for later. To look for records in them would not only be in vain: on a full tmpfs, where reading
    a hole through a map takes room, it would end in a signal.
    """
    used = list(segments)
    while len(used) > 1 and _is_hole(files, used[-1]):
        files.unlink(used.pop().path)
    return used


def _is_hole(files: Files, segment: SegmentFile) -> bool:
    descriptor = files.open(segment.path)
    try:
        return files.next_data(descriptor, 0) is None and not any(files.pread(descriptor, _HEAD_BYTES, 0))
    finally:
        files.close(descriptor)


def find_other_size(sizes: Sequence[int], expected: int) -> int | None:
    """Return the size that files were made with if it is not the expected one, ``None`` when single ones are damaged.

    A wrong setting shows in all files, and files of damage are shorter: one short file alone says nothing.
    """
    size = min(sizes, default=expected)
    is_setting = size == max(sizes, default=expected) and (len(sizes) > 1 or size > expected)
    return size if is_setting and size != expected else None


def _named(directory: str, name: str, size: int) -> SegmentFile:
    path = os.path.join(directory, name)
    if len(name) != 20 or not (name.isascii() and name.isdigit()):
        raise ConfigError(f"{path} does not belong into a store: the Java broker would refuse to start or delete it")
    return SegmentFile(path, int(name), size)
