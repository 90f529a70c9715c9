"""A disk without power: what it holds for certain, and what it may hold of the rest.

Model (the contract of POSIX and of a disk that keeps what it was told to flush):

- Data and length of a file are certain after a sync of the file; what was written since may be there in part: each
  sector of 512 bytes holds one of the versions it had since then.
- Names (create, rename, unlink, make and remove a directory) are certain after a sync of their directory. Of the rest
  a prefix is there: of all of it in order, as a journal has it, or of each directory for itself.
- A length that is not certain is one that the file was given; where writes lengthen a file, any length on the way.
"""

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crash.recorder import (
    Content,
    Create,
    Item,
    MakeDirectory,
    Mark,
    NameChange,
    RemoveDirectory,
    Rename,
    Resize,
    Sync,
    SyncDirectory,
    Unlink,
    Write,
)

SECTOR_BYTES = 512
Names = dict[str, int]


@dataclass
class _File:
    """Certain bytes, and what was done since, with its number in the trace."""

    certain: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, Content]] = field(default_factory=list[tuple[int, Content]])

    @property
    def pending_bytes(self) -> int:
        """How much was written since, with one for what was not."""
        return 1 + sum(len(change.data) for _, change in self.pending if isinstance(change, Write))

    def settle(self, began: int) -> None:
        """Make certain what was done before the sync began."""
        while self.pending and self.pending[0][0] < began:
            _apply(self.certain, self.pending.pop(0)[1])


@dataclass
class _Directory:
    """Certain names, and what was done since."""

    certain: Names = field(default_factory=Names)
    latest: Names = field(default_factory=Names)
    pending: list[tuple[int, NameChange, int]] = field(default_factory=list[tuple[int, NameChange, int]])

    def settle(self, began: int) -> None:
        """Make certain what was done before the sync began."""
        while self.pending and self.pending[0][0] < began:
            _, change, node = self.pending.pop(0)
            _rename(self.certain, change, node)


class Disk:
    """Takes the trace item by item; the methods that return an ``Image`` say what a power loss may leave."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._directories: dict[int, _Directory] = {0: _Directory()}
        self._time = 0

    def apply(self, item: Item) -> None:
        """Take the next item of the trace."""
        match item:
            case Mark():
                pass
            case Write() | Resize():
                self._files[item.file].pending.append((self._time, item))
            case Sync():
                self._files[item.file].settle(item.began)
            case SyncDirectory():
                self._directories[self._find(item.directory)].settle(item.began)
            case _:
                self._change_name(item)
        self._time += 1

    def certain(self) -> "Image":
        """Only what was flushed."""
        return self._image(lambda number, _: self._directories[number].certain, lambda file: bytes(file.certain))

    def everything(self) -> "Image":
        """All that was written."""
        return self._image(lambda number, _: self._directories[number].latest, lambda file: _whole(file, file.pending))

    def sample(self, seed: str) -> "Image":
        """One of the states between."""
        chance = random.Random(seed)
        return self._image(self._names_until(chance), _contents(chance))

    def hole(self, seed: str) -> "Image":
        """All that was written, but for one sector."""
        chance = random.Random(seed)
        waiting = [file for file in self._files.values() if file.pending]
        spoilt = chance.choices(waiting, [file.pending_bytes for file in waiting])[0] if waiting else None

        def content(file: _File) -> bytes:
            data = _whole(file, file.pending)
            return _with_hole(file, data, chance) if file is spoilt else data

        return self._image(lambda number, _: self._directories[number].latest, content)

    def _find(self, path: str) -> int:
        number = 0
        for name in path.split("/") if path else ():
            number = self._directories[number].latest[name]
        return number

    def _change_name(self, change: NameChange) -> None:
        directory = self._directories[self._find(change.directory)]
        node = 0
        if isinstance(change, Create):
            node = change.file
            self._files[node] = _File()
        elif isinstance(change, MakeDirectory):
            node = -len(self._directories)
            self._directories[node] = _Directory()
        directory.pending.append((self._time, change, node))
        _rename(directory.latest, change, node)

    def _names_until(self, chance: random.Random) -> "_NamesOf":
        times = sorted(time for directory in self._directories.values() for time, _, _ in directory.pending)
        common = chance.choice([*times, self._time])
        own = chance.random() < 0.3

        def names(number: int, _: str) -> Names:
            directory = self._directories[number]
            until = chance.choice([*(time for time, _, _ in directory.pending), self._time]) if own else common
            found = dict(directory.certain)
            for time, change, node in directory.pending:
                if time < until:
                    _rename(found, change, node)
            return found

        return names

    def _image(self, names: "_NamesOf", content: Callable[[_File], bytes]) -> "Image":
        image = Image()
        waiting = [(0, "")]
        while waiting:
            number, path = waiting.pop()
            for name, node in names(number, path).items():
                below = f"{path}/{name}" if path else name
                if node > 0:
                    image.files[below] = content(self._files[node])
                else:
                    image.directories.append(below)
                    waiting.append((node, below))
        return image


_NamesOf = Callable[[int, str], Names]


@dataclass
class Image:
    """The content of a disk: directories, those above before those below, and files."""

    directories: list[str] = field(default_factory=list[str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def write(self, folder: str) -> None:
        """Write everything into an empty folder."""
        for path in self.directories:
            os.mkdir(os.path.join(folder, path))
        for path, content in self.files.items():
            descriptor = os.open(os.path.join(folder, path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.ftruncate(descriptor, len(content))
            os.write(descriptor, content.rstrip(b"\0"))
            os.close(descriptor)


def _rename(names: Names, change: NameChange, node: int) -> None:
    match change:
        case Create() | MakeDirectory():
            names[change.name] = node
        case Rename():
            names[change.target] = names.pop(change.name)
        case Unlink() | RemoveDirectory():
            del names[change.name]


def _apply(data: bytearray, change: Content) -> None:
    if isinstance(change, Write):
        data.extend(bytes(max(0, change.position + len(change.data) - len(data))))
        data[change.position : change.position + len(change.data)] = change.data
    elif change.size < len(data):
        del data[change.size :]
    else:
        data.extend(bytes(change.size - len(data)))


def _whole(file: _File, changes: Iterable[tuple[int, Content]]) -> bytes:
    data = bytearray(file.certain)
    for _, change in changes:
        _apply(data, change)
    return bytes(data)


def _contents(chance: random.Random) -> Callable[[_File], bytes]:
    """Return a rule that draws the content of one file after the other."""

    def content(file: _File) -> bytes:
        if not file.pending:
            return bytes(file.certain)
        kind = chance.random()
        if kind < 0.15:
            return bytes(file.certain)
        if kind < 0.3:
            return _whole(file, file.pending)
        versions = [bytes(file.certain), *(_whole(file, file.pending[: n + 1]) for n in range(len(file.pending)))]
        if kind < 0.55:
            return _torn(versions, file, chance)
        return _cut(_mixed(versions, chance), file, chance)

    return content


def _torn(versions: list[bytes], file: _File, chance: random.Random) -> bytes:
    """A prefix of the changes, and of the next one as many sectors as came out first."""
    number = chance.randrange(len(file.pending))
    before, after = versions[number], versions[number + 1]
    if isinstance(file.pending[number][1], Resize):
        return before
    at = chance.randrange(len(after) // SECTOR_BYTES + 1) * SECTOR_BYTES
    return after[:at] + before[at:]


def _with_hole(file: _File, data: bytes, chance: random.Random) -> bytes:
    """One of the sectors that were written as it was before."""
    before = bytes(file.certain[: len(data)]).ljust(len(data), b"\0")
    starts = range(0, len(data), SECTOR_BYTES)
    changed = [at for at in starts if data[at : at + SECTOR_BYTES] != before[at : at + SECTOR_BYTES]]
    at = chance.choice(changed or [0])
    return data[:at] + before[at : at + SECTOR_BYTES] + data[at + SECTOR_BYTES :]


def _mixed(versions: list[bytes], chance: random.Random) -> bytes:
    """Each sector in one of its versions."""
    size = len(versions[-1])
    is_extreme = chance.random() < 0.5
    data = bytearray()
    for at in range(0, size, SECTOR_BYTES):
        version = chance.choice((versions[0], versions[-1]) if is_extreme else versions)
        data += version[at : min(at + SECTOR_BYTES, size)].ljust(min(SECTOR_BYTES, size - at), b"\0")
    return bytes(data)


def _cut(data: bytes, file: _File, chance: random.Random) -> bytes:
    """Now and then with a length that the file had before; where writes lengthen it, with any length on the way."""
    sizes = [len(file.certain), *(change.size for _, change in file.pending if isinstance(change, Resize))]
    if chance.random() < 0.7:
        return data
    if len(data) > max(sizes):
        sizes.append(chance.randrange(max(sizes), len(data)))
    return data[: chance.choice(sizes)]
