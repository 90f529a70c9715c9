"""Calls of the application's functions: asynchronous ones on the event loop, others in threads, so that they may block.

What a function in a thread returns is awaited if it can be. A thread sees the context variables of its caller.

Callbacks of queue changes (``HandoverCallback``) are waited for, whether they are coroutine functions or not:

    revoked    before queues are given up: they are still owned, so positions can be read and offsets committed
    assigned   after queues were taken, before they are pulled: the place to seek

A rebalance waits for the callbacks, so they should be short. What one raises is logged; the queues change all the same.
"""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar, cast

from ...common.message import MessageQueue

P = ParamSpec("P")
T = TypeVar("T")


class CallbackRunner:
    """Calls of one object's functions, with threads that are made when they are needed."""

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._threads: ThreadPoolExecutor | None = None
        self._running: set[Future[Any]] = set()

    def __repr__(self) -> str:
        return f"<CallbackRunner {self._name}, {len(self._running)} in threads>"

    async def call(self, function: Callable[P, Awaitable[T] | T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function and return what it gives in the end, or raise what it raises."""
        if is_async(function):
            return await cast("Awaitable[T]", function(*args, **kwargs))
        return await self.call_in_thread(function, *args, **kwargs)

    async def call_in_thread(self, function: Callable[P, Awaitable[T] | T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that may block."""
        running = self._executor().submit(contextvars.copy_context().run, function, *args, **kwargs)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        result = await asyncio.wrap_future(running)
        return await cast("Awaitable[T]", result) if inspect.isawaitable(result) else cast("T", result)

    def close(self) -> None:
        """End the threads; one that is stuck in a function is let go and ends with it."""
        if self._threads is not None:
            self._threads.shutdown(wait=not self._running, cancel_futures=True)

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._max_threads, thread_name_prefix=self._name)
        return self._threads


def is_async(function: object) -> bool:
    """Tell whether calling a function, or an object like one, gives something to await and does not block."""
    call = getattr(function, "__call__", None)  # noqa: B004 # not a test for being callable: an object's method
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


QueuesCallback = Callable[[tuple[MessageQueue, ...]], object]
HandoverCallback = Callable[[tuple[MessageQueue, ...]], Awaitable[object] | object]


class QueueCallbacks:
    """Whom a consumer tells of its queues; each may be set at any time, for what happens from then on."""

    def __init__(self) -> None:
        self._on_changed: QueuesCallback | None = None
        self._on_revoked: HandoverCallback | None = None
        self._on_assigned: HandoverCallback | None = None

    def on_changed(self, callback: QueuesCallback) -> None:
        """Have a function called after each change, with all owned queues."""
        self._on_changed = callback

    def on_revoked(self, callback: HandoverCallback) -> None:
        """Have a function called, and waited for, before queues are given up (raises ``TypeError`` if it is none)."""
        self._on_revoked = _checked(callback)

    def on_assigned(self, callback: HandoverCallback) -> None:
        """Have a function called, and waited for, after queues were taken (raises ``TypeError`` if it is none)."""
        self._on_assigned = _checked(callback)

    def changed(self, queues: tuple[MessageQueue, ...]) -> None:
        """Tell of a change."""
        if self._on_changed is not None:
            self._on_changed(queues)

    async def revoked(self, queues: tuple[MessageQueue, ...]) -> None:
        """Tell of queues that will be given up."""
        await _tell(self._on_revoked, queues)

    async def assigned(self, queues: tuple[MessageQueue, ...]) -> None:
        """Tell of queues that were taken."""
        await _tell(self._on_assigned, queues)


def _checked(callback: HandoverCallback) -> HandoverCallback:
    if not callable(callback):
        raise TypeError(f"the callback is {type(callback).__name__}, it must be a function of the queues")
    return callback


async def _tell(callback: HandoverCallback | None, queues: tuple[MessageQueue, ...]) -> None:
    outcome = None if callback is None else callback(queues)
    if inspect.isawaitable(outcome):
        await outcome


async def settle_future(outcome: asyncio.Future[T], work: Coroutine[object, object, T]) -> None:
    """Wait for a piece of work and put what comes of it into a future, unless its caller has cancelled that."""
    try:
        result = await work
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    except Exception as error:  # the fault boundary of one send: whatever it raises is for its caller
        if not outcome.done():
            outcome.set_exception(error)
    else:
        if not outcome.done():
            outcome.set_result(result)
