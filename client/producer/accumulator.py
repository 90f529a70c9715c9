"""Batches that make themselves from single sends (Java's ``ProduceAccumulator``, off by default).

Rules
    1. Messages of one topic, one chosen queue (or none), one wait flag and one tag travel together.
    2. A batch leaves when it has been held for ``batch_hold_ms``, or before the message that would take it above
       ``batch_bytes`` (properties and heads count too; Java counts bodies alone, and afterwards).
    3. Delayed messages, replies, those of retry topics and of transactions, and those that fill a batch alone are
       sent by themselves; so is everything while ``batch_total_bytes`` are held or on their way.
    4. Each caller gets a result of its own: its unique key, its offset id, its place in the queue. A failure is that
       of all messages of the batch.
    5. A message whose caller gives up before the batch leaves is not sent.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...common.clock import Clock, TimerHandle
from ...common.message import Message, MessageQueue
from ...common.names import RETRY_PREFIX
from ...common.properties import MSG_TYPE, PRODUCER_GROUP
from ..session.callbacks import settle_future
from ..session.results import SendResult
from ..session.settings import ProducerSettings
from .outgoing_message import OutgoingMessage, PreparedPart, check_message, join_parts, prepare_part
from .queue_selection import Choice

Deliver = Callable[[OutgoingMessage, Choice | None, None], Coroutine[object, object, SendResult]]
Start = Callable[[Coroutine[object, object, None]], object]
Waiting = asyncio.Future[SendResult]

_SENT_ALONE = frozenset({PRODUCER_GROUP, MSG_TYPE})  # a transaction's half, a reply


class BatchKey(NamedTuple):
    """What the messages of a batch have in common."""

    topic: str
    queue: MessageQueue | None
    waits_for_store: bool
    tags: str | None


class AccumulatedBatch:
    """Messages that will travel together, and the futures of their callers."""

    __slots__ = ("leaving", "parts", "size", "waiting")

    def __init__(self, leaving: TimerHandle) -> None:
        self.leaving = leaving
        self.parts: list[PreparedPart] = []
        self.waiting: list[Waiting] = []
        self.size = 0

    def __repr__(self) -> str:
        return f"<AccumulatedBatch {len(self.parts)} messages, {self.size} bytes>"

    def add(self, part: PreparedPart) -> Waiting:
        """Add a message and return the future of its result."""
        waiting: Waiting = asyncio.get_running_loop().create_future()
        self.parts.append(part)
        self.waiting.append(waiting)
        self.size += len(part.encoded)
        return waiting

    def drop_cancelled(self) -> None:
        """Take out the messages whose callers have given up."""
        if any(waiting.cancelled() for waiting in self.waiting):
            pairs = zip(self.parts, self.waiting, strict=True)
            kept = [(part, waiting) for part, waiting in pairs if not waiting.cancelled()]
            self.parts, self.waiting = [part for part, _ in kept], [waiting for _, waiting in kept]


class Accumulator:
    """The batches of one producer that are still open."""

    def __init__(
        self, settings: ProducerSettings, clock: Clock, next_id: Callable[[], str], deliver: Deliver, start: Start
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._next_id = next_id
        self._deliver = deliver
        self._start = start
        self._open: dict[BatchKey, AccumulatedBatch] = {}
        self._held_bytes = 0

    def __repr__(self) -> str:
        return f"<Accumulator {len(self._open)} open batches, {self._held_bytes} bytes held or on their way>"

    def takes(self, message: Message) -> bool:
        """Tell whether a message may travel in a batch.

        Raises:
            TypeError, ValueError: the message cannot be sent by anyone.
        """
        check_message(message, self._settings.max_message_bytes)
        return not (
            self._held_bytes >= self._settings.batch_total_bytes
            or len(message.body) >= self._settings.batch_bytes
            or message.is_late
            or message.topic.startswith(RETRY_PREFIX)
            or not _SENT_ALONE.isdisjoint(message.properties or ())
        )

    def add(self, message: Message, queue: MessageQueue | None) -> Waiting:
        """Add a message that ``takes`` has accepted to its batch; return the future of its own result.

        Raises:
            TypeError, ValueError: its properties cannot be sent by anyone.
        """
        part = prepare_part(message, self._next_id())
        key = BatchKey(message.topic, queue, message.waits_for_store, message.tags)
        batch = self._open.get(key)
        if batch is not None and batch.size + len(part.encoded) > self._settings.batch_bytes:
            self._send(key)
            batch = None
        if batch is None:
            leaves_at_ms = self._clock.monotonic_ms() + self._settings.batch_hold_ms
            batch = self._open[key] = AccumulatedBatch(self._clock.call_at(leaves_at_ms, self._send, key))
        self._held_bytes += len(part.encoded)
        return batch.add(part)

    def send_all(self) -> None:
        """Send what is held without waiting any longer."""
        for key in tuple(self._open):
            self._send(key)

    def _send(self, key: BatchKey) -> None:
        batch = self._open.pop(key)
        batch.leaving.cancel()
        batch.drop_cancelled()
        outcome: Waiting = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(lambda outcome: self._share_out(batch, outcome))
        if not batch.parts:
            outcome.cancel()
            return
        waits = key.waits_for_store
        outgoing = join_parts(key.topic, batch.parts, self._next_id(), waits_for_store=waits)
        choice = None if key.queue is None else _always(key.queue)
        self._start(settle_future(outcome, self._deliver(outgoing, choice, None)))

    def _share_out(self, batch: AccumulatedBatch, outcome: Waiting) -> None:
        """Give each caller what has become of its message."""
        self._held_bytes -= batch.size
        undecided = [waiting for waiting in batch.waiting if not waiting.done()]
        if outcome.cancelled():
            for waiting in undecided:
                waiting.cancel()
        elif (error := outcome.exception()) is not None:
            for waiting in undecided:
                waiting.set_exception(error)
        else:
            for part, waiting in zip(split_result(outcome.result(), batch.parts), batch.waiting, strict=True):
                if not waiting.done():
                    waiting.set_result(part)


def split_result(result: SendResult, parts: Sequence[PreparedPart]) -> list[SendResult]:
    """Return the result of each message of a batch.

    A batch that is kept as one entry of its queue has one offset id, which all its messages share.
    """
    offset_ids = result.offset_message_id.split(",")
    if len(offset_ids) != len(parts):
        offset_ids = [result.offset_message_id] * len(parts)
    return [
        replace(
            result,
            message_id=part.message_id,
            offset_message_id=offset_id,
            queue_offset=result.queue_offset + number,
        )
        for number, (part, offset_id) in enumerate(zip(parts, offset_ids, strict=True))
    ]


def _always(queue: MessageQueue) -> Choice:
    return lambda _queues: queue
