"""What consumers ask brokers, one method for each request.

    method            request                            asked of
    queues_of         GET_ROUTEINFO_BY_TOPIC (105)       a name server, when no route is known
    members_of        GET_CONSUMER_LIST_BY_GROUP (38)    any broker of the topic, a master if possible
    stored_offset     QUERY_CONSUMER_OFFSET (14)         the queue's master, else a slave
    store_offset      UPDATE_CONSUMER_OFFSET (15)        the same
    first, end, at    30, 31, 29                         the queue's master
    pull              PULL_MESSAGE (11)                  the broker id that the last answer named
    send_back         CONSUMER_SEND_MSG_BACK (36)        the message's broker

An answer with an unexpected code is a ``ResponseError``.
"""

import random

from ..common.errors import ResponseError, RouteNotFoundError
from ..common.message import MessageQueue, ReceivedMessage
from ..common.subscription import Subscription
from ..remoting.bodies import decode_body
from ..remoting.bodies_client import ConsumerList
from ..remoting.codes import RequestCode, ResponseCode
from ..remoting.command import Command, decode_header
from ..remoting.headers_client import ConsumerGroupHeader
from ..remoting.headers_offset import (
    CommitOffsetHeader,
    ConsumerOffsetHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
)
from ..remoting.headers_retry import SendBackHeader
from .pulls import PullAnswer, PullPlan, PullPosition, pull_header, read_pull_answer
from .routes import MASTER_ID, BrokerAddress, choose_address, subscribe_queues
from .session import CALL_TIMEOUT_MS, Session

OFFSET_TIMEOUT_MS = 5_000
SEND_BACK_TIMEOUT_MS = 5_000


class Brokers:
    """The brokers as consumers see them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def queues_of(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read."""
        return subscribe_queues(topic, await self._session.route(topic))

    async def members_of(self, group: str, topic: str) -> list[str]:
        """Return the client ids of a group."""
        command = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(consumer_group=group))
        route = await self._session.route(topic)
        answer = await self._ask(self._choose(random.choice(tuple(route.brokers))).address, command)
        return list(decode_body(ConsumerList, answer.body).consumer_id_list)

    async def stored_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return the offset that a broker has for a group, or None when it has none."""
        header = ConsumerOffsetHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        command = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = await self._session.call(self._choose(queue.broker_name).address, command, OFFSET_TIMEOUT_MS)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return decode_header(OffsetReply, _checked(answer)).queue_offset

    async def store_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Store a group's offset and wait until the broker has it."""
        await self._ask(self._choose(queue.broker_name).address, _commit_command(group, queue, queue_offset))

    async def store_offset_oneway(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Store a group's offset without an answer."""
        await self._session.call_oneway(
            self._choose(queue.broker_name).address, _commit_command(group, queue, queue_offset)
        )

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

    async def pull(self, plan: PullPlan, subscription: Subscription, position: PullPosition) -> PullAnswer:
        """Ask for messages of one queue; the broker holds the question for a while when it has none."""
        queue = position.queue
        address = self._choose(queue.broker_name, position.broker_id)
        header = pull_header(plan, subscription, position, may_commit=not address.is_slave)
        command = Command.request(RequestCode.PULL_MESSAGE, header)
        answer = await self._session.call(address.address, command, plan.timeout_ms)
        return read_pull_answer(answer, queue, subscription, from_offset=position.queue_offset)

    async def send_back(self, group: str, message: ReceivedMessage, max_retries: int) -> None:
        """Hand a failed message back to its broker, which brings it again later."""
        header = SendBackHeader(
            log_offset=message.log_offset,
            group=group,
            delay_level=0,
            origin_message_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=max_retries,
            broker_name=message.queue.broker_name,
        )
        command = Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await self._ask(self._choose(message.queue.broker_name).address, command, SEND_BACK_TIMEOUT_MS)

    def _choose(self, broker_name: str, broker_id: int = MASTER_ID) -> BrokerAddress:
        address = choose_address(self._session.routes.brokers_of(broker_name), broker_id)
        if address is None:
            raise RouteNotFoundError(f"no address of broker {broker_name} is known")
        return address

    async def _ask_offset(self, queue: MessageQueue, code: RequestCode, header: QueueHeader) -> int:
        answer = await self._ask(self._session.master_of(queue.broker_name), Command.request(code, header))
        return decode_header(OffsetReply, answer).queue_offset

    async def _ask(self, address: str, command: Command, timeout_ms: int = CALL_TIMEOUT_MS) -> Command:
        return _checked(await self._session.call(address, command, timeout_ms))


def _commit_command(group: str, queue: MessageQueue, queue_offset: int) -> Command:
    header = CommitOffsetHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=queue_offset,
        broker_name=queue.broker_name,
    )
    return Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def _checked(answer: Command) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark)
    return answer
