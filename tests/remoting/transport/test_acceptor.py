"""Connections told apart by their first byte: who is served how, who is sent away, and what silence costs."""

import asyncio
import contextlib
import pathlib
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from typing import cast

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.remoting.tls.contexts import server_context
from rocketlet.remoting.tls.self_signed import SelfSignedTls
from rocketlet.remoting.tls.tls_settings import TlsConfig
from rocketlet.remoting.transport.acceptor import PATIENCE_MS, Admission, PortAcceptor
from rocketlet.remoting.transport.server import OnDemandPort, open_listener
from rocketlet.testing.manual_clock import ManualClock


class Greeter(asyncio.Protocol):
    """Says how it was reached and what it has read, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer the first read."""
        way = b"TLS " if self._transport.get_extra_info("ssl_object") else b"plain "
        self._transport.write(way + data)
        self._transport.close()


class AcceptorGround:
    """An acceptor under a manual clock."""

    def __init__(self, listener: socket.socket, admission: Admission, kept: Callable[[], int | None]) -> None:
        self.clock = ManualClock()
        self.port: int = listener.getsockname()[1]
        self.acceptor = PortAcceptor(listener, Greeter, admission, self.clock, kept)
        self.entrance = self.acceptor.entrance

    async def say(self, first: bytes, context: ssl.SSLContext | None = None) -> bytes:
        """Connect, say something, and return all that comes back."""
        name = None if context is None else "localhost"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name)
        writer.write(first)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def be_silent(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect and say nothing."""
        return await asyncio.open_connection("127.0.0.1", self.port)


def taking_tls(directory: pathlib.Path, most_silent: int = 3) -> Admission:
    """Return what lets in who speaks TLS, by a pair in a directory, and who does not."""
    pair = SelfSignedTls(str(directory / "pair.pem"), lambda: server_context(TlsConfig(), None, ["h2"]))
    return Admission(tls=pair.context, most_silent=most_silent)


@pytest.fixture
def kept() -> list[int]:
    """Return the lowest descriptor that no connection may have, if any."""
    return []


@pytest.fixture
async def ground(tmp_path: pathlib.Path, kept: list[int]) -> AsyncGenerator[AcceptorGround]:
    """Serve a port."""
    with open_listener("127.0.0.1", 0, key="bindAddress") as listener:
        served = AcceptorGround(listener, taking_tls(tmp_path), lambda: kept[0] if kept else None)
        async with served.acceptor:
            yield served


def trusting(tmp_path: pathlib.Path) -> ssl.SSLContext:
    """Return a client that trusts the pair of a port, and asks for HTTP/2."""
    context = ssl.create_default_context(cafile=str(tmp_path / "pair.pem"))
    context.set_alpn_protocols(["h2"])
    return context


async def test_plain_text_and_tls(ground: AcceptorGround, tmp_path: pathlib.Path) -> None:
    """The first byte decides, and is read again by who serves; the certificate names this machine."""
    assert await ground.say(b"hello") == b"plain hello"
    await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", ground.port))  # the first hello makes the pair
    context = trusting(tmp_path)
    assert await ground.say(b"hello", context) == b"TLS hello"
    assert await ground.say(b"\x15") == b"plain \x15"


async def test_tls_below_1_2(ground: AcceptorGround) -> None:
    """It is refused."""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await ground.say(b"hello", old)
    assert await ground.say(b"on") == b"plain on"


async def test_silent_peer_is_sent_away(ground: AcceptorGround) -> None:
    """A peer that says nothing has its time by the clock; one that came later has its own."""
    reader, writer = await ground.be_silent()
    assert await ground.say(b"one") == b"plain one"
    assert ground.entrance.silent_count == 1
    ground.clock.advance(PATIENCE_MS - 1)
    later_reader, later_writer = await ground.be_silent()
    assert await ground.say(b"two") == b"plain two"
    assert ground.entrance.silent_count == 2
    ground.clock.advance(1)
    assert await reader.read() == b""
    assert ground.entrance.silent_count == 1
    ground.clock.advance(PATIENCE_MS)
    assert await later_reader.read() == b""
    assert ground.entrance.silent_count == 0
    for each in (writer, later_writer):
        each.close()
        await each.wait_closed()


async def test_peer_that_goes_without_a_word(ground: AcceptorGround) -> None:
    """Nothing is left of it."""
    reader, writer = await ground.be_silent()
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert ground.entrance.silent_count == 0


async def test_many_silent_peers(ground: AcceptorGround) -> None:
    """Of more than so many the one that waits longest is sent away."""
    silent = [await ground.be_silent() for _ in range(3)]
    assert await ground.say(b"one") == b"plain one"
    assert await silent[0][0].read() == b""
    assert ground.entrance.silent_count == 2
    for _, writer in silent:
        writer.close()
        await writer.wait_closed()


async def test_descriptors_that_are_kept(
    ground: AcceptorGround, kept: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """A connection above them is closed at once, and told of in the log."""
    kept.append(0)
    reader, writer = await ground.be_silent()
    assert await reader.read() == b""
    assert "too many open files" in caplog.text
    writer.close()
    await writer.wait_closed()
    kept.clear()
    assert await ground.say(b"on") == b"plain on"


async def test_tls_that_cannot_be_served(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why, and plain text is served on."""

    async def refuse() -> ssl.SSLContext:
        raise ConfigError("TLS needs the library cryptography")

    with open_listener("127.0.0.1", 0, key="bindAddress") as listener:
        ground = AcceptorGround(listener, Admission(tls=refuse), lambda: None)
        async with ground.acceptor:
            assert await ground.say(b"\x16\x03\x01") == b""
            assert await ground.say(b"on") == b"plain on"
    assert "closing the connection from 127.0.0.1:" in caplog.text
    assert "TLS needs the library cryptography" in caplog.text


async def test_end_with_silent_peers(tmp_path: pathlib.Path) -> None:
    """They are closed with the port."""
    with open_listener("127.0.0.1", 0, key="bindAddress") as listener:
        served = AcceptorGround(listener, taking_tls(tmp_path), lambda: None)
        async with served.acceptor:
            reader, writer = await served.be_silent()
            assert await served.say(b"one") == b"plain one"
        assert await reader.read() == b""
    assert served.clock.next_at_ms is None
    writer.close()
    await writer.wait_closed()


async def test_port_on_demand(tmp_path: pathlib.Path) -> None:
    """Its server is made when somebody knocks, once, and ends with it; without a knock it is never made."""
    made: list[str] = []

    def load() -> Callable[[socket.socket], PortAcceptor]:
        made.append("imported")
        admission = taking_tls(tmp_path, most_silent=10)
        return lambda listener: PortAcceptor(listener, Greeter, admission, ManualClock(), lambda: None)

    async with OnDemandPort(open_listener("127.0.0.1", 0, key="bindAddress"), load):
        await asyncio.sleep(0)
    assert made == []
    async with OnDemandPort(open_listener("127.0.0.1", 0, key="bindAddress"), load) as port:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_say(port, b"%d" % number)) for number in range(10)]
        assert [task.result() for task in tasks] == [b"plain %d" % number for number in range(10)]
    assert made == ["imported"]
    with pytest.raises(ConnectionRefusedError):
        await _say(port, b"late")


async def test_port_on_demand_that_cannot_be_served(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why, and the port is closed."""

    def load() -> Callable[[socket.socket], PortAcceptor]:
        raise ModuleNotFoundError("No module named 'hpack'")

    async with OnDemandPort(open_listener("127.0.0.1", 0, key="bindAddress"), load) as port:
        with contextlib.suppress(ConnectionResetError):
            assert await _say(port, b"1") == b""
        with pytest.raises(ConnectionRefusedError):
            await _say(port, b"2")
    assert f"closing the port 127.0.0.1:{port.address[1]}: it cannot be served" in caplog.text
    assert "No module named 'hpack'" in caplog.text


async def _say(port: OnDemandPort, first: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*port.address)
    writer.write(first)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
