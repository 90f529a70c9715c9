"""An event loop in a thread of the test process, on which servers run.

So tests may be synchronous or asynchronous, and clients may live on any loop or in another process. What a test asks
for is done on this loop; nothing that lives there is touched from another thread.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

T = TypeVar("T")


class _KnownThreads:
    """A loop that knows what is under way in threads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_in_threads: set[asyncio.Future[Any]] = set()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Do what loops do, and remember it."""
        future: asyncio.Future[Any] = cast("Any", super()).run_in_executor(executor, func, *args)
        self.calls_in_threads.add(future)
        future.add_done_callback(self.calls_in_threads.discard)
        return future


def _make_loop() -> asyncio.AbstractEventLoop:
    try:
        from uvloop import Loop
    except ImportError:
        from asyncio import SelectorEventLoop as Loop
    kind: Any = type("LoopOfServers", (_KnownThreads, Loop), {})
    return kind()


class LoopThread:
    """Runs ``servers``, an asynchronous context, from ``start`` to ``stop``, in a thread; if need be in a host's."""

    def __init__(
        self,
        servers: Callable[[], AbstractAsyncContextManager[object]],
        name: str,
        host: "LoopThread | None" = None,
    ) -> None:
        self._servers = servers
        self._host = host
        self._hosted: Future[None] | None = None
        self._started: Future[None] = Future()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._loop: asyncio.AbstractEventLoop

    def __repr__(self) -> str:
        return f"<LoopThread {self._thread.name}, {'running' if self._thread.is_alive() else 'ended'}>"

    def start(self) -> None:
        """Start, and wait until the servers are there; what keeps them from it is raised."""
        if self._host is None:
            self._thread.start()
        else:
            self._hosted = self._host.submit(self._serve_or_tell())
        try:
            self._started.result()
        except BaseException:
            self._wait_end()
            raise

    def stop(self) -> None:
        """Leave the servers' context, and wait for the end of the thread."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._wait_end()

    def submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Begin some work on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[object, object, T]) -> T:
        """Do some work on the loop, and return what it gives; the calling thread waits."""
        return self.submit(work).result()

    async def join(self, work: Coroutine[object, object, T]) -> T:
        """Do the same without blocking the event loop of the caller.

        Raises:
            RuntimeError: that is not one of asyncio.
        """
        if not is_on_event_loop():
            work.close()
            raise RuntimeError(
                "no event loop of asyncio runs here: trio is not supported, blocking methods work with it"
            )
        return await asyncio.wrap_future(self.submit(work))

    @property
    def calls_in_threads(self) -> frozenset[asyncio.Future[Any]]:
        """What was begun on the loop and is under way in another thread."""
        return frozenset(cast("_KnownThreads", self._loop).calls_in_threads)

    def _wait_end(self) -> None:
        if self._hosted is None:
            self._thread.join()
        else:
            self._hosted.result()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_make_loop) as runner:
            runner.run(self._serve_or_tell())

    async def _serve_or_tell(self) -> None:
        try:
            await self._serve()
        except BaseException as error:
            if self._started.done():
                raise  # pytest reports what escapes from a thread
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._servers():
            self._started.set_result(None)
            await self._stopped.wait()


def is_on_event_loop() -> bool:
    """Tell whether the calling thread runs an event loop, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
