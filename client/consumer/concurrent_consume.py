"""Concurrent consumption: the messages of a queue run side by side (Java's ``ConsumeMessageConcurrentlyService``).

    a listener ends     its messages are finished; the offset moves to the first unfinished message of the queue
    it fails            each message that it did not finish goes back to its broker, which brings it again later; if no
                        broker takes it, it is kept and runs again here after 5 s
    it does not end     after ``consume_timeout_ms`` its messages go back as well and no longer hold the offset; what
                        the listener says of them afterwards does not matter

Without a way back (broadcasting) a failed message is logged and finished: every member has its own copy.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ...common.clock import Clock, TimerHandle
from ...common.message import MessageQueue, ReceivedMessage, describe_messages
from ...remoting.transport.tasks import TaskScope, repeat
from ..group.offsets import OffsetTable
from ..session.settings import PushConsumerSettings
from .listeners import NO_HANDLER, Batch, Handler, ListenerCalls, ListenerOutcome, ListenerPool, cut_batches, retry_of
from .process_queue import PushQueue
from .send_back import Returns

log = logging.getLogger(__name__)

RUN_AGAIN_MS = 5_000
EXPIRED_DELAY_LEVEL = 3


class Workplace(NamedTuple):
    """What a way of consuming works with; ``returns`` is None for broadcasting."""

    settings: PushConsumerSettings
    clock: Clock
    handlers: Mapping[str, Handler]
    calls: ListenerCalls
    returns: Returns | None
    offsets: OffsetTable


class ConcurrentListening:
    """Runs the messages of all queues, so many batches at a time."""

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace
        self._batch_messages = workplace.settings.batch_messages
        self._pool = ListenerPool(workplace.settings.concurrency, workplace.calls, self._fail)
        self._planned: set[TimerHandle] = set()
        self._seen_running: list[Batch] = []

    def __repr__(self) -> str:
        return f"<ConcurrentListening {self._pool!r}, {len(self._planned)} planned>"

    def start(self, scope: TaskScope) -> None:
        """Start the workers and the look at what does not end."""
        self._pool.start(scope)
        interval_ms = self._workplace.settings.consume_timeout_ms
        scope.start(repeat(self.expire, self._workplace.clock, first_ms=interval_ms), name="consume time-out")

    def make_queue(self, queue: MessageQueue) -> PushQueue:
        """Return the sink of a queue that was taken."""
        workplace = self._workplace
        return PushQueue(queue, workplace.offsets, workplace.settings.limits, self._submit, workplace.clock)

    async def drain(self) -> None:
        """Begin nothing more, and return when nothing runs."""
        await self._pool.drain()

    def close(self) -> None:
        """Plan nothing more; to be called when no listener runs."""
        for planned in self._planned:
            planned.cancel()

    def _submit(self, source: PushQueue, messages: Iterable[ReceivedMessage]) -> None:
        handlers = self._workplace.handlers
        cut = cut_batches(messages, self._batch_messages)
        self._pool.submit(*[Batch(handlers.get(batch[0].topic, NO_HANDLER), batch, source) for batch in cut])

    async def _fail(self, batch: Batch, outcome: ListenerOutcome) -> None:
        source, failure = batch.source, retry_of(outcome)
        if source.is_dropped:
            source.finish(batch.messages)
            return
        source.finish(batch.messages[: failure.from_index])
        await self._give_back(source, batch.messages[failure.from_index :], failure.delay_level)

    async def _give_back(self, source: PushQueue, messages: Iterable[ReceivedMessage], delay_level: int) -> None:
        returns = self._workplace.returns
        kept: list[ReceivedMessage] = []
        for message in messages:
            if message.queue_offset not in source.unfinished:
                continue  # its listener took too long, and it went back already
            if returns is None:
                log.warning(
                    "dropping %s, which failed: broadcast messages are not retried", describe_messages([message])
                )
                source.finish([message])
            elif await returns.give_back(message, delay_level):
                source.finish([message])
            else:
                kept.append(message)
        self._run_again_later(source, kept)

    def _run_again_later(self, source: PushQueue, messages: Sequence[ReceivedMessage]) -> None:
        if not messages:
            return
        again = [msgspec.structs.replace(each, reconsume_times=each.reconsume_times + 1) for each in messages]
        clock = self._workplace.clock
        run: Callable[[], object] = lambda: (self._planned.discard(planned), self._submit(source, again))  # noqa: E731 # it names its own handle
        planned = clock.call_at(clock.monotonic_ms() + RUN_AGAIN_MS, run)
        self._planned.add(planned)

    async def expire(self) -> int:
        """Send back what already ran when this was called last; to be called every ``consume_timeout_ms``."""
        seen, self._seen_running = self._seen_running, self._pool.running()
        for batch in self._seen_running:
            if any(batch is each for each in seen) and not batch.source.is_dropped:
                log.warning(
                    "the listener has not returned in consume_timeout_ms, sending back %s",
                    describe_messages(batch.messages),
                )
                await self._give_back(batch.source, batch.messages, EXPIRED_DELAY_LEVEL)
        return self._workplace.settings.consume_timeout_ms
