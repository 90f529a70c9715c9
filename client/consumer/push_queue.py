"""One queue that a push consumer owns: its unfinished messages and what they mean for its offset.

    accept      pulled messages are kept and handed to the listener
    finish      finished messages leave; the offset moves to the first unfinished one
    drop        the queue was given up: what has not begun does not begin, offsets move no more

When nothing is unfinished, an answer without messages moves the offset too: what the filter left out need not be read
again.
"""

import asyncio
from collections.abc import Callable, Sequence

from ...common.clock import Clock
from ...common.message import MessageQueue, ReceivedMessage
from ..group.offsets import OffsetTable
from ..session.settings import FlowLimits
from .process_queue import ProcessQueue

Submit = Callable[["PushQueue", Sequence[ReceivedMessage]], object]


class PushQueue:
    """The sink of the puller of one owned queue."""

    def __init__(
        self, queue: MessageQueue, offsets: OffsetTable, limits: FlowLimits, submit: Submit, clock: Clock
    ) -> None:
        self.queue = queue
        self.unfinished = ProcessQueue()
        self.is_dropped = False
        self.moves_offset = True
        self.stores_with_pulls = True
        self.limits = limits
        self.pulled_at_ms = clock.now_ms()
        self._offset_at_pull: int | None = None
        self._clock = clock
        self._offsets = offsets
        self._submit = submit
        self._room = asyncio.Event()
        self._waits_for_room = False

    def __repr__(self) -> str:
        return f"<PushQueue {self.queue}{' dropped' if self.is_dropped else ''} {self.unfinished!r}>"

    def finish(self, messages: Sequence[ReceivedMessage]) -> None:
        """Take finished messages out and move the offset."""
        next_offset = self.unfinished.remove(messages)
        if next_offset is not None and self.moves_offset:
            self._offsets.advance(self.queue, next_offset)
        if self._waits_for_room and not self.unfinished.exceeds(self.limits):
            self._room.set()

    @property
    def moved_at_ms(self) -> int:
        """When a message was finished last, at the latest: now, or at the time of the last pull."""
        has_moved = not self.unfinished or self.unfinished.next_offset != self._offset_at_pull
        return self._clock.now_ms() if has_moved else self.pulled_at_ms

    def limit(self, limits: FlowLimits) -> None:
        """Set other limits."""
        self.limits = limits
        self._room.set()

    # ``PullSink``

    def drop(self) -> None:
        """Let nothing begin any more."""
        self.is_dropped = True
        self.moves_offset = False

    async def wait_for_room(self) -> None:
        """Return when more may be pulled."""
        while self.unfinished.exceeds(self.limits):
            self._room.clear()
            self._waits_for_room = True
            try:
                await self._room.wait()
            finally:
                self._waits_for_room = False

    def offset_to_commit(self) -> int:
        """Return the offset to store with the next pull; 0 for none."""
        return (self.stores_with_pulls and self._offsets.get(self.queue)) or 0

    def accept(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Keep messages and hand them to the listener."""
        self.pulled_at_ms = self._clock.now_ms()
        self._offset_at_pull = self.unfinished.next_offset
        if messages:
            self.unfinished.put(messages)
            self._submit(self, messages)
        elif not self.unfinished:
            self._offsets.advance(self.queue, next_offset)
