"""The push consumer: listeners get messages as they come, members of a group share the queues.

    async with          routes, a heartbeat and the first share are done, or 3 s are over and they go on behind
    a listener ends     its messages are finished; the offset moves to the first unfinished message of the queue
    it fails            each message goes back to its broker, which brings it again later through the group's retry
                        topic; if the broker does not take it, it is kept and runs again here after 5 s
    leaving the block   pulling stops, running listeners end (up to a limit), offsets are stored, the group is told

Offsets are stored every 5 s, with each pull, when a queue is given up and at the end. A message may come twice: after a
crash, and while queues change hands.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import msgspec

from ..common.clock import Clock, TimerHandle
from ..common.errors import ClientError, RemotingError
from ..common.message import MessageQueue, ReceivedMessage
from ..common.names import retry_topic
from ..common.subscription import ALL
from ..remoting.bodies_client import ConsumeType
from .life import Life
from .listening import Batch, Handler, Listener, ListenerPool, cut_batches
from .membership import GroupMember, MemberPlan
from .offsets import start_rule
from .pulls import PullPlan
from .push_queue import PushQueue
from .results import ConsumeResult
from .session import Session, borrow_session
from .settings import PushConsumerSettings, check_group

log = logging.getLogger(__name__)

START_WAIT_MS = 3_000
SUSPEND_MS = 15_000
RUN_AGAIN_MS = 5_000
DEFAULT_MAX_RETRIES = 16

QueuesCallback = Callable[[tuple[MessageQueue, ...]], object]


class PushConsumer:
    """Calls listeners with the messages of its topics; use it with ``async with``, from one event loop.

        consumer = PushConsumer("billing", nameserver="127.0.0.1:9876")
        consumer.subscribe("orders", "paid || shipped", on_orders)
        async with consumer:
            await stopped.wait()

    Without ``nameserver`` the environment variable NAMESRV_ADDR names it; with an open ``session`` it is shared.
    """

    def __init__(
        self,
        group: str,
        nameserver: str | None = None,
        *,
        settings: PushConsumerSettings | None = None,
        session: Session | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.group = check_group(group)
        self.settings = settings or PushConsumerSettings()
        self._life = Life(f"push consumer {group}")
        self._session, self._entered = borrow_session(session, nameserver, self.settings, clock)
        self._clock = self._session.clock
        self._member = GroupMember(self._session, self._plan(), self._make_queue, self._refuse)
        self._member.subscriptions.put(retry_topic(group), ALL)
        self._member.share.on_change = self._tell_queues
        self._handlers: dict[str, Handler] = {}
        self._pool = ListenerPool(self.settings.concurrency, self._finish)
        self._planned: set[TimerHandle] = set()
        self._stack = AsyncExitStack()
        self._told: tuple[MessageQueue, ...] = ()
        self._on_queues_changed: QueuesCallback | None = None

    def __repr__(self) -> str:
        return f"<PushConsumer {self.group} {self._life.stage.name.lower()}, {self._member.share!r}>"

    @property
    def client_id(self) -> str:
        """The id that the members of the group are sorted by."""
        return self._session.client_id

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member owns now; those of the group's own retry topic are not shown."""
        own_topic = retry_topic(self.group)
        return tuple(queue for queue in self._member.share.queues if queue.topic != own_topic)

    def on_queues_changed(self, callback: QueuesCallback) -> None:
        """Have ``callback(queues)`` called after each change of ``queues`` (Java's ``MessageQueueListener``)."""
        self._on_queues_changed = callback

    def subscribe(self, topic: str, expression: str, listener: Listener) -> None:
        """Let a listener have the messages of a topic whose tag is in ``TagA || TagB``, or all with ``*``.

        It gets a list of messages (``settings.batch_messages`` at most) and says what became of them; see
        ``listening.py``. May be called before and inside the block, again to change the expression or the listener.

        Raises:
            ValueError: the topic cannot exist, or the expression holds no tag.
            TypeError: the listener cannot be called.
        """
        if not callable(listener):
            raise TypeError(f"the listener is {type(listener).__name__}, it must be callable")
        self._member.subscriptions.put(topic, expression)
        self._handlers[topic] = Handler.of(listener)
        if self._life.is_open:
            self._member.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic; its queues are given up soon."""
        self._member.subscriptions.remove(topic)
        self._handlers.pop(topic, None)
        if self._life.is_open:
            self._member.subscriptions_changed()

    async def __aenter__(self) -> Self:
        """Start; when brokers and name servers answer, the share is known and its offsets are fixed.

        Raises:
            ClientStateError: it has been started before.
        """
        self._life.begin()
        async with AsyncExitStack() as stack:
            stack.callback(self._pool.close)
            await stack.enter_async_context(self._entered)
            await stack.enter_async_context(self._member.tasks)
            stack.push_async_callback(self._stop)
            self._pool.start(self._member.tasks)
            self._member.start()
            self._member.start_sharing()
            await self._member.rebalance.wait_first_run(START_WAIT_MS)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop pulling, let running listeners end, store the offsets and leave the group."""
        await self._stack.aclose()

    async def _stop(self) -> None:
        self._life.end()
        self._member.stop()
        for planned in self._planned:
            planned.cancel()
        try:
            async with self._clock.timeout(self.settings.close_timeout_ms):
                await self._pool.drain()
        except TimeoutError:
            log.warning("%r ends while listeners still run; their messages will come again", self)
        await self._member.end()

    def _tell_queues(self, _queues: tuple[MessageQueue, ...]) -> None:
        queues = self.queues
        if queues != self._told and self._on_queues_changed is not None:
            self._told = queues
            self._on_queues_changed(queues)

    # messages

    def _plan(self) -> MemberPlan:
        settings = self.settings
        pull = PullPlan(
            group=self.group,
            max_messages=settings.pull_messages,
            max_bytes=settings.pull_bytes,
            suspend_ms=SUSPEND_MS,
            posts_subscription=settings.posts_subscription,
        )
        return MemberPlan(
            pull=pull,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            start=start_rule(settings.consume_from, settings.consume_from_at_ms, self._clock.now_ms()),
            strategy=settings.strategy,
            rebalance_interval_ms=settings.rebalance_interval_ms,
            commit_interval_ms=settings.commit_interval_ms,
        )

    def _make_queue(self, queue: MessageQueue) -> PushQueue:
        return PushQueue(queue, self._member.offsets.table, self.settings.limits, self._submit)

    async def _refuse(self, queue: MessageQueue, next_offset: int) -> bool:
        await self._member.share.retake(queue, next_offset)
        self._member.rebalance.wake()
        return False

    def _submit(self, source: PushQueue, messages: Iterable[ReceivedMessage]) -> None:
        for batch in cut_batches(messages, self.settings.batch_messages):
            self._pool.submit(Batch(self._handlers.get(batch[0].topic, _REFUSING), batch, source))

    async def _finish(self, batch: Batch, result: ConsumeResult) -> None:
        if result is ConsumeResult.SUCCESS or batch.source.is_dropped:
            batch.source.finish(batch.messages)
            return
        kept: list[ReceivedMessage] = []
        for message in batch.messages:
            if await self._send_back(message):
                batch.source.finish([message])
            else:
                kept.append(message)
        self._run_again_later(batch.source, kept)

    async def _send_back(self, message: ReceivedMessage) -> bool:
        max_retries = DEFAULT_MAX_RETRIES if self.settings.max_retries < 0 else self.settings.max_retries
        try:
            await self._member.brokers.send_back(self.group, message, max_retries)
        except (RemotingError, ClientError) as error:
            log.warning("message %s was not taken back and runs again here: %s", message.message_id, error)
            return False
        return True

    def _run_again_later(self, source: PushQueue, messages: Sequence[ReceivedMessage]) -> None:
        if not messages or not self._life.is_open:
            return
        again = [msgspec.structs.replace(each, reconsume_times=each.reconsume_times + 1) for each in messages]
        at_ms = self._clock.now_ms() + RUN_AGAIN_MS
        planned = self._clock.call_at(at_ms, lambda: (self._planned.discard(planned), self._submit(source, again)))
        self._planned.add(planned)


async def _refuse_unknown(messages: list[ReceivedMessage]) -> ConsumeResult:
    """Send back messages of a topic that nobody listens to any more, so that they are not lost."""
    log.warning("%d messages of the topic %s have no listener and come again", len(messages), messages[0].topic)
    return ConsumeResult.RETRY


_REFUSING = Handler.of(_refuse_unknown)
