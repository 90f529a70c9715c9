"""Finds the commit log files of stores, and what the store says of itself.

    STORE or STORE/commitlog -> files in order
    LOG,LOG,…                -> the same for a log in several directories, named as in ``storePathCommitLog``

Rule: foreign files beside the segments are left alone, and so are files without bytes: such a one was deleted just
now, or its creation was cut off.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ...common.errors import ConfigError, StoreError
from ...store.files.checkpoint import parse_checkpoint
from ...store.files.segments import SegmentFile
from .filesystems import FolderEntry, Storage, expand_places, has_place, is_url, list_place, read_place, split_places

_DIRECTORY: Final = "commitlog"
_QUEUES: Final = "consumequeue"
_NAME_DIGITS: Final = 20
_LISTINGS: Final = 3


class StoreMarks(NamedTuple):
    """What a store says of itself: whether it was cleanly closed, and up to when records were flushed for certain.

    ``sure_at_ms`` is ``None`` for a store that was cleanly closed, or in doubt; ``newest_at_ms`` is the store time of
    the newest record of one that was cleanly closed, 0 where nothing says it.
    """

    is_closed: bool
    sure_at_ms: int | None
    newest_at_ms: int = 0


def find_files(stores: Iterable[str], storage: Storage) -> list[tuple[str, list[SegmentFile]]]:
    """Return the stores, patterns expanded, and the files of each in log order.

    Raises:
        ConfigError: A place holds no commit log, or is given twice.
        StoreError: It cannot be read.
    """
    found: dict[str, tuple[str, list[SegmentFile]]] = {}
    for store in expand_places(stores, storage):
        files = _list_settled(store, storage)
        real = _real(files[0].path)
        if real in found:
            raise ConfigError(f"store {store} is given twice")
        found[real] = store, files
    return list(found.values())


def find_gap(files: Sequence[SegmentFile]) -> int | None:
    """Return the number of the first file that does not follow the one before it."""
    for number in range(1, len(files)):
        before = files[number - 1]
        if files[number].base_offset != before.base_offset + before.size:
            return number
    return None


def read_store_marks(store: str, storage: Storage) -> StoreMarks:
    """Read what a store says of itself."""
    root = _root(store, storage)
    is_closed = not has_place(os.path.join(root, "abort"), storage)
    try:
        checkpoint = parse_checkpoint(read_place(os.path.join(root, "checkpoint"), storage))
    except OSError:
        return StoreMarks(is_closed, sure_at_ms=None)
    if is_closed:
        return StoreMarks(is_closed, None, max(checkpoint.log_at_ms, checkpoint.queues_at_ms))
    return StoreMarks(is_closed, checkpoint.log_at_ms or None)


def queues_of(store: str, storage: Storage) -> str | None:
    """Return the directory of the queues of a local store."""
    path = os.path.join(_root(store, storage), _QUEUES)
    return path if not is_url(store) and os.path.isdir(path) else None


def _root(store: str, storage: Storage) -> str:
    return os.path.dirname(_real(_log_directories(store, storage)[0]))


def _real(path: str) -> str:
    return path.rstrip("/") if is_url(path) else os.path.realpath(path)


def _log_directories(store: str, storage: Storage) -> list[str]:
    paths = split_places(store, storage)
    if len(paths) > 1:
        return [_nested(path, storage) or path for path in paths]
    nested = _nested(store, storage)
    if nested is None and os.path.basename(_real(store)) == _DIRECTORY:
        return [store]
    return [nested or os.path.join(store, _DIRECTORY)]


def _nested(path: str, storage: Storage) -> str | None:
    nested = os.path.join(path, _DIRECTORY)
    return nested if has_place(nested, storage) else None


def _list_settled(store: str, storage: Storage) -> list[SegmentFile]:
    """List the files again when one seems to be missing: a broker makes and deletes files while they are listed."""
    files = _list_files(store, storage)
    for _ in range(_LISTINGS):
        if find_gap(files) is None:
            break
        files = _list_files(store, storage)
    return files


def _list_files(store: str, storage: Storage) -> list[SegmentFile]:
    files = [
        SegmentFile(os.path.join(directory, entry.name), int(entry.name), entry.size)
        for directory in _log_directories(store, storage)
        for entry in _entries(store, directory, storage)
        if _is_segment(entry) and entry.size
    ]
    if not files:
        raise ConfigError(f"store {store} holds no commit log file")
    return sorted(files, key=lambda file: (file.base_offset, file.path))


def _entries(store: str, directory: str, storage: Storage) -> list[FolderEntry]:
    try:
        return list_place(directory, storage)
    except (FileNotFoundError, NotADirectoryError):
        named = directory if len(split_places(store, storage)) > 1 else store
        reason = f"it has no directory {_DIRECTORY}" if has_place(named, storage) else "it does not exist"
        reason = reason if named == store else f"{named} does not exist"
        raise ConfigError(f"{store} is not a store: {reason}") from None
    except OSError as error:
        raise StoreError(f"{error.filename or directory} cannot be read: {error.strerror}") from error


def _is_segment(entry: FolderEntry) -> bool:
    name = entry.name
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit() and entry.is_file
