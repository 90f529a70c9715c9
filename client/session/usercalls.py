"""Calls of the application's functions: asynchronous ones on the event loop, others in threads, so that they may block.

What a function in a thread returns is awaited if it can be. A thread sees the context variables of its caller.
"""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


class UserCalls:
    """Calls of one object's functions, with threads that are made when they are needed."""

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._threads: ThreadPoolExecutor | None = None
        self._running: set[Future[Any]] = set()

    def __repr__(self) -> str:
        return f"<UserCalls {self._name}, {len(self._running)} in threads>"

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


class Ongoing:
    """Counts what is going on, for those who wait until nothing is; use it with ``with``."""

    def __init__(self) -> None:
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        return f"<Ongoing {self.count}>"

    def __enter__(self) -> None:
        """Something begins."""
        self.count += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        """It has ended."""
        self.count -= 1
        if self.count == 0:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until nothing is going on."""
        await self._idle.wait()
