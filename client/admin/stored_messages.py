"""Stored messages, by id, by key and by time (requests 33, 12, 29, 11).

find_by_id     the unique key that the producer gave it, or the offset id that names its place in a broker's log
find_at        the offset in its queue
find_by_key    one of the ``keys`` it was sent with; brokers index hashes, so keys are compared here
find_newest    the last ones of a span of time, from the end of each queue backwards
read           everything that was stored in a span of time, queue by queue
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from ...common.codes import ResponseCode
from ...common.errors import DecodeError
from ...common.ids import decode_host, format_address, parse_offset_id
from ...common.message import MessageQueue, ReceivedMessage
from ...common.properties import UNIQ_KEY
from ...common.record import iter_records
from ...common.record_messages import decode_message
from ...common.subscriptions.subscription import ALL
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.pull import QueryMessageHeader, ViewMessageHeader
from ..group.broker_requests import BrokerRequests
from ..group.queue_fetcher import PullStatus, SinglePull, pull_once
from ..group.subscriptions import Sql
from ..session.routes import MASTER_ID
from ..session.session import Session
from .admin_calls import AdminCalls, readers_of

MAX_MS = (1 << 63) - 1
UNIQUE_KEY_MESSAGES = 32
READ_MESSAGES = 32
MOST_LOOKED_AT = 10_000
READER_GROUP = "TOOLS_CONSUMER"  # Java's TOOLS_CONSUMER_GROUP


class TimeSpan(NamedTuple):
    """From an instant on and before another."""

    begin_ms: int
    end_ms: int


class StoredMessages:
    """Finds and reads messages that brokers have stored."""

    def __init__(self, session: Session, calls: AdminCalls) -> None:
        self._session = session
        self._calls = calls
        self._brokers = BrokerRequests(session, timeout_ms=calls.timeout_ms)

    async def find_by_id(self, topic: str, message_id: str) -> ReceivedMessage | None:
        """Return a message by its unique key or its offset id, or None when it is not there."""
        route = await self._calls.route(topic)
        brokers = readers_of(route.brokers)
        slaves = {name: address for name, address in brokers.items() if MASTER_ID not in route.brokers[name]}
        viewed = await self._view(brokers, slaves, topic, message_id)
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

    async def find_by_key(self, topic: str, key: str, max_messages: int, span: TimeSpan) -> list[ReceivedMessage]:
        """Return messages with a key in order of time; indexes hold hashes of keys and whole seconds."""
        header = QueryMessageHeader(
            topic=topic,
            key=key,
            max_messages=max_messages,
            begin_ms=span.begin_ms,
            end_ms=span.end_ms,
            is_unique_key=False,
        )
        found = await self._query(await self._calls.readers_of_topic(topic), header)
        wanted = (each for each in found if span.begin_ms <= each.stored_at_ms < span.end_ms)
        return [each for each in wanted if each.topic == topic and key in each.keys][:max_messages]

    async def read(self, topic: str, span: TimeSpan, expression: str | Sql) -> AsyncIterator[ReceivedMessage]:
        """Iterate over the messages of a topic, queue by queue; what comes meanwhile is left out."""
        for queue in await self._calls.queues(topic):
            first = await self._brokers.offset_at(queue, span.begin_ms)
            end = await self._brokers.end_offset(queue)
            async for message in self._read_queue(queue, first, end, expression):
                if message.stored_at_ms >= span.end_ms:
                    break
                if message.stored_at_ms >= span.begin_ms:
                    yield message

    async def find_newest(self, topic: str, span: TimeSpan, expression: str | Sql, count: int) -> list[ReceivedMessage]:
        """Return the last messages of a span of time, the newest first."""
        found: list[ReceivedMessage] = []
        for queue in await self._calls.queues(topic):
            first = await self._brokers.offset_at(queue, span.begin_ms)
            found += await self._read_back(queue, first, span, expression, count)
        return sorted(found, key=lambda each: (each.stored_at_ms, each.queue, each.queue_offset), reverse=True)[:count]

    async def _read_back(
        self, queue: MessageQueue, first: int, span: TimeSpan, expression: str | Sql, count: int
    ) -> list[ReceivedMessage]:
        """Return at least so many messages from the end of a queue, if there are, in pieces that double."""
        end = await self._brokers.end_offset(queue)
        if span.end_ms < MAX_MS:
            end = min(end, await self._brokers.offset_at(queue, span.end_ms) + 1)  # it may name the last one before
        least, piece = max(first, end - MOST_LOOKED_AT), count
        found: list[ReceivedMessage] = []
        while end > least and len(found) < count:
            begin = max(least, end - piece)
            read = [each async for each in self._read_queue(queue, begin, end, expression)]
            found += [each for each in read if span.begin_ms <= each.stored_at_ms < span.end_ms]
            end, piece = begin, 2 * piece
        return found

    async def find_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage | None:
        """Return the message at an offset of a queue, or None when it is not there."""
        await self._calls.route(queue.topic)
        result = await pull_once(self._brokers, READER_GROUP, SinglePull(queue, queue_offset, ALL, 1, 0))
        found = (each for each in result.messages if each.queue_offset == queue_offset)
        message = next(found, None)
        return None if message is None else self._session.namespace.strip_message(message)

    async def _read_queue(
        self, queue: MessageQueue, first: int, end: int, expression: str | Sql
    ) -> AsyncIterator[ReceivedMessage]:
        while first < end:
            await self._session.route(queue.topic, self._calls.timeout_ms)  # it is forgotten after half a minute
            asked = SinglePull(queue, first, expression, READ_MESSAGES, 0)
            result = await pull_once(self._brokers, READER_GROUP, asked)
            for message in result.messages:
                if message.queue_offset < end:
                    yield self._session.namespace.strip_message(message)
            if result.status is PullStatus.NO_NEW_MESSAGE or result.next_offset <= first:
                return
            first = result.next_offset

    async def _view(
        self, brokers: dict[str, str], slaves: dict[str, str], topic: str, message_id: str
    ) -> ReceivedMessage | None:
        """Return the message at an offset id; None when it is none, or of no broker of the topic.

        The id names the master that took the message. Slaves whose master is gone may have it under the same id.
        """
        try:
            host, log_offset = parse_offset_id(message_id)
            address = format_address(*decode_host(host))
        except DecodeError:
            return None
        named = {name: reader for name, reader in brokers.items() if reader == address}
        command = Command.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(log_offset=log_offset, topic=topic))
        for broker_name, reader in (named or slaves).items():
            answer = await self._calls.ask_broker(reader, command, [ResponseCode.SYSTEM_ERROR])
            try:
                messages = self._read_records(answer, broker_name) if answer.code == ResponseCode.SUCCESS else []
            except DecodeError:
                if named:
                    raise
                continue  # another broker's place in this log
            for message in messages:
                if message.topic == topic and (named or message.offset_message_id == message_id):
                    return message
        return None

    async def _query(self, brokers: dict[str, str], header: QueryMessageHeader) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        for broker_name, address in brokers.items():
            command = Command.request(RequestCode.QUERY_MESSAGE, header)
            answer = await self._calls.ask_broker(address, command, [ResponseCode.QUERY_NOT_FOUND])
            if answer.code == ResponseCode.SUCCESS:
                found += self._read_records(answer, broker_name)
        return sorted(found, key=lambda each: (each.stored_at_ms, each.queue, each.queue_offset))

    def _read_records(self, answer: Command, broker_name: str) -> list[ReceivedMessage]:
        strip = self._session.namespace.strip_message
        return [strip(decode_message(record, broker_name)) for record in iter_records(answer.body)]
