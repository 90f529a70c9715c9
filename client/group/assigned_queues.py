"""The queues that a consumer owns, each with the loop that fetches its messages.

    take       find the offset to begin at; the pull loop starts after a heartbeat with a new subscription version
    give up    end the pull loop, store the offset, forget the queue
    suspend    no pulls are made until ``resume``; queues are taken and given up as before
    retake     a broker refused the offset: store the one it named, whatever listeners still say of messages that were
               pulled before, and let the next rebalance take the queue again

The heartbeat comes first because a broker refuses pulls of a version that it does not know yet.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from ...common.errors import ClientError, RocketletError
from ...common.message import MessageQueue
from ...remoting.transport.event_loop import repeat
from ..session.callbacks import QueueCallbacks
from .offsets import GroupOffsets
from .process_queue import QueueOffsets
from .queue_fetcher import FetchContext, PullSink, QueueFetcher
from .rebalance import ShareChange

_log = logging.getLogger(__name__)


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


SinkT = TypeVar("SinkT", bound=PullSink)
MakeSink = Callable[[MessageQueue, QueueOffsets], SinkT]


class Handover(NamedTuple):
    """Who has a say, and who is told, when queues are taken and given up."""

    callbacks: QueueCallbacks
    keeper: QueueKeeper | None = None


class AssignedQueues(Generic[SinkT]):
    """The owned queues of one consumer."""

    def __init__(
        self, context: FetchContext, offsets: GroupOffsets, make_sink: MakeSink[SinkT], handover: Handover
    ) -> None:
        self.is_suspended = False
        self._context = context
        self._offsets = offsets
        self._make_sink = make_sink
        self._handover = handover
        self._keeper = handover.keeper
        self._sinks: dict[MessageQueue, SinkT] = {}
        self._fetchers: dict[MessageQueue, QueueFetcher] = {}
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
                await self._handover.callbacks.revoked(change.given_up)
        finally:
            for queue in change.given_up:
                await self.give_up(queue)
        starts: dict[MessageQueue, int] = {}
        failures: list[RocketletError] = []
        held = change.taken if self._keeper is None else await self._hold(change.taken, self._keeper)
        for queue in change.taken:
            try:
                starts[queue] = await self._take(queue, may_take=queue in held)
            except RocketletError as error:
                _log.warning("starting to consume %s failed, retrying at the next rebalance: %s", queue, error)
                failures.append(error)
                if self._keeper is not None and queue in held:
                    await self._keeper.release([queue])  # another member may get it before this one asks again
        if change.given_up or starts:
            self._context.subscriptions.renew(topic)
            await self._context.session.heartbeat()
        try:
            if starts:
                await self._handover.callbacks.assigned(tuple(starts))
        finally:
            for queue, start in starts.items():
                if queue not in self._pulls:  # else it was told to begin elsewhere
                    self.pull_from(queue, start)
        if change.given_up or starts:
            self._handover.callbacks.changed(self.queues)
        return failures

    async def _hold(self, queues: Iterable[MessageQueue], keeper: QueueKeeper) -> Collection[MessageQueue]:
        return await keeper.hold([queue for queue in queues if queue not in self._leaving])

    async def _take(self, queue: MessageQueue, *, may_take: bool) -> int:
        if not may_take:
            raise ClientError("it is still in use, here or by another member")
        start = await self._offsets.find_start(queue)
        self._offsets.table.forget(queue)
        self._offsets.table.seek(queue, start)
        self._sinks[queue] = self._make_sink(queue, self._offsets.table)
        return start

    def pull_from(self, queue: MessageQueue, start: int) -> None:
        """Start the pull loop of an owned queue, or start it again at another offset."""
        self.stop_pulling([queue])
        self._fetchers[queue] = QueueFetcher(self._sinks[queue], start, self._context)
        if not self.is_suspended:
            self._start(queue)

    def _start(self, queue: MessageQueue) -> None:
        fetching = repeat(self._fetchers[queue].step, self._context.session.clock)
        self._pulls[queue] = self._context.tasks.start(fetching, name=f"pull {queue}")

    def stop_pulling(self, queues: Iterable[MessageQueue]) -> None:
        """End pull loops; what was pulled stays."""
        for queue in queues:
            self._fetchers.pop(queue, None)
            self._cancel(queue)

    def _cancel(self, queue: MessageQueue) -> None:
        task = self._pulls.pop(queue, None)
        if task is not None:
            task.cancel()

    def suspend(self) -> None:
        """Pull nothing until ``resume``; an answer that is on its way is thrown away."""
        self.is_suspended = True
        for queue in self._fetchers:
            self._cancel(queue)

    def resume(self) -> None:
        """Pull on from where ``suspend`` stopped."""
        self.is_suspended = False
        for queue in self._fetchers.keys() - self._pulls.keys():
            self._start(queue)

    async def give_up(self, queue: MessageQueue) -> None:
        """Let go of a queue and store its offset."""
        self.stop_pulling([queue])
        sink = self._sinks.pop(queue, None)
        if sink is None:
            return
        sink.drop()
        if self._keeper is None:
            await self._leave(queue)
        else:
            self._leaving.add(queue)
            self._context.tasks.start(self._leave_when_unused(queue, self._keeper), name=f"leave {queue}")

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
        self._fetchers.pop(queue, None)
        self._pulls.pop(queue, None)
        sink = self._sinks.pop(queue, None)
        if sink is not None:
            sink.drop()
            self._offsets.table.freeze(queue, start)
            await self._offsets.persist_now([queue])  # the next rebalance reads it back
