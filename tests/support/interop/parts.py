"""Name servers and brokers of ours as single processes, and what mqadmin prints about them."""

import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import Any, NamedTuple, Self

from interop.driver import Driver, last_lines
from interop.servers import START_LIMIT_S, STOP_LIMIT_S

READY = re.compile(r"ready (?:namesrv|broker)=(\S+)(?: broker=\S+)?(?: grpc=\S+)?\n")


class Part:
    """``rocketlet namesrv``, ``broker`` or ``up`` (its address is the name server's); kills what still runs."""

    def __init__(self, part: str, *arguments: str | pathlib.Path) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 # lives as long as the process, closed in kill
        command = [pathlib.Path(sys.executable).with_name("rocketlet"), part, *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self.address = self._read_ready_line(part)

    def __enter__(self) -> Self:
        """Return the running part."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it if it still runs."""
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop cleanly."""
        self._end(signal.SIGTERM)
        assert self._process.returncode == 0

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal and return at once."""
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(STOP_LIMIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _read_ready_line(self, part: str) -> str:
        assert self._process.stdout is not None, "the pipe is made with the process"
        readable, _, _ = select.select([self._process.stdout], [], [], START_LIMIT_S)
        line = self._process.stdout.readline() if readable else ""
        ready = READY.fullmatch(line)
        if ready is None:
            log = last_lines(self._log, part)
            self.kill()
            raise RuntimeError(f"rocketlet {part} printed {line!r} instead of its ready line{log}")
        return ready[1]


def start_nameserver(directory: pathlib.Path, port: str = "0", **settings: str) -> Part:
    """Run a name server that keeps its key-value table in a directory."""
    told = {"kvConfigPath": str(directory / "kvConfig.json"), **settings}
    words = [word for each in told.items() for word in ("--set", "=".join(each))]
    return Part("namesrv", "--namesrv-port", port, *words)


def start_broker(directory: pathlib.Path, name: str, namesrv: str) -> Part:
    """Run a broker that registers at name servers."""
    name_it = ["--set", f"brokerName={name}"]
    return Part("broker", "--broker-port", "0", "--namesrv", namesrv, "--store", directory / name, *name_it)


def start_brokers(directory: pathlib.Path, count: int) -> Part:
    """Run a name server and so many brokers in one process."""
    return Part(
        "up", "--namesrv-port", "0", "--broker-port", "0", "--store", directory / "store", "--brokers", str(count)
    )


def start_cluster(started: ExitStack, directory: pathlib.Path) -> "Cluster":
    """Run two name servers and two brokers, which end with the stack."""
    servers = [started.enter_context(start_nameserver(directory / str(number))) for number in range(2)]
    cluster = Cluster(servers, {})
    for name in ("broker-a", "broker-b"):
        cluster.brokers[name] = started.enter_context(start_broker(directory, name, cluster.namesrv))
    return cluster


class Cluster(NamedTuple):
    """Two name servers that do not know each other, and two brokers that register at both."""

    nameservers: list[Part]
    brokers: dict[str, Part]

    @property
    def namesrv(self) -> str:
        """The addresses as clients are given them."""
        return ";".join(server.address for server in self.nameservers)


def mqadmin(java: Driver, *arguments: str) -> str:
    """Run mqadmin and return what it prints."""
    return java.call("mqadmin", args=arguments)["output"]


def brokers_in(route: dict[str, Any]) -> set[str]:
    """Return the broker names of a route."""
    return {broker["brokerName"] for broker in route["brokerDatas"]}
