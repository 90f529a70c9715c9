"""Addresses as text."""

import asyncio
import ipaddress
import socket

import pytest

from rocketlet.common.clock import Clock
from rocketlet.common.ids import format_address, is_address
from rocketlet.remoting.transport.addresses import (
    Advertised,
    describe_forwarding,
    is_ip_address,
    is_loopback,
    is_own_address,
    reachable_host,
)
from rocketlet.testing.manual_clock import ManualClock


def test_address_is_host_and_port():
    """An IPv6 host stands in brackets, so that the port can be told from it."""
    assert format_address("10.0.0.1", 9876) == "10.0.0.1:9876"
    assert format_address("::1", 9876) == "[::1]:9876"


@pytest.mark.parametrize("text", ["10.0.0.1:9876", "host:1", "[::1]:65535"])
def test_address_names_host_and_port(text: str):
    """Names, IPv4 addresses and IPv6 addresses in brackets are addresses with a port."""
    assert is_address(text)


@pytest.mark.parametrize("text", ["", "host", ":9876", "host:", "host:0", "host:65536", "host:٣", "host:-1"])
def test_half_an_address_is_none(text: str):
    """Without a host, or without a port that exists, a text is no address."""
    assert not is_address(text)


def test_bound_host_is_reachable_as_it_is():
    """A server at one address is reached there."""
    assert reachable_host("10.0.0.1") == "10.0.0.1"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])  # noqa: S104 # not bound
def test_server_at_every_address_has_one_to_tell(host: str):
    """A server that listens everywhere is reached at an address of this machine."""
    address = ipaddress.ip_address(reachable_host(host))
    assert not address.is_unspecified


@pytest.mark.parametrize(
    ("host", "is_ip", "is_local"),
    [
        ("127.0.0.1", True, True),
        ("127.9.9.9", True, True),
        ("::1", True, True),
        ("10.0.0.1", True, False),
        ("localhost", False, False),
        ("", False, False),
    ],
)
def test_kind_of_host(host: str, is_ip: bool, is_local: bool):
    """Addresses are told from names, and those that never leave the machine from others."""
    assert (is_ip_address(host), is_loopback(host)) == (is_ip, is_local)


EVERYWHERE = ("0.0.0.0", 10911)  # noqa: S104 # not bound
FOREIGN = "192.0.2.7"  # reserved for documentation


@pytest.mark.parametrize(
    ("told", "bound"),
    [
        (("127.0.0.1", 10911), EVERYWHERE),
        (("127.0.0.1", 10911), ("127.0.0.1", 10911)),
        (("localhost", 10911), EVERYWHERE),
        (("localhost", 10911), ("localhost", 10911)),
    ],
)
async def test_address_that_is_listened_at_needs_no_forwarding(
    clock: Clock, told: tuple[str, int], bound: tuple[str, int]
) -> None:
    """Nothing is said of an address of this machine, or a name for one, where the server listens itself."""
    assert await describe_forwarding([Advertised(*told, bound)], clock) is None


@pytest.mark.parametrize(
    ("host", "port", "bound", "fault"),
    [
        (FOREIGN, 10911, EVERYWHERE, "192.0.2.7 is no address of this machine"),
        ("127.0.0.1", 7000, EVERYWHERE, "this process does not listen there"),
        ("localhost", 10911, ("127.0.0.2", 10911), "this process does not listen there"),
    ],
)
async def test_address_that_is_not_listened_at_needs_forwarding(
    clock: Clock, host: str, port: int, bound: tuple[str, int], fault: str
) -> None:
    """A foreign address, another port and a name for another address are named, with what must be forwarded where."""
    told, listened = f"{host}:{port}", format_address(*bound)
    assert await describe_forwarding([Advertised(host, port, bound)], clock) == (
        f"clients are told {told}, but {fault}: they get through only if something forwards {told} to {listened}, "
        "where this process listens"
    )


async def test_forwarding_of_several_servers_is_one_sentence(clock: Clock) -> None:
    """Only those that need it are named, all together."""
    servers = [Advertised("localhost", port, ("0.0.0.0", bound)) for port, bound in ((1, 2), (3, 3), (5, 6))]  # noqa: S104 # not bound
    said = await describe_forwarding(servers, clock)
    assert said is not None
    assert said.startswith("clients are told localhost:1 and localhost:5, but")
    assert "forwards localhost:1 to 0.0.0.0:2 and localhost:5 to 0.0.0.0:6, where" in said


async def test_name_that_does_not_resolve_is_said(clock: Clock) -> None:
    """A name that this machine does not know is named; others may know it."""
    said = await describe_forwarding([Advertised("no-such-host.invalid", 10911, EVERYWHERE)], clock)
    assert said is not None
    assert said.startswith("clients are told no-such-host.invalid:10911, a name that does not resolve here (")


async def test_name_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server of the system that does not answer costs ten seconds."""
    clock, asked = ManualClock(), asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", hang)
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(describe_forwarding([Advertised("slow.invalid", 10911, EVERYWHERE)], clock))
        await asked.wait()
        clock.advance(10_000)
    assert "a name that does not resolve here (no answer within 10000 ms)" in str(looking.result())


def test_own_address_is_probed_with_any_free_port(monkeypatch: pytest.MonkeyPatch):
    """A port that is named may be taken, or be kept for the administrator."""
    asked: list[int] = []

    class Probe(socket.socket):
        def bind(self, address: tuple[str, int], /) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] # IP only
            asked.append(address[1])
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Probe)
    assert is_own_address("127.0.0.1")
    assert asked == [0]
