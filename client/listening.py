"""The listeners at work: batches of messages in, finished or failed batches out.

    listener ...                  is run
    an async function             on the event loop
    any other callable            in a thread, so that it may block; what it returns is awaited if it can be

    it ends with ...              the messages are
    None, ConsumeResult.SUCCESS   finished
    ConsumeResult.RETRY           failed, and come again later
    any exception                 failed; logged with its traceback. This is the fault boundary of the user's code

(Java's ``MessageListenerConcurrently`` takes null for a failure; in Python a function that just ends has succeeded.)

``concurrency`` batches run at a time, in no order. What waits here is bounded by the flow control of the queues.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Self

from ..common.message import ReceivedMessage
from ..remoting.tasks import TaskScope
from .push_queue import PushQueue
from .results import ConsumeResult

log = logging.getLogger(__name__)

Listener = Callable[[list[ReceivedMessage]], Awaitable[ConsumeResult | None] | ConsumeResult | None]

_BATCHES_BETWEEN_TURNS = 64  # a listener that never waits must not keep the loop for itself


class Handler(NamedTuple):
    """A listener, and whether calling it gives something to await and does not block."""

    listener: Listener
    is_async: bool

    @classmethod
    def of(cls, listener: Listener) -> Self:
        """Look at a listener once, not at every call."""
        call = getattr(listener, "__call__", None)  # noqa: B004 # not a test for being callable: an object's method
        return cls(listener, inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(call))


class Batch(NamedTuple):
    """Messages of one topic that a listener gets in one call."""

    handler: Handler
    messages: list[ReceivedMessage]
    source: PushQueue


Finish = Callable[[Batch, ConsumeResult], Awaitable[None]]


class ListenerPool:
    """Runs batches, a fixed number at a time; ``finish`` is told how each ended.

    A batch whose queue was given up before its turn is not run at all.
    """

    def __init__(self, concurrency: int, finish: Finish) -> None:
        self._concurrency = concurrency
        self._finish = finish
        self._waiting: asyncio.Queue[Batch] = asyncio.Queue()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads: ThreadPoolExecutor | None = None
        self._thread_calls: set[Future[Awaitable[ConsumeResult | None] | ConsumeResult | None]] = set()
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<ListenerPool {self._running} running, {self._waiting.qsize()} waiting>"

    def start(self, scope: TaskScope) -> None:
        """Start the workers."""
        for number in range(self._concurrency):
            scope.start(self._work(), name=f"listener-{number}")

    def submit(self, batch: Batch) -> None:
        """Let a batch wait for its turn."""
        self._waiting.put_nowait(batch)

    async def drain(self) -> None:
        """Drop what has not begun and wait until nothing runs."""
        self._is_closing = True
        await self._idle.wait()

    def close(self) -> None:
        """End the threads; one that is stuck in a listener is let go and ends with it."""
        if self._threads is not None:
            self._threads.shutdown(wait=not self._thread_calls, cancel_futures=True)

    async def _work(self) -> None:
        while True:
            for _ in range(_BATCHES_BETWEEN_TURNS):
                batch = await self._waiting.get()
                if not self._is_closing and not batch.source.is_dropped:
                    await self._run(batch)
            await asyncio.sleep(0)

    async def _run(self, batch: Batch) -> None:
        self._running += 1
        self._idle.clear()
        try:
            await self._finish(batch, await self._call(batch))
        finally:
            self._running -= 1
            if self._running == 0:
                self._idle.set()

    async def _call(self, batch: Batch) -> ConsumeResult:
        try:
            result = await self._call_listener(batch.handler, batch.messages)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            log.warning("a listener was cancelled from within; its %d messages come again", len(batch.messages))
            return ConsumeResult.RETRY
        except Exception:  # fault boundary of the user's code: the messages come again
            log.exception("a listener failed; its %d messages come again", len(batch.messages))
            return ConsumeResult.RETRY
        if result is not None and not isinstance(result, ConsumeResult):  # pyright: ignore[reportUnnecessaryIsInstance] # user code
            log.error("a listener returned %r, not a ConsumeResult; its messages come again", result)
            return ConsumeResult.RETRY
        return ConsumeResult.SUCCESS if result is None else result

    async def _call_listener(self, handler: Handler, messages: list[ReceivedMessage]) -> ConsumeResult | None:
        if handler.is_async:
            result = handler.listener(messages)
        else:
            call = self._executor().submit(handler.listener, messages)
            self._thread_calls.add(call)
            call.add_done_callback(self._thread_calls.discard)
            result = await asyncio.wrap_future(call)
        return await result if inspect.isawaitable(result) else result

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="rocketlet-listener")
        return self._threads


def cut_batches(messages: Iterable[ReceivedMessage], size: int) -> list[list[ReceivedMessage]]:
    """Cut messages into lists of at most ``size`` that each have one topic."""
    batches: list[list[ReceivedMessage]] = []
    for message in messages:
        if not batches or len(batches[-1]) == size or batches[-1][0].topic != message.topic:
            batches.append([])
        batches[-1].append(message)
    return batches
