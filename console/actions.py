"""What the forms do, each a POST that ends at a page which says what has become of it.

/topics/T/send                   one message
/groups/G/reset                  begin at the start, at the end or at an instant, in one topic
/groups/G/dead-letters/resend    the dead letters that are chosen, to that group alone
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ..client import Admin, Message, Producer
from ..common.names import dlq_topic
from .access import Access
from .message_view import parse_instant
from .rendering import Rendering

_PLACES: Final = ("begin", "end", "time")


class Actions:
    """Answers forms."""

    def __init__(self, admin: Admin, producer: Producer, access: Access, rendering: Rendering) -> None:
        self._admin = admin
        self._producer = producer
        self._read = access.read_form
        self._go = rendering.go

    async def send(self, request: Request) -> Response:
        """Send a message."""
        form, topic = await self._read(request), request.path_params["name"]
        message = Message(
            topic,
            form.get("body", "").replace("\r\n", "\n").encode(),
            tags=form.get("tags", "").strip() or None,
            keys=form.get("keys", "").split(),
            properties=_parse_properties(form.get("properties", "")),
            delay_ms=_parse_delay(form.get("delay", "")),
        )
        sent = await self._producer.send(message)
        note = f"Message {sent.message_id} is stored: {sent.queue} offset {sent.queue_offset}."
        return self._go(request.url.path.removesuffix("/send"), note)

    async def reset(self, request: Request) -> Response:
        """Have a group begin elsewhere in a topic."""
        form, group = await self._read(request), request.path_params["name"]
        topic, place = form.get("topic", "").strip(), form.get("place", "")
        if not topic or place not in _PLACES:
            raise ValueError("say in which topic the group shall begin, and where")
        if place == "begin":
            offsets = await self._admin.reset_to_begin(group, topic)
        elif place == "end":
            offsets = await self._admin.reset_to_end(group, topic)
        else:
            at_ms = parse_instant(form.get("time", ""))
            if at_ms is None:
                raise ValueError("say at which time the group shall begin")
            offsets = await self._admin.reset_to_time(group, topic, at_ms)
        note = f"Group {group} goes on in {len(offsets)} queues of {topic} from there."
        return self._go(request.url.path.removesuffix("/reset"), note)

    async def resend(self, request: Request) -> Response:
        """Send dead letters to the group that has given them up; a field is the offset id of one."""
        form, group = await self._read(request), request.path_params["name"]
        if not form:
            raise ValueError("choose which dead letters are sent again")
        topic = dlq_topic(group)
        for place, message_id in enumerate(form):
            letter = await self._admin.message(topic, message_id)
            if letter is None:
                raise ValueError(f"group {group} has no dead letter {message_id}; {place} others were sent again")
            await self._admin.resend(letter, group=group)
        note = f"Sent to group {group} again: {len(form)} dead letters."
        return self._go(request.url.path.removesuffix("/resend"), note)


def _parse_properties(text: str) -> dict[str, str]:
    """Return the properties that stand in lines of ``name=value``.

    Raises:
        ValueError: a line is none.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise ValueError(f"property {line.strip()!r} is not name=value")
            found[name.strip()] = value.strip()
    return found


def _parse_delay(text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"the delay is {text!r}, it must be a number of seconds")
    return int(text) * 1000
