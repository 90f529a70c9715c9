"""Messages as people read them: times, and bodies as JSON, text or bytes.

body                          shown
UTF-8 that is JSON            indented, as the document says it: numbers keep their digits
other UTF-8 without controls  as it is
anything else                 a dump, 16 bytes in a line
"""

import json
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, cast

from ..client import ReceivedMessage

MOST_SHOWN_BYTES: Final = 64 << 10
_LINE_BYTES: Final = 16
_LAYOUT: Final = frozenset("\t\n\r")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_MS: Final = 253_402_300_799_999  # the last one of the year 9999


class BodyView(NamedTuple):
    """A body to be read; ``is_cut`` when not all of it is shown."""

    kind: str
    text: str
    is_cut: bool


class MessageView(NamedTuple):
    """What a page shows of a message beside its fields."""

    message: ReceivedMessage
    body: BodyView

    @property
    def summary(self) -> str:
        """The beginning of the body in one line."""
        line = " ".join(self.body.text.split())
        return line if len(line) <= 120 else f"{line[:119]}…"

    @property
    def properties(self) -> list[tuple[str, str]]:
        """The properties by name."""
        return sorted(self.message.properties.items())


def view_message(message: ReceivedMessage) -> MessageView:
    """Return a message as a page shows it."""
    return MessageView(message, view_body(message.body))


def view_body(body: bytes) -> BodyView:
    """Return a body as text."""
    shown, is_cut = body[:MOST_SHOWN_BYTES], len(body) > MOST_SHOWN_BYTES
    text = _readable(shown, is_cut=is_cut)
    if text is None:
        return BodyView("bytes", "\n".join(_dump(shown)), is_cut)
    if not is_cut and (indented := _indent(text)) is not None:
        return BodyView("JSON", indented, is_cut)
    return BodyView("text", text, is_cut)


def format_ms(at_ms: int) -> str:
    """Return an instant in UTC with milliseconds; nothing for none."""
    if not 0 < at_ms <= _MAX_MS:
        return ""
    at = _EPOCH + timedelta(milliseconds=at_ms)
    return at.isoformat(" ", "milliseconds").removesuffix("+00:00")


def parse_instant(text: str) -> int | None:
    """Return the milliseconds of an ISO time, in UTC unless it says otherwise, or of a plain number of them.

    Raises:
        ValueError: it is neither.
    """
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 2026-01-31 12:00:00 or milliseconds since 1970") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _readable(data: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 without control characters; a cut one may end within a character."""
    for end in range(len(data), max(len(data) - 4 * is_cut, 0) - 1, -1):
        try:
            text = data[:end].decode()
        except UnicodeDecodeError:
            if not is_cut:
                return None
        else:
            hidden = any(unicodedata.category(each) == "Cc" and each not in _LAYOUT for each in set(text))
            return None if hidden else text
    return None


def _indent(text: str) -> str | None:
    """Return a JSON object or list with a line for each member."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        found = json.loads(
            text, parse_float=_Digits, parse_int=_Digits, parse_constant=_refuse, object_pairs_hook=_Pairs
        )
        return _format(found, "")
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


class _Digits(str):
    """A number as it is written."""

    __slots__ = ()


class _Pairs(list[tuple[str, object]]):
    """An object, also one that names a member twice."""


def _format(value: object, margin: str) -> str:
    inner = f"{margin}  "
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, _Pairs):
        lines = [f"{inner}{json.dumps(name, ensure_ascii=False)}: {_format(each, inner)}" for name, each in value]
        return _enclose("{", lines, "}", margin)
    if isinstance(value, list):
        values = cast("list[object]", value)
        return _enclose("[", [f"{inner}{_format(each, inner)}" for each in values], "]", margin)
    return json.dumps(value, ensure_ascii=False)


def _enclose(begin: str, lines: list[str], end: str, margin: str) -> str:
    body = ",\n".join(lines)
    return f"{begin}\n{body}\n{margin}{end}" if lines else begin + end


def _dump(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _LINE_BYTES):
        line = data[start : start + _LINE_BYTES]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        yield f"{start:08x}  {line.hex(' '):<{3 * _LINE_BYTES - 1}}  {letters}"
