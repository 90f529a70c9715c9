"""Brings many files and directories to the disk.

Rules:

- Directories come after the files: a name on the disk leads to a file of its full size.
- What has been removed meanwhile is passed over.
- Few are flushed one after the other, many by some threads side by side: the file system commits one journal for all
  that wait at the same time.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from .files import Files

SIDE_BY_SIDE_FROM: Final = 64
_THREADS: Final = 8


def sync_all(files: Files, paths: Sequence[str], directories: Sequence[str]) -> None:
    """Return once all of them are on the disk (raises ``OSError``, some may be then)."""
    _for_each(partial(_sync_path, files), paths)
    _for_each(partial(_sync_directory, files), directories)


def _for_each(sync: Callable[[str], None], names: Sequence[str]) -> None:
    if len(names) < SIDE_BY_SIDE_FROM:
        _one_by_one(sync, names)
        return
    try:
        with ThreadPoolExecutor(_THREADS, "rocketlet-sync") as threads:
            parts = [threads.submit(_one_by_one, sync, names[first::_THREADS]) for first in range(_THREADS)]
    except RuntimeError:  # no thread can be started
        _one_by_one(sync, names)
        return
    for part in parts:
        part.result()


def _one_by_one(sync: Callable[[str], None], names: Iterable[str]) -> None:
    for name in names:
        sync(name)


def _sync_path(files: Files, path: str) -> None:
    try:
        descriptor = files.open(path, writable=True)
    except FileNotFoundError:
        return
    try:
        files.sync(descriptor)
    finally:
        files.close(descriptor)


def _sync_directory(files: Files, path: str) -> None:
    with suppress(FileNotFoundError):
        files.sync_directory(path)
