"""Runs servers until a signal: the loop, the ready line, the garbage collector, and who holds a port that is taken.

What belongs to a process and not to a server is here only: signal handlers, log output, loop, limits, collector.
The first SIGINT, SIGTERM or SIGHUP stops cleanly; the handlers are gone then, so that a second one ends the process at
once. Under ``nohup`` SIGHUP stays ignored.

The holder of a port: Linux names sockets in ``/proc/net/tcp`` and ``tcp6``, a line each, by their inodes, and the
descriptors of a process in ``/proc/PID/fd``. Of other users' processes, and on other systems, only the port is known.

    column of a line   1 local address, hex ``HOST:PORT``   3 state, 0A is LISTEN   9 inode
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
    from ..remoting.transport.addresses import Advertised
import contextlib
import os
from collections.abc import Generator, Iterator

from ..common.errors import AddressInUseError, ConfigError

Start = Callable[[AsyncExitStack, Clock], Awaitable[str]]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(start: Start, notes: Sequence[str], *, log_level: str, is_watched: bool = False) -> None:
    """Enter servers into a stack by ``start``, print the line that it returns, and wait for a signal.

    ``notes`` are what a user should know of these servers by then, a line each on stderr. If somebody watches over this
    process, it says no such things, and the end of stdin is a signal as well: the watcher has gone.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    _raise_descriptor_limit()
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        runner.run(_serve(start, notes, is_watched=is_watched))


def _raise_descriptor_limit() -> None:
    """Allow as many connections and files as the system lets this user have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS names a hard limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(start: Start, notes: Sequence[str], *, is_watched: bool) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, _stop, stopped, numbers)
    if is_watched:
        loop.add_reader(sys.stdin.fileno(), _stop_at_end, stopped, numbers)
    async with AsyncExitStack() as servers:
        ready = await start(servers, LoopClock())
        for note in () if is_watched else notes:
            click.echo(f"rocketlet: {note}", err=True)
        click.echo(ready)
        _spare_garbage_collector()
        await stopped.wait()


def _stop(stopped: asyncio.Event, numbers: Sequence[signal.Signals]) -> None:
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.remove_signal_handler(number)
    stopped.set()


def _stop_at_end(stopped: asyncio.Event, numbers: Sequence[signal.Signals]) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        _stop(stopped, numbers)


def _spare_garbage_collector() -> None:
    """What the start made stays for the life of the process, so no collection has to walk it."""
    gc.collect()
    gc.freeze()


async def describe_advertised(servers: Iterable["Advertised"], clock: Clock) -> list[str]:
    """Say what must be forwarded so that clients reach started servers where they are told."""
    from ..remoting.transport.addresses import describe_forwarding

    advertised = [server for server in servers if server.host]
    note = await describe_forwarding(advertised, clock) if advertised else None
    return [note] if note else []


async def make_ephemeral_store(stack: AsyncExitStack) -> str:
    """Make a temporary directory that is removed when the stack closes."""
    path = tempfile.mkdtemp(prefix="rocketlet-")
    stack.push_async_callback(asyncio.to_thread, shutil.rmtree, path)
    return path


_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"


@contextlib.contextmanager
def naming_holder(option: str) -> Generator[None]:
    """Let the error of an address in use name the process that has it, and the option of another port.

    Raises:
        ConfigError: the address is in use.
    """
    try:
        yield
    except AddressInUseError as error:
        holder = find_holder(error.port)
        by = f" by process {holder[0]} ({holder[1]})" if holder else ""
        raise ConfigError(f"{error}{by}; {option} takes another port, 0 a free one", key=option) from error


def find_holder(port: int) -> tuple[int, str] | None:
    """Return the number and the name of a process that listens at a port, if it can be seen."""
    wanted = {f"socket:[{inode}]" for table in _TABLES for inode in _listening_inodes(table, port)}
    for name in os.listdir("/proc") if wanted else ():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if name.isdecimal() and any(os.readlink(entry) in wanted for entry in os.scandir(f"/proc/{name}/fd")):
                with open(f"/proc/{name}/comm") as file:
                    return int(name), file.read().strip()
    return None


def _listening_inodes(table: str, port: int) -> Iterator[str]:
    with contextlib.suppress(OSError), open(table) as file:
        for line in file:
            columns = line.split()
            if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]
