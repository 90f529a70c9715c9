"""Records of the message trace, as Java's ``TraceDataEncoder`` writes and reads them.

    record            fields after its name, separated by U+0001; U+0002 ends it
    Pub               time region group topic id tags keys storeHost bodyLength costMs kind offsetId success
    SubBefore         time region group request id retries keys
    SubAfter          request id costMs success keys end time group
    EndTransaction    time region group topic id tags keys storeHost kind transactionId state fromCheck
    Recall            time region group topic id success

What there is none of is written ``null``, as Java does: its reader drops empty fields at the end of a record and then
misses them. Such a text is read as None. Older writers left out the last fields of Pub and SubAfter.
"""

import enum
import logging
from collections.abc import Iterator
from typing import Final

import msgspec

log = logging.getLogger(__name__)

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
NULL: Final = "null"


class TracedKind(enum.IntEnum):
    """What kind of message was sent (Java's ``MessageType``, whose ordinals travel)."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_END = 2
    DELAY = 3
    ORDER = 4
    PRIORITY = 5


class PubRecord(msgspec.Struct, frozen=True, tag="Pub", array_like=True):
    """A message was sent, or a batch as one."""

    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_bytes: int
    took_ms: int
    kind: TracedKind
    offset_message_id: str | None = None
    has_succeeded: bool = True


class SubBeforeRecord(msgspec.Struct, frozen=True, tag="SubBefore", array_like=True):
    """A listener is called with a message; ``request_id`` tells which ``SubAfterRecord`` belongs to it."""

    time_ms: int
    region: str | None
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str | None = None


class SubAfterRecord(msgspec.Struct, frozen=True, tag="SubAfter", array_like=True):
    """The listener has ended; ``end`` is a ``ConsumeEnd``."""

    request_id: str
    message_id: str
    took_ms: int
    has_succeeded: bool
    keys: str | None = None
    end: int = 0
    time_ms: int = 0
    group: str | None = None


class EndTransactionRecord(msgspec.Struct, frozen=True, tag="EndTransaction", array_like=True):
    """The broker was told how a transaction ended."""

    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    kind: TracedKind
    transaction_id: str | None
    state: str
    is_from_check: bool = False


class RecallRecord(msgspec.Struct, frozen=True, tag="Recall", array_like=True):
    """A message was taken back before it was due."""

    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str | None
    has_succeeded: bool


TraceRecord = PubRecord | SubBeforeRecord | SubAfterRecord | EndTransactionRecord | RecallRecord
_NAMES: Final = frozenset({"Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"})
_OLD_PUB_FIELDS: Final = 13


def encode_record(record: TraceRecord) -> str:
    """Return the text of a record."""
    return FIELD_END.join(map(_text_of, msgspec.to_builtins(record))) + RECORD_END


def keys_of(record: TraceRecord) -> list[str]:
    """Return the keys by which the record is to be found: those of the message, its id first."""
    ids = [] if record.message_id is None else record.message_id.split(",")
    return ids + ((getattr(record, "keys", None) or "").split())


def parse_records(text: str) -> Iterator[TraceRecord]:
    """Yield the records of a trace message; one that cannot be read is logged and left out."""
    for part in text.split(RECORD_END):
        fields = part.split(FIELD_END)
        if fields[0] not in _NAMES:
            continue
        if fields[0] == "Pub" and len(fields) == _OLD_PUB_FIELDS:
            fields.insert(-1, NULL)  # without the offset id
        values = [None if field == NULL else field for field in fields]
        try:
            yield msgspec.convert(values, TraceRecord, strict=False)
        except msgspec.ValidationError as error:
            log.warning("a %s record of a trace cannot be read: %s", fields[0], error)


def _text_of(value: object) -> str:
    if value is None or value == "":
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
