"""A file seam that does what it is asked and writes down what changes the disk, in order, and what was promised.

Rules:

- Names are told by directory and name below the recorded folder; files by a number that outlives their names.
- ``began`` of a sync is how many items stood in the trace when it was called: what came later, while the disk was
  busy, is not covered by it.
- A ``Mark`` touches no file. It holds a fact for the ledger: sent, acknowledged, saved, removed.
"""

import os
import pathlib
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rocketlet.store.files.files import Files


class Create(NamedTuple):
    """A new file, empty."""

    directory: str
    name: str
    file: int


class Write(NamedTuple):
    """Bytes of a file; they lengthen it where they end behind it."""

    file: int
    position: int
    data: bytes


class Resize(NamedTuple):
    """A new length of a file."""

    file: int
    size: int


class Sync(NamedTuple):
    """Data and length of a file are on disk."""

    file: int
    began: int


class Rename(NamedTuple):
    """Another name in the same directory; whoever had it loses it."""

    directory: str
    name: str
    target: str


class Unlink(NamedTuple):
    """A name of a file is gone."""

    directory: str
    name: str


class MakeDirectory(NamedTuple):
    """A new directory."""

    directory: str
    name: str


class RemoveDirectory(NamedTuple):
    """An empty directory is gone."""

    directory: str
    name: str


class SyncDirectory(NamedTuple):
    """The names in a directory are on disk."""

    directory: str
    began: int


class Mark(NamedTuple):
    """A fact about messages or state files (``ledger.Fact``)."""

    fact: object


NameChange = Create | Rename | Unlink | MakeDirectory | RemoveDirectory
Content = Write | Resize
Operation = NameChange | Content | Sync | SyncDirectory
Item = Operation | Mark


class Recorder(Files):
    """Records everything below ``folder``.

    ``during_sync`` is called once, at the start of the next sync of a file: what it does happens while the disk is
    busy. The syncs themselves are left out, for the recorded files lose no power.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = str(folder)
        self.trace: list[Item] = []
        self.during_sync: Callable[[], None] | None = None
        self._guard = threading.RLock()  # a name changes and is written down at once: several threads make files
        self._numbers: dict[int, int] = {}  # by descriptor
        self._files: dict[tuple[int, int], int] = {}  # by device and inode, while the file has a name
        self._count = 0

    def mark(self, fact: object) -> None:
        """Write down a fact at this moment."""
        self._add(Mark(fact))

    def open(self, path: str, *, writable: bool = False) -> int:
        """Open, and remember which file it is."""
        descriptor = super().open(path, writable=writable)
        self._note(descriptor)
        return descriptor

    def create(self, path: str, size: int, mode: int = 0o644) -> int:
        """Record the new name and the length."""
        with self._guard:
            is_new = not os.path.exists(path)
            before = 0 if is_new else os.stat(path).st_size
            descriptor = super().create(path, size, mode)
            if is_new:
                self._count += 1
                self._files[_identity(descriptor)] = self._count
                self._add(Create(*self._split(path), self._count))
            self._note(descriptor)
            if size > before:
                self._add(Resize(self._numbers[descriptor], size))
            return descriptor

    def close(self, descriptor: int) -> None:
        """Forget the descriptor."""
        self._numbers.pop(descriptor, None)
        super().close(descriptor)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Record what went out."""
        count = super().pwrite(descriptor, data, position)
        self._add(Write(self._numbers[descriptor], position, bytes(data[:count])))
        return count

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Record what went out, as one write."""
        count = super().pwritev(descriptor, buffers, position)
        self._add(Write(self._numbers[descriptor], position, b"".join(buffers)[:count]))
        return count

    def truncate(self, descriptor: int, size: int) -> None:
        """Record the length."""
        super().truncate(descriptor, size)
        self._add(Resize(self._numbers[descriptor], size))

    def sync(self, descriptor: int) -> None:
        """Record that everything written before the call is on disk."""
        began = len(self.trace)
        meanwhile, self.during_sync = self.during_sync, None
        if meanwhile is not None:
            meanwhile()
        self._add(Sync(self._numbers[descriptor], began))

    def sync_directory(self, path: str) -> None:
        """Record that the names are on disk."""
        os.stat(path)
        self._add(SyncDirectory(self._relative(path), len(self.trace)))

    def rename(self, source: str, target: str) -> None:
        """Record the names."""
        with self._guard:
            super().rename(source, target)
            directory, name = self._split(source)
            aim, new_name = self._split(target)
            assert directory == aim, "the store renames within a directory only"
            self._add(Rename(directory, name, new_name))

    def unlink(self, path: str) -> None:
        """Record the name."""
        with self._guard:
            super().unlink(path)
            self._add(Unlink(*self._split(path)))

    def make_directories(self, path: str) -> None:
        """Record each directory that was missing."""
        with self._guard:
            missing: list[str] = []
            above = path
            while not os.path.isdir(above):
                missing.append(above)
                above = os.path.dirname(above)
            super().make_directories(path)
            for made in reversed(missing):
                self._add(MakeDirectory(*self._split(made)))

    def remove_directory(self, path: str) -> None:
        """Record the name."""
        with self._guard:
            super().remove_directory(path)
            self._add(RemoveDirectory(*self._split(path)))

    def modified_at_ms(self, path: str) -> int:
        """Say that every file is old: what may be removed is for the workload to decide."""
        return 0

    def disk_usage(self, path: str) -> tuple[int, int]:
        """Say that there is room."""
        return 10, 90

    def _add(self, item: Item) -> None:
        with self._guard:
            self.trace.append(item)

    def _note(self, descriptor: int) -> None:
        self._numbers[descriptor] = self._files[_identity(descriptor)]

    def _relative(self, path: str) -> str:
        assert path == self.folder or path.startswith(f"{self.folder}/"), f"{path} is outside the recorded folder"
        return path[len(self.folder) + 1 :]

    def _split(self, path: str) -> tuple[str, str]:
        directory, _, name = self._relative(path).rpartition("/")
        return directory, name


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
