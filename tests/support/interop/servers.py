"""Name server and broker under test: ``rocketlet up`` and the official 5.4.0, each in a process of its own.

Both are context managers. Inside the block clients can use ``namesrv``; ``stop`` is a clean stop, ``kill`` a SIGKILL,
and leaving the block kills whatever still runs.
"""

import pathlib
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol, Self

from interop.driver import Driver, last_lines
from interop.toolchain import QUICK_JVM, TLS_MODE, java_command

START_LIMIT_S = 30.0
STOP_LIMIT_S = 20.0
BROKER_NAME = "broker-a"
FIRST_PORT, LAST_PORT = 15_000, 32_000  # below the range from which systems take the ports of outgoing connections
JAVA_SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": BROKER_NAME,
    # A JVM that is still warming up on a busy machine is not to answer "busy" after 200 ms.
    "waitTimeMillsInSendQueue": "10000",
    # The timer wheel is compared with its file byte by byte: once a second that takes a seventh of a core, at rest.
    "timerFlushIntervalMs": "60000",
    # Until the first interval is over, the thread that keeps transaction metrics spins.
    "transactionMetricFlushInterval": "100",
}
READY = re.compile(r"ready namesrv=(\S+) broker=(\S+)(?: metrics=\S+)?(?: grpc=\S+)?\n")


class Server(Protocol):
    """A name server and a broker on one store directory."""

    namesrv: str
    broker: str
    store: pathlib.Path

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def stop(self) -> None:
        """Stop cleanly."""
        ...

    def kill(self) -> None:
        """Kill the process."""
        ...


def ports_of(server: Server) -> tuple[str, str]:
    """Return the ports of a server's name server and broker, for one that takes its place."""
    return server.namesrv.rpartition(":")[2], server.broker.rpartition(":")[2]


def free_port(count: int) -> int:
    """Return the last of some neighbouring free ports: the official broker also uses the two below its own."""
    for _ in range(1_000):
        port = random.randrange(FIRST_PORT, LAST_PORT)
        if all(map(_is_free, range(port - count + 1, port + 1))):
            return port
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def rocketlet_command(store: pathlib.Path, settings: Mapping[str, str], replaced: Server | None = None) -> list[str]:
    """Return the command of ``rocketlet up`` on free ports, or those of a server that has ended."""
    program = pathlib.Path(sys.executable).with_name("rocketlet")
    namesrv, broker = ports_of(replaced) if replaced else (str(free_port(1)), str(free_port(3)))
    command = [str(program), "up", "--namesrv-port", namesrv, "--broker-port", broker, "--store", str(store)]
    for key, value in {"brokerName": BROKER_NAME, **settings}.items():
        command += ["--set", f"{key}={value}"]
    return command


class RocketletServer:
    """``rocketlet up`` on free ports."""

    def __init__(
        self,
        store: pathlib.Path,
        settings: Mapping[str, str],
        replaced: Server | None = None,
        *,
        options: Sequence[str] = (),
    ) -> None:
        self.store = store
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 # lives as long as the process, closed in _end
        command = [*rocketlet_command(store, settings, replaced), *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        try:
            self.namesrv, self.broker = self._read_ready_line()
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        """Return the running server."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process if it still runs."""
        self.kill()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def begin_stop(self) -> None:
        """Send SIGTERM and return at once."""
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does; anything but exit code 0 is an error."""
        self.begin_stop()
        code = self._process.wait(STOP_LIMIT_S)
        log = self.log_end()
        self._end()
        assert code == 0, f"exit code {code} after SIGTERM{log}"

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self._process.kill()
        self._end()

    def log_end(self) -> str:
        """Return the last lines of the log."""
        return last_lines(self._log, "rocketlet up")

    def _end(self) -> None:
        self._process.wait(STOP_LIMIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _read_ready_line(self) -> tuple[str, str]:
        assert self._process.stdout is not None, "the pipe is made with the process"
        readable, _, _ = select.select([self._process.stdout], [], [], START_LIMIT_S)
        line = self._process.stdout.readline() if readable else ""
        ready = READY.fullmatch(line)
        if ready is None:
            raise RuntimeError(f"rocketlet up printed {line!r} instead of its ready line{self.log_end()}")
        return ready[1], ready[2]


class JavaServer:
    """The official name server and broker in one driver process, on free ports.

    They take plain connections only, unless the settings say ``tls.server.mode=permissive``. Those of TLS go to the
    virtual machine, as it reads them. ``options`` are others for it, ``defaults`` the settings that others replace.
    """

    def __init__(
        self,
        store: pathlib.Path,
        settings: Mapping[str, str],
        replaced: Server | None = None,
        *,
        options: Sequence[str] = QUICK_JVM,
        defaults: Mapping[str, str] = JAVA_SETTINGS,
    ) -> None:
        self.store = store
        tls = {key: value for key, value in settings.items() if key.startswith("tls.")}
        settings = {key: value for key, value in settings.items() if key not in tls}
        tls_mode = tls.pop(TLS_MODE, "disabled")
        options = (*options, *(f"-D{key}={value}" for key, value in tls.items()))
        self.driver = Driver("java-server", partial(java_command, options=options, tls_mode=tls_mode))
        namesrv, broker = ports_of(replaced) if replaced else (None, None)
        if broker is not None:
            defaults = {**defaults, "listenPort": broker}
        try:
            started = self.driver.call("namesrv.start", name="ns", directory=str(self.driver.directory), port=namesrv)
            self.namesrv: str = started["address"]
            started = self.driver.call(
                "broker.start", name="b", namesrv=self.namesrv, store=str(store), settings={**defaults, **settings}
            )
            self.broker: str = started["address"]
        except BaseException:
            self.driver.close()
            raise

    def __enter__(self) -> Self:
        """Return the running server."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process if it still runs; a clean stop of the Java broker takes 10 s, so it is not done unasked."""
        self.kill()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.driver.pid

    def stop(self) -> None:
        """Stop cleanly."""
        self.driver.call("broker.stop", name="b")
        self.driver.close()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.driver.kill()


class JavaBroker:
    """An official broker alone, in a driver process of its own, on free ports: a member of somebody's cluster."""

    def __init__(self, store: pathlib.Path, namesrv: str, settings: Mapping[str, str]) -> None:
        self.driver = Driver("java-broker", partial(java_command, options=QUICK_JVM, tls_mode="disabled"))
        try:
            started = self.driver.call(
                "broker.start", name="b", namesrv=namesrv, store=str(store), settings={**JAVA_SETTINGS, **settings}
            )
            self.address: str = started["address"]
        except BaseException:
            self.driver.close()
            raise

    def __enter__(self) -> Self:
        """Return the running broker."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.driver.kill()
