"""What verbs are told as text: instants, positions in a topic, queues, pairs.

instant     2026-01-31T12:00:00Z      ISO 8601, in UTC unless it names a zone
            1769860800000             milliseconds since 1970
            -10m                      so long ago; s, m, h, d; +10m is still to come
position    begin, end, an instant as above with @ before bare milliseconds, or an offset
queue       3, or broker-a:3 where several brokers have the topic
pair        name=value, or OLD=NEW for topics
"""

import datetime
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.topic_tail import Position
    from ...common.message import MessageQueue

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN: Final = re.compile(r"([+-])(\d{1,9})([smhd])")
_LONGEST_DIGITS: Final = 15
_OFFSET_DIGITS: Final = 18
_QUEUE_DIGITS: Final = 9
_HINT: Final = "ISO 8601, milliseconds since 1970, or a span such as -10m"


def parse_instant(text: str) -> int:
    """Return milliseconds since 1970.

    Raises:
        ValueError: it is no instant.
    """
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_DIGITS:
        return int(text)
    if span := _SPAN.fullmatch(text):
        sign, count, unit = span.groups()
        return max(0, time.time_ns() // 1_000_000 + int(sign + count) * _UNITS_MS[unit])
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: {_HINT}") from None
    at_ms = round((at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp() * 1000)
    if at_ms < 0:
        raise ValueError(f"{text!r} is before 1970")
    return at_ms


def instant(_ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Parse an option that is an instant."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error


class PositionText(NamedTuple):
    """A position that was parsed without the client: ``kind`` is one of those of ``PositionKind``."""

    kind: str
    value: int

    def __str__(self) -> str:
        match self.kind:
            case "offset":
                return f"offset {self.value}"
            case "time":
                return f"time {format_instant(self.value)}"
            case _:
                return self.kind

    def position(self) -> "Position":
        """Return it as the client takes it."""
        from ...client.admin.topic_tail import Position, PositionKind

        return Position(PositionKind(self.kind), self.value)


def position(_ctx: click.Context, param: click.Parameter, text: str | None) -> PositionText | None:
    """Parse an option that is a place in the queues of a topic."""
    if text is None:
        return None
    if text in {"begin", "end"}:
        return PositionText(text, 0)
    if text.isascii() and text.isdigit() and len(text) <= _OFFSET_DIGITS:
        return PositionText("offset", int(text))
    try:
        return PositionText("time", parse_instant(text.removeprefix("@")))
    except ValueError as error:
        hint = "begin, end, an offset, @MILLISECONDS, ISO 8601 or -10m"
        raise click.BadParameter(f"{text!r} is no position: {hint}", param=param) from error


def format_instant(at_ms: int) -> str:
    """Return an instant as ISO 8601 in UTC, and nothing for 0, which brokers say for never."""
    if at_ms <= 0:
        return ""
    try:
        at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def split_pairs(_ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """Return ``name=value`` texts as a mapping; of equal names the last one counts."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not name=value", param=param)
        pairs[name] = value
    return pairs


def topic_map(_ctx: click.Context, _param: click.Parameter, pairs: Sequence[str]) -> dict[str, str]:
    """Return ``OLD=NEW`` texts as a mapping of topics; a topic has one new name."""
    renamed: dict[str, str] = {}
    for pair in pairs:
        old, equals, new = (part.strip() for part in pair.partition("="))
        if not old or not equals or not new:
            raise click.BadParameter(f"{pair!r} is not OLD=NEW")
        if renamed.setdefault(old, new) != new:
            raise click.BadParameter(f"{old} is to be both {renamed[old]} and {new}")
    return renamed


class QueueName(NamedTuple):
    """A queue as the user names it; the broker may be left out."""

    broker: str | None
    queue_id: int


def queue(_ctx: click.Context, param: click.Parameter, text: str | None) -> QueueName | None:
    """Parse an option that is a queue."""
    return None if text is None else _parse_queue(param, text)


def queues(_ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> tuple[QueueName, ...]:
    """Parse a repeatable option that is a queue."""
    return tuple(_parse_queue(param, text) for text in texts)


def _parse_queue(param: click.Parameter, text: str) -> QueueName:
    broker, _, number = text.rpartition(":")
    if not (number.isascii() and number.isdigit() and len(number) <= _QUEUE_DIGITS):
        raise click.BadParameter(f"{text!r} is no queue: a number, or BROKER:NUMBER", param=param)
    return QueueName(broker or None, int(number))


async def find_queue(admin: "Admin", topic: str, name: QueueName) -> "MessageQueue":
    """Return the queue that is meant.

    Raises:
        RouteNotFoundError: there is no such topic.
        ValueError: no broker has it, or several have.
    """
    same = [each for each in await admin.queues(topic) if each.queue_id == name.queue_id]
    found = [each for each in same if name.broker in (None, each.broker_name)]
    if not found:
        where = f" at {name.broker}" if name.broker else ""
        raise ValueError(f"topic {topic} has no queue {name.queue_id}{where}")
    if len(found) > 1:
        brokers = ", ".join(each.broker_name for each in found)
        raise ValueError(f"queue {name.queue_id} of topic {topic} is at {brokers}: name it as {found[0].broker_name}:N")
    return found[0]
