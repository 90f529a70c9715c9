"""`rocketlet console`, and the console of `rocketlet up`, as processes."""

import re
import socket

import httpx
import pytest
from command_line import Refuse, Start

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


def test_console_over_a_cluster(start: Start) -> None:
    """It is of any cluster that can be reached, and ends at a signal."""
    cluster = start("up", "--ephemeral", *FREE_PORTS)
    running = start("console", "--namesrv", cluster.addresses["namesrv"], "--console-port", "0")
    assert re.fullmatch(r"ready console=http://127\.0\.0\.1:\d+/\n", running.ready)
    assert httpx.get(f"{running.addresses['console']}brokers", trust_env=False).status_code == 200
    assert running.stop() == (0, "", "")


def test_console_beside_a_broker(start: Start) -> None:
    """Its address is the last one of the ready line; on all addresses it has a token."""
    everywhere = "0.0.0.0"  # noqa: S104 # the case: others can reach it
    running = start("up", "--ephemeral", *FREE_PORTS, "--console-port", "0", "--host", everywhere)
    assert re.fullmatch(r"ready namesrv=\S+ broker=\S+ grpc=\S+ console=http://\S+/\?token=\S+\n", running.ready)
    url = running.ready.rpartition("console=")[2].strip()
    assert httpx.get(url, trust_env=False, follow_redirects=True).status_code == 200
    assert httpx.get(url.partition("?")[0], trust_env=False).status_code == 403
    assert running.stop()[0] == 0


@pytest.mark.parametrize("command", [("console", "--namesrv", "127.0.0.1:1"), ("up", "--ephemeral", *FREE_PORTS)])
def test_console_names_who_has_its_port(refuse: Refuse, command: tuple[str, ...]) -> None:
    """One line says which port is taken, by whom, and which option takes another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refuse(*command, "--console-port", port)
    assert re.fullmatch(
        rf".*127\.0\.0\.1:{port}: the address is in use by process \d+ \(\S+\); --console-port .*\n", said
    )


def test_console_without_a_name_server(refuse: Refuse) -> None:
    """It says what is missing."""
    assert "NAMESRV_ADDR" in refuse("console", "--console-port", "0")
