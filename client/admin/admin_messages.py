"""Stored messages, by id, by key and by time (requests 33, 12, 29, 11).

message            the unique key that the producer gave it, or the offset id that names its place in a broker's log
messages_by_key    one of the ``keys`` it was sent with; brokers index hashes, so keys are compared here
messages           everything that was stored in a span of time, queue by queue
"""

from collections.abc import AsyncIterator

from ...common.errors import DecodeError
from ...common.ids import decode_host, parse_offset_id
from ...common.message import MessageQueue, ReceivedMessage
from ...common.properties import UNIQ_KEY
from ...common.record import decode_message, iter_records
from ...common.subscription import ALL
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command
from ...remoting.headers.pull import QueryMessageHeader, ViewMessageHeader
from ...remoting.transport.addresses import format_address
from ..consumer.single_pull import PullStatus, SinglePull, pull_once
from ..group.subscriptions import Sql
from .admin_calls import AdminCalls

MAX_MS = (1 << 63) - 1
UNIQUE_KEY_MESSAGES = 32
READ_MESSAGES = 32
READER_GROUP = "TOOLS_CONSUMER"  # Java's TOOLS_CONSUMER_GROUP


class MessageAdmin(AdminCalls):
    """Messages."""

    async def message(self, topic: str, message_id: str) -> ReceivedMessage | None:
        """Return a message by its unique key or its offset id, or None when it is not there.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        brokers = await self._masters_of_topic(topic)
        viewed = await self._view(brokers, topic, message_id)
        if viewed is not None:
            return viewed
        found = await self._query(
            brokers,
            QueryMessageHeader(
                topic=topic,
                key=message_id,
                max_messages=UNIQUE_KEY_MESSAGES,
                begin_ms=0,
                end_ms=MAX_MS,
                is_unique_key=True,
            ),
        )
        return next((each for each in found if each.properties.get(UNIQ_KEY) == message_id), None)

    async def messages_by_key(
        self, topic: str, key: str, *, max_messages: int = 64, begin_ms: int = 0, end_ms: int = MAX_MS
    ) -> list[ReceivedMessage]:
        """Return messages with a key that were stored from an instant on and before another, in order of time.

        Raises:
            ValueError: ``max_messages`` is below 1.
            RouteNotFoundError: there is no such topic.
        """
        if max_messages < 1:
            raise ValueError(f"max_messages is {max_messages}, must be at least 1")
        header = QueryMessageHeader(
            topic=topic, key=key, max_messages=max_messages, begin_ms=begin_ms, end_ms=end_ms, is_unique_key=False
        )
        found = await self._query(await self._masters_of_topic(topic), header)  # the index has the time in seconds
        wanted = (each for each in found if begin_ms <= each.stored_at_ms < end_ms)
        return [each for each in wanted if each.topic == topic and key in each.keys][:max_messages]

    async def messages(
        self, topic: str, *, begin_ms: int = 0, end_ms: int = MAX_MS, expression: str | Sql = ALL
    ) -> AsyncIterator[ReceivedMessage]:
        """Iterate over the messages stored from an instant on and before another; what comes meanwhile is left out.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        for queue in await self._queues(topic):
            first = await self._brokers.offset_at(queue, begin_ms)
            end = await self._brokers.end_offset(queue)
            async for message in self._read(queue, first, end, expression):
                if message.stored_at_ms >= end_ms:
                    break
                if message.stored_at_ms >= begin_ms:
                    yield message

    async def _read(
        self, queue: MessageQueue, first: int, end: int, expression: str | Sql
    ) -> AsyncIterator[ReceivedMessage]:
        while first < end:
            asked = SinglePull(queue, first, expression, READ_MESSAGES, 0)
            result = await pull_once(self._brokers, READER_GROUP, asked)
            for message in result.messages:
                if message.queue_offset < end:
                    yield message
            if result.status is PullStatus.NO_NEW_MESSAGE or result.next_offset <= first:
                return
            first = result.next_offset

    async def _view(self, brokers: dict[str, str], topic: str, message_id: str) -> ReceivedMessage | None:
        """Return the message at an offset id; None when it is none, or of no broker of the topic."""
        try:
            host, log_offset = parse_offset_id(message_id)
            address = format_address(*decode_host(host))
        except DecodeError:
            return None
        for broker_name, master in brokers.items():
            if master == address:
                header = ViewMessageHeader(log_offset=log_offset, topic=topic)
                command = Command.request(RequestCode.VIEW_MESSAGE_BY_ID, header)
                answer = await self._ask_broker(address, command, [ResponseCode.SYSTEM_ERROR])
                messages = _read_records(answer, broker_name) if answer.code == ResponseCode.SUCCESS else []
                return next((each for each in messages if each.topic == topic), None)
        return None

    async def _query(self, brokers: dict[str, str], header: QueryMessageHeader) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        for broker_name, address in brokers.items():
            command = Command.request(RequestCode.QUERY_MESSAGE, header)
            answer = await self._ask_broker(address, command, [ResponseCode.QUERY_NOT_FOUND])
            if answer.code == ResponseCode.SUCCESS:
                found += _read_records(answer, broker_name)
        return sorted(found, key=lambda each: (each.stored_at_ms, each.queue, each.queue_offset))


def _read_records(answer: Command, broker_name: str) -> list[ReceivedMessage]:
    return [decode_message(record, broker_name) for record in iter_records(answer.body)]
