"""Requests: messages whose senders wait for a reply (``DefaultMQProducerImpl.request``).

    the send fails                 its error, at once
    nobody replies in time         ``ReplyTimeoutError``
    the producer closes            ``ClientStateError``

Time runs for the send and the reply together. Before the first request to a topic all its brokers are told who we
are: the reply may come from any of them.

A request is a message with three more properties; a reply carries them back (``MessageUtil.createReplyMessage``,
``ClientRemotingProcessor.receiveReplyMessage``).

    CORRELATION_ID     which request it is, a UUID
    REPLY_TO_CLIENT    the client id of the requester, whose connection the broker brings the reply on
    TTL                how long the requester waits, in milliseconds
    MSG_TYPE           ``reply``, of the reply alone: it is sent by SEND_REPLY_MESSAGE_V2 (325)

The reply's topic is that of the broker's cluster; the broker names the cluster in each message. A reply that no request
waits for any more is taken and dropped: its sender cannot do anything about it.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from weakref import WeakSet

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.compression import inflate
from ...common.errors import ClientStateError, ConfigError, DecodeError, RemotingError, ReplyTimeoutError
from ...common.ids import Address
from ...common.message import Message, MessageQueue, ReceivedMessage, split_keys
from ...common.properties import (
    ARRIVE_TIME,
    CORRELATION_ID,
    KEYS,
    REPLY_TO_CLIENT,
    TAGS,
    TTL,
    UNIQ_KEY,
    parse_properties,
)
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.message import ReplyPushHeader
from ...remoting.transport.connection import Connection, Handler
from ..session.session import Session

_log = logging.getLogger(__name__)

_NO_BROKER = ""  # a reply comes from no queue

Find = Callable[[str], Awaitable[object]]
"""Looks up the queues of a topic."""
SendWithin = Callable[[Message, int], Awaitable[object]]
"""Sends a message within some milliseconds."""


class RequestReplies:
    """The requests of one producer."""

    def __init__(self, session: Session, find: Find) -> None:
        self._session = session
        self._find = find
        self._replies = session.feature(AwaitedReplies)
        self._topics: set[str] = set()
        self._waiting: WeakSet[asyncio.Future[ReceivedMessage]] = WeakSet()  # each is held by who waits for it

    def __repr__(self) -> str:
        return f"<RequestReplies {len(self._waiting)} waiting>"

    async def ask(self, message: Message, send: SendWithin, timeout_ms: int, deadline_ms: int) -> ReceivedMessage:
        """Send a message and return the reply, within a time that ends at an instant.

        Raises:
            ReplyTimeoutError: the message was sent, and no reply came in time.
            ClientStateError: the producer was closed before.
        """
        session, correlation_id = self._session, str(uuid.uuid4())
        about = {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: session.client_id, TTL: str(timeout_ms)}
        marked = replace(message, properties={**message.properties, **about})
        reply = self._replies.expect(correlation_id)
        self._waiting.add(reply)
        try:
            await self._introduce(message.topic, timeout_ms)
            await self._send(marked, send, reply, self._left_ms(deadline_ms))
            async with session.clock.timeout(self._left_ms(deadline_ms)):
                return await reply
        except TimeoutError:
            raise ReplyTimeoutError(f"no reply to a request to {message.topic} in {timeout_ms} ms") from None
        finally:
            self._replies.forget(correlation_id)
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


class AwaitedReplies:
    """The replies that the requesters of one client id wait for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._awaited: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __repr__(self) -> str:
        return f"<AwaitedReplies {len(self._awaited)}>"

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """What it answers: PUSH_REPLY_MESSAGE_TO_CLIENT (326)."""
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.serve}

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """Return the future that will have the reply to a request."""
        reply = self._awaited[correlation_id] = asyncio.get_running_loop().create_future()
        return reply

    def forget(self, correlation_id: str) -> None:
        """Wait for a reply no more."""
        self._awaited.pop(correlation_id, None)

    def serve(self, command: Command, _connection: Connection) -> Command:
        """Take a reply: PUSH_REPLY_MESSAGE_TO_CLIENT (326).

        Raises:
            ConfigError: a package that inflates it is missing, which its requester is told as well.
        """
        header = decode_header(ReplyPushHeader, command)
        properties = parse_properties(header.properties or "")
        awaited = self._awaited.pop(properties.get(CORRELATION_ID, ""), None)
        if awaited is None or awaited.done():
            _log.warning("dropping reply %s: no request waits for it, or it timed out", properties.get(CORRELATION_ID))
            return Command.response(ResponseCode.SUCCESS)
        properties[ARRIVE_TIME] = str(self._clock.now_ms())
        try:
            awaited.set_result(_read_reply(header, properties, command.body))
        except ConfigError as error:
            awaited.set_exception(error)
            raise
        return Command.response(ResponseCode.SUCCESS)


def _read_reply(header: ReplyPushHeader, properties: dict[str, str], body: bytes) -> ReceivedMessage:
    return ReceivedMessage(
        topic=header.topic,
        body=_inflate(body, header.sys_flag),
        tags=properties.get(TAGS),
        keys=split_keys(properties.get(KEYS)),
        properties=properties,
        flag=header.flag,
        sys_flag=header.sys_flag,
        queue=MessageQueue(header.topic, _NO_BROKER, header.queue_id),
        queue_offset=0,
        log_offset=0,
        message_id=properties.get(UNIQ_KEY, ""),
        offset_message_id="",
        born_at_ms=header.born_at_ms,
        stored_at_ms=header.stored_at_ms,
        born_host=_parse_host(header.born_host),
        store_host=_parse_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=0,
    )


def _inflate(body: bytes, sys_flag: int) -> bytes:
    """Return a body as it was given; Go's client says of long replies that they are compressed, and does not do it."""
    try:
        return inflate(body, sys_flag)
    except DecodeError as error:
        _log.warning("decompressing a reply failed, delivering its body as received: %s", error)
        return body


def _parse_host(text: str) -> Address:
    """Read ``host:port`` or Java's ``name/host:port``."""
    host, _, port = text.rpartition("/")[2].rpartition(":")
    return host, int(port) if port.isdecimal() else 0
