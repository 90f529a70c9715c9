"""The push consumer: listeners get messages as they come, members of a group share the queues.

    async with          routes, a heartbeat and the first share are done, or 3 s are over and they go on behind
    inside              as ``listeners.py`` says, or ``orderly_consume.py`` for ``settings.is_orderly``
    leaving the block   pulling stops, running listeners end (up to a limit), offsets are stored, the group is told

Offsets are stored every 5 s, with each pull, when a queue is given up and at the end. A message may come twice: after a
crash, and while queues change hands.

With ``settings.is_broadcast`` every member has every queue, and its offsets are in a file of its own.

With ``settings.by_pop`` nobody owns queues: brokers hand messages out for a time (``pop_consume.py``), so there may be
more consumers than queues, and one that is slow holds nothing back.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from ...common.clock import Clock
from ...common.errors import ClientStateError
from ...common.message import MessageQueue
from ...common.names import retry_topic
from ...common.subscriptions.subscription import ALL
from ...remoting.bodies.client import ConsumeType
from ...remoting.transport.connection import Handler as RequestHandler
from ..group.assigned_queues import Handover
from ..group.consumer_hooks import ConsumerHooks
from ..group.group_member import GroupMember, MemberPlan
from ..group.offsets import DEFAULT_INSTANCE, LocalOffsetFile, LocalOffsets, offset_file_of
from ..group.process_queue import PushQueue, QueueOffsets
from ..group.queue_fetcher import PullPlan
from ..group.subscriptions import Sql
from ..pop.pop_places import NO_QUEUES, PopPlaces
from ..pop.pop_requests import PopRequests
from ..session.callbacks import QueueCallbacks, QueuesCallback
from ..session.lifecycle import Lifecycle
from ..session.session import Session, borrow_session
from ..session.settings import PushConsumerSettings, check_group, choose_settings
from .admin_callbacks import ClientRequestHandlers
from .listeners import ConcurrentConsumer, ConsumeEnvironment, Handler, Listener, ListenerCalls
from .orderly_consume import NO_LIMIT, HeldQueueLocks, OrderlyConsumer
from .pop_consume import PopConsumer, PopSource
from .push_admin_answers import PushAdminAnswers
from .send_back import MessageReturner

_log = logging.getLogger(__name__)

START_WAIT_MS = 3_000
SUSPEND_MS = 15_000
DEFAULT_MAX_RETRIES = 16


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
        self.settings = choose_settings(settings, PushConsumerSettings)
        self._lifecycle = Lifecycle(f"push consumer {group}")
        self._session, self._entered = borrow_session(session, nameserver, self.settings, clock)
        self._clock = self._session.clock
        self._hooks: ConsumerHooks | None = None
        if self.settings.hooks:
            self._hooks = ConsumerHooks(self._session, group, self.settings.hooks, self.settings.consume_timeout_ms)
        self._handlers: dict[str, Handler] = {}
        self._calls = ListenerCalls(group, self.settings.concurrency, self._hooks)
        self._environment = ConsumeEnvironment(
            self.settings, self._clock, self._handlers, self._calls, self._make_returner()
        )
        service = None if self.settings.by_pop else self._make_consume_service()
        self._member = GroupMember(self._session, self._plan(service), self._make_queue, self._refuse)
        self._consume_service = service or self._make_pop_consumer()
        if not (self.settings.is_broadcast or self.settings.by_pop):
            self._member.subscriptions.put(retry_topic(group), ALL)
        self._told: tuple[MessageQueue, ...] = ()
        self._on_queues_changed: QueuesCallback | None = None

    def __repr__(self) -> str:
        return f"<PushConsumer {self.group} {self._lifecycle.stage.name.lower()}, {self._member.assigned!r}>"

    @property
    def client_id(self) -> str:
        """The id that the members of the group are sorted by."""
        return self._session.client_id

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member owns now; those of the group's own retry topic are not shown."""
        own_topic = retry_topic(self.group)
        return tuple(queue for queue in self._member.assigned.queues if queue.topic != own_topic)

    def on_queues_changed(self, callback: QueuesCallback) -> None:
        """Have ``callback(queues)`` called after each change of ``queues`` (Java's ``MessageQueueListener``)."""
        self._on_queues_changed = callback

    def subscribe(self, topic: str, expression: str | Sql, listener: Listener) -> None:
        """Let a listener have messages of a topic: those whose tag is in ``TagA || TagB``, all with ``*``, or ``Sql``.

        It gets a list of messages (``settings.batch_messages`` at most) and says what became of them; see
        ``listeners.py``. May be called before and inside the block, again to change the expression or the listener.

        Raises:
            ValueError: the topic cannot exist, or the expression holds no tag.
            TypeError: the listener cannot be called, or the expression is no text.
            ClientStateError: the consumer is closed.
        """
        if self._lifecycle.is_closed:
            raise ClientStateError(f"push consumer {self.group} is closed")
        handler = Handler.of(listener)
        self._member.subscriptions.put(topic, expression)
        self._handlers[topic] = handler
        if self._lifecycle.is_open:
            self._member.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic; its queues are given up soon."""
        self._member.subscriptions.remove(topic)
        self._handlers.pop(topic, None)
        if self._lifecycle.is_open:
            self._member.subscriptions_changed()

    @property
    def is_suspended(self) -> bool:
        """Whether nothing is pulled until ``resume`` is called."""
        return self._member.assigned.is_suspended

    def suspend(self) -> None:
        """Pull nothing until ``resume``; messages that are here already still run, and the queues stay owned.

        Raises:
            ClientStateError: the consumer is not open.
        """
        self._lifecycle.check()
        self._member.assigned.suspend()

    def resume(self) -> None:
        """Pull on.

        Raises:
            ClientStateError: the consumer is not open.
        """
        self._lifecycle.check()
        self._member.assigned.resume()
        self._member.rebalance.wake()

    async def __aenter__(self) -> Self:
        """Start; when brokers and name servers answer, the share is known and its offsets are fixed.

        Raises:
            ClientStateError: it has been started before.
            ConfigError: its group is in the session already, or the offsets of a broadcast cannot be read.
            ResponseError: a broker cannot filter as subscribed.
        """
        async with self._lifecycle.starting() as stack:
            stack.callback(self._calls.close)
            stack.callback(self._consume_service.close)
            await stack.enter_async_context(self._entered)
            await stack.enter_async_context(self._member.tasks)
            if self._hooks is not None:
                await stack.enter_async_context(self._hooks.attached())
            if isinstance(self._member.offsets, LocalOffsets):
                await self._member.offsets.load()
            self._member.start(self._make_handlers())
            stack.push_async_callback(self._stop)
            self._consume_service.start(self._member.tasks)
            self._member.start_sharing()
            await self._member.rebalance.wait_first_run(START_WAIT_MS)
            await self._member.check_filters()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop pulling, let running listeners end, store the offsets and leave the group."""
        await self._lifecycle.close()

    async def _stop(self) -> None:
        self._lifecycle.end()
        self._member.stop()
        try:
            async with self._clock.timeout(self.settings.close_timeout_ms):
                await self._consume_service.drain()
        except TimeoutError:
            _log.warning("%r closes while listeners still run, their messages will be consumed again", self)
        await self._member.end()

    def _tell_queues(self, _queues: tuple[MessageQueue, ...]) -> None:
        if self.settings.max_topic_messages is not None or self.settings.max_topic_bytes is not None:
            self._divide_limits()
        queues = self.queues
        if queues != self._told:
            self._told = queues
            if self._on_queues_changed is not None:
                self._on_queues_changed(queues)

    # messages

    def _make_queue(self, queue: MessageQueue, offsets: QueueOffsets) -> PushQueue:
        return self._consume_service.make_queue(queue, offsets)

    def _plan(self, service: ConcurrentConsumer | OrderlyConsumer | None) -> MemberPlan:
        settings = replace(self.settings, strategy=NO_QUEUES) if self.settings.by_pop else self.settings
        callbacks = QueueCallbacks()
        callbacks.on_changed(self._tell_queues)
        keeper = service if isinstance(service, OrderlyConsumer) and not settings.is_broadcast else None
        return MemberPlan(
            settings,
            ConsumeType.CONSUME_PASSIVELY,
            PullPlan(self.group, settings.pull_messages, settings.pull_bytes, SUSPEND_MS, settings.posts_subscription),
            Handover(callbacks, keeper),
            self._hooks,
            self._offset_file() if settings.is_broadcast else None,
        )

    def _offset_file(self) -> LocalOffsetFile:
        client = self._session.settings
        parts = (self._session.host, client.instance_name or DEFAULT_INSTANCE, client.unit_name)
        return offset_file_of(self.settings.offset_directory, parts, self.group, self._session.namespace)

    def _make_consume_service(self) -> ConcurrentConsumer | OrderlyConsumer:
        if not self.settings.is_orderly:
            return ConcurrentConsumer(self._environment)
        locks = None if self.settings.is_broadcast else HeldQueueLocks(self.group, self._session)
        return OrderlyConsumer(self._environment, locks)

    def _make_pop_consumer(self) -> PopConsumer:
        session, group, member = self._session, self.group, self._member
        source = PopSource(PopPlaces(session, group, member.subscriptions), PopRequests(session, group, member.tasks))
        return PopConsumer(self._environment, source, self._hooks, lambda: self.is_suspended)

    def _make_returner(self) -> MessageReturner | None:
        settings = self.settings
        if settings.is_broadcast:
            return None
        default_retries = NO_LIMIT if settings.is_orderly else DEFAULT_MAX_RETRIES
        max_retries = default_retries if settings.max_retries < 0 else settings.max_retries
        return MessageReturner(self.group, self._session, max_retries)

    def _make_handlers(self) -> Mapping[int, RequestHandler]:
        locks = self._consume_service.locks if isinstance(self._consume_service, OrderlyConsumer) else None
        answers = PushAdminAnswers(self._member, self._environment, locks)
        return ClientRequestHandlers(self._session, self._member, self.settings, answers).handlers

    async def _refuse(self, queue: MessageQueue, next_offset: int) -> bool:
        await self._member.assigned.retake(queue, next_offset)
        self._member.rebalance.wake()
        return False

    def _divide_limits(self) -> None:
        """Let the queues share what is allowed to all of them, as they are now."""
        settings, sinks = self.settings, self._member.assigned.sinks
        for sink in sinks:
            limits = settings.limits
            if settings.max_topic_messages is not None:
                limits = limits._replace(max_messages=max(1, settings.max_topic_messages // len(sinks)))
            if settings.max_topic_bytes is not None:
                limits = limits._replace(max_bytes=max(1, settings.max_topic_bytes // len(sinks)))
            sink.limit(limits)
