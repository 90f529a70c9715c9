"""Runs servers until a signal: the loop, the ready line, log output, the garbage collector, and who is told about it.

What belongs to a process and not to a server is here only: signal handlers, log output, loop, limits, collector.
The first SIGINT, SIGTERM or SIGHUP stops cleanly; the handlers are gone then, so that a second one ends the process at
once. Under ``nohup`` SIGHUP stays ignored. A service manager that names a socket in ``NOTIFY_SOCKET``, as systemd does,
is told when clients can connect and when the stop begins.
"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final

import click

from ..common.clock import Clock
from ..common.errors import AddressInUseError, ConfigError, RocketletError
from ..remoting.transport.event_loop import LoopClock, find_loop_factory
from .settings import EPHEMERAL_PREFIX, LogFlags

if TYPE_CHECKING:
    from ..remoting.transport.addresses import Advertised

Start = Callable[[AsyncExitStack, Clock], Awaitable[str]]
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PLAIN: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OWN_LOGGERS: Final = __name__.partition(".")[0]
_NOTIFY: Final = "NOTIFY_SOCKET"


def serve(start: Start, notes: Sequence[str], logs: LogFlags, *, watched: str | None = None) -> None:
    """Enter servers into a stack by ``start``, print the line that it returns, and wait for a signal.

    ``notes`` are what a user should know of these servers by then, a line each on stderr. If somebody watches over this
    process, by that name, it says no such things, and the end of stdin is a signal as well: the watcher has gone.

    Raises:
        RocketletError: a setting, port or store that cannot be used.
    """
    _begin_logging(logs, watched)
    _raise_descriptor_limit()
    is_json = logs["log_format"] == "json"
    try:
        with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
            runner.run(_serve(start, notes, is_watched=watched is not None, is_json=is_json))
    except RocketletError as error:
        if not is_json or watched is not None:  # who watches waits for the sentence
            raise
        from .logs import say_json

        say_json(str(error), logging.CRITICAL)
        raise SystemExit(2) from error


def _begin_logging(logs: LogFlags, watched: str | None) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if logs["log_format"] == "json":
        from .logs import JsonFormatter

        handler.setFormatter(JsonFormatter(watched))
    elif shows_colours():
        from .logs import TerminalFormatter

        handler.setFormatter(TerminalFormatter())
    else:
        handler.setFormatter(logging.Formatter(_PLAIN))
    logging.basicConfig(handlers=[handler], level=logs["log_level"].upper())
    if logs["verbose"]:
        logging.getLogger(_OWN_LOGGERS).setLevel(logging.DEBUG)


def shows_colours() -> bool:
    """Tell whether log lines have colours: on a terminal, unless NO_COLOR or FORCE_COLOR say otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _raise_descriptor_limit() -> None:
    """Allow as many connections and files as the system lets this user have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS names a hard limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(start: Start, notes: Sequence[str], *, is_watched: bool, is_json: bool) -> None:
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
            say(note, is_json=is_json)
        click.echo(ready)
        if not is_watched:
            _notify_manager(b"READY=1")
        _spare_garbage_collector()
        await stopped.wait()
        if not is_watched:
            _notify_manager(b"STOPPING=1")


def say(note: str, *, is_json: bool) -> None:
    """Write to stderr what a user should know of a start."""
    if is_json:
        from .logs import say_json

        say_json(note)
    else:
        click.echo(f"rocketlet: {note}", err=True)


def _notify_manager(state: bytes) -> None:
    path = os.environ.get(_NOTIFY, "")
    if not path:
        return
    import socket

    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.sendto(state, f"\0{path[1:]}" if path.startswith("@") else path)


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


async def make_ephemeral_store(stack: AsyncExitStack, made: str | None = None) -> str:
    """Make a temporary directory, unless it has been made, that is removed when the stack closes."""
    path = made or tempfile.mkdtemp(prefix=EPHEMERAL_PREFIX)
    stack.push_async_callback(asyncio.to_thread, shutil.rmtree, path)
    return path


@contextlib.contextmanager
def naming_holder(option: str, store: str | None = None) -> Generator[None]:
    """Let the error of an address in use name the process that has it, and what to do about that.

    ``store`` is the directory that the start is about: if the process serves that, there is a command to stop it.

    Raises:
        ConfigError: the address is in use.
    """
    try:
        yield
    except AddressInUseError as error:
        from ..remoting.transport.port_holder import find_holder
        from .instances import stop_hint

        holder = find_holder(error.port)
        by = f" by {holder}" if holder else ""
        hint = stop_hint(store, holder.pid) if holder and store else ""
        # the HA port has a key of its own; the port below the broker's moves with that
        other = f"{option} takes another port, 0 a free one" if error.key == "listenPort" else _another(error.key)
        raise ConfigError(f"{error}{by}{hint}; {other}", key=option) from error


def _another(key: str | None) -> str:
    return f"--set {key}=PORT takes another port"
