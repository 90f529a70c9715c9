"""Op messages: which half messages are settled (``TransactionalMessageServiceImpl``; store.md §11.3).

    topic RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag ``d``, body: queue offsets of half messages, a comma behind each

A half message that one of them names is done with: committed, rolled back, given up, or copied further on. Java writes
none for the last two; to it they are harmless, and after a crash nobody is asked twice for what was copied before.

Pure.
"""

from collections.abc import Iterable, Iterator

from ...common.names import OP_HALF_TOPIC
from ...common.properties import TAGS, WAIT, encode_properties
from ...common.record import NewRecord, Record

_TAG = "d"
_PROPERTIES = {WAIT: "true", TAGS: _TAG}
_TEXT = encode_properties(_PROPERTIES)


def op_messages(half_offsets: Iterable[int], most_bytes: int, now_ms: int, host: bytes) -> Iterator[NewRecord]:
    """Yield the messages that settle these; one ends with the offset that brings it above ``most_bytes``."""
    text = ""
    for half_offset in half_offsets:
        text += f"{half_offset},"
        if len(text) > most_bytes:
            yield _op_message(text, now_ms, host)
            text = ""
    if text:
        yield _op_message(text, now_ms, host)


def settled_offsets(op: Record) -> Iterator[int]:
    """Yield the offsets that a message names; what is no number is passed over, as is a message with another tag."""
    if op.properties.get(TAGS) != _TAG:
        return
    for word in bytes(op.body).split(b","):
        if word.isdigit():
            yield int(word)


def _op_message(text: str, now_ms: int, host: bytes) -> NewRecord:
    return NewRecord(OP_HALF_TOPIC, 0, text.encode(), _TEXT, _PROPERTIES, 0, 0, now_ms, host)
