"""The queues that a consumer owns, each with its pull loop.

    take       find the offset to begin at; the pull loop starts after a heartbeat with a new subscription version
    give up    end the pull loop, store the offset, forget the queue
    retake     a broker refused the offset: store the one it named, whatever listeners still say of messages that were
               pulled before, and let the next rebalance take the queue again

The heartbeat comes first because a broker refuses pulls of a version that it does not know yet.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from ..common.errors import RocketletError
from ..common.message import MessageQueue
from ..remoting.tasks import repeat
from .offsets import GroupOffsets
from .pulling import Consumption, Puller, PullSink
from .rebalance import ShareChange

log = logging.getLogger(__name__)


class OwnedSink(PullSink, Protocol):
    """Where the messages of an owned queue go."""

    def drop(self) -> None:
        """Learn that the queue was given up."""
        ...


SinkT = TypeVar("SinkT", bound=OwnedSink)


class Share(Generic[SinkT]):
    """The owned queues of one consumer."""

    def __init__(self, common: Consumption, offsets: GroupOffsets, make_sink: Callable[[MessageQueue], SinkT]) -> None:
        self.on_change: Callable[[tuple[MessageQueue, ...]], object] | None = None
        self._common = common
        self._offsets = offsets
        self._make_sink = make_sink
        self._sinks: dict[MessageQueue, SinkT] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<Share {len(self._sinks)} queues, {len(self._pulls)} pulled>"

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The owned queues in order."""
        return tuple(sorted(self._sinks))

    def sink_of(self, queue: MessageQueue) -> SinkT | None:
        """Return where the messages of an owned queue go."""
        return self._sinks.get(queue)

    async def change(self, topic: str, change: ShareChange) -> list[RocketletError]:
        """Give up and take queues of a topic; return why queues could not be taken."""
        for queue in change.given_up:
            await self.give_up(queue)
        starts: dict[MessageQueue, int] = {}
        failures: list[RocketletError] = []
        for queue in change.taken:
            try:
                starts[queue] = await self._take(queue)
            except RocketletError as error:
                log.warning("queue %s is not taken yet: %s", queue, error)
                failures.append(error)
        if change.given_up or starts:
            self._common.subscriptions.renew(topic)
            await self._common.session.heartbeat()
        for queue, start in starts.items():
            self.pull_from(queue, start)
        if self.on_change is not None and (change.given_up or starts):
            self.on_change(self.queues)
        return failures

    async def _take(self, queue: MessageQueue) -> int:
        start = await self._offsets.find_start(queue)
        self._offsets.table.forget(queue)
        self._offsets.table.seek(queue, start)
        self._sinks[queue] = self._make_sink(queue)
        return start

    def pull_from(self, queue: MessageQueue, start: int) -> None:
        """Start the pull loop of an owned queue, or start it again at another offset."""
        self.stop_pulling([queue])
        common = self._common
        puller = Puller(queue, start, common, self._sinks[queue])
        self._pulls[queue] = common.tasks.start(repeat(puller.step, common.session.clock), name=f"pull {queue}")

    def stop_pulling(self, queues: Iterable[MessageQueue]) -> None:
        """End pull loops; what was pulled stays."""
        for queue in queues:
            task = self._pulls.pop(queue, None)
            if task is not None:
                task.cancel()

    async def give_up(self, queue: MessageQueue) -> None:
        """Let go of a queue and store its offset."""
        self.stop_pulling([queue])
        sink = self._sinks.pop(queue, None)
        if sink is not None:
            sink.drop()
            await self._offsets.persist([queue])
            self._offsets.table.forget(queue)

    async def retake(self, queue: MessageQueue, start: int) -> None:
        """Let go of a queue whose offset was refused, and store the one to begin at; called by its pull loop."""
        self._pulls.pop(queue, None)
        sink = self._sinks.pop(queue, None)
        if sink is not None:
            sink.drop()
            self._offsets.table.freeze(queue, start)
            await self._offsets.persist_now([queue])  # the next rebalance reads it back
