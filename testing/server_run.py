"""Lives of servers that a test may end and begin again, and their ports in between."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from typing import Any, Final

from ..common.ids import Address
from ..remoting.transport.event_loop import TaskScope

_NEIGHBOURS: Final = (-2, 0, 1)
"""Which ports a broker takes, seen from the one that is told (``broker/ports.py``)."""


class ServerRun:
    """One life of a server, in a task of its own."""

    def __init__(self, tasks: TaskScope) -> None:
        self._tasks = tasks
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ServerRun {'over' if self._task is None or self._task.done() else 'going on'}>"

    async def start(self, server: AbstractAsyncContextManager[Any]) -> None:
        """Enter a server (raises what entering it raises)."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = self._tasks.start(self._run(server, started), f"run {server!r}")
        await started

    async def stop(self) -> None:
        """Leave it."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self, server: AbstractAsyncContextManager[Any], started: "asyncio.Future[None]") -> None:
        try:
            async with server:
                started.set_result(None)
                await self._stopping.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)


def keep_ports(address: Address, steps: tuple[int, ...] = _NEIGHBOURS) -> ExitStack:
    """Keep the ports of a server that is down, a broker unless told otherwise, until the stack is closed.

    They are bound without listening: whoever connects is refused, and the system gives them to nobody else.
    """
    with ExitStack() as stack:
        for step in steps:
            stack.enter_context(_kept(address[0], address[1] + step))
        return stack.pop_all()


@contextmanager
def _kept(host: str, port: int) -> Generator[None]:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody was faster: the start will say so
            keeper.bind((host, port))
        yield
