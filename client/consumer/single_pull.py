"""One pull outside any subscription (Java's ``DefaultMQPullConsumer.pull`` and ``pullBlockIfNotFound``).

    status             code    next
    FOUND              0       read on at ``next_offset``
    NO_NEW_MESSAGE     19      the queue ends there; ask again later, or with a wait
    NO_MATCHED_MESSAGE 20      the filter left everything out; read on at ``next_offset``
    OFFSET_ILLEGAL     21      the queue does not have the offset; ``next_offset`` is the nearest that it has

The broker holds a pull with a wait until something matches or the time is over. It looks every few seconds only, so an
answer may come some seconds after the time; another five seconds later the pull fails.
"""

import enum
from typing import NamedTuple

from ...common.message import MessageQueue, ReceivedMessage
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.headers.pull import PULL_SUBSCRIPTION, PULL_SUSPEND, PullHeader, PullReply
from ..group.broker_requests import Brokers, read_pull_answer
from ..group.subscriptions import Sql, subscription_of
from .pull_checks import check_offset

CALL_TIMEOUT_MS = 10_000  # Java's consumerPullTimeoutMillis; with a wait its consumerTimeoutMillisWhenSuspend is 30 s
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


async def pull_once(brokers: Brokers, group: str, asked: SinglePull) -> PullResult:
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
    answer = await brokers.ask_broker(queue.broker_name, command, asked.wait_ms + CALL_TIMEOUT_MS)
    found = read_pull_answer(answer, queue, subscription, from_offset=asked.queue_offset)
    reply = decode_header(PullReply, answer)
    status = _STATUS_OF_CODE.get(ResponseCode(answer.code), PullStatus.FOUND)
    if status is PullStatus.FOUND and not found.messages:
        status = PullStatus.NO_MATCHED_MESSAGE  # the hashes of tags matched, the tags did not
    return PullResult(status, found.messages, reply.next_begin_offset, reply.min_offset, reply.max_offset)


def _check(asked: SinglePull) -> None:
    check_offset(asked.queue_offset)
    if not 1 <= asked.max_messages <= MAX_MESSAGES:
        raise ValueError(f"max_messages is {asked.max_messages}, allowed are 1 to {MAX_MESSAGES}")
    if asked.wait_ms < 0:
        raise ValueError(f"wait_ms is {asked.wait_ms}, must not be negative")
