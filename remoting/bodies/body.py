"""Bodies: structs on our side, JSON in Java's dialect on the wire (``spec/remoting.md`` §5).

    route     103 to 106, 206, 322, 901                what name servers are told, and tell
    client    34, 38, 41, 42, 46, 203, 221, 222, 307   clients and groups
    replication  21, 907                               what slaves ask for

What brokers keep of topics and groups (21, 201, 351, 352) is in ``common/metadata.py``.

A body is a ``msgspec.Struct`` with ``rename="camel"``. What is ``None`` is not written; keys are sorted, nothing is
blank. Reading takes whatever Java, Go or Node clients send (``common/java_json.py``).
"""

from typing import TypeVar

from ...common.java_json import read_json_as, write_json
from ..codec.command import ANSWER_SLOW_BYTES, SLOW_BYTES, Command
from ..codec.request_codes import reads_strict_json

T = TypeVar("T")
_NOTHING = (b"", b"null")


def decode_body(kind: type[T], body: bytes, *, slow_bytes: int | None = SLOW_BYTES) -> T:
    """Return the value of a body.

    Raises:
        JsonError: the body is empty, no JSON, something else than ``kind``, or too long to be read leniently.
    """
    return read_json_as(body, kind, slow_bytes=slow_bytes)


def decode_answer(kind: type[T], body: bytes) -> T:
    """Return the value of the body that a server sent: a client trusts it with more of the slow reading.

    Raises:
        JsonError: as ``decode_body``.
    """
    return decode_body(kind, body, slow_bytes=ANSWER_SLOW_BYTES)


def decode_body_if_any(kind: type[T], body: bytes) -> T | None:
    """Return the value of a body, ``None`` when there is none or it says so.

    Raises:
        JsonError: the body is no JSON, something else than ``kind``, or too long to be read leniently.
    """
    return None if body in _NOTHING else read_json_as(body, kind, slow_bytes=SLOW_BYTES)


def encode_body(value: object) -> bytes:
    """Return the body that holds a value, as strict JSON but for queues as keys."""
    return write_json(value)


def encode_body_for(request: Command, value: object, *, accepts_strict: bool | None) -> bytes:
    """Return a body with integer keys as the requester reads them.

    From 4.9.4 on, or with ``acceptStandardJsonOnly``, keys are quoted and whatever is not ASCII is escaped; others get
    bare keys. Upstream ``ClientRequestProcessor.getRouteInfoByTopic``.
    """
    if reads_strict_json(request.version) or accepts_strict:
        return _escape(write_json(value))
    return write_json(value, quotes_integer_keys=False)


def _escape(text: bytes) -> bytes:
    if text.isascii():
        return text
    units = text.decode().encode("utf-16-be")
    return b"".join(
        b"\\u%02x%02x" % (high, low) if high or low > 126 else bytes((low,))
        for high, low in zip(units[::2], units[1::2], strict=True)
    )
