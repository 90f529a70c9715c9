"""Stores of formats that rocketlet does not have: the start is refused before anything is changed.

    what                                     how it shows
    queues in RocksDB (``storeType``)        ``consumequeue/CURRENT``, a file
    config in RocksDB                        ``config/topics/CURRENT`` and the like, ``config/rdb/CURRENT``
    DLedger's log                            ``dledger-<id>/``
    compacted topics                         ``compaction/compactionLog/<topic>/``, or ``cleanup.policy=COMPACTION``

``rocksdbstore/`` is no sign: the Java broker 5.4.0 makes it at every start (store.md §1, §15.4). Fields that are not
known in a config file are passed over, as Java does.
"""

import os
from collections.abc import Iterator
from typing import Any, Final, cast

from ...common.errors import ConfigError, JsonError
from ...common.json.javajson import read_json
from .config_files import load_config_text
from .files import Files

_MARK: Final = "CURRENT"  # the file that every RocksDB directory has
_ROCKSDB_CONFIGS: Final = ("topics", "subscriptionGroups", "consumerOffsets", "rdb")
_POLICY: Final = "cleanup.policy"
_COMPACTION: Final = "COMPACTION"


def refuse_foreign(files: Files, root: str) -> None:
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
