"""The messages of one queue that were pulled and are not finished.

    next_offset      first unfinished offset; after the last put one when nothing is left; None before the first put
    unfinished       messages put and not removed: waiting, in a listener, or waiting for another try

What is committed is ``next_offset``, so one slow message holds the commit of all later ones back; the span limit of
the flow control bounds how far they run ahead. Java's ``ProcessQueue`` keeps a tree map behind a lock; on one loop a
dict and the order of arrival are enough. No I/O, no clock.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from ...common.message import ReceivedMessage
from ..session.settings import FlowLimits


class ProcessQueue:
    """Unfinished messages of one owned queue, in the order of their offsets."""

    __slots__ = ("_order", "_unfinished", "buffered_bytes", "put_offset")

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        self._unfinished: dict[int, ReceivedMessage] = {}
        self.buffered_bytes = 0
        self.put_offset = -1

    def __len__(self) -> int:
        return len(self._unfinished)

    def __contains__(self, queue_offset: object) -> bool:
        return queue_offset in self._unfinished

    def __repr__(self) -> str:
        return f"<ProcessQueue {len(self)} unfinished, {self.buffered_bytes} bytes, next {self.next_offset}>"

    @property
    def next_offset(self) -> int | None:
        """The offset to commit: everything before it is finished."""
        return self.remove(())

    @property
    def span(self) -> int:
        """The distance between the first and the last unfinished offset."""
        first = self.next_offset
        return 0 if first is None or not self._order else self._order[-1] - first

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add pulled messages; an offset that is there already is kept as it is."""
        unfinished, order, size = self._unfinished, self._order, 0
        for message in messages:
            queue_offset = message.queue_offset
            if queue_offset not in unfinished:
                unfinished[queue_offset] = message
                order.append(queue_offset)
                size += len(message.body)
        self.buffered_bytes += size
        if messages:
            self.put_offset = max(self.put_offset, messages[-1].queue_offset)

    def remove(self, messages: Iterable[ReceivedMessage]) -> int | None:
        """Take finished messages out and return the offset to commit."""
        unfinished, order = self._unfinished, self._order
        for message in messages:
            removed = unfinished.pop(message.queue_offset, None)
            if removed is not None:
                self.buffered_bytes -= len(removed.body)
        while order and order[0] not in unfinished:
            order.popleft()
        if order:
            return order[0]
        return self.put_offset + 1 if self.put_offset >= 0 else None

    def exceeds(self, limits: FlowLimits) -> bool:
        """Tell whether pulling has to pause; all three limits are still allowed to be reached."""
        return (
            len(self._unfinished) > limits.max_messages
            or self.buffered_bytes > limits.max_bytes
            or self.span > limits.max_span
        )
