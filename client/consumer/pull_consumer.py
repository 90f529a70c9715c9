"""The pull consumer: the application asks for messages when it wants them (Java's ``DefaultLitePullConsumer``).

    subscribe     the members of the group share the queues of the topic
    assign        this member takes exactly these queues; the two exclude each other
    poll          a list of messages of one queue, empty when none came in time
    async for     one message after the other
    pull_once     one question to one queue, without any of the above

What was handed out counts as finished when more is asked for. Offsets of finished messages are stored every 5 s and at
the end; ``commit`` stores those of all messages that were handed out, now. With ``commits_itself=False`` only
``commit`` moves what is stored. Failed messages do not come again by themselves: seek, or do not commit.
"""

import logging
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Self

from ...common.clock import Clock
from ...common.errors import ClientStateError
from ...common.message import MessageQueue, ReceivedMessage
from ...common.subscriptions.subscription import ALL
from ...remoting.bodies.client import ConsumeType
from ..group.assigned_queues import Handover
from ..group.consumer_hooks import ConsumerHooks
from ..group.group_member import GroupMember, MemberPlan
from ..group.process_queue import QueueOffsets
from ..group.queue_fetcher import PullPlan, PullResult, SinglePull, pull_once
from ..group.rebalance import compare_share
from ..group.subscriptions import Sql
from ..session.callbacks import HandoverCallback, QueueCallbacks, QueuesCallback
from ..session.lifecycle import Lifecycle
from ..session.session import Session, borrow_session
from ..session.settings import PullConsumerSettings, check_group, check_queue_offset, choose_settings
from .admin_callbacks import ClientRequestHandlers
from .fetch_buffer import BufferedMessages, FetchBuffer
from .pull_admin_answers import PullAdminAnswers

_log = logging.getLogger(__name__)

START_WAIT_MS = 3_000
SUSPEND_MS = 20_000


class PullConsumer:
    """Hands out the messages of its topics; use it with ``async with``, from one event loop.

        consumer = PullConsumer("audit", nameserver="127.0.0.1:9876")
        consumer.subscribe("orders")
        async with consumer:
            async for message in consumer:
                ...

    Without ``nameserver`` the environment variable NAMESRV_ADDR names it; with an open ``session`` it is shared.
    """

    def __init__(
        self,
        group: str,
        nameserver: str | None = None,
        *,
        settings: PullConsumerSettings | None = None,
        session: Session | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = choose_settings(settings, PullConsumerSettings)
        session, self._entered = borrow_session(session, nameserver, self.settings, clock)
        self.group = check_group(group)
        self._session = session
        self._lifecycle = Lifecycle(f"pull consumer {group}")
        self._clock = session.clock
        self._callbacks = QueueCallbacks()
        self._hooks: ConsumerHooks | None = None
        if self.settings.hooks:
            self._hooks = ConsumerHooks(session, group, self.settings.hooks, sys.maxsize)  # no time limit
        self._buffered = BufferedMessages(self.settings.max_buffered_messages)
        self._member = GroupMember(session, self._plan(), self._make_buffer, self._refuse)
        self._brokers = self._member.brokers
        self._is_sharing = False
        self._is_assigned = False

    def __repr__(self) -> str:
        return f"<PullConsumer {self.group} {self._lifecycle.stage.name.lower()}, {self._member.assigned!r}>"

    @property
    def client_id(self) -> str:
        """The id that the members of the group are sorted by."""
        return self._session.client_id

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member owns now."""
        return self._member.assigned.queues

    def on_queues_changed(self, callback: QueuesCallback) -> None:
        """Have ``callback(queues)`` called after each change of ``queues`` (Java's ``MessageQueueListener``)."""
        self._callbacks.on_changed(callback)

    def on_queues_revoked(self, callback: HandoverCallback) -> None:
        """Have ``callback(queues)`` called, and waited for, before queues are given up: the time to commit."""
        self._callbacks.on_revoked(callback)

    def on_queues_assigned(self, callback: HandoverCallback) -> None:
        """Have ``callback(queues)`` called, and waited for, before new queues are read: the time to seek."""
        self._callbacks.on_assigned(callback)

    # what to consume

    def subscribe(self, topic: str, expression: str | Sql = ALL) -> None:
        """Share the queues of a topic with the group; ``TagA || TagB`` wants two tags, ``*`` all messages.

        May be called before and inside the block, again to change the expression.

        Raises:
            ValueError: the topic cannot exist, or the expression holds no tag.
            ClientStateError: queues were assigned.
        """
        if self._is_assigned:
            raise ClientStateError(f"pull consumer {self.group} has assigned queues, it cannot subscribe as well")
        self._member.subscriptions.put(topic, expression)
        if self._lifecycle.is_open:
            self._begin_sharing()
            self._member.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic; its queues are given up soon."""
        self._member.subscriptions.remove(topic)
        if self._lifecycle.is_open:
            self._member.subscriptions_changed()

    async def assign(self, queues: Iterable[MessageQueue], expression: str | Sql = ALL) -> None:
        """Take exactly these queues, without regard to other members; give up what was assigned before.

        Raises:
            TypeError: something else than queues was given.
            ValueError: a topic cannot exist, or the expression holds no tag.
            ClientStateError: topics were subscribed to, or the consumer is not open.
            RouteNotFoundError, RemotingError, ResponseError: a queue cannot be read now.
        """
        self._lifecycle.check()
        wanted = checked_queues(queues)
        if self._is_sharing:
            raise ClientStateError(f"pull consumer {self.group} has subscribed, it cannot assign as well")
        self._is_assigned = True
        for topic in {queue.topic for queue in (*wanted, *self.queues)}:
            self._member.subscriptions.put(topic, expression)
            await self._session.route(topic)
            owned = [queue for queue in self.queues if queue.topic == topic]
            change = compare_share(owned, [queue for queue in wanted if queue.topic == topic])
            for failure in await self._member.assigned.change(topic, change):
                raise failure

    # life

    async def __aenter__(self) -> Self:
        """Start; when brokers and name servers answer, the share of what was subscribed to is known.

        Raises:
            ClientStateError: it has been started before.
        """
        async with self._lifecycle.starting() as stack:
            await stack.enter_async_context(self._entered)
            await stack.enter_async_context(self._member.tasks)
            if self._hooks is not None:
                await stack.enter_async_context(self._hooks.attached())
            stack.push_async_callback(self._stop)
            answers = PullAdminAnswers(self._member, self.settings)
            self._member.start(ClientRequestHandlers(self._session, self._member, self.settings, answers).handlers)
            if self._member.subscriptions.topics:
                self._begin_sharing()
                await self._member.rebalance.wait_first_run(START_WAIT_MS)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop pulling, store the offsets of finished messages and leave the group."""
        await self._lifecycle.close()

    async def _stop(self) -> None:
        try:
            if self.queues:
                await self._callbacks.revoked(self.queues)
        finally:
            await self._close()

    async def _close(self) -> None:
        self._lifecycle.end()
        self._buffered.close()
        self._member.stop()
        await self._member.end()

    def _begin_sharing(self) -> None:
        if not self._is_sharing:
            self._is_sharing = True
            self._member.start_sharing()

    # messages

    async def poll(self, timeout_ms: int | None = None, *, max_messages: int | None = None) -> list[ReceivedMessage]:
        """Return messages of one queue, or an empty list when none came in time.

        Raises:
            ValueError: a number is out of its range.
            ClientStateError: the consumer is not open, was closed meanwhile, or has nothing to consume.
        """
        self._lifecycle.check()
        check_poll(timeout_ms, max_messages)
        self._finish_handed_out()
        messages = self._hand_out(max_messages)
        if messages:
            return messages
        self._check_consuming()
        try:
            async with self._clock.timeout(self.settings.poll_timeout_ms if timeout_ms is None else timeout_ms):
                await self._buffered.wait_available()
        except TimeoutError:
            return []
        self._lifecycle.check()
        return self._hand_out(max_messages)

    def _hand_out(self, max_messages: int | None) -> list[ReceivedMessage]:
        messages = self._buffered.take(max_messages)
        if self._hooks is not None and messages:
            self._hooks.hand_out(messages)
        return messages

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Iterate over messages as they come; the iteration ends when the consumer is closed."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message.

        Raises:
            ClientStateError: the consumer is not started yet, or has nothing to consume.
        """
        self._finish_handed_out()
        while self._lifecycle.is_open:
            messages = self._hand_out(1)
            if messages:
                return messages[0]
            self._check_consuming()
            await self._buffered.wait_available()
        if not self._lifecycle.is_closed:
            self._lifecycle.check()
        raise StopAsyncIteration

    # positions

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message of an owned queue.

        Raises:
            ValueError: the queue is not owned.
        """
        position = self._buffer_of(queue).position
        return position if position is not None else self._member.offsets.table.get(queue) or 0

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Go on at another message of an owned queue; what was pulled of it and not handed out is thrown away.

        Raises:
            ValueError: the queue is not owned, or has no such message.
            RemotingError, ResponseError: the broker did not say what the queue has.
        """
        self._lifecycle.check()
        check_queue_offset(queue_offset)
        self._buffer_of(queue)
        first, end = await self._brokers.first_offset(queue), await self._brokers.end_offset(queue)
        if not first <= queue_offset <= end:
            raise ValueError(f"offset {queue_offset} is outside {queue}, which has {first} to {end}")
        self._buffer_of(queue).restart(queue_offset)
        self._member.assigned.pull_from(queue, queue_offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that an owned queue still has."""
        await self.seek(queue, await self._brokers.first_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the last message of an owned queue."""
        await self.seek(queue, await self._brokers.end_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, at_ms: int) -> None:
        """Go on at the first message of an owned queue that was stored at an instant or later."""
        await self.seek(queue, await self.offset_at(queue, at_ms))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store the positions of all owned queues, or the offsets given, and wait until the brokers have them.

        An offset is that of the next message to consume: that of the last finished one, plus 1.

        Raises:
            ValueError: a queue is not owned, or an offset is negative.
            RemotingError, ResponseError, RouteNotFoundError: one was not stored.
        """
        self._lifecycle.check()
        table = self._member.offsets.table
        if offsets is None:
            self._take_over_positions()
            offsets = {queue: queue_offset for queue in self.queues if (queue_offset := table.get(queue)) is not None}
        for queue, queue_offset in offsets.items():
            self._buffer_of(queue)
            check_queue_offset(queue_offset)
        for queue, queue_offset in offsets.items():
            table.seek(queue, queue_offset)
            await self._brokers.store_offset(self.group, queue, queue_offset)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor hand out owned queues until ``resume``."""
        for queue in queues:
            self._buffer_of(queue).pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with paused queues."""
        for queue in queues:
            self._buffer_of(queue).resume()
        self._buffered.look_again()

    def _check_consuming(self) -> None:
        if not self._is_assigned and not self._member.subscriptions.topics:
            raise ClientStateError(f"pull consumer {self.group} has nothing to consume: subscribe or assign first")

    def _buffer_of(self, queue: MessageQueue) -> FetchBuffer:
        buffer = self._member.assigned.sink_of(queue)
        if buffer is None:
            raise ValueError(f"{queue} is not owned by this member")
        return buffer

    def _finish_handed_out(self) -> None:
        if self.settings.commits_itself:
            self._take_over_positions()

    def _take_over_positions(self) -> None:
        for buffer in self._buffered.moved:
            if buffer.position is not None and not buffer.is_dropped:
                self._member.offsets.table.seek(buffer.queue, buffer.position)
        self._buffered.moved.clear()

    # any queue, owned or not; nothing here moves a position. All raise ``ClientStateError`` outside the block, and
    # ``RouteNotFoundError``, ``RemotingError`` or ``ResponseError`` when the broker of the queue fails

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return all queues of a topic that can be read."""
        self._lifecycle.check()
        return await self._brokers.queues_of(topic)

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that a queue still has."""
        await self._find(queue)
        return await self._brokers.first_offset(queue)

    async def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will get."""
        await self._find(queue)
        return await self._brokers.end_offset(queue)

    async def offset_at(self, queue: MessageQueue, at_ms: int) -> int:
        """Return the offset of the first message that was stored at an instant or later."""
        await self._find(queue)
        return await self._brokers.offset_at(queue, at_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the broker has stored for the group, or None."""
        await self._find(queue)
        return await self._brokers.stored_offset(self.group, queue)

    async def pull_once(
        self,
        queue: MessageQueue,
        queue_offset: int,
        expression: str | Sql = ALL,
        *,
        max_messages: int = 32,
        wait_ms: int = 0,
    ) -> PullResult:
        """Ask once for messages of a queue from an offset on.

        With ``wait_ms`` the broker waits so long for a message, or some seconds longer.

        Raises:
            ValueError: a number is out of its range, or the expression holds no tag.
        """
        await self._find(queue)
        return await pull_once(
            self._brokers, self.group, SinglePull(queue, queue_offset, expression, max_messages, wait_ms)
        )

    async def _find(self, queue: MessageQueue) -> None:
        """Know the broker of a queue."""
        self._lifecycle.check()
        await self._session.route(queue.topic)

    # the parts

    def _plan(self) -> MemberPlan:
        settings = self.settings
        limits = settings.pull_messages, settings.pull_bytes
        pull = PullPlan(self.group, *limits, SUSPEND_MS, posts_subscription=True, is_lite=True)
        return MemberPlan(settings, ConsumeType.CONSUME_ACTIVELY, pull, Handover(self._callbacks), self._hooks)

    def _make_buffer(self, queue: MessageQueue, _offsets: QueueOffsets) -> FetchBuffer:
        return FetchBuffer(queue, self.settings.limits, self._buffered, self._clock)

    async def _refuse(self, queue: MessageQueue, next_offset: int) -> bool:
        """Go on at the offset that the broker named."""
        buffer = self._member.assigned.sink_of(queue)
        if buffer is not None:
            buffer.restart(next_offset)
        return buffer is not None


def checked_queues(queues: Iterable[object]) -> frozenset[MessageQueue]:
    """Return queues without repetition.

    Raises:
        TypeError: one is something else, such as the name of a topic.
    """
    wanted: set[MessageQueue] = set()
    for queue in queues:
        if not isinstance(queue, MessageQueue):
            raise TypeError(f"{queue!r} is {type(queue).__name__}, it must be a MessageQueue")
        wanted.add(queue)
    return frozenset(wanted)


def check_poll(timeout_ms: int | None, max_messages: int | None) -> None:
    """Refuse numbers with which a poll could give nothing, ever.

    Raises:
        ValueError: one is out of its range.
    """
    if timeout_ms is not None and timeout_ms < 0:
        raise ValueError(f"timeout_ms is {timeout_ms}, must not be negative")
    if max_messages is not None and max_messages < 1:
        raise ValueError(f"max_messages is {max_messages}, must be at least 1")
