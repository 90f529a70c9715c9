"""Ports of `rocketlet up` that are taken: who has them, and what to do."""

import os
import pathlib
import re
import socket
import sys
from collections.abc import Iterator

import pytest
from command_line import Refuse, Start
from interop.servers import free_port


@pytest.fixture(name="free_port")
def _free_port() -> int:
    """Return a port whose neighbours are free as well, and those of the broker before it."""
    return free_port(14) - 1


@pytest.fixture
def taken() -> Iterator[int]:
    """Listen at a port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def by_this_process() -> str:
    """Return how this process is named as the holder of a port."""
    if sys.platform != "linux":
        return ""
    return f" by process {os.getpid()} ({pathlib.Path('/proc/self/comm').read_text().strip()})"


@pytest.mark.parametrize("option", ["--namesrv-port", "--broker-port", "--metrics-port", "--console-port"])
def test_port_that_is_needed(refuse: Refuse, taken: int, option: str) -> None:
    """The start ends with who has it, and which option takes another."""
    ports = {"--namesrv-port": "0", "--broker-port": "0", option: str(taken)}
    line = refuse("up", "--ephemeral", *(word for pair in ports.items() for word in pair))
    assert line == (
        f"rocketlet: cannot listen on 127.0.0.1:{taken}: the address is in use{by_this_process()}; "
        f"{option} takes another port, 0 a free one\n"
    )


def test_port_of_the_log(refuse: Refuse, taken: int) -> None:
    """A port for slaves that was given is needed by a master that waits for them; its key takes another."""
    pairs = ("--set", f"haListenPort={taken}", "--set", "brokerRole=SYNC_MASTER")
    line = refuse("up", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0", *pairs)
    assert line == (
        f"rocketlet: cannot listen on 127.0.0.1:{taken} for slaves: the address is in use{by_this_process()}; "
        f"--set haListenPort=PORT takes another port\n"
    )


@pytest.mark.parametrize(
    ("step", "other"), [(-2, "it is listenPort - 2"), (1, "haListenPort takes another port")], ids=["tables", "log"]
)
def test_ports_that_only_slaves_need(start: Start, free_port: int, step: int, other: str) -> None:
    """A lone master goes on without, and says the same of them."""
    with socket.create_server(("127.0.0.1", free_port + step)):
        running = start("up", "--ephemeral", "--no-grpc", "--namesrv-port", "0", "--broker-port", str(free_port))
    [line] = [line for line in running.stop()[2].splitlines() if "WARNING" in line]
    assert f"127.0.0.1:{free_port + step}" in line
    assert line.endswith(f"the address is in use{by_this_process()} ({other}); going on without")


def test_port_of_one_of_several(refuse: Refuse, free_port: int) -> None:
    """The broker is named, too."""
    with socket.create_server(("127.0.0.1", free_port)):
        first = str(free_port - 10)
        ports = ("--no-grpc", "--namesrv-port", "0", "--broker-port", first)
        line = refuse("up", "--ephemeral", "--brokers", "2", *ports)
    assert re.match(rf"rocketlet: broker-[ab]: cannot listen on 127\.0\.0\.1:{free_port}: .*; --broker-port", line)
