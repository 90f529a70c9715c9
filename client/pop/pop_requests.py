"""What consumers by POP ask brokers, and what answers become (``MQClientAPIImpl.processPopResponse``; pop.md §3, §4).

    pop            POP_MESSAGE (200050)                    messages, each with its handle in the property POP_CK
    acknowledge    ACK_MESSAGE (200051)                    done with
                   BATCH_ACK_MESSAGE (200151)              done with several; one by one at a broker that is older
    change         CHANGE_MESSAGE_INVISIBLETIME (200053)   a new handle, which takes the place of the old one

All go to the master of the message's broker. Messages of the group's retry topics come under the name of the topic, and
bring their handles themselves. What has another tag than was asked for, though its hash is the same, is acknowledged.
What comes for a caller that was cancelled meanwhile is given back.
"""

import asyncio
import base64
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ...common.codes import ResponseCode
from ...common.errors import DecodeError, ResponseError, RocketletError
from ...common.message import ReceivedMessage, describe_messages
from ...common.pop_texts import NORMAL, PopHandle, parse_handle, parse_start_offsets, read_topic
from ...common.properties import POP_CK
from ...common.record_messages import decode_messages
from ...common.subscriptions.subscription import Subscription
from ...remoting.bodies.body import encode_body
from ...remoting.bodies.pop import BatchAckBody, BatchAckEntry
from ...remoting.codec.command import Command, header_reader
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.pop import AckHeader, ChangeLeaseHeader, LeaseReply, PopHeader, PopReply
from ...remoting.transport.event_loop import TaskScope
from ..session.session import CALL_TIMEOUT_MS, Session
from ..session.settings import ConsumeFrom

ANSWER_MS: Final = 10_000
"""How long an answer may take beyond the time that a request waits at the broker."""
ALL_QUEUES: Final = -1
_MOST_BITS: Final = 1 << 12
"""How far behind the start of its lease a message may be that is acknowledged with others."""
FROM_FIRST: Final = 0
FROM_NEWEST: Final = 1
_NOTHING: Final = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL})
_read_reply = header_reader(PopReply)
_read_lease = header_reader(LeaseReply)
_log = logging.getLogger(__name__)


class PopPlan(NamedTuple):
    """What is asked for; times in ms."""

    max_messages: int
    invisible_ms: int
    wait_ms: int
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    queue_id: int = ALL_QUEUES


class PoppedMessages(NamedTuple):
    """What one request brought; ``is_crowded``: so many wait at the broker that it did not."""

    messages: list[ReceivedMessage]
    is_crowded: bool = False


class PopRequests:
    """The requests of one group; ``tasks`` end with its consumer."""

    def __init__(self, session: Session, group: str, tasks: TaskScope) -> None:
        self._session = session
        self._group = group
        self._tasks = tasks
        self._without_batches: set[str] = set()  # brokers older than 5.1

    def __repr__(self) -> str:
        return f"<PopRequests of {self._group}>"

    async def pop(self, broker_name: str, subscription: Subscription, plan: PopPlan) -> PoppedMessages:
        """Return messages that are ours for a time; none when none came in time.

        Raises:
            RemotingError, ResponseError: the broker did not answer, or with an error.
            DecodeError: the answer cannot be read.
        """
        asking = self._tasks.start(self._ask_for(broker_name, subscription, plan), name=f"pop {subscription.topic}")
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(self._give_back)
            raise

    def _give_back(self, asked: "asyncio.Task[PoppedMessages]") -> None:
        """Let others have what nobody takes here."""
        if not asked.cancelled() and asked.exception() is None and asked.result().messages:
            self._tasks.start(self._give_all_back(asked.result().messages), name="give back")

    async def _give_all_back(self, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            await self.give_back(message, 0)

    async def give_back(self, message: ReceivedMessage, delay_ms: int) -> None:
        """Have a message come again after a while, or else when its time is over."""
        try:
            await self.change(message, delay_ms)
        except RocketletError as error:
            text = "group %s: %s comes again when its time is over, since it could not be given back: %s"
            _log.warning(text, self._group, describe_messages([message]), error)

    async def _ask_for(self, broker_name: str, subscription: Subscription, plan: PopPlan) -> PoppedMessages:
        header = PopHeader(
            consumer_group=self._group,
            topic=subscription.topic,
            queue_id=plan.queue_id,
            max_messages=plan.max_messages,
            invisible_ms=plan.invisible_ms,
            poll_ms=plan.wait_ms,
            born_at_ms=self._session.clock.now_ms(),
            init_mode=FROM_FIRST if plan.consume_from is ConsumeFrom.FIRST else FROM_NEWEST,
            expression_type=subscription.expression_type,
            expression=subscription.expression,
            broker_name=broker_name,
        )
        command = Command.request(RequestCode.POP_MESSAGE, header)
        answer = await self._session.call(self._session.master_of(broker_name), command, plan.wait_ms + ANSWER_MS)
        if answer.code in _NOTHING:
            return PoppedMessages([], is_crowded=answer.code == ResponseCode.POLLING_FULL)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark, broker_name, RequestCode.POP_MESSAGE.name)
        messages = [self._session.namespace.strip_message(each) for each in _read_messages(answer, broker_name)]
        if not subscription.tags:
            return PoppedMessages(messages)
        wanted = [message for message in messages if subscription.accepts_tags(message.tags)]
        await self._pass_over([message for message in messages if not subscription.accepts_tags(message.tags)])
        return PoppedMessages(wanted)

    async def acknowledge(self, messages: Iterable[ReceivedMessage]) -> None:
        """Be done with messages.

        Raises:
            ValueError: one was not handed out by POP.
            RemotingError, ResponseError: a broker did not answer, or with an error; it was asked for all that are its.
        """
        by_broker: dict[str, list[tuple[ReceivedMessage, PopHandle]]] = {}
        for message in messages:
            handle = handle_of(message)
            by_broker.setdefault(handle.broker_name, []).append((message, handle))
        failure: RocketletError | None = None
        for broker_name, handled in by_broker.items():
            try:
                await self._acknowledge(broker_name, handled)
            except RocketletError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _acknowledge(self, broker_name: str, handled: Sequence[tuple[ReceivedMessage, PopHandle]]) -> None:
        near, single = list[tuple[ReceivedMessage, PopHandle]](), list[tuple[ReceivedMessage, PopHandle]]()
        for each in handled:
            (near if 0 <= each[1].queue_offset - each[1].start_offset < _MOST_BITS else single).append(each)
        if len(near) < 2 or not await self._acknowledge_batch(broker_name, near):
            single += near
        for message, handle in single:
            await self._acknowledge_one(message, handle)

    async def _acknowledge_batch(self, broker_name: str, handled: Sequence[tuple[ReceivedMessage, PopHandle]]) -> bool:
        """Acknowledge messages in one request; tell whether the broker knows it."""
        if broker_name in self._without_batches:
            return False
        body = BatchAckBody(broker_name=broker_name, acks=self._entries(handled))
        command = Command.request(RequestCode.BATCH_ACK_MESSAGE, body=encode_body(body))
        address = self._session.master_of(broker_name)
        answer = await self._session.call(address, command, CALL_TIMEOUT_MS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._without_batches.add(broker_name)
        elif answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark, address, RequestCode.BATCH_ACK_MESSAGE.name)
        return answer.code == ResponseCode.SUCCESS

    def _entries(self, handled: Iterable[tuple[ReceivedMessage, PopHandle]]) -> list[BatchAckEntry]:
        """Return what a batch says, an entry for each lease."""
        wrap, bits = self._session.namespace.wrap, dict[tuple[str, PopHandle], int]()
        for message, handle in handled:
            lease = wrap(message.topic), handle._replace(queue_offset=0)
            bits[lease] = bits.get(lease, 0) | 1 << (handle.queue_offset - handle.start_offset)
        return [
            BatchAckEntry(
                c=wrap(self._group),
                t=topic,
                r=lease.retry,
                so=lease.start_offset,
                q=lease.queue_id,
                rq=lease.revive_queue_id,
                pt=lease.popped_at_ms,
                it=lease.invisible_ms,
                b=base64.b64encode(found.to_bytes((found.bit_length() + 7) // 8, "little")).decode(),
            )
            for (topic, lease), found in bits.items()
        ]

    async def _acknowledge_one(self, message: ReceivedMessage, handle: PopHandle) -> None:
        header = AckHeader(
            consumer_group=self._group,
            topic=self._topic_of(message, handle),
            queue_id=handle.queue_id,
            handle=handle.text(),
            queue_offset=handle.queue_offset,
            broker_name=handle.broker_name,
        )
        await self._ask(handle, Command.request(RequestCode.ACK_MESSAGE, header))

    async def change(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Have a message come again so long from now, unless it is acknowledged; it has another handle then.

        Raises:
            ValueError: it was not handed out by POP.
            RemotingError, ResponseError: the broker did not answer, or with an error.
        """
        handle = handle_of(message)
        header = ChangeLeaseHeader(
            consumer_group=self._group,
            topic=self._topic_of(message, handle),
            queue_id=handle.queue_id,
            handle=handle.text(),
            queue_offset=handle.queue_offset,
            broker_name=handle.broker_name,
            invisible_ms=invisible_ms,
        )
        answer = await self._ask(handle, Command.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header))
        lease = _read_lease(answer)
        changed = handle._replace(
            start_offset=handle.queue_offset,
            popped_at_ms=lease.popped_at_ms,
            invisible_ms=lease.invisible_ms,
            revive_queue_id=lease.revive_queue_id,
        )
        message.properties[POP_CK] = changed.text()

    async def _pass_over(self, messages: list[ReceivedMessage]) -> None:
        try:
            await self.acknowledge(messages)
        except RocketletError as error:
            text = "group %s: %s, which have other tags, come again: they were not acknowledged: %s"
            _log.warning(text, self._group, describe_messages(messages), error)

    async def _ask(self, handle: PopHandle, command: Command) -> Command:
        address = self._session.master_of(handle.broker_name)
        answer = await self._session.call(address, command, CALL_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark, address, RequestCode(command.code).name)
        return answer

    def _topic_of(self, message: ReceivedMessage, handle: PopHandle) -> str:
        """Return the topic that the broker has really read, which has the names as brokers know them."""
        wrap = self._session.namespace.wrap
        return read_topic(wrap(message.topic), wrap(self._group), handle.retry)


def handle_of(message: ReceivedMessage) -> PopHandle:
    """Return the handle of a message.

    Raises:
        ValueError: it was not handed out by POP.
    """
    try:
        return parse_handle(message.properties.get(POP_CK, ""))
    except DecodeError as error:
        raise ValueError(f"{describe_messages([message])} was not handed out by POP: {error}") from None


def _read_messages(answer: Command, broker_name: str) -> list[ReceivedMessage]:
    reply = _read_reply(answer)
    starts = parse_start_offsets(reply.start_offset_info or "")
    messages = decode_messages(answer.body, broker_name, partial(_leave_out, broker_name))
    for message in messages:
        if POP_CK in message.properties:
            continue
        start_offset = starts.get((NORMAL, message.queue.queue_id))
        if start_offset is None:
            raise DecodeError(f"startOffsetInfo {reply.start_offset_info!r} has no queue {message.queue.queue_id}")
        handle = PopHandle(
            start_offset,
            reply.popped_at_ms,
            reply.invisible_ms,
            reply.revive_queue_id,
            NORMAL,
            broker_name,
            message.queue.queue_id,
            message.queue_offset,
        )
        message.properties[POP_CK] = handle.text()
    return messages


def _leave_out(broker_name: str, queue_offset: int, error: DecodeError) -> None:
    text = "a message of broker %s at offset %d cannot be decoded, it comes again until its group gives it up: %s"
    _log.error(text, broker_name, queue_offset, error)
