"""How messages of a queue are fetched: what a pull asks for, what its answer says, and when the next one follows.

The fetch loop of an owned queue (``QueueFetcher``; Java's ``DefaultMQPushConsumerImpl.pullMessage``):

1. One pull (PULL_MESSAGE, 11) is under way at a time; the next begins when the answer has been handed over. It goes to
   the broker id that the last answer named, without such a broker to the next id or any of the group, and after an
   error to the master again (Java keeps to the id). A pull consumer sends LITE_PULL_MESSAGE (361), and 11 to brokers
   older than 5.0.
2. While the buffer is above a limit there is no pull; it goes on when the buffer says so (Java looks every 50 ms).
3. After an error: 1 s; FLOW_CONTROL (215): 20 ms. A broker that does not know our subscription is sent a heartbeat.
   After 20 with the asked offset: 1 s, unless the next pull goes elsewhere. So a slave answers that has not got as far
   as we have; Java asks it again at once.
4. A refused offset (21) ends the loop or moves it, as the consumer decides.

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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol

from ...common.codes import ResponseCode
from ...common.errors import DecodeError, ResponseError, RocketletError, RouteNotFoundError
from ...common.message import (
    PULL_COMMIT_OFFSET,
    PULL_LITE,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    MessageQueue,
    ReceivedMessage,
)
from ...common.names import RETRY_PREFIX
from ...common.properties import MAX_OFFSET, MIN_OFFSET, RETRY_TOPIC
from ...common.record_messages import decode_messages
from ...common.subscriptions.subscription import Subscription
from ...remoting.codec.command import Command, header_reader
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.pull import PullHeader, PullReply
from ...remoting.transport.event_loop import TaskScope
from ..session.routes import MASTER_ID, choose_address
from ..session.session import Session
from ..session.settings import check_queue_offset
from .broker_requests import BrokerRequests
from .consumer_hooks import ConsumerHooks
from .subscriptions import Sql, SubscriptionTable, subscription_of

_read_pull_reply = header_reader(PullReply)
_log = logging.getLogger(__name__)

FLOW_CONTROL_PAUSE_MS = 20
ERROR_PAUSE_MS = 1_000
PULL_TIMEOUT_MS = 30_000
SINGLE_PULL_TIMEOUT_MS = 10_000  # Java's consumerPullTimeoutMillis; with a wait consumerTimeoutMillisWhenSuspend, 30 s
MAX_MESSAGES = 1024
_PULL = RequestCode.PULL_MESSAGE
_LITE_PULL = RequestCode.LITE_PULL_MESSAGE
_RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY

_PULL_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_UNKNOWN_CONSUMER_CODES = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)


class PullPlan(NamedTuple):
    """What all pulls of one consumer have in common."""

    group: str
    max_messages: int
    max_bytes: int
    suspend_ms: int
    posts_subscription: bool = False
    is_lite: bool = False


class PullAnswer(NamedTuple):
    """What one pull brought; no messages when nothing new matched."""

    messages: list[ReceivedMessage]
    next_offset: int
    next_broker_id: int
    was_offset_refused: bool = False


def pull_header(
    plan: PullPlan, subscription: Subscription, queue: MessageQueue, queue_offset: int, commit_offset: int
) -> PullHeader:
    """Return the header of a pull; a ``commit_offset`` above 0 is stored by the broker on the way."""
    sys_flag = PULL_SUSPEND
    if commit_offset > 0:
        sys_flag |= PULL_COMMIT_OFFSET
    if plan.posts_subscription:
        sys_flag |= PULL_SUBSCRIPTION
    if plan.is_lite:
        sys_flag |= PULL_LITE
    return PullHeader(
        consumer_group=plan.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=queue_offset,
        max_messages=plan.max_messages,
        sys_flag=sys_flag,
        commit_offset=commit_offset,
        suspend_ms=plan.suspend_ms,
        subscription=subscription.expression if plan.posts_subscription else None,
        sub_version=subscription.version,
        expression_type=subscription.expression_type,
        max_bytes=plan.max_bytes,
        broker_name=queue.broker_name,
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
        raise ResponseError(answer.code, answer.remark, queue.broker_name, RequestCode.PULL_MESSAGE.name)
    reply = _read_pull_reply(answer)
    messages: list[ReceivedMessage] = []
    if answer.code == ResponseCode.SUCCESS:
        added = {MIN_OFFSET: str(reply.min_offset), MAX_OFFSET: str(reply.max_offset)}
        messages = decode_messages(answer.body, queue.broker_name, partial(_leave_out, queue), added)
        if subscription.tags:
            accepts = subscription.accepts_tags
            messages = [message for message in messages if accepts(message.tags)]
        if queue.topic.startswith(RETRY_PREFIX):
            messages = [_restore_topic(message) for message in messages]
        if messages and messages[0].queue_offset < from_offset:  # asked for from inside a batch
            messages = [message for message in messages if message.queue_offset >= from_offset]
    return PullAnswer(
        messages,
        reply.next_begin_offset,
        reply.suggest_which_broker_id,
        was_offset_refused=answer.code == ResponseCode.PULL_OFFSET_MOVED,
    )


def _leave_out(queue: MessageQueue, queue_offset: int, error: DecodeError) -> None:
    _log.error("skipping offset %d of %s, which cannot be decoded: %s", queue_offset, queue, error)


def _restore_topic(message: ReceivedMessage) -> ReceivedMessage:
    topic = message.properties.get(RETRY_TOPIC)
    return message if topic is None else replace(message, topic=topic)


class PullSink(Protocol):
    """Where the pulled messages of a queue go, and what that place says about the next pull."""

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        ...

    async def wait_for_room(self) -> int:
        """Return when more may be pulled: the offset to store with that pull, 0 for none."""
        ...

    def accept(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Take the messages of one answer, which may be none; the next pull starts at ``next_offset``."""
        ...

    def drop(self) -> None:
        """Learn that the queue was given up."""
        ...


Refuse = Callable[[MessageQueue, int], Awaitable[bool]]
"""Learns that a broker refused an offset and names a better one; tells whether the loop goes on there."""


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What the fetch loops of one consumer have in common, and run in; ``hooks`` is None when there are none."""

    session: Session
    subscriptions: SubscriptionTable
    plan: PullPlan
    refuse: Refuse
    hooks: ConsumerHooks | None
    tasks: TaskScope
    without_lite_pull: set[str] = field(default_factory=set[str])  # addresses of brokers older than 5.0


class QueueFetcher:
    """Pulls one queue into a sink; ``step`` is a job."""

    def __init__(self, sink: PullSink, next_offset: int, context: FetchContext) -> None:
        self.queue = sink.queue
        self.next_offset = next_offset
        self._broker_id = MASTER_ID
        self._context = context
        self._sink = sink

    def __repr__(self) -> str:
        return f"<QueueFetcher {self.queue} next {self.next_offset}>"

    async def step(self) -> int | None:
        """Do one pull; return the pause before the next, or None when the loop has ended."""
        context, queue = self._context, self.queue
        session, hooks = context.session, context.hooks
        commit_offset = await self._sink.wait_for_room()
        subscription = context.subscriptions.by_topic.get(queue.topic)
        if subscription is None:
            return ERROR_PAUSE_MS  # the next rebalance gives the queue up
        started_at_ms = 0 if hooks is None else session.clock.now_ms()
        try:
            address, command = self._request(subscription, commit_offset)
            answer = await session.call(address, command, PULL_TIMEOUT_MS)
            if command.code == _LITE_PULL and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                context.without_lite_pull.add(address)
                return 0
            pulled = read_pull_answer(answer, queue, subscription, from_offset=self.next_offset)
        except RocketletError as error:
            return self._pause_after(error)
        messages = pulled.messages
        if session.namespace.name:
            messages = [session.namespace.strip_message(each) for each in messages]
        if hooks is not None:
            messages = hooks.take(queue, messages, started_at_ms)
        asked_offset, self.next_offset, self._broker_id = self.next_offset, pulled.next_offset, pulled.next_broker_id
        if pulled.was_offset_refused:
            text = "group %s: offset %d of %s is out of range, going on at %d"
            _log.warning(text, context.plan.group, asked_offset, queue, pulled.next_offset)
            return 0 if await context.refuse(queue, pulled.next_offset) else None
        self._sink.accept(messages, pulled.next_offset)
        is_stuck = answer.code == _RETRY and pulled.next_offset == asked_offset and self._goes_to(address)
        return ERROR_PAUSE_MS if is_stuck else 0

    def _request(self, subscription: Subscription, commit_offset: int) -> tuple[str, Command]:
        """Return the next pull and where it goes; a slave is not asked to store offsets."""
        context = self._context
        brokers = context.session.routes.brokers.get(self.queue.broker_name, {})
        address, is_slave = brokers.get(self._broker_id), self._broker_id != MASTER_ID
        if address is None:
            found = choose_address(brokers, self._broker_id)
            if found is None:
                raise RouteNotFoundError(f"no address of broker {self.queue.broker_name} is known")
            address, is_slave = found
        header = pull_header(context.plan, subscription, self.queue, self.next_offset, 0 if is_slave else commit_offset)
        is_lite = context.plan.is_lite and address not in context.without_lite_pull
        return address, Command.request(_LITE_PULL if is_lite else _PULL, header)

    def _goes_to(self, address: str) -> bool:
        """Tell whether the next pull goes to an address."""
        found = choose_address(self._context.session.routes.brokers.get(self.queue.broker_name, {}), self._broker_id)
        return found is not None and found.address == address

    def _pause_after(self, error: RocketletError) -> int:
        code = error.code if isinstance(error, ResponseError) else None
        if code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_PAUSE_MS
        text = "group %s: pulling %s from offset %d failed: %s"
        _log.warning(text, self._context.plan.group, self.queue, self.next_offset, error)
        if code in _UNKNOWN_CONSUMER_CODES:
            self._context.session.heartbeat_soon()
        self._broker_id = MASTER_ID
        return ERROR_PAUSE_MS


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
