"""What a workload did to its files, in order, and what was promised meanwhile.

Rules:

- Names are told by directory and name below the recorded folder; files by a number that outlives their names.
- ``began`` of a sync is how many items stood in the trace when it was called: what came later, while the disk was
  busy, is not covered by it.
- A ``Mark`` touches no file. It holds a fact for the ledger: sent, acknowledged, saved, removed.
"""

from typing import NamedTuple


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
