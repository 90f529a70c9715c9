"""What consumers ask brokers beside their pulls, one method for each request.

    method            request                            asked of
    queues_of         GET_ROUTEINFO_BY_TOPIC (105)       a name server, when no route is known
    members_of        GET_CONSUMER_LIST_BY_GROUP (38)    any broker of the topic, a master if possible
    addresses_of      203                                the same
    stored_offset     QUERY_CONSUMER_OFFSET (14)         the queue's master, else a slave
    store_offset      UPDATE_CONSUMER_OFFSET (15)        the same
    first, end, at    30, 31, 29                         the same (Java asks masters only)
    ask_broker        any                                the same
    check_filter      CHECK_CLIENT_CONFIG (46)           any broker of the topic
    send_back         CONSUMER_SEND_MSG_BACK (36)        the master of the message's broker: slaves take nothing

An answer with an unexpected code is a ``ResponseError``.
"""

import random

from ...common.codes import ResponseCode
from ...common.errors import ResponseError, RouteNotFoundError
from ...common.message import MessageQueue, ReceivedMessage
from ...common.subscriptions.subscription import Subscription
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.client import CheckClientBody, CheckedSubscription, ConsumerConnections, ConsumerList
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import ConsumerGroupHeader
from ...remoting.headers.message import SendBackHeader
from ...remoting.headers.offset import (
    CommitOffsetHeader,
    ConsumerOffsetHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
)
from ..session.routes import MASTER_ID, choose_address, subscribe_queues
from ..session.session import CALL_TIMEOUT_MS, Session

OFFSET_TIMEOUT_MS = 5_000
SEND_BACK_TIMEOUT_MS = 5_000


class BrokerRequests:
    """The requests of consumers, one method for each."""

    def __init__(self, session: Session, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        self._session = session
        self._timeout_ms = timeout_ms

    async def queues_of(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read."""
        return subscribe_queues(topic, await self._session.route(topic))

    async def members_of(self, group: str, topic: str) -> list[str]:
        """Return the client ids of a group, one for each connection of its members.

        After the loss of a connection each counts once: a broker that has not noticed lists us, and who else was cut
        off, twice, and would leave queues to members that are gone.
        """
        command = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(consumer_group=group))
        route = await self._session.route(topic)
        answer = await self._ask(self._choose(random.choice(tuple(route.brokers))), command)
        members = list(decode_answer(ConsumerList, answer.body).consumer_id_list)
        return [*dict.fromkeys(members)] if self._session.may_be_listed_twice else members

    async def addresses_of(self, group: str, topic: str, client_id: str) -> list[str]:
        """Return from where the members with an id are connected to a broker of a topic; our own says so."""
        command = Command.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumer_group=group))
        route = await self._session.route(topic)
        answer = await self._ask(self._choose(random.choice(tuple(route.brokers))), command)
        found = decode_answer(ConsumerConnections, answer.body).connection_set
        own = self._session.local_addresses
        addresses = [each.client_addr for each in found if each.client_id == client_id]
        return [f"{address} (this one)" if address in own else address for address in addresses]

    async def stored_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return the offset that a broker has for a group, or None when it has none."""
        header = ConsumerOffsetHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        command = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        address = self._choose(queue.broker_name)
        answer = await self._session.call(address, command, OFFSET_TIMEOUT_MS)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return decode_header(OffsetReply, _checked(answer, address, command.code)).queue_offset

    async def store_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Store a group's offset and wait until the broker has it."""
        await self._ask(self._choose(queue.broker_name), _commit_command(group, queue, queue_offset))

    async def store_offset_oneway(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Store a group's offset without an answer."""
        await self._session.call_oneway(self._choose(queue.broker_name), _commit_command(group, queue, queue_offset))

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that a queue still has."""
        return await self._ask_offset(
            queue,
            RequestCode.GET_MIN_OFFSET,
            QueueHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name),
        )

    async def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will get."""
        return await self._ask_offset(
            queue,
            RequestCode.GET_MAX_OFFSET,
            MaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name),
        )

    async def offset_at(self, queue: MessageQueue, at_ms: int) -> int:
        """Return the offset of the first message that was stored at an instant or later."""
        return await self._ask_offset(
            queue,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            SearchOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, at_ms=at_ms, broker_name=queue.broker_name),
        )

    async def check_filter(self, group: str, subscription: Subscription) -> None:
        """Have a broker of the topic check a subscription."""
        checked = CheckedSubscription(
            topic=subscription.topic,
            sub_string=subscription.expression,
            expression_type=subscription.expression_type,
            sub_version=subscription.version,
        )
        body = CheckClientBody(client_id=self._session.client_id, group=group, subscription_data=checked)
        command = Command.request(RequestCode.CHECK_CLIENT_CONFIG, body=encode_body(body))
        route = await self._session.route(subscription.topic)
        await self._ask(self._choose(random.choice(tuple(route.brokers))), command)

    async def send_back(self, group: str, message: ReceivedMessage, max_retries: int, delay_level: int = 0) -> None:
        """Hand a failed message back to its broker, which brings it again later, or never if the level is below 0."""
        header = SendBackHeader(
            log_offset=message.log_offset,
            group=group,
            delay_level=delay_level,
            origin_message_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=self._session.settings.is_unit_mode,
            max_reconsume_times=max_retries,
            broker_name=message.queue.broker_name,
        )
        command = Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await self._ask(self._session.master_of(message.queue.broker_name), command, SEND_BACK_TIMEOUT_MS)

    async def ask_broker(self, broker_name: str, command: Command, timeout_ms: int) -> Command:
        """Return a broker's answer, whatever its code."""
        return await self._session.call(self._choose(broker_name), command, timeout_ms)

    def _choose(self, broker_name: str) -> str:
        """Return the address of a broker's master, else of one of its slaves."""
        found = choose_address(self._session.routes.brokers.get(broker_name, {}), MASTER_ID)
        if found is None:
            raise RouteNotFoundError(f"no address of broker {broker_name} is known")
        return found.address

    async def _ask_offset(self, queue: MessageQueue, code: RequestCode, header: QueueHeader) -> int:
        answer = await self._ask(self._choose(queue.broker_name), Command.request(code, header))
        return decode_header(OffsetReply, answer).queue_offset

    async def _ask(self, address: str, command: Command, timeout_ms: int | None = None) -> Command:
        answer = await self._session.call(address, command, timeout_ms or self._timeout_ms)
        return _checked(answer, address, command.code)


def _commit_command(group: str, queue: MessageQueue, queue_offset: int) -> Command:
    header = CommitOffsetHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=queue_offset,
        broker_name=queue.broker_name,
    )
    return Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def _checked(answer: Command, server: str, code: int) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark, server, RequestCode(code).name)
    return answer
