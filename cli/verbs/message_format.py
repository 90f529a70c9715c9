r"""How ``message tail`` writes a message: a readable line, a line of JSON, or what a format says.

    {topic} {broker} {queue} {offset} {id} {offset_id} {tags} {keys} {size} {attempt} {born} {stored} {stored_ms} {body}
    {property:NAME}      a property; nothing where the message has none
    {{ }}                braces
    \n \t \r \0 \\       as in C; nothing is added behind a message

A format leaves the body as it is, byte by byte; the readable line escapes what would break the line.
"""

import json
import string
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from .arguments import format_instant
from .output import harmless, message_row

if TYPE_CHECKING:
    from ...common.message import ReceivedMessage

Writer = Callable[["ReceivedMessage"], bytes]
_PROPERTY: Final = "property"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_FIELDS: Final[Mapping[str, "Callable[[ReceivedMessage], object]"]] = {
    "topic": lambda message: message.topic,
    "broker": lambda message: message.queue.broker_name,
    "queue": lambda message: message.queue.queue_id,
    "offset": lambda message: message.queue_offset,
    "id": lambda message: message.message_id,
    "offset_id": lambda message: message.offset_message_id,
    "tags": lambda message: message.tags or "",
    "keys": lambda message: " ".join(message.keys),
    "size": lambda message: len(message.body),
    "attempt": lambda message: message.reconsume_times + 1,
    "born": lambda message: format_instant(message.born_at_ms),
    "stored": lambda message: format_instant(message.stored_at_ms),
    "stored_ms": lambda message: message.stored_at_ms,
}


def write_readable(message: "ReceivedMessage") -> bytes:
    """Return a line with time, place, tag, keys and body."""
    words = [format_instant(message.stored_at_ms)]
    words.append(f"{message.queue.broker_name}:{message.queue.queue_id}@{message.queue_offset}")
    if message.tags:
        words.append(f"[{message.tags}]")
    words += message.keys
    words.append(message.body.decode(errors="replace"))
    return harmless(" ".join(words), keeps="").encode() + b"\n"


def write_json(message: "ReceivedMessage") -> bytes:
    """Return a line of JSON."""
    return json.dumps(message_row(message), ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def parse_format(text: str) -> Writer:
    """Return what writes messages so.

    Raises:
        ValueError: a field that no message has, or braces that do not match.
    """
    parts: list[Writer] = []
    for literal, field, spec, conversion in string.Formatter().parse(text):
        if literal:
            parts.append(_constant(_unescape(literal)))
        if field is not None:
            parts.append(_field(field, spec or "", conversion))
    return lambda message: b"".join([part(message) for part in parts])


def _constant(text: str) -> Writer:
    data = text.encode()
    return lambda _: data


def _field(name: str, spec: str, conversion: str | None) -> Writer:
    if conversion is None and name == "body" and not spec:
        return lambda message: message.body
    if conversion is None and name == _PROPERTY and spec:
        return lambda message: message.properties.get(spec, "").encode(errors="replace")
    find = _FIELDS.get(name)
    if find is None or spec or conversion is not None:
        known = ", ".join([*_FIELDS, "body", "property:NAME"])
        raise ValueError(f"the format has no field {{{name}{spec and f':{spec}'}}}; there are {known}")
    return lambda message: str(find(message)).encode(errors="replace")


def _unescape(text: str) -> str:
    pieces = text.split("\\")
    result = [pieces[0]]
    rest = iter(pieces[1:])
    for piece in rest:
        if piece:
            result.append(_ESCAPES.get(piece[0], "\\" + piece[0]) + piece[1:])
        else:  # two backslashes in a row
            result.append("\\" + next(rest, ""))
    return "".join(result)
