"""Messages by key (``DefaultMessageStore.queryMessage``; store.md §4.4).

Collisions of the hash are returned as they are, in ascending order of log offsets: the client compares topic and key.
Records that have left the log are left out. (Java asks the index up to three times then, with the same result.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .key_index import Index

KeyKind = Literal["K", "U", "T"]
"""What a query's key is (``indexType``): a word of KEYS, a unique key, or a tag."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """How many records at most, stored between which times (whole seconds, rounded down)."""

    max_count: int
    begin_ms: int
    end_ms: int


@dataclass(slots=True)
class QueryResult:
    """Records that may hold the key, and the newest record that the index knows."""

    log_offsets: list[int]
    records: list[memoryview]
    last_log_offset: int = 0
    last_at_ms: int = 0


def query(index: Index, key_text: str, wanted: KeyRange, record_at: Callable[[int], memoryview | None]) -> QueryResult:
    """Look a key text (``topic#key``, ``topic#T#tags``) up and fetch the records (raises ``OSError``)."""
    found = index.find(key_text, wanted.max_count, wanted.begin_ms, wanted.end_ms)
    result = QueryResult([], [], found.last_log_offset, found.last_at_ms)
    for log_offset in found.log_offsets:
        record = record_at(log_offset)
        if record is not None:
            result.log_offsets.append(log_offset)
            result.records.append(record)
    return result
