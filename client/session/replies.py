"""Replies: the message that answers a request, and the replies that requesters wait for.

A request is a message with three more properties; a reply carries them back (``MessageUtil.createReplyMessage``,
``ClientRemotingProcessor.receiveReplyMessage``).

    CORRELATION_ID     which request it is, a UUID
    REPLY_TO_CLIENT    the client id of the requester, whose connection the broker brings the reply on
    TTL                how long the requester waits, in milliseconds
    MSG_TYPE           ``reply``, of the reply alone: it is sent by SEND_REPLY_MESSAGE_V2 (325)

The reply's topic is that of the broker's cluster; the broker names the cluster in each message. A reply that nobody
waits for any more is taken and dropped: its sender cannot do anything about it.
"""

import asyncio
import logging

from ...common.clock import Clock
from ...common.compression import inflate
from ...common.errors import ConfigError, DecodeError
from ...common.message import Message, MessageQueue, ReceivedMessage, split_keys
from ...common.names import reply_topic
from ...common.properties import (
    ARRIVE_TIME,
    CLUSTER,
    CORRELATION_ID,
    KEYS,
    MSG_TYPE,
    REPLY_TO_CLIENT,
    TAGS,
    TTL,
    UNIQ_KEY,
    parse_properties,
)
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.headers.message import ReplyPushHeader
from ...remoting.transport.addresses import Address
from ...remoting.transport.connection import Connection

log = logging.getLogger(__name__)

REPLY_TYPE = "reply"
_NO_BROKER = ""  # a reply comes from no queue


def reply_to(request: ReceivedMessage, body: bytes) -> Message:
    """Return the message that answers a request; any producer sends it.

        async def answer(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                await producer.send(reply_to(message, b"42"))

    A requester that is gone makes the send fail with ``ResponseError`` 1.

    Raises:
        TypeError: it is not a received message.
        ValueError: the message is no request, or came from no broker.
    """
    if not isinstance(request, ReceivedMessage):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"reply_to takes a ReceivedMessage, not {type(request).__name__}")
    properties = {MSG_TYPE: REPLY_TYPE}
    for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL):
        if name in request.properties:
            properties[name] = request.properties[name]
    if CORRELATION_ID not in properties or REPLY_TO_CLIENT not in properties:
        raise ValueError(f"message {request.message_id} waits for no reply: it has no {CORRELATION_ID} of a request")
    if CLUSTER not in request.properties:
        raise ValueError(f"message {request.message_id} cannot be replied to: no broker has put {CLUSTER} into it")
    return Message(reply_topic(request.properties[CLUSTER]), body, properties=properties)


class AwaitedReplies:
    """The replies that the requesters of one client id wait for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._awaited: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __repr__(self) -> str:
        return f"<AwaitedReplies {len(self._awaited)}>"

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
            log.warning("dropping reply %s: no request waits for it, or it timed out", properties.get(CORRELATION_ID))
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
        log.warning("decompressing a reply failed, delivering its body as received: %s", error)
        return body


def _parse_host(text: str) -> Address:
    """Read ``host:port`` or Java's ``name/host:port``."""
    host, _, port = text.rpartition("/")[2].rpartition(":")
    return host, int(port) if port.isdecimal() else 0
