"""Listeners at work: how the user's code is called, what becomes of what it does, and how messages run side by side.

    listener ...                  is run
    an async function             on the event loop
    any other callable            in a thread, so that it may block; what it returns is awaited if it can be

    it ends with ...              the messages are
    None, ConsumeResult.SUCCESS   finished
    ConsumeResult.RETRY, Retry    failed, and come again later
    any exception                 failed; logged with its traceback. This is the fault boundary of the user's code

(Java's listeners take null for a failure; in Python a function that just ends has succeeded.)

``ConcurrentConsumer`` runs them so (Java's ``ConsumeMessageConcurrentlyService``; in order: ``orderly_consume.py``):

    a listener ends     its messages are finished; the offset moves to the first unfinished message of the queue
    it fails            each message that it did not finish goes back to its broker, which brings it again later; if no
                        broker takes it, it is kept and runs again here after 5 s
    it does not end     after ``consume_timeout_ms`` its messages go back as well and no longer hold the offset; what
                        the listener says of them afterwards does not matter

Without a way back (broadcasting) a failed message is logged and finished: every member has its own copy.

``ListenerPool`` runs ``concurrency`` batches at a time, in no order. What waits there is bounded by the flow control of
the queues.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from ...common.clock import Clock, TimerHandle
from ...common.message import MessageQueue, ReceivedMessage, describe_messages
from ...remoting.transport.event_loop import TaskScope, repeat
from ..group.consumer_hooks import ConsumerHooks, ListenerOutcome
from ..group.process_queue import PushQueue, QueueOffsets
from ..session.callbacks import CallbackRunner, is_async
from ..session.results import ConsumeOutcome, ConsumeResult, Retry
from ..session.settings import PushConsumerSettings
from .send_back import MessageReturner

_log = logging.getLogger(__name__)

Listener = Callable[[list[ReceivedMessage]], Awaitable[ConsumeOutcome | None] | ConsumeOutcome | None]


class Handler(NamedTuple):
    """A listener, and whether calling it gives something to await and does not block."""

    listener: Listener
    is_async: bool

    @classmethod
    def of(cls, listener: Listener) -> Self:
        """Look at a listener once, not at every call.

        Raises:
            TypeError: it cannot be called, or not with one argument.
        """
        if not callable(listener):
            raise TypeError(f"the listener is {type(listener).__name__}, it must be callable")
        _check_signature(listener)
        return cls(listener, is_async(listener))


def _check_signature(listener: Listener) -> None:
    try:
        signature = inspect.signature(listener)
    except ValueError:  # some built-in functions have none
        return
    try:
        signature.bind([])
    except TypeError as error:
        raise TypeError(f"a listener takes one argument, the list of messages: {error}") from None


async def _refuse_unknown(messages: list[ReceivedMessage]) -> ConsumeResult:
    """Send back messages of a topic that nobody listens to any more, so that they are not lost."""
    _log.warning("no listener for topic %s any more, retrying %s", messages[0].topic, describe_messages(messages))
    return ConsumeResult.RETRY


NO_HANDLER = Handler.of(_refuse_unknown)


class ListenerCalls:
    """Calls a group's listeners, blocking ones in at most so many threads; ``attempt`` never raises what they raise."""

    def __init__(self, group: str, max_threads: int, hooks: ConsumerHooks | None = None) -> None:
        self._group = group
        self._hooks = hooks
        self.are_plain = hooks is None
        self.attempt = self._attempt if hooks is None else self._attempt_seen
        self._calls = CallbackRunner(max_threads, "rocketlet-listener")

    def __repr__(self) -> str:
        return f"<ListenerCalls {self._calls!r}>"

    async def _attempt_seen(self, handler: Handler, messages: list[ReceivedMessage]) -> ListenerOutcome:
        assert self._hooks is not None, "chosen when there are some"
        return await self._hooks.attempt(messages, self._attempt(handler, messages))

    async def _attempt(self, handler: Handler, messages: list[ReceivedMessage]) -> ListenerOutcome:
        """Call a listener and return what it returned or raised; nothing it does is raised here."""
        try:
            if handler.is_async:
                answering: Any = handler.listener(messages)
                result: ConsumeOutcome | None = await answering
            else:
                result = await self._calls.call_in_thread(handler.listener, messages)
        except (asyncio.CancelledError, Exception) as error:  # fault boundary of the user's code
            return self.judge_failure(error, messages)
        return self.judge(result, messages)

    def judge_failure(self, error: BaseException, messages: list[ReceivedMessage]) -> ListenerOutcome:
        """Return what a listener's failure means: the messages come again; raise it if the worker was cancelled."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise error
            _log.warning(
                "group %s: the listener was cancelled from within at %s", self._group, describe_messages(messages)
            )
        else:
            text = "group %s: the listener failed at %s"
            _log.error(text, self._group, describe_messages(messages), exc_info=error)
        return error

    def judge(self, result: ConsumeOutcome | None, messages: list[ReceivedMessage]) -> ListenerOutcome:
        """Return what a listener has returned, or that it is nothing that one returns."""
        if result is None or isinstance(result, (ConsumeResult, Retry)):  # pyright: ignore[reportUnnecessaryIsInstance] # user code
            return result
        text = "group %s: the listener returned %r, not a ConsumeResult, for %s"
        _log.error(text, self._group, result, describe_messages(messages))
        return TypeError(f"the listener returned {type(result).__name__}, not a ConsumeResult")

    def close(self) -> None:
        """End the threads; one that is stuck in a listener is let go and ends with it."""
        self._calls.close()


def cut_batches(messages: Iterable[ReceivedMessage], size: int) -> list[list[ReceivedMessage]]:
    """Cut messages into lists of at most ``size`` that each have one topic."""
    batches: list[list[ReceivedMessage]] = []
    for _, group in groupby(messages, _topic_of):
        run = list(group)
        batches += [run[start : start + size] for start in range(0, len(run), size)]
    return batches


_topic_of = attrgetter("topic")


def retry_of(outcome: ListenerOutcome) -> Retry:
    """Return what a failure says about the messages; any but a ``Retry`` is about all of them."""
    return outcome if isinstance(outcome, Retry) else Retry()


class ConsumeEnvironment(NamedTuple):
    """What a way of consuming works with; ``returner`` is None for broadcasting."""

    settings: PushConsumerSettings
    clock: Clock
    handlers: Mapping[str, Handler]
    calls: ListenerCalls
    returner: MessageReturner | None


RUN_AGAIN_MS = 5_000
_BATCHES_BETWEEN_TURNS = 64  # a listener that never waits must not keep the loop for itself
EXPIRED_DELAY_LEVEL = 3


class BatchSource(Protocol):
    """Where the messages of a batch are from."""

    @property
    def is_dropped(self) -> bool:
        """Whether somebody else gets them."""
        ...

    def holds(self, message: ReceivedMessage, /) -> bool:
        """Tell whether a message is unfinished."""
        ...

    def finish(self, messages: Sequence[ReceivedMessage], /) -> None:
        """Learn that messages are finished."""
        ...


class ListenerBatch(msgspec.Struct, frozen=True, eq=False):
    """Messages of one topic that a listener gets in one call."""

    handler: Handler
    messages: list[ReceivedMessage]
    source: BatchSource


Fail = Callable[[ListenerBatch, ListenerOutcome], Awaitable[None]]


class ListenerPool:
    """Runs batches, a fixed number at a time; ``fail`` gets those that did not simply succeed.

    A batch whose queue was given up before its turn is not run at all. Workers are woken one after the other, the next
    if the loop comes round while there is work: listeners that never wait keep one worker busy, others get them all.
    """

    def __init__(self, concurrency: int, calls: ListenerCalls, fail: Fail) -> None:
        self._calls = calls
        self._fail = fail
        self._waiting: deque[ListenerBatch] = deque()
        self._at_work: list[ListenerBatch | None] = [None] * concurrency
        self._sleepers: deque[asyncio.Future[None]] = deque()
        self._is_waking = False
        self._idle = asyncio.Event()
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<ListenerPool {len(self.running())} running, {len(self._waiting)} waiting>"

    def start(self, scope: TaskScope) -> None:
        """Start the workers."""
        for number in range(len(self._at_work)):
            scope.start(self._work(number), name=f"listener-{number}")

    def submit(self, batches: Iterable[ListenerBatch]) -> None:
        """Let batches wait for their turn."""
        self._waiting.extend(batches)
        if self._sleepers and not self._is_waking:  # soon: the next pull is to be on its way before listeners run
            self._wake_soon()

    def running(self) -> list[ListenerBatch]:
        """Return the batches whose listeners run now."""
        return [batch for batch in self._at_work if batch is not None]

    async def drain(self) -> None:
        """Drop what has not begun and wait until nothing runs."""
        self._is_closing = True
        if self.running():
            await self._idle.wait()

    def _wake_soon(self) -> None:
        self._is_waking = True
        asyncio.get_running_loop().call_soon(self._wake_one)

    def _wake_one(self) -> None:
        self._is_waking = False
        while self._waiting and self._sleepers and not self._is_waking:
            awoken = self._sleepers.popleft()
            if not awoken.done():  # else its worker was cancelled
                self._is_waking = True
                awoken.set_result(None)

    async def _sleep(self) -> None:
        awoken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append(awoken)
        try:
            await awoken
        finally:
            self._is_waking = False

    async def _work(self, number: int) -> None:
        calls, waiting, at_work, turns = self._calls, self._waiting, self._at_work, 0
        while True:
            while not waiting:
                await self._sleep()
            batch = waiting.popleft()
            if waiting and self._sleepers and not self._is_waking:
                self._wake_soon()
            if self._is_closing or batch.source.is_dropped:
                continue
            at_work[number] = batch
            handler, messages = batch.handler, batch.messages
            if handler.is_async and calls.are_plain:  # what ``attempt`` does, without a coroutine for each batch
                try:
                    answering: Any = handler.listener(messages)
                    outcome = await answering
                    if outcome is not None and outcome is not ConsumeResult.SUCCESS:
                        outcome = calls.judge(outcome, messages)
                except (asyncio.CancelledError, Exception) as error:  # fault boundary of the user's code
                    outcome = calls.judge_failure(error, messages)
            else:
                outcome = await calls.attempt(handler, messages)
            if outcome is None or outcome is ConsumeResult.SUCCESS:
                batch.source.finish(messages)
            else:
                await self._fail(batch, outcome)
            at_work[number] = None
            if self._is_closing and not self.running():
                self._idle.set()
            turns += 1
            if turns % _BATCHES_BETWEEN_TURNS == 0:
                await asyncio.sleep(0)


class ConcurrentConsumer:
    """Runs the messages of all queues, so many batches at a time."""

    def __init__(self, environment: ConsumeEnvironment) -> None:
        self._environment = environment
        self._batch_messages = environment.settings.batch_messages
        self._pool = ListenerPool(environment.settings.concurrency, environment.calls, self._fail)
        self._planned: set[TimerHandle] = set()
        self._seen_running: list[ListenerBatch] = []

    def __repr__(self) -> str:
        return f"<ConcurrentConsumer {self._pool!r}, {len(self._planned)} planned>"

    def start(self, scope: TaskScope) -> None:
        """Start the workers and the look at what does not end."""
        self._pool.start(scope)
        interval_ms = self._environment.settings.consume_timeout_ms
        scope.start(repeat(self.expire, self._environment.clock, first_ms=interval_ms), name="consume time-out")

    def make_queue(self, queue: MessageQueue, offsets: QueueOffsets) -> PushQueue:
        """Return the sink of a queue that was taken."""
        environment = self._environment
        return PushQueue(queue, offsets, environment.settings, self._submit, environment.clock)

    async def drain(self) -> None:
        """Begin nothing more, and return when nothing runs."""
        await self._pool.drain()

    def close(self) -> None:
        """Plan nothing more; to be called when no listener runs."""
        for planned in self._planned:
            planned.cancel()

    def _submit(self, source: BatchSource, messages: Iterable[ReceivedMessage]) -> None:
        find = self._environment.handlers.get
        batches: list[ListenerBatch] = []
        if self._batch_messages == 1:
            for message in messages:
                batches.append(ListenerBatch(find(message.topic, NO_HANDLER), [message], source))  # noqa: PERF401 # a comprehension is a call before Python 3.12
        else:
            for cut in cut_batches(messages, self._batch_messages):
                batches.append(ListenerBatch(find(cut[0].topic, NO_HANDLER), cut, source))  # noqa: PERF401 # as above
        self._pool.submit(batches)

    async def _fail(self, batch: ListenerBatch, outcome: ListenerOutcome) -> None:
        source, failure = batch.source, retry_of(outcome)
        if source.is_dropped:
            source.finish(batch.messages)
            return
        source.finish(batch.messages[: failure.from_index])
        await self._send_back(source, batch.messages[failure.from_index :], failure.delay_level)

    async def _send_back(self, source: BatchSource, messages: Iterable[ReceivedMessage], delay_level: int) -> None:
        returner = self._environment.returner
        kept: list[ReceivedMessage] = []
        for message in messages:
            if not source.holds(message):
                continue  # its listener took too long, and it went back already
            if returner is None:
                _log.warning(
                    "dropping %s, which failed: broadcast messages are not retried", describe_messages([message])
                )
                source.finish([message])
            elif await returner.send_back(message, delay_level):
                source.finish([message])
            else:
                kept.append(message)
        self._run_again_later(source, kept)

    def _run_again_later(self, source: BatchSource, messages: Sequence[ReceivedMessage]) -> None:
        if not messages:
            return
        again = [replace(each, reconsume_times=each.reconsume_times + 1) for each in messages]
        clock = self._environment.clock
        run: Callable[[], object] = lambda: (self._planned.discard(planned), self._submit(source, again))  # noqa: E731 # it names its own handle
        planned = clock.call_at(clock.monotonic_ms() + RUN_AGAIN_MS, run)
        self._planned.add(planned)

    async def expire(self) -> int:
        """Send back what already ran when this was called last; to be called every ``consume_timeout_ms``."""
        seen, self._seen_running = self._seen_running, self._pool.running()
        for batch in self._seen_running:
            if any(batch is each for each in seen) and not batch.source.is_dropped:
                _log.warning(
                    "the listener has not returned in consume_timeout_ms, sending back %s",
                    describe_messages(batch.messages),
                )
                await self._send_back(batch.source, batch.messages, EXPIRED_DELAY_LEVEL)
        return self._environment.settings.consume_timeout_ms
