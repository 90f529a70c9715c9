"""How far a consumer has come in an owned queue: what of it was pulled and is not finished, and the offset to commit.

    next_offset      first unfinished offset; after the last put one when nothing is left; None before the first put
    unfinished       messages put and not removed: waiting, in a listener, or waiting for another try

What is committed is ``next_offset``, so one slow message holds the commit of all later ones back; the span limit of
the flow control bounds how far they run ahead. Java's ``ProcessQueue`` keeps a tree map behind a lock; on one loop a
dict and the order of arrival are enough.

``PushQueue`` is the queue that a push consumer owns:

    accept      pulled messages are kept and handed to the listener
    finish      finished messages leave; the offset moves to the first unfinished one
    drop        the queue was given up: what has not begun does not begin, offsets move no more

When nothing is unfinished, an answer without messages moves the offset too: what the filter left out need not be read
again. ``QueueOffsets`` holds the offsets of all owned queues; how they are stored is in ``offsets.py``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ...common.clock import Clock
from ...common.message import MessageQueue, ReceivedMessage
from ..session.settings import FlowLimits, PushConsumerSettings


class QueueOffsets:
    """The offsets of the queues that a consumer owns (the memory part of Java's ``RemoteBrokerOffsetStore``).

    They move on only, unless by ``seek``; a frozen queue is not moved at all.
    """

    __slots__ = ("_frozen", "_offsets", "get")

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()
        self.get: Callable[[MessageQueue], int | None] = self._offsets.get  # no call more: it is asked at each pull
        """Returns the offset of a queue, or None when none was set."""

    def __repr__(self) -> str:
        return f"<QueueOffsets {len(self._offsets)} queues, {len(self._frozen)} frozen>"

    def __contains__(self, queue: object) -> bool:
        return queue in self._offsets

    def items(self) -> list[tuple[MessageQueue, int]]:
        """Return all queues with their offsets."""
        return list(self._offsets.items())

    def advance(self, queue: MessageQueue, queue_offset: int) -> None:
        """Move a queue on; an older offset and a frozen queue change nothing."""
        if self._frozen and queue in self._frozen:
            return
        if queue_offset > self._offsets.get(queue, -1):
            self._offsets[queue] = queue_offset

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Set a queue to any offset."""
        if queue not in self._frozen:
            self._offsets[queue] = queue_offset

    def freeze(self, queue: MessageQueue, queue_offset: int) -> None:
        """Set a queue to an offset that results of messages pulled earlier cannot move."""
        self._offsets[queue] = queue_offset
        self._frozen.add(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Drop a queue, and its frozen state."""
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)


class ProcessQueue:
    """Unfinished messages of one owned queue, in the order of their offsets."""

    __slots__ = ("_order", "_unfinished", "buffered_bytes", "next_offset", "put_offset")

    def __init__(self) -> None:
        self._order: deque[int] = deque()  # its first is unfinished, the others may be finished
        self._unfinished: dict[int, ReceivedMessage] = {}
        self.buffered_bytes = 0
        self.put_offset = -1
        self.next_offset: int | None = None
        """The offset to commit: everything before it is finished."""

    def __len__(self) -> int:
        return len(self._unfinished)

    def __contains__(self, queue_offset: object) -> bool:
        return queue_offset in self._unfinished

    def __repr__(self) -> str:
        return f"<ProcessQueue {len(self)} unfinished, {self.buffered_bytes} bytes, next {self.next_offset}>"

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add pulled messages; an offset that is there already is kept as it is."""
        if not messages:
            return
        unfinished, order, size = self._unfinished, self._order, 0
        for message in messages:
            queue_offset = message.queue_offset
            if queue_offset not in unfinished:
                unfinished[queue_offset] = message
                order.append(queue_offset)
                size += len(message.body)
        self.buffered_bytes += size
        self.put_offset = max(self.put_offset, messages[-1].queue_offset)
        self.next_offset = self._order[0]

    def remove(self, messages: Iterable[ReceivedMessage]) -> int | None:
        """Take finished messages out and return the offset to commit."""
        unfinished, order, size = self._unfinished, self._order, 0
        for message in messages:
            removed = unfinished.pop(message.queue_offset, None)
            if removed is not None:
                size += len(removed.body)
        self.buffered_bytes -= size
        while order and order[0] not in unfinished:
            order.popleft()
        if order:
            self.next_offset = order[0]
        elif self.put_offset >= 0:
            self.next_offset = self.put_offset + 1
        return self.next_offset

    def exceeds(self, limits: FlowLimits) -> bool:
        """Tell whether pulling has to pause; all three limits are still allowed to be reached."""
        order = self._order
        return (
            len(self._unfinished) > limits.max_messages
            or self.buffered_bytes > limits.max_bytes
            or (len(order) > 1 and order[-1] - order[0] > limits.max_span)
        )


Submit = Callable[["PushQueue", Sequence[ReceivedMessage]], object]


class PushQueue:
    """The sink of the fetcher of one owned queue."""

    def __init__(
        self, queue: MessageQueue, offsets: QueueOffsets, settings: PushConsumerSettings, submit: Submit, clock: Clock
    ) -> None:
        self.queue = queue
        self.unfinished = ProcessQueue()
        self.is_dropped = False
        self.moves_offset = True
        self.limits = settings.limits
        self.pulled_at_ms = clock.now_ms()
        self._stores_with_pulls = not settings.is_broadcast
        self._offset_at_pull: int | None = None
        self._clock = clock
        self._offsets = offsets
        self._submit = submit
        self._room = asyncio.Event()
        self._waits_for_room = False

    def __repr__(self) -> str:
        return f"<PushQueue {self.queue}{' dropped' if self.is_dropped else ''} {self.unfinished!r}>"

    def holds(self, message: ReceivedMessage) -> bool:
        """Tell whether a message is unfinished."""
        return message.queue_offset in self.unfinished

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

    async def wait_for_room(self) -> int:
        """Return when more may be pulled: the offset to store with that pull, 0 for none."""
        while self.unfinished.exceeds(self.limits):
            self._room.clear()
            self._waits_for_room = True
            try:
                await self._room.wait()
            finally:
                self._waits_for_room = False
        return (self._stores_with_pulls and self._offsets.get(self.queue)) or 0

    def accept(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Keep messages and hand them to the listener."""
        self.pulled_at_ms = self._clock.now_ms()
        self._offset_at_pull = self.unfinished.next_offset
        if messages:
            self.unfinished.put(messages)
            self._submit(self, messages)
        elif not self.unfinished:
            self._offsets.advance(self.queue, next_offset)
