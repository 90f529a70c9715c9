"""Brokers as processes of their own, which ``up`` watches over.

Rules

    1. A broker is ``rocketlet broker`` with its settings; what is secret of them comes by a pipe, since everybody on a
       machine sees the arguments of processes. It says on stdout when it is ready; what it logs goes on to
       stderr, in the format of ``up``, with its name before each line, or in each object of JSON.
    2. One that cannot start ends ``up``, with its own sentence. One that ends later is started again, at the port that
       it had, and recovers its store: after a second, and after twice as long each time that it does not last
       ``LASTS_MS``.
    3. A clean stop asks all of them to stop and waits for that. A broker whose ``up`` has vanished stops by itself: its
       stdin has ended.
"""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Self

import click

from ..broker.settings.config import SECRET_KEYS
from ..common.clock import Clock
from ..common.errors import ConfigError
from ..common.settings import format_java_properties
from ..remoting.transport.event_loop import TaskScope
from .serve import shows_colours
from .settings import LogFlags

FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 60_000
LASTS_MS: Final = 60_000
_PREFIX: Final = "rocketlet: "
_PORT: Final = "listenPort"
_GRPC_PORT: Final = "grpcServerPort"
_log = logging.getLogger(__name__)


class ProcessPlan(NamedTuple):
    """A broker that is to run: its name in the log, how it logs, options, and settings by Java's keys."""

    name: str
    logs: LogFlags
    options: Sequence[str]
    settings: Mapping[str, str]


class _BrokerProcess:
    """One broker, now in this process and now in that."""

    def __init__(self, plan: ProcessPlan, clock: Clock) -> None:
        self.name = plan.name
        self._logs = plan.logs
        self._options = plan.options
        self._settings = dict(plan.settings)
        self._clock = clock
        self._is_coloured = shows_colours()
        self._creating: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._last_line = ""
        self.is_stopping = False

    def __repr__(self) -> str:
        return f"<_BrokerProcess {self.name}>"

    async def start(self, tasks: TaskScope) -> dict[str, str]:
        """Start it; return what its ready line says, by the names there.

        Raises:
            ConfigError: It has ended instead.
        """
        self._creating = tasks.start(self._create(), f"make {self.name}")
        process = await asyncio.shield(self._creating)  # who gives up meanwhile has it stopped nevertheless
        assert process.stdout is not None, "it is a pipe"
        assert process.stderr is not None, "it is one, too"
        said = tasks.start(self._pass_on(process.stderr), f"log of {self.name}")
        ready = dict(re.findall(r"(\w+)=(\S+)", (await process.stdout.readline()).decode()))
        if not ready:
            await said
            await process.wait()
            raise ConfigError(f"{self.name}: {self._last_line or f'ended with code {process.returncode}'}")
        self._settings[_PORT] = ready["port"]  # a free one was asked for, and clients know it by now
        if grpc := ready.get("grpc"):
            self._settings[_GRPC_PORT] = grpc.rpartition(":")[2]
        return ready

    async def _create(self) -> asyncio.subprocess.Process:
        secrets = {key: value for key, value in self._settings.items() if key in SECRET_KEYS and value}
        told = ((key, value) for key, value in self._settings.items() if key not in secrets)
        pairs = [part for key, value in told for part in ("--set", f"{key}={value}")]
        with _written(format_java_properties(secrets)) as secrets_fd:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "rocketlet", "broker", "--watched", self.name),
                *("--secrets", str(secrets_fd), *_log_options(self._logs), *self._options, *pairs),
                env={**os.environ, "FORCE_COLOR": "1"} if self._is_coloured else None,  # its stderr is a pipe
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # ^C is for who watches over it
                pass_fds=(secrets_fd,),
            )

    async def watch(self, tasks: TaskScope) -> None:
        """Start it again whenever it has ended, until it is stopped."""
        pause_ms = FIRST_PAUSE_MS
        while True:
            began_at_ms = self._clock.monotonic_ms()
            assert self._creating is not None, "it has been started"
            code = await self._creating.result().wait()
            if self.is_stopping:
                return
            if self._clock.monotonic_ms() - began_at_ms >= LASTS_MS:
                pause_ms = FIRST_PAUSE_MS
            _log.error("%s has ended, %s: starting it again in %d ms", self.name, _describe_end(code), pause_ms)
            await self._clock.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
            try:
                await self.start(tasks)
            except ConfigError as error:
                _log.error("%s", error)
            else:
                _log.warning("%s is ready again", self.name)

    async def stop(self) -> None:
        """Ask it to stop, and wait until it has, also if it is just being made."""
        self.is_stopping = True
        if self._creating is None:
            return
        await asyncio.wait([self._creating])
        if self._creating.exception() is None and (process := self._creating.result()).returncode is None:
            process.terminate()
            await process.wait()

    async def _pass_on(self, said: asyncio.StreamReader) -> None:
        """Write what it logs to stderr."""
        async for raw in said:
            line = raw.decode(errors="replace").rstrip("\n")
            if line.startswith(_PREFIX):
                self._last_line = line.removeprefix(_PREFIX)
            else:
                self._echo(line)

    def _echo(self, line: str) -> None:
        if self._logs["log_format"] != "json":
            name = click.style(self.name, fg="cyan") if self._is_coloured else self.name
            click.echo(f"{name} | {line}", err=True, color=self._is_coloured)
        elif line.startswith("{"):
            click.echo(line, err=True)
        else:  # what is no log line: the last words of an interpreter, say
            _log.error("%s: %s", self.name, line)


class BrokerProcesses:
    """The brokers of a cluster; leaving the block stops them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._brokers: list[_BrokerProcess] = []
        self._tasks = TaskScope()
        self._watching: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<BrokerProcesses {self._brokers}>"

    async def __aenter__(self) -> Self:
        """Return it, without brokers."""
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all."""
        watched, self._watching = self._watching, []
        for task in watched:
            task.cancel()
        async with asyncio.TaskGroup() as group:
            for broker in self._brokers:
                group.create_task(broker.stop())
        await self._tasks.__aexit__(None, None, None)

    async def start(self, plans: Sequence[ProcessPlan]) -> list[dict[str, str]]:
        """Start brokers side by side, and watch over them from now on; return what their ready lines say.

        Raises:
            ConfigError: One has not become ready.
        """
        brokers = [_BrokerProcess(plan, self._clock) for plan in plans]
        self._brokers += brokers
        starting = [self._tasks.start(_try(broker, self._tasks), f"start {broker.name}") for broker in brokers]
        ready: list[dict[str, str]] = []
        for outcome in [await task for task in starting]:
            if isinstance(outcome, ConfigError):
                raise outcome
            ready.append(outcome)
        self._watching += [self._tasks.start(broker.watch(self._tasks), f"watch {broker.name}") for broker in brokers]
        return ready


@contextmanager
def _written(text: str) -> Generator[int]:
    """Yield a descriptor from which a text is read: that of a pipe, which holds it."""
    reading, writing = os.pipe()
    try:
        with open(writing, "wb") as pipe:
            pipe.write(text.encode())
        yield reading
    finally:
        os.close(reading)


async def _try(broker: _BrokerProcess, tasks: TaskScope) -> dict[str, str] | ConfigError:
    try:
        return await broker.start(tasks)
    except ConfigError as error:
        return error


def _log_options(logs: LogFlags) -> list[str]:
    options = ["--log-level", logs["log_level"], "--log-format", logs["log_format"]]
    return [*options, "--verbose"] if logs["verbose"] else options


def _describe_end(code: int) -> str:
    """Return what an exit code says."""
    if code < 0:
        return f"by signal {signal.Signals(-code).name}"
    return f"with exit code {code}"
