"""Options of the data source, as Spark hands them over: lower-case names, text values.

    path | paths            store directories: load("A"), load(["A", "B"]), or "A,B" where no directory has that name;
                            in paths, a JSON list, an item "LOG,LOG" is one log that lies in several directories
    topics                  only these, separated by commas
    startingTimestamp       only messages stored at this time or later; epoch milliseconds or ISO 8601 (UTC)
    endingTimestamp         only messages stored before this time
    includeSystemTopics     true: system, retry and dead-letter topics too (``export.selection``)
    verifyBodyCrc           false: do not verify the checksums of bodies
    readUpToDamage          true: of a damaged store, the messages before the damage, instead of a failed job
    mappedFileSizeCommitLog, … (the size keys of Java's ``MessageStoreConfig``) as the store was written with; the
                            size of the commit log's files is otherwise found from the first of them

Rule: an unknown name is an error that names the nearest known one, since a misspelt filter would change the result.
"""

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..common.errors import ConfigError
from ..export.instant import parse_instant
from ..export.selection import Selection
from ..store.config import SEGMENT_KEY

SIZE_KEYS: Final = (
    SEGMENT_KEY,
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "mapperFileSizeBatchConsumeQueue",
    "mappedFileSizeTimerLog",
    "maxHashSlotNum",
    "maxIndexNum",
)
NAMES: Final = (
    "path",
    "paths",
    "topics",
    "startingTimestamp",
    "endingTimestamp",
    "includeSystemTopics",
    "verifyBodyCrc",
    "readUpToDamage",
    *SIZE_KEYS,
)
_FILE_SCHEME: Final = "file:"


@dataclass(frozen=True)
class SourceOptions:
    """What a reading was asked for."""

    stores: tuple[str, ...]
    selection: Selection
    verifies_crc: bool
    segment_bytes: int | None
    reads_up_to_damage: bool = False


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options.

    Raises:
        ConfigError: An unknown name, a value that cannot be used, or no store.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    sizes = {name: _parse_size(name, given[name.lower()]) for name in SIZE_KEYS if name.lower() in given}
    starting, ending = (_parse_time(given, name) for name in ("startingTimestamp", "endingTimestamp"))
    if starting is not None and ending is not None and starting >= ending:
        raise ConfigError(f"startingTimestamp {starting} is not before endingTimestamp {ending}", key="endingTimestamp")
    selection = Selection(
        topics=frozenset(filter(None, (topic.strip() for topic in given.get("topics", "").split(",")))),
        from_ms=starting,
        until_ms=ending,
        includes_system=_parse_flag(given, "includeSystemTopics", default=False),
    )
    verifies_crc = _parse_flag(given, "verifyBodyCrc", default=True)
    reads_up_to_damage = _parse_flag(given, "readUpToDamage", default=False)
    return SourceOptions(_parse_stores(given), selection, verifies_crc, sizes.get(SEGMENT_KEY), reads_up_to_damage)


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name not in known:
            nearest = known[difflib.get_close_matches(name, known, n=1, cutoff=0)[0]]
            raise ConfigError(f"the rocketmq source has no option {name}; did you mean {nearest}?", key=name)


def _parse_stores(given: Mapping[str, str]) -> tuple[str, ...]:
    paths: list[str] = json.loads(given.get("paths", "[]"))
    path = _local(given["path"]) if "path" in given else ""
    if "," in path and not os.path.exists(path):
        paths += path.split(",")
    elif path:
        paths.append(path)
    stores = tuple(filter(None, (_local(path.strip()) for path in paths)))
    if not stores:
        raise ConfigError('no store is named: load("STORE") or load(["STORE", …])', key="path")
    return stores


def _local(path: str) -> str:
    if path.startswith(_FILE_SCHEME):
        path = path.removeprefix(_FILE_SCHEME)
        return "/" + path.lstrip("/")
    if "://" in path:
        raise ConfigError(f"store {path} is not a local path; only those and file: are read", key="path")
    return path


def _parse_time(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    return None if text is None else parse_instant(text, name)


def _parse_flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} is {text!r}, neither true nor false", key=name)
    return text == "true"


def _parse_size(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) == 0:
        raise ConfigError(f"{name} is {text!r}, not a positive number", key=name)
    return int(text)
