"""The pages, each a GET that changes nothing.

/                                       clusters and brokers
/topics  /topics/T                      lists and single things
/topics/T/messages                      messages of a span of time, of a key, of an id, or at an offset
/topics/T/messages/ID                   one message: body, properties, who consumed it
/groups  /groups/G  /groups/G/dead-letters
/brokers/NAME                           figures of a broker
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ..client import Admin, MessageQueue, ReceivedMessage, RocketletError, RouteNotFoundError, Sql
from ..common.names import dlq_topic
from .message_view import parse_instant, view_message
from .overview import KINDS, Overview
from .rendering import Rendering

MOST_MESSAGES: Final = 100


class Pages:
    """Answers requests for pages."""

    def __init__(self, admin: Admin, rendering: Rendering) -> None:
        self._admin = admin
        self._overview = Overview(admin)
        self._show = rendering.show

    async def brokers(self, request: Request) -> Response:
        """Show the clusters."""
        return self._show(request, "brokers.html", rows=await self._overview.brokers())

    async def broker(self, request: Request) -> Response:
        """Show the figures of a broker."""
        name = request.path_params["name"]
        figures = await self._admin.figures(name)
        return self._show(request, "broker.html", name=name, figures=sorted(figures.items()))

    async def topics(self, request: Request) -> Response:
        """List topics."""
        search, kind, number = _search(request), request.query_params.get("kind", KINDS[0]), _number(request, "page", 1)
        kind = kind if kind in KINDS else KINDS[0]
        page = await self._overview.topics(search, kind, number)
        return self._show(request, "topics.html", page=page, search=search, kind=kind, kinds=KINDS)

    async def topic(self, request: Request) -> Response:
        """Show a topic."""
        return self._show(request, "topic.html", topic=await self._overview.topic(request.path_params["name"]))

    async def messages(self, request: Request) -> Response:
        """Show the messages of a topic that a search finds, the newest first."""
        name, asked = request.path_params["name"], dict(request.query_params)
        found = [view_message(each) for each in await self._find(name, request)]
        is_cut = len(found) >= MOST_MESSAGES
        return self._show(request, "messages.html", name=name, asked=asked, messages=found, is_cut=is_cut)

    async def message(self, request: Request) -> Response:
        """Show one message."""
        name, message_id = request.path_params["name"], request.path_params["message_id"]
        message = await self._admin.message(name, message_id)
        if message is None:
            return self._show(request, "missing.html", 404, what=f"There is no message {message_id} in {name}.")
        tracks, problem = await self._tracks(message)
        return self._show(
            request, "message.html", name=name, view=view_message(message), tracks=tracks, problem=problem
        )

    async def _tracks(self, message: ReceivedMessage) -> tuple[list[tuple[str, str]], str]:
        """Return what each group has done with a message, or why that is not known."""
        try:
            found = await self._admin.tracks(message)
        except RocketletError as error:
            return [], str(error)
        return [(group, str(track).lower().replace("_", " ")) for group, track in found.items()], ""

    async def groups(self, request: Request) -> Response:
        """List groups."""
        search, number = _search(request), _number(request, "page", 1)
        return self._show(request, "groups.html", page=await self._overview.groups(search, number), search=search)

    async def group(self, request: Request) -> Response:
        """Show a group."""
        return self._show(request, "group.html", group=await self._overview.group(request.path_params["name"]))

    async def dead_letters(self, request: Request) -> Response:
        """Show the dead letters of a group."""
        name = request.path_params["name"]
        topic = dlq_topic(name)
        try:
            found = [view_message(each) for each in await self._newest(topic, 0, None, "*")]
        except RouteNotFoundError:
            found = []
        return self._show(request, "dead-letters.html", name=name, topic=topic, messages=found)

    async def _find(self, topic: str, request: Request) -> list[ReceivedMessage]:
        asked = request.query_params
        if message_id := asked.get("id", "").strip():
            found = await self._admin.message(topic, message_id)
            return [] if found is None else [found]
        begin_ms, end_ms = parse_instant(asked.get("from", "")), parse_instant(asked.get("until", ""))
        if key := asked.get("key", "").strip():
            span = {"begin_ms": begin_ms or 0} | ({} if end_ms is None else {"end_ms": end_ms})
            by_key = await self._admin.messages_by_key(topic, key, max_messages=MOST_MESSAGES, **span)
            return by_key[::-1]
        if asked.get("offset", "").strip():
            return await self._at_offset(topic, request)
        if sql := asked.get("sql", "").strip():
            return await self._newest(topic, begin_ms, end_ms, Sql(sql))
        return await self._newest(topic, begin_ms, end_ms, asked.get("tags", "").strip() or "*")

    async def _at_offset(self, topic: str, request: Request) -> list[ReceivedMessage]:
        queue = MessageQueue(topic, request.query_params.get("broker", "").strip(), _number(request, "queue", 0))
        found = await self._admin.message_at(queue, _number(request, "offset", 0))
        return [] if found is None else [found]

    async def _newest(
        self, topic: str, begin_ms: int | None, end_ms: int | None, expression: str | Sql
    ) -> list[ReceivedMessage]:
        span = {"begin_ms": begin_ms or 0} | ({} if end_ms is None else {"end_ms": end_ms})
        return await self._admin.newest(topic, count=MOST_MESSAGES, expression=expression, **span)


def _search(request: Request) -> str:
    return request.query_params.get("search", "").strip()


def _number(request: Request, name: str, default: int) -> int:
    """Return a number of the address.

    Raises:
        ValueError: it is none.
    """
    text = request.query_params.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} is {text!r}, it must be a number")
    return int(text)
