"""The queues that a consumer owns, each with the loop that fetches its messages.

    take       find the offset to begin at; the pull loop starts after a heartbeat with a new subscription version
    give up    end the pull loop, store the offset, forget the queue
    suspend    no pulls are made until ``resume``; queues are taken and given up as before
    retake     a broker refused the offset: store the one it named, whatever listeners still say of messages that were
               pulled before, and let the next rebalance take the queue again

The heartbeat comes first because a broker refuses pulls of a version that it does not know yet.

The fetch loop of a queue (Java's ``DefaultMQPushConsumerImpl.pullMessage``):

1. One pull is under way at a time; the next begins when the answer has been handed over.
2. While the buffer is above a limit there is no pull; it goes on when the buffer says so (Java looks every 50 ms).
3. After an error: 1 s; FLOW_CONTROL (215): 20 ms. A broker that does not know our subscription is sent a heartbeat.
4. A refused offset (21) ends the loop or moves it, as the consumer decides.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from ...common.errors import ClientError, ResponseError, RocketletError
from ...common.message import MessageQueue, ReceivedMessage
from ...remoting.codec.codes import ResponseCode
from ...remoting.transport.event_loop import TaskScope, repeat
from ..session.callbacks import AwaitedCallback
from ..session.routes import MASTER_ID
from ..session.session import Session
from .broker_requests import BrokerRequests, PullPlan, PullPosition
from .offsets import GroupOffsets
from .rebalance import ShareChange
from .subscriptions import SubscriptionTable

FLOW_CONTROL_PAUSE_MS = 20
ERROR_PAUSE_MS = 1_000

_UNKNOWN_CONSUMER_CODES = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)


class PullSink(Protocol):
    """Where pulled messages go, and what that place says about the next pull."""

    async def wait_for_room(self) -> None:
        """Return when more may be pulled."""
        ...

    def offset_to_commit(self) -> int:
        """Return the offset to store with the next pull; 0 for none."""
        ...

    def accept(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Take the messages of one answer, which may be none; the next pull starts at ``next_offset``."""
        ...


Refuse = Callable[[MessageQueue, int], Awaitable[bool]]


class FetchContext(NamedTuple):
    """What the pull loops of one consumer have in common.

    ``refuse`` learns that a broker refused an offset and names a better one; it tells whether the loop goes on there.
    """

    session: Session
    tasks: TaskScope
    brokers: BrokerRequests
    subscriptions: SubscriptionTable
    plan: PullPlan
    refuse: Refuse


class QueueFetcher:
    """Pulls one queue into a sink; ``step`` is a job."""

    def __init__(self, queue: MessageQueue, next_offset: int, context: FetchContext, sink: PullSink) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self._broker_id = MASTER_ID
        self._context = context
        self._sink = sink

    def __repr__(self) -> str:
        return f"<QueueFetcher {self.queue} next {self.next_offset}>"

    async def step(self) -> int | None:
        """Do one pull; return the pause before the next, or None when the loop has ended."""
        context = self._context
        await self._sink.wait_for_room()
        subscription = context.subscriptions.get(self.queue.topic)
        if subscription is None:
            return ERROR_PAUSE_MS  # the next rebalance gives the queue up
        position = PullPosition(self.queue, self.next_offset, self._sink.offset_to_commit(), self._broker_id)
        try:
            answer = await context.brokers.pull(context.plan, subscription, position)
        except RocketletError as error:
            return self._pause_after(error)
        self._broker_id = answer.next_broker_id
        self.next_offset = answer.next_offset
        if answer.was_offset_refused:
            _log.warning(
                "group %s: offset %d of %s is out of range, going on at %d",
                context.plan.group,
                position.queue_offset,
                self.queue,
                answer.next_offset,
            )
            return 0 if await context.refuse(self.queue, answer.next_offset) else None
        self._sink.accept(answer.messages, answer.next_offset)
        return 0

    def _pause_after(self, error: RocketletError) -> int:
        code = error.code if isinstance(error, ResponseError) else None
        if code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_PAUSE_MS
        _log.warning(
            "group %s: pulling %s from offset %d failed: %s",
            self._context.plan.group,
            self.queue,
            self.next_offset,
            error,
        )
        if code in _UNKNOWN_CONSUMER_CODES:
            self._context.session.heartbeat_soon()
        return ERROR_PAUSE_MS


_log = logging.getLogger(__name__)


async def _nobody_waits(_queues: tuple[MessageQueue, ...]) -> None:
    """Stand for a callback that is not set."""


class OwnedSink(PullSink, Protocol):
    """Where the messages of an owned queue go."""

    def drop(self) -> None:
        """Learn that the queue was given up."""
        ...


class QueueKeeper(Protocol):
    """Who has to agree when queues are taken and given up: queues that run in order are locked."""

    async def hold(self, queues: Sequence[MessageQueue], /) -> Collection[MessageQueue]:
        """Return those of the queues that may be taken."""
        ...

    async def wait_unused(self, queue: MessageQueue, /) -> None:
        """Return when nothing is done any more with a queue that was given up."""
        ...

    async def release(self, queues: Iterable[MessageQueue], /) -> None:
        """Let others take queues; their offsets are stored."""
        ...

    async def release_all(self) -> None:
        """Let others take all queues that are held or may be, and hold none any more."""
        ...


SinkT = TypeVar("SinkT", bound=OwnedSink)


class AssignedQueues(Generic[SinkT]):
    """The owned queues of one consumer."""

    def __init__(
        self, context: FetchContext, offsets: GroupOffsets, make_sink: Callable[[MessageQueue], SinkT]
    ) -> None:
        self.on_change: Callable[[tuple[MessageQueue, ...]], object] | None = None
        self.on_revoked: AwaitedCallback = _nobody_waits
        self.on_assigned: AwaitedCallback = _nobody_waits
        self.keeper: QueueKeeper | None = None
        self.is_suspended = False
        self._context = context
        self._offsets = offsets
        self._make_sink = make_sink
        self._sinks: dict[MessageQueue, SinkT] = {}
        self._pullers: dict[MessageQueue, QueueFetcher] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._leaving: set[MessageQueue] = set()

    def __repr__(self) -> str:
        return f"<AssignedQueues {len(self._sinks)} queues, {len(self._pulls)} pulled>"

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The owned queues in order."""
        return tuple(sorted(self._sinks))

    @property
    def unstored(self) -> tuple[MessageQueue, ...]:
        """The owned queues, and those that were given up and are still in use."""
        return (*self.queues, *sorted(self._leaving.difference(self._sinks)))

    @property
    def sinks(self) -> Collection[SinkT]:
        """Where the messages of the owned queues go."""
        return self._sinks.values()

    def sink_of(self, queue: MessageQueue) -> SinkT | None:
        """Return where the messages of an owned queue go."""
        return self._sinks.get(queue)

    async def change(self, topic: str, change: ShareChange) -> list[RocketletError]:
        """Give up and take queues of a topic; return why queues could not be taken."""
        try:
            if change.given_up:
                await self.on_revoked(change.given_up)
        finally:
            for queue in change.given_up:
                await self.give_up(queue)
        starts: dict[MessageQueue, int] = {}
        failures: list[RocketletError] = []
        held = change.taken if self.keeper is None else await self._hold(change.taken, self.keeper)
        for queue in change.taken:
            try:
                starts[queue] = await self._take(queue, may_take=queue in held)
            except RocketletError as error:
                _log.warning("starting to consume %s failed, retrying at the next rebalance: %s", queue, error)
                failures.append(error)
                if self.keeper is not None and queue in held:
                    await self.keeper.release([queue])  # another member may get it before this one asks again
        if change.given_up or starts:
            self._context.subscriptions.renew(topic)
            await self._context.session.heartbeat()
        try:
            if starts:
                await self.on_assigned(tuple(starts))
        finally:
            for queue, start in starts.items():
                if queue not in self._pulls:  # else it was told to begin elsewhere
                    self.pull_from(queue, start)
        if self.on_change is not None and (change.given_up or starts):
            self.on_change(self.queues)
        return failures

    async def _hold(self, queues: Iterable[MessageQueue], keeper: QueueKeeper) -> Collection[MessageQueue]:
        return await keeper.hold([queue for queue in queues if queue not in self._leaving])

    async def _take(self, queue: MessageQueue, *, may_take: bool) -> int:
        if not may_take:
            raise ClientError("it is still in use, here or by another member")
        start = await self._offsets.find_start(queue)
        self._offsets.table.forget(queue)
        self._offsets.table.seek(queue, start)
        self._sinks[queue] = self._make_sink(queue)
        return start

    def pull_from(self, queue: MessageQueue, start: int) -> None:
        """Start the pull loop of an owned queue, or start it again at another offset."""
        self.stop_pulling([queue])
        self._pullers[queue] = QueueFetcher(queue, start, self._context, self._sinks[queue])
        if not self.is_suspended:
            self._start(queue)

    def _start(self, queue: MessageQueue) -> None:
        context = self._context
        step = self._pullers[queue].step
        self._pulls[queue] = context.tasks.start(repeat(step, context.session.clock), name=f"pull {queue}")

    def stop_pulling(self, queues: Iterable[MessageQueue]) -> None:
        """End pull loops; what was pulled stays."""
        for queue in queues:
            self._pullers.pop(queue, None)
            self._cancel(queue)

    def _cancel(self, queue: MessageQueue) -> None:
        task = self._pulls.pop(queue, None)
        if task is not None:
            task.cancel()

    def suspend(self) -> None:
        """Pull nothing until ``resume``; an answer that is on its way is thrown away."""
        self.is_suspended = True
        for queue in self._pullers:
            self._cancel(queue)

    def resume(self) -> None:
        """Pull on from where ``suspend`` stopped."""
        self.is_suspended = False
        for queue in self._pullers.keys() - self._pulls.keys():
            self._start(queue)

    async def give_up(self, queue: MessageQueue) -> None:
        """Let go of a queue and store its offset."""
        self.stop_pulling([queue])
        sink = self._sinks.pop(queue, None)
        if sink is None:
            return
        sink.drop()
        if self.keeper is None:
            await self._leave(queue)
        else:
            self._leaving.add(queue)
            self._context.tasks.start(self._leave_when_unused(queue, self.keeper), name=f"leave {queue}")

    async def _leave_when_unused(self, queue: MessageQueue, keeper: QueueKeeper) -> None:
        await keeper.wait_unused(queue)
        await self._leave(queue)
        await keeper.release([queue])
        self._leaving.discard(queue)

    async def _leave(self, queue: MessageQueue) -> None:
        await self._offsets.persist([queue])
        self._offsets.table.forget(queue)

    async def retake(self, queue: MessageQueue, start: int) -> None:
        """Let go of a queue whose offset was refused, and store the one to begin at; called by its pull loop."""
        self._pullers.pop(queue, None)
        self._pulls.pop(queue, None)
        sink = self._sinks.pop(queue, None)
        if sink is not None:
            sink.drop()
            self._offsets.table.freeze(queue, start)
            await self._offsets.persist_now([queue])  # the next rebalance reads it back
