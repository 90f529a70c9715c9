"""Directories of equal files that are named by the first byte they hold.

    commitlog/00000000001073741824     20 digits: the position of the file's first byte in the whole

Rules (``MappedFileQueue.doLoad``, store.md §1):

- Files have their full size from the start, follow each other without a gap, and nothing else lies beside them; the
  Java broker refuses to start, or deletes, what breaks this. Here it is an error that names the file.
- A last file of 0 bytes is a creation that was cut off; it is removed. Sub-directories are skipped.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

from ..common.errors import ConfigError, StoreDamagedError
from .files import Files


class SegmentFile(NamedTuple):
    """One file of such a directory."""

    path: str
    base_offset: int
    size: int

    def holds(self, offset: int) -> bool:
        """Tell whether a position of the whole lies in this file."""
        return self.base_offset <= offset < self.base_offset + self.size


def segment_path(directory: str, base_offset: int) -> str:
    """Return the name of the file that begins at the position."""
    return f"{directory}/{base_offset:020d}"


def list_segments(files: Files, directories: Sequence[str], file_bytes: int | None, key: str) -> list[SegmentFile]:
    """Return the files of all directories in order; without ``file_bytes``, all must have the size of the first.

    Raises:
        ConfigError: A foreign file, or one whose size is not that of the setting ``key``.
        StoreDamagedError: A file is missing between others.
    """
    found = sorted(
        (
            _named(directory, entry.name, entry.size)
            for directory in directories
            for entry in files.list(directory)
            if not entry.is_directory
        ),
        key=lambda segment: segment.base_offset,
    )
    if found and found[-1].size == 0:
        found.pop()
    expected = file_bytes if file_bytes is not None else (found[0].size if found else 0)
    for position, segment in enumerate(found):
        if segment.size != expected:
            raise ConfigError(f"{segment.path} has {segment.size} bytes, {key} is {expected}", key=key)
        if segment.base_offset % expected:
            raise ConfigError(f"{segment.path} does not begin at a multiple of {key}, which is {expected}", key=key)
        if segment.base_offset != found[0].base_offset + position * expected:
            missing = segment_path(os.path.dirname(segment.path), found[0].base_offset + position * expected)
            raise StoreDamagedError(f"{missing} is missing before {segment.path}", path=missing, position=0)
    return found


def empty_last_file(files: Files, directory: str) -> str | None:
    """Return the path of a last file of 0 bytes, which a cut-off creation leaves."""
    found = [entry for entry in files.list(directory) if not entry.is_directory]
    return os.path.join(directory, found[-1].name) if found and found[-1].size == 0 else None


def _named(directory: str, name: str, size: int) -> SegmentFile:
    path = os.path.join(directory, name)
    if len(name) != 20 or not (name.isascii() and name.isdigit()):
        raise ConfigError(f"{path} does not belong into a store: the Java broker would refuse to start or delete it")
    return SegmentFile(path, int(name), size)
