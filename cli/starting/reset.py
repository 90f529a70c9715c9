"""``--reset``: removes what a broker has kept in a directory, and nothing else.

Rules

    1. The directory is that of a store: ``commitlog`` is there, and beside it one of the files that every broker makes.
       Of several brokers, each has such a directory below it.
    2. No broker, Java's neither, has one of the stores open: their locks are held meanwhile; the files ``lock`` stay.
    3. Only files go that have a place and a name which brokers give to theirs (``store_names.py``),
       and directories that are empty then. All else stays and is named. Links are not followed.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from ...common.errors import ConfigError
from ...store.files.files import OS_FILES
from ...store.files.store_lock import StoreLock, refuse_unknown_formats
from ...store.files.store_names import STORE_FILE, STORE_FOLDERS

OPTION: Final = "--reset"
_ABOVE: Final = re.compile(r"namesrv/kvConfig\.json(?:\.bak|\.tmp|\.damaged)?|rocketlet\.(?:json|json\.new|log)")
_FOLDERS: Final = STORE_FOLDERS | {"namesrv"}
_LOCK: Final = "lock"
_SIGNS: Final = (_LOCK, "checkpoint", os.path.join("config", "topics.json"))
_BROKER: Final = re.compile(r"broker-[a-z](-[1-9])?")
_BLOCK_BYTES: Final = 512  # of ``st_blocks``, whatever the file system has
_MOST_NAMED: Final = 5


class StoreReset:
    """Removes the files of one store, or of several below a directory, and counts them."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)
        self.count = 0
        self.disk_bytes = 0
        self.left: list[str] = []
        self._is_in_store = True

    def __str__(self) -> str:
        done = f"--reset has removed {self.count:,} files ({self.disk_bytes:,} bytes on disk) from {self._root}"
        if not self.left:
            return done
        more = f" and {len(self.left) - _MOST_NAMED} more" if len(self.left) > _MOST_NAMED else ""
        return f"{done} and has left what is not of a store: {', '.join(self.left[:_MOST_NAMED])}{more}"

    def run(self) -> bool:
        """Do it; tell whether there was anything in the directory.

        Raises:
            ConfigError: the directory is not that of a store, or a broker has a format that is not known here.
            StoreInUseError: a broker has it open.
        """
        if not os.path.isdir(self._root) or not os.listdir(self._root):
            return False
        below = [entry.path for entry in _folders(self._root) if _BROKER.fullmatch(entry.name)]
        stores = [path for path in (self._root, *sorted(below)) if _is_store(path)]
        if not stores:
            raise ConfigError(
                f"{OPTION} removes the files of a store, and {self._root} is none: nothing is removed", key=OPTION
            )
        with ExitStack() as locked:
            for store in stores:
                refuse_unknown_formats(OS_FILES, store)
                lock = StoreLock(OS_FILES, store)
                lock.acquire()
                locked.callback(lock.release)
            for place in dict.fromkeys((*stores, self._root)):  # above several stores there is what ``up`` keeps
                self._remove_own(place, frozenset(stores))
        return True

    def _remove_own(self, place: str, stores: frozenset[str]) -> None:
        self._is_in_store = place in stores
        with os.scandir(place) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.name in _FOLDERS and entry.is_dir(follow_symlinks=False):
                self._remove_folder(entry.path, place)
            elif entry.path not in stores:
                self._remove_file(entry.path, place)

    def _remove_folder(self, folder: str, place: str) -> None:
        for path, folders, names in os.walk(folder, topdown=False):
            for name in (*names, *(name for name in folders if os.path.islink(os.path.join(path, name)))):
                self._remove_file(os.path.join(path, name), place)
            if not os.listdir(path):
                os.rmdir(path)

    def _remove_file(self, path: str, place: str) -> None:
        inside = os.path.relpath(path, place)
        if inside == _LOCK:
            return
        if os.path.islink(path) or not os.path.isfile(path) or not self._is_own(inside):
            self.left.append(os.path.relpath(path, self._root))
            return
        self.count += 1
        self.disk_bytes += os.lstat(path).st_blocks * _BLOCK_BYTES
        os.unlink(path)

    def _is_own(self, inside: str) -> bool:
        return bool(_ABOVE.fullmatch(inside) or (self._is_in_store and STORE_FILE.fullmatch(inside)))


def _folders(path: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        yield from (entry for entry in entries if entry.is_dir(follow_symlinks=False))


def _is_store(path: str) -> bool:
    return os.path.isdir(os.path.join(path, "commitlog")) and any(
        os.path.exists(os.path.join(path, sign)) for sign in _SIGNS
    )
