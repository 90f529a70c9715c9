"""Whether this process may open a store: nobody else has it open, and rocketlet knows its formats.

Rules of the file ``lock`` (store.md §6.4):

- A POSIX write lock on byte 0, as the Java broker takes it, but before anything else is touched.
- POSIX locks do not see their own process and vanish when any descriptor of the file is closed. So a registry of the
  directories that this process has open is asked first, and nobody else ever opens the file.

Formats that rocketlet does not have stop the start before anything is changed:

    what                                     how it shows
    queues in RocksDB (``storeType``)        ``consumequeue/CURRENT``, a file
    config in RocksDB                        ``config/topics/CURRENT`` and the like, ``config/rdb/CURRENT``
    DLedger's log                            ``dledger-<id>/``
    compacted topics                         ``compaction/compactionLog/<topic>/``, or ``cleanup.policy=COMPACTION``

``rocksdbstore/`` is no sign: the Java broker 5.4.0 makes it at every start (store.md §1, §15.4). Fields that are not
known in a config file are passed over, as Java does.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from typing import Any, Final, cast

from ...common.errors import ConfigError, JsonError, StoreInUseError
from ...common.java_json import read_json
from .config_files import load_config_text
from .files import Files, write_label

_TEXT = b"lock"
_held: set[str] = set()
_held_guard = threading.Lock()
_MARK: Final = "CURRENT"  # the file that every RocksDB directory has
_ROCKSDB_CONFIGS: Final = ("topics", "subscriptionGroups", "consumerOffsets", "rdb")
_POLICY: Final = "cleanup.policy"
_COMPACTION: Final = "COMPACTION"


class StoreLock:
    """The right to write to one store directory, held until ``release``."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._root = os.path.realpath(root)
        self._descriptor = -1

    def __repr__(self) -> str:
        return f"<StoreLock {self._root}{' held' if self._descriptor >= 0 else ''}>"

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreInUseError: Another process, or another store object here, holds it.
        """
        with _held_guard:
            if self._root in _held:
                raise StoreInUseError(f"store {self._root} is already open in this process")
            descriptor = self._files.create(os.path.join(self._root, "lock"), 0)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError as error:
                self._files.close(descriptor)
                raise StoreInUseError(f"store {self._root} is in use by another process") from error
            self._descriptor = descriptor
            _held.add(self._root)
        write_label(self._files, descriptor, _TEXT)

    def release(self) -> None:
        """Give the lock back; the file stays."""
        with _held_guard:
            if self._descriptor >= 0:
                self._files.close(self._descriptor)
                self._descriptor = -1
                _held.discard(self._root)


def refuse_unknown_formats(files: Files, root: str) -> None:
    """Raise ``ConfigError`` for a directory that a broker wrote with what is not built."""
    for path, what in _signs(root):
        if files.exists(path):
            raise ConfigError(f"{path} is there: {what} is not built", key="storePathRootDir")
    for entry in files.list(root):
        if entry.is_directory and entry.name.startswith("dledger-"):
            raise ConfigError(
                f"{root}/{entry.name} is there: the DLedger log is not built", key="enableDLegerCommitLog"
            )
    for entry in files.list(os.path.join(root, "compaction", "compactionLog")):
        if entry.is_directory:
            raise ConfigError(_explain_compaction(f"{root}/compaction/compactionLog/{entry.name}"), key=_POLICY)
    path = os.path.join(root, "config", "topics.json")
    for topic in _compacted_topics(load_config_text(path, files)):
        raise ConfigError(_explain_compaction(f"{path}: topic {topic}"), key=_POLICY)


def _explain_compaction(where: str) -> str:
    return f"{where} has {_POLICY}={_COMPACTION}: compacted topics are not built"


def _signs(root: str) -> Iterator[tuple[str, str]]:
    yield os.path.join(root, "consumequeue", _MARK), "the RocksDB store (storeType=defaultRocksDB)"
    for name in _ROCKSDB_CONFIGS:
        yield os.path.join(root, "config", name, _MARK), "configuration in RocksDB (configManagerVersion)"


def _compacted_topics(text: str | None) -> Iterator[str]:
    """Yield the topics that are compacted; a text that cannot be read is left to whoever loads the topics."""
    if not text or _COMPACTION not in text:
        return
    try:
        tree = read_json(text)
    except JsonError:
        return
    table = cast("dict[str, Any]", tree).get("topicConfigTable") if isinstance(tree, dict) else None
    for name, topic in (cast("dict[str, Any]", table) if isinstance(table, dict) else {}).items():
        attributes = cast("dict[str, Any]", topic).get("attributes") if isinstance(topic, dict) else None
        if isinstance(attributes, dict) and cast("dict[str, Any]", attributes).get(_POLICY) == _COMPACTION:
            yield str(name)
