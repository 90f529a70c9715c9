"""Runs servers until a signal: the loop, the ready line, the garbage collector.

What belongs to a process and not to a server is here only: signal handlers, log output, loop, limits, collector.
The first SIGINT, SIGTERM or SIGHUP stops cleanly; the handlers are gone then, so that a second one ends the process at
once. Under ``nohup`` SIGHUP stays ignored.
"""

import asyncio
import gc
import logging
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import click

from ..common.clock import Clock
from ..remoting.transport.event_loop import LoopClock, find_loop_factory

if TYPE_CHECKING:
    from ..broker.server import Broker
    from ..namesrv.server import NameServer

Start = Callable[[AsyncExitStack, Clock], Awaitable[str]]
FIRST_GC_THRESHOLD = 50_000  # allocations between collections of the young generation; Python's own is 700 or 2,000
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(start: Start, notes: Sequence[str], *, log_level: str) -> None:
    """Enter servers into a stack by ``start``, print the line that it returns, and wait for a signal.

    ``notes`` are what a user should know of these servers by then, a line each on stderr.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    _raise_descriptor_limit()
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        runner.run(_serve(start, notes))


def _raise_descriptor_limit() -> None:
    """Allow as many connections and files as the system lets this user have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS names a hard limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(start: Start, notes: Sequence[str]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, _stop, stopped, numbers)
    async with AsyncExitStack() as servers:
        ready = await start(servers, LoopClock())
        for note in notes:
            click.echo(f"rocketlet: {note}", err=True)
        click.echo(ready)
        _spare_garbage_collector()
        await stopped.wait()


def _stop(stopped: asyncio.Event, numbers: Sequence[signal.Signals]) -> None:
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.remove_signal_handler(number)
    stopped.set()


def _spare_garbage_collector() -> None:
    """What the start made stays for the life of the process, so no collection has to walk it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(FIRST_GC_THRESHOLD, *gc.get_threshold()[1:])


async def describe_advertised(servers: Iterable["NameServer | Broker"], clock: Clock) -> list[str]:
    """Say what must be forwarded so that clients reach started servers where they are told."""
    from ..remoting.transport.addresses import describe_forwarding

    advertised = [told for server in servers if (told := server.advertised) is not None]
    note = await describe_forwarding(advertised, clock) if advertised else None
    return [note] if note else []


async def make_ephemeral_store(stack: AsyncExitStack) -> str:
    """Make a temporary directory that is removed when the stack closes."""
    path = tempfile.mkdtemp(prefix="rocketlet-")
    stack.push_async_callback(asyncio.to_thread, shutil.rmtree, path)
    return path
