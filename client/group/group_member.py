"""One consumer's part in its group: subscriptions, assigned queues, offsets, and the jobs that keep them right.

    rebalance    at the start, then as ``rebalance.py`` says; queues are taken and given up as in ``assigned_queues.py``
    commit       every 5 s without waiting for answers; at the end with them

What happens to the messages of an owned queue is the consumer's own: it makes the sink of each.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple

from ...common.allocation import AllocateMessageQueueAveragely
from ...common.errors import RemotingError, RocketletError, RouteNotFoundError
from ...common.message import MessageQueue
from ...common.subscriptions.subscription import SQL92_TYPE
from ...remoting.bodies.client import ConsumerData, ConsumeType
from ...remoting.transport.connection import Handler
from ...remoting.transport.event_loop import TaskScope, repeat
from ..session.interceptors import NamespacedStrategy
from ..session.session import CALL_TIMEOUT_MS, Session
from ..session.settings import ConsumerSettings
from .assigned_queues import AssignedQueues, Handover, MakeSink, SinkT
from .broker_requests import BrokerRequests
from .consumer_hooks import ConsumerHooks
from .offsets import GroupOffsets, LocalOffsetFile, LocalOffsets, start_rule
from .queue_fetcher import FetchContext, PullPlan, Refuse
from .rebalance import MemberIdentity, Rebalance, ShareChange
from .subscriptions import SubscriptionTable

_log = logging.getLogger(__name__)


class MemberPlan(NamedTuple):
    """How a consumer takes part in its group."""

    settings: ConsumerSettings
    consume_type: ConsumeType
    pull: PullPlan
    handover: Handover
    hooks: ConsumerHooks | None
    offset_file: LocalOffsetFile | None = None  # of a broadcasting consumer


class GroupMember(Generic[SinkT]):
    """A member of a consumer group, as its session, its rebalance and its consumer see it."""

    def __init__(self, session: Session, plan: MemberPlan, make_sink: MakeSink[SinkT], refuse: Refuse) -> None:
        self.group = plan.pull.group
        self.tasks = TaskScope()
        self.subscriptions = SubscriptionTable(session.clock)
        is_broadcast = plan.offset_file is not None
        self.brokers = BrokerRequests(session)
        start = start_rule(plan.settings.consume_from, plan.settings.consume_from_at_ms, session.clock.now_ms())
        self.offsets = (
            GroupOffsets(self.group, self.brokers, start)
            if plan.offset_file is None
            else LocalOffsets(self.group, self.brokers, start, plan.offset_file)
        )
        self._handlers: Mapping[int, Handler] = {}
        context = FetchContext(session, self.subscriptions, plan.pull, refuse, plan.hooks, self.tasks)
        self.assigned = AssignedQueues(context, self.offsets, make_sink, plan.handover)
        strategy = AllocateMessageQueueAveragely() if is_broadcast else plan.settings.strategy
        if session.namespace.name:
            strategy = NamespacedStrategy(strategy, session.namespace)
        membership = MemberIdentity(self.group, session.client_id, strategy, is_alone=is_broadcast)
        self.rebalance = Rebalance(membership, self.brokers, self, session.clock, plan.settings.rebalance_interval_ms)
        self._session = session
        self._plan = plan
        self._sharing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<GroupMember of {self.group} {self.subscriptions!r} {self.assigned!r}>"

    def start(self, handlers: Mapping[int, Handler] | None = None) -> None:
        """Begin to take part: heartbeats name the group, offsets are stored, brokers may ask what handlers answer."""
        self._handlers = handlers or {}
        session = self._session
        session.join(self)
        interval_ms = self._plan.settings.commit_interval_ms
        self.tasks.start(repeat(self._commit, session.clock, first_ms=interval_ms), name="commit offsets")

    def start_sharing(self) -> None:
        """Begin to share the queues with the other members."""
        self._sharing = self.tasks.start(self._keep_share(), name="rebalance")

    def subscriptions_changed(self) -> None:
        """Let brokers and the share follow a change of the subscriptions."""
        self._session.heartbeat_soon()
        self.rebalance.wake()

    def stop(self) -> None:
        """Neither share nor pull any more; the queues stay owned until the end."""
        if self._sharing is not None:
            self._sharing.cancel()
        self.assigned.stop_pulling(self.assigned.queues)

    async def check_filters(self) -> None:
        """Ask a broker of each topic whether it can filter as subscribed (Java's ``checkClientInBroker``).

        Raises:
            ResponseError: it cannot.
        """
        for subscription in self.subscriptions.by_topic.values():
            if subscription.expression_type != SQL92_TYPE:
                continue
            try:
                await self.brokers.check_filter(self.group, subscription)
            except (RemotingError, RouteNotFoundError) as error:
                _log.warning(
                    "group %s: filter of topic %s not checked by a broker: %s", self.group, subscription.topic, error
                )

    async def end(self) -> None:
        """Store the offsets and leave the group."""
        queues = self.assigned.unstored
        await self.offsets.persist_at_end(queues, self._session.clock, CALL_TIMEOUT_MS)
        if self._plan.handover.keeper is not None:
            await self._plan.handover.keeper.release_all()
        await self._session.leave(self)

    async def _keep_share(self) -> None:
        for topic in self.subscriptions.topics:
            try:
                await self._session.route(topic)
            except RocketletError as error:
                _log.info("group %s: topic %s not found, retrying: %s", self.group, topic, error)
        await self._session.heartbeat()
        await repeat(self.rebalance.step, self._session.clock)

    async def _commit(self) -> int:
        await self.offsets.persist(self.assigned.queues)
        return self._plan.settings.commit_interval_ms

    # ``SessionMember``

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """What brokers may ask a consumer."""
        return self._handlers

    def topics(self) -> Sequence[str]:
        """Return the topics that are subscribed to."""
        return self.subscriptions.topics

    def consumer_data(self) -> ConsumerData:
        """Return what heartbeats say."""
        plan = self._plan
        return self.subscriptions.consumer_data(
            self.group, plan.consume_type, plan.settings.consume_from, is_broadcast=plan.offset_file is not None
        )

    def route_changed(self, _topic: str) -> None:
        """Rebalance soon."""
        self.rebalance.wake()

    def members_changed(self) -> None:
        """Rebalance soon."""
        self.rebalance.wake()

    # ``QueueOwner``

    def owned_queues(self) -> Sequence[MessageQueue]:
        """Return the queues that are owned now."""
        return self.assigned.queues

    async def change_share(self, topic: str, change: ShareChange) -> bool:
        """Give up and take queues; tell whether everything could be taken."""
        return not await self.assigned.change(topic, change)
