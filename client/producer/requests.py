"""Requests: messages whose senders wait for a reply (``DefaultMQProducerImpl.request``).

    the send fails                 its error, at once
    nobody replies in time         ``ReplyTimeoutError``
    the producer closes            ``ClientStateError``

Time runs for the send and the reply together. Before the first request to a topic all its brokers are told who we
are: the reply may come from any of them.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ...common.errors import ClientStateError, RemotingError, ReplyTimeoutError
from ...common.message import Message, ReceivedMessage
from ...common.properties import CORRELATION_ID, REPLY_TO_CLIENT, TTL
from ..session.session import Session

Find = Callable[[str], Awaitable[object]]
"""Looks up the queues of a topic."""
SendWithin = Callable[[Message, int], Awaitable[object]]
"""Sends a message within some milliseconds."""


class Requests:
    """The requests of one producer."""

    def __init__(self, session: Session, find: Find) -> None:
        self._session = session
        self._find = find
        self._topics: set[str] = set()
        self._waiting: set[asyncio.Future[ReceivedMessage]] = set()

    def __repr__(self) -> str:
        return f"<Requests {len(self._waiting)} waiting>"

    async def ask(self, message: Message, send: SendWithin, timeout_ms: int, deadline_ms: int) -> ReceivedMessage:
        """Send a message and return the reply, within a time that ends at an instant.

        Raises:
            ReplyTimeoutError: the message was sent, and no reply came in time.
            ClientStateError: the producer was closed before.
        """
        session, correlation_id = self._session, str(uuid.uuid4())
        about = {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: session.client_id, TTL: str(timeout_ms)}
        marked = replace(message, properties={**message.properties, **about})
        reply = session.replies.expect(correlation_id)
        self._waiting.add(reply)
        try:
            await self._introduce(message.topic, timeout_ms)
            await self._send(marked, send, reply, self._left_ms(deadline_ms))
            async with session.clock.timeout(self._left_ms(deadline_ms)):
                return await reply
        except TimeoutError:
            raise ReplyTimeoutError(f"no reply to a request to {message.topic} in {timeout_ms} ms") from None
        finally:
            self._waiting.discard(reply)
            session.replies.forget(correlation_id)
            if not reply.cancel() and not reply.cancelled():
                reply.exception()  # what nobody has waited for in the end is not to be reported as lost

    def close(self) -> None:
        """Let those who wait go: no reply can come any more."""
        for reply in self._waiting:
            if not reply.done():
                reply.set_exception(ClientStateError("the producer was closed before the reply came"))

    async def _introduce(self, topic: str, timeout_ms: int) -> None:
        """Be known to the brokers of a topic before the first request to it."""
        if topic in self._topics:
            return
        try:
            async with self._session.clock.timeout(timeout_ms):
                await self._find(topic)
                await self._session.heartbeat()
        except TimeoutError:
            return  # the send finds out what is slow, and says so
        self._topics.add(topic)

    async def _send(
        self, message: Message, send: SendWithin, reply: asyncio.Future[ReceivedMessage], timeout_ms: int
    ) -> None:
        try:
            await send(message, timeout_ms)
        except RemotingError:
            if not reply.done():  # a reply is proof enough
                raise

    def _left_ms(self, deadline_ms: int) -> int:
        return max(1, deadline_ms - self._session.clock.monotonic_ms())
