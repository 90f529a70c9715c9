"""What consumers ask brokers, one method for each request.

    method            request                            asked of
    queues_of         GET_ROUTEINFO_BY_TOPIC (105)       a name server, when no route is known
    members_of        GET_CONSUMER_LIST_BY_GROUP (38)    any broker of the topic, a master if possible
    addresses_of      203                                the same
    stored_offset     QUERY_CONSUMER_OFFSET (14)         the queue's master, else a slave
    store_offset      UPDATE_CONSUMER_OFFSET (15)        the same
    first, end, at    30, 31, 29                         the queue's master
    pull              PULL_MESSAGE (11)                  the broker id that the last answer named; a pull consumer
                      LITE_PULL_MESSAGE (361)            sends 361, and 11 to brokers older than 5.0
    ask_broker        any                                the queue's master, else a slave
    check_filter      CHECK_CLIENT_CONFIG (46)           any broker of the topic
    send_back         CONSUMER_SEND_MSG_BACK (36)        the message's broker

An answer with an unexpected code is a ``ResponseError``.

An answer to a pull:

    answer code                  messages                  then
    SUCCESS 0                    those whose tags match    pull on from ``next_offset``
    PULL_NOT_FOUND 19            none                      the same
    PULL_RETRY_IMMEDIATELY 20    none                      the same
    PULL_OFFSET_MOVED 21         none                      the offset was refused, ``next_offset`` is the nearest good
    any other                    ResponseError

The broker compares hashes of tags, so the tags themselves are compared here. A message of a retry topic gets its first
topic back (property ``RETRY_TOPIC``); ``queue`` keeps saying where it was stored. A body that does not inflate is
logged and left out: it would stop its queue for ever. A record that holds a batch (sysFlag 0x40 and 0x80) comes as its
messages, each with its own queue offset; those before the asked offset were handed out earlier and are left out.

A single pull, outside any subscription (``pull_once``; Java's ``DefaultMQPullConsumer.pull``):

    status             code    next
    FOUND              0       read on at ``next_offset``
    NO_NEW_MESSAGE     19      the queue ends there; ask again later, or with a wait
    NO_MATCHED_MESSAGE 20      the filter left everything out; read on at ``next_offset``
    OFFSET_ILLEGAL     21      the queue does not have the offset; ``next_offset`` is the nearest that it has

The broker holds a pull with a wait until something matches or the time is over. It looks every few seconds only, so an
answer may come some seconds after the time; another five seconds later the pull fails.
"""

import enum
import logging
import random
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from ...common.clock import Clock
from ...common.errors import DecodeError, ResponseError, RouteNotFoundError
from ...common.message import MessageQueue, ReceivedMessage
from ...common.names import RETRY_PREFIX
from ...common.properties import MAX_OFFSET, MIN_OFFSET, RETRY_TOPIC
from ...common.record import decode_messages
from ...common.subscription import Subscription
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.client import CheckClientBody, CheckedSubscription, ConsumerList
from ...remoting.bodies.group import ConsumerConnections
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command, decode_header, header_reader
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
from ...remoting.headers.pull import (
    PULL_COMMIT_OFFSET,
    PULL_LITE,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullHeader,
    PullReply,
)
from ..session.hooks import (
    FilterHook,
    PullContext,
    PullHook,
    hooks_of,
    keeps_message,
    tell_hooks,
)
from ..session.routes import MASTER_ID, BrokerAddress, choose_address, subscribe_queues
from ..session.session import CALL_TIMEOUT_MS, Session
from ..session.settings import check_queue_offset
from .subscriptions import Sql, subscription_of

_read_pull_reply = header_reader(PullReply)


class PullObserver:
    """The hooks of one consumer that see or choose what is pulled."""

    def __init__(self, clock: Clock, group: str, hooks: Iterable[object]) -> None:
        hooks = tuple(hooks)
        self._clock = clock
        self._group = group
        self._pulls = hooks_of(PullHook, hooks)
        self._filters = hooks_of(FilterHook, hooks)

    def __repr__(self) -> str:
        return f"<PullObserver of {self._group}, {len(self._filters)} filters>"

    def take(self, queue: MessageQueue, messages: list[ReceivedMessage], started_at_ms: int) -> list[ReceivedMessage]:
        """Return the messages that are wanted."""
        context = PullContext(self._group, queue, messages, started_at_ms, self._clock.now_ms())
        tell_hooks([hook.after_pull for hook in self._pulls], context)
        if not self._filters:
            return messages
        return [message for message in messages if keeps_message(self._filters, self._group, message)]


_log = logging.getLogger(__name__)


class PullPlan(NamedTuple):
    """What all pulls of one consumer have in common."""

    group: str
    max_messages: int
    max_bytes: int
    suspend_ms: int
    timeout_ms: int = 30_000
    posts_subscription: bool = False
    is_lite: bool = False


class PullPosition(NamedTuple):
    """What one pull asks for; ``commit_offset`` above 0 is stored by the broker on the way."""

    queue: MessageQueue
    queue_offset: int
    commit_offset: int
    broker_id: int


class PullAnswer(NamedTuple):
    """What one pull brought; no messages when nothing new matched."""

    messages: list[ReceivedMessage]
    next_offset: int
    next_broker_id: int
    was_offset_refused: bool = False


_PULL_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


def pull_header(plan: PullPlan, subscription: Subscription, position: PullPosition, *, may_commit: bool) -> PullHeader:
    """Return the header of a pull; a slave is not asked to store offsets."""
    commit_offset = position.commit_offset if may_commit else 0
    sys_flag = PULL_SUSPEND
    if commit_offset > 0:
        sys_flag |= PULL_COMMIT_OFFSET
    if plan.posts_subscription:
        sys_flag |= PULL_SUBSCRIPTION
    if plan.is_lite:
        sys_flag |= PULL_LITE
    return PullHeader(
        consumer_group=plan.group,
        topic=position.queue.topic,
        queue_id=position.queue.queue_id,
        queue_offset=position.queue_offset,
        max_messages=plan.max_messages,
        sys_flag=sys_flag,
        commit_offset=commit_offset,
        suspend_ms=plan.suspend_ms,
        subscription=subscription.expression if plan.posts_subscription else None,
        sub_version=subscription.version,
        expression_type=subscription.expression_type,
        max_bytes=plan.max_bytes,
        broker_name=position.queue.broker_name,
    )


def read_pull_answer(
    answer: Command, queue: MessageQueue, subscription: Subscription, *, from_offset: int = 0
) -> PullAnswer:
    """Return what a pull brought.

    Raises:
        ResponseError: the broker answered with an error.
        DecodeError: the answer cannot be read.
    """
    if answer.code not in _PULL_CODES:
        raise ResponseError(answer.code, answer.remark)
    reply = _read_pull_reply(answer)
    messages = _read_messages(answer.body, queue, subscription) if answer.code == ResponseCode.SUCCESS else []
    if messages and messages[0].queue_offset < from_offset:  # asked for from inside a batch
        messages = [message for message in messages if message.queue_offset >= from_offset]
    if messages:
        lowest, highest = str(reply.min_offset), str(reply.max_offset)
        for message in messages:
            message.properties[MIN_OFFSET] = lowest
            message.properties[MAX_OFFSET] = highest
    return PullAnswer(
        messages,
        reply.next_begin_offset,
        reply.suggest_which_broker_id,
        was_offset_refused=answer.code == ResponseCode.PULL_OFFSET_MOVED,
    )


def _read_messages(body: bytes, queue: MessageQueue, subscription: Subscription) -> list[ReceivedMessage]:
    messages = decode_messages(body, queue.broker_name, partial(_leave_out, queue))
    if subscription.tags:
        accepts = subscription.accepts_tags
        messages = [message for message in messages if accepts(message.tags)]
    if queue.topic.startswith(RETRY_PREFIX):
        messages = [_restore_topic(message) for message in messages]
    return messages


def _leave_out(queue: MessageQueue, queue_offset: int, error: DecodeError) -> None:
    _log.error("skipping offset %d of %s, which cannot be decoded: %s", queue_offset, queue, error)


def _restore_topic(message: ReceivedMessage) -> ReceivedMessage:
    topic = message.properties.get(RETRY_TOPIC)
    return message if topic is None else msgspec.structs.replace(message, topic=topic)


OFFSET_TIMEOUT_MS = 5_000
SEND_BACK_TIMEOUT_MS = 5_000


class BrokerRequests:
    """The requests of consumers, one method for each."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.observer: PullObserver | None = None
        self._without_lite_pull: set[str] = set()

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
        answer = await self._ask(self._choose(random.choice(tuple(route.brokers))).address, command)
        members = list(decode_answer(ConsumerList, answer.body).consumer_id_list)
        return [*dict.fromkeys(members)] if self._session.may_be_listed_twice else members

    async def addresses_of(self, group: str, topic: str, client_id: str) -> list[str]:
        """Return from where the members with an id are connected to a broker of a topic; our own says so."""
        command = Command.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumer_group=group))
        route = await self._session.route(topic)
        answer = await self._ask(self._choose(random.choice(tuple(route.brokers))).address, command)
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
        started_at_ms = 0 if self.observer is None else self._session.clock.now_ms()
        is_lite = plan.is_lite and address.address not in self._without_lite_pull
        command = Command.request(RequestCode.LITE_PULL_MESSAGE if is_lite else RequestCode.PULL_MESSAGE, header)
        answer = await self._session.call(address.address, command, plan.timeout_ms)
        if is_lite and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._without_lite_pull.add(address.address)
            return await self.pull(plan, subscription, position)
        pulled = read_pull_answer(answer, queue, subscription, from_offset=position.queue_offset)
        namespace = self._session.namespace
        if namespace.name:
            pulled = pulled._replace(messages=[namespace.strip_message(each) for each in pulled.messages])
        if self.observer is not None:
            pulled = pulled._replace(messages=self.observer.take(queue, pulled.messages, started_at_ms))
        return pulled

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
        await self._ask(self._choose(random.choice(tuple(route.brokers))).address, command)

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
        await self._ask(self._choose(message.queue.broker_name).address, command, SEND_BACK_TIMEOUT_MS)

    async def ask_broker(self, broker_name: str, command: Command, timeout_ms: int) -> Command:
        """Return a broker's answer, whatever its code."""
        return await self._session.call(self._choose(broker_name).address, command, timeout_ms)

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


SINGLE_PULL_TIMEOUT_MS = (
    10_000  # Java's consumerPullTimeoutMillis; with a wait its consumerTimeoutMillisWhenSuspend is 30 s
)
MAX_MESSAGES = 1024


class PullStatus(enum.Enum):
    """What a pull met (Java's class of this name)."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MSG"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


class PullResult(NamedTuple):
    """The answer to one pull; the queue has messages from ``first_offset`` up to before ``end_offset``."""

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    first_offset: int
    end_offset: int


class SinglePull(NamedTuple):
    """What one pull asks for."""

    queue: MessageQueue
    queue_offset: int
    expression: str | Sql
    max_messages: int
    wait_ms: int


_STATUS_OF_CODE = {
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


async def pull_once(brokers: BrokerRequests, group: str, asked: SinglePull) -> PullResult:
    """Pull once from the master of a queue.

    Raises:
        ValueError: a number is out of its range, or the expression holds no tag.
        RemotingError, ResponseError: the broker did not answer, or with an error.
    """
    _check(asked)
    queue = asked.queue
    subscription = subscription_of(queue.topic, asked.expression)
    header = PullHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=asked.queue_offset,
        max_messages=asked.max_messages,
        sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if asked.wait_ms else 0),
        suspend_ms=asked.wait_ms,
        subscription=subscription.expression,
        expression_type=subscription.expression_type,
        broker_name=queue.broker_name,
    )
    command = Command.request(RequestCode.PULL_MESSAGE, header)
    answer = await brokers.ask_broker(queue.broker_name, command, asked.wait_ms + SINGLE_PULL_TIMEOUT_MS)
    found = read_pull_answer(answer, queue, subscription, from_offset=asked.queue_offset)
    reply = _read_pull_reply(answer)
    status = _STATUS_OF_CODE.get(ResponseCode(answer.code), PullStatus.FOUND)
    if status is PullStatus.FOUND and not found.messages:
        status = PullStatus.NO_MATCHED_MESSAGE  # the hashes of tags matched, the tags did not
    return PullResult(status, found.messages, reply.next_begin_offset, reply.min_offset, reply.max_offset)


def _check(asked: SinglePull) -> None:
    check_queue_offset(asked.queue_offset)
    if not 1 <= asked.max_messages <= MAX_MESSAGES:
        raise ValueError(f"max_messages is {asked.max_messages}, allowed are 1 to {MAX_MESSAGES}")
    if asked.wait_ms < 0:
        raise ValueError(f"wait_ms is {asked.wait_ms}, must not be negative")
