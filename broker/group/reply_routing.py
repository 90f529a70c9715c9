"""Those who asked and wait for a reply: found by client id, told by PUSH_REPLY_MESSAGE_TO_CLIENT(326).

A requester is a producer. It gets the reply as it was sent, with PUSH_REPLY_TIME among its properties, and has 10 s to
take it (``ReplyMessageProcessor.pushReplyMessage``, ``Broker2Client.callClient``; spec remoting.md §4.12).
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from ...common.codes import ResponseCode
from ...common.errors import FrameError, RemotingError
from ...common.ids import format_address
from ...common.properties import PUSH_REPLY_TIME, REPLY_TO_CLIENT, encode_properties
from ...remoting.codec.codes import RequestCode
from ...remoting.codec.command import Command
from ...remoting.headers.message import ReplyPushHeader
from ...remoting.headers.send import SendHeader
from ...remoting.transport.connection import Connection
from .members import Members

PUSH_LIMIT_MS = 10_000
_log = logging.getLogger(__name__)


class Recipient(NamedTuple):
    """Whom a reply goes to, with the properties that it brings; and what is said when it does not get there."""

    connection: Connection | None
    properties: dict[str, str]
    failure: str

    def __str__(self) -> str:
        host, port = self.connection.remote_address if self.connection else ("nowhere", 0)
        return f"{self.properties.get(REPLY_TO_CLIENT)} at {format_address(host, port)}"


class Requesters:
    """Finds requesters and brings them replies."""

    def __init__(
        self, members: Members[Connection], store_address: Callable[[], str], now_ms: Callable[[], int]
    ) -> None:
        self._members = members
        self._store_address = store_address
        self._now_ms = now_ms

    def find(self, properties: dict[str, str]) -> Recipient:
        """Return who waits for a reply with these properties."""
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return Recipient(None, properties, f"reply message properties[{REPLY_TO_CLIENT}] is null")
        connection = self._members.producer_link(client_id)
        if connection is None:
            return Recipient(None, properties, f"push reply message fail, channel of <{client_id}> not found.")
        stamped = {**properties, PUSH_REPLY_TIME: str(self._now_ms())}
        return Recipient(connection, stamped, f"push reply message to {client_id}fail.")

    def wrap(self, recipient: Recipient, header: SendHeader, body: bytes, born_host: str) -> Command:
        """Return the request that brings a reply, which came with this header."""
        push = ReplyPushHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_at_ms=header.born_at_ms,
            flag=header.flag,
            properties=encode_properties(recipient.properties).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=born_host,
            store_host=self._store_address(),
            stored_at_ms=self._now_ms(),
        )
        return Command.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, body)

    def bring_oneway(self, recipient: Recipient, push: Command) -> None:
        """Hand a reply over without asking whether it is taken."""
        if recipient.connection is not None:
            recipient.connection.send_oneway(push)

    async def bring(self, recipient: Recipient, push: Command) -> str | None:
        """Hand a reply over; return why it was not taken, None if it was."""
        if recipient.connection is None:
            return recipient.failure
        try:
            answer = await recipient.connection.request(push, PUSH_LIMIT_MS)
        except (RemotingError, FrameError) as error:
            _log.info("pushing a reply to client %s failed: %s", recipient, error)
            return recipient.failure
        if answer.code != ResponseCode.SUCCESS:
            text = "pushing a reply to client %s failed: it answered %d: %s"
            _log.info(text, recipient, answer.code, answer.remark)
            return recipient.failure
        return None
