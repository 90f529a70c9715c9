"""One pull, as values: what is asked for, and what an answer says.

    answer code                  messages                  then
    SUCCESS 0                    those whose tags match    pull on from ``next_offset``
    PULL_NOT_FOUND 19            none                      the same
    PULL_RETRY_IMMEDIATELY 20    none                      the same
    PULL_OFFSET_MOVED 21         none                      the offset was refused, ``next_offset`` is the nearest good
    any other                    ResponseError

The broker compares hashes of tags, so the tags themselves are compared here. A message of a retry topic gets its first
topic back (property ``RETRY_TOPIC``); ``queue`` keeps saying where it was stored. A body that does not inflate is
logged and left out: it would stop its queue for ever.

A record that holds a batch (sysFlag 0x40 and 0x80) comes as its messages, each with its own queue offset; those before
the asked offset were handed out earlier and are left out.
"""

import logging
from functools import partial
from typing import NamedTuple

import msgspec

from ...common.errors import DecodeError, ResponseError
from ...common.message import MessageQueue, ReceivedMessage
from ...common.names import RETRY_PREFIX
from ...common.properties import MAX_OFFSET, MIN_OFFSET, RETRY_TOPIC
from ...common.received import decode_messages
from ...common.subscription import Subscription
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.headers.pull import (
    PULL_COMMIT_OFFSET,
    PULL_LITE,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullHeader,
    PullReply,
)

log = logging.getLogger(__name__)


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
    reply = decode_header(PullReply, answer)
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
    log.error("skipping offset %d of %s, which cannot be decoded: %s", queue_offset, queue, error)


def _restore_topic(message: ReceivedMessage) -> ReceivedMessage:
    topic = message.properties.get(RETRY_TOPIC)
    return message if topic is None else msgspec.structs.replace(message, topic=topic)
