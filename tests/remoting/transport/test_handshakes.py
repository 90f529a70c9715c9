"""TLS at a remoting port: who is let in, what a handshake may take, and what goes through."""

import asyncio
import contextlib
import pathlib
import ssl
from collections.abc import AsyncGenerator

import pytest
from memory_connection import MemoryTransport
from raw_calls import until

from rocketlet.common.errors import ConfigError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.tls.server_tls import EndpointTls, admit
from rocketlet.remoting.tls.tls_settings import TlsConfig
from rocketlet.remoting.transport import acceptor as acceptor_module
from rocketlet.remoting.transport.acceptor import GRACE_MS, MOST_HELLO_BYTES, PATIENCE_MS, Admission, Entrance
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.limits import Limits
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing.manual_clock import ManualClock

ECHO = 7
ANSWER_MS = 10_000
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _echo(command: Command, _connection: Connection) -> Reply:
    return Command.response(0, body=command.body)


class TlsGround:
    """A server under a manual clock."""

    def __init__(self, server: RemotingServer, clock: ManualClock) -> None:
        self.server = server
        self.clock = clock
        self.address = f"127.0.0.1:{server.address[1]}"

    @property
    def entrance(self) -> Entrance:
        """Who lets connections in."""
        entrance = self.server._entrance  # pyright: ignore[reportPrivateUsage] # no part may look at it
        assert entrance is not None
        return entrance

    async def dial(self) -> Streams:
        """Connect, and say nothing."""
        return await asyncio.open_connection(*self.server.address)

    async def ask(self, body: bytes, *, uses_tls: bool) -> bytes:
        """Return what the server echoes over a new connection."""
        context = any_server() if uses_tls else None
        async with ConnectionPool(LoopClock(), tls=context) as pool:
            return (await pool.request(self.address, Command.request(ECHO, body=body), ANSWER_MS)).body


def any_server() -> ssl.SSLContext:
    """Return a client's side that takes any server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.asynccontextmanager
async def serving(directory: pathlib.Path, limits: Limits | None = None, **settings: str) -> AsyncGenerator[TlsGround]:
    """Serve a port as settings of TLS say; a ``mode`` alone stands for its key."""
    clock = ManualClock()
    config = TlsConfig.from_java({f"tls.server.{name}": value for name, value in settings.items()})
    admission = await admit(config, EndpointTls(config.pair, str(directory / "pair.pem")), clock)
    handlers = RequestHandlers({ECHO: _echo})
    async with RemotingServer("127.0.0.1", 0, handlers, clock, limits, admission=admission) as server:
        yield TlsGround(server, clock)


async def no_context() -> ssl.SSLContext:
    """Serve nobody."""
    raise ConfigError("there is no certificate")


class Hello:
    """A client's handshake, by hand."""

    def __init__(self) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = any_server().wrap_bio(self._incoming, self._outgoing)

    def first(self) -> bytes:
        """Return the first words."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    def finish(self, answer: bytes, request: bytes) -> bytes:
        """Return what ends the handshake, and a request."""
        self._incoming.write(answer)
        self._tls.do_handshake()
        self._tls.write(request)
        return self._outgoing.read()

    def read(self, answer: bytes) -> bytes:
        """Return what an answer says."""
        self._incoming.write(answer)
        return self._tls.read(1 << 16)


@pytest.mark.feature("A1")
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_first_byte_alone(tmp_path: pathlib.Path, mode: str) -> None:
    """The rest of a TLS record, and of a plain frame, may come any time later; which it is the first byte says."""
    async with serving(tmp_path, mode=mode) as ground:
        reader, writer = await ground.dial()
        hello = Hello()
        first = hello.first()
        writer.write(first[:1])
        await until(lambda: ground.entrance.handshake_count == 1)
        ground.clock.advance(1_000)
        writer.write(first[1:])
        request = bytes(encode_command(Command.request(ECHO, body=b"late")))
        writer.write(hello.finish(await reader.read(1 << 16), request))
        answers = b""
        while b"late" not in answers:
            with contextlib.suppress(ssl.SSLWantReadError):  # tickets may come alone
                answers += hello.read(await reader.read(1 << 16))
        assert ground.entrance.handshake_count == 0
        writer.close()
        if mode == "permissive":
            reader, writer = await ground.dial()
            writer.write(request[:1])
            await until(lambda: any(each.reads for each in ground.server.connections))
            ground.clock.advance(1_000)
            writer.write(request[1:])
            assert b"late" in await reader.read(1 << 16)
            writer.close()


@pytest.mark.feature("A2")
async def test_enforcing(tmp_path: pathlib.Path) -> None:
    """Plain text is closed without an answer, and TLS is served."""
    async with serving(tmp_path, mode="enforcing") as ground:
        reader, writer = await ground.dial()
        writer.write(bytes(encode_command(Command.request(ECHO, body=b"plain"))))
        assert await reader.read() == b""
        writer.close()
        assert await ground.ask(b"secret", uses_tls=True) == b"secret"
        assert len(ground.server.connections) <= 1


@pytest.mark.feature("A2")
async def test_disabled(tmp_path: pathlib.Path) -> None:
    """A TLS record is closed without an alert, and plain text is served."""
    async with serving(tmp_path, mode="disabled") as ground:
        reader, writer = await ground.dial()
        writer.write(Hello().first())
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert await ground.ask(b"open", uses_tls=False) == b"open"


async def test_garbage_behind_the_first_byte(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is answered by an alert, never by a frame; the log has the address once, and no bytes."""
    async with serving(tmp_path) as ground:
        reader, writer = await ground.dial()
        writer.write(b"\x16\x03\x01\x00\x04\xff\xff\xff\xff")
        answer = await reader.read()
        assert answer[:1] in {b"", b"\x15"}
        assert len(answer) < 32
        writer.close()
        assert "the TLS handshake failed" in caplog.text


@pytest.mark.parametrize("step", ["first byte", "hello"])
async def test_handshake_that_stops_half_way(tmp_path: pathlib.Path, step: str) -> None:
    """Its time is over by the clock of the server; others shake hands meanwhile, and nothing is left."""
    async with serving(tmp_path) as ground:
        assert await ground.ask(b"first", uses_tls=True) == b"first"  # the pair is there
        reader, writer = await ground.dial()
        writer.write(Hello().first()[: 1 if step == "first byte" else None])
        await until(lambda: ground.entrance.handshake_count == 1)
        assert await ground.ask(b"tls", uses_tls=True) == b"tls"
        ground.clock.advance(PATIENCE_MS - 1)
        assert ground.entrance.handshake_count == 1
        ground.clock.advance(1)
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        assert ground.entrance.handshake_count == 0


async def test_many_handshakes_that_stop_half_way(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many may be unfinished; who comes then waits until one has had its grace, and plain peers wait for nobody."""
    monkeypatch.setattr(acceptor_module, "MOST_HANDSHAKES", 3)
    async with serving(tmp_path) as ground:
        assert await ground.ask(b"first", uses_tls=True) == b"first"
        stopped = [await ground.dial() for _ in range(3)]
        for _, writer in stopped:
            writer.write(Hello().first())
        await until(lambda: len(ground.entrance._begun) == 3)  # pyright: ignore[reportPrivateUsage] # see above
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(ground.ask(b"waits", uses_tls=True))
            await until(lambda: ground.entrance.handshake_count == 4)
            assert await ground.ask(b"plain", uses_tls=False) == b"plain"
            assert not waiting.done()
            ground.clock.advance(GRACE_MS)
            assert await waiting == b"waits"
        for _, writer in stopped:
            writer.close()


async def test_more_handshakes_than_may_wait(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes when so many wait is sent away at once."""
    monkeypatch.setattr(acceptor_module, "MOST_HANDSHAKES", 1)
    monkeypatch.setattr(acceptor_module, "MOST_WAITING", 2)
    async with serving(tmp_path) as ground:
        peers = [await ground.dial() for _ in range(4)]
        for number, (_, writer) in enumerate(peers):
            writer.write(b"\x16")
            await until(lambda number=number: ground.entrance.handshake_count == min(number + 1, 3))
        reader, _ = peers[-1]
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        for _, writer in peers:
            writer.close()


def test_hello_that_is_too_long(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who begins with a TLS record and much behind it is sent away, and not kept until it is its turn."""
    clock = ManualClock()
    admission = Admission(tls=no_context, takes_plain=False)
    entrance = Entrance(asyncio.Protocol, admission, clock, lambda: None)
    transport = MemoryTransport()
    newcomer = entrance.meet()
    newcomer.connection_made(transport)
    newcomer.data_received(b"\x16\x03\x01" + bytes(MOST_HELLO_BYTES))
    assert transport.is_over
    assert (entrance.silent_count, entrance.handshake_count) == (0, 0)
    assert "its TLS hello has 32771 bytes, limit is 32768" in caplog.text


async def test_long_frames_and_many_frames(tmp_path: pathlib.Path) -> None:
    """Frames of megabytes pass both ways whole, and a thousand at once come back in order."""
    async with serving(tmp_path) as ground, ConnectionPool(LoopClock(), tls=any_server()) as pool:
        body = bytes(range(256)) * 20_000
        assert (await pool.request(ground.address, Command.request(ECHO, body=body), ANSWER_MS)).body == body
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(pool.request(ground.address, Command.request(ECHO, body=b"%d" % n), ANSWER_MS))
                for n in range(1_000)
            ]
        assert [task.result().body for task in asked] == [b"%d" % n for n in range(1_000)]
        [connection] = ground.server.connections
        assert connection.unsent_bytes == 0


async def test_peer_that_does_not_read(tmp_path: pathlib.Path) -> None:
    """What it leaves unread is held encrypted, up to the limit of its connection, and then it is cut off."""
    limits = Limits(max_unsent_bytes=1 << 20)
    async with serving(tmp_path, limits) as ground:
        _, writer = await asyncio.open_connection(*ground.server.address, ssl=any_server(), limit=1)
        writer.write(bytes(encode_command(Command.request(ECHO, body=bytes(15 << 20)))))
        await until(lambda: len(ground.server.connections) == 1)
        await until(lambda: len(ground.server.connections) == 0)
        writer.transport.abort()


async def test_end_with_peers_of_all_kinds(tmp_path: pathlib.Path) -> None:
    """A server ends with those who are silent, who shake hands and who are served; no timer of its clock is left."""
    async with serving(tmp_path) as ground:
        async with ConnectionPool(LoopClock(), tls=any_server()) as pool:
            await pool.request(ground.address, Command.request(ECHO, body=b"x"), ANSWER_MS)
        peers = [await ground.dial() for _ in range(3)]
        peers[1][1].write(b"\x16")
        peers[2][1].write(Hello().first())
        await until(lambda: ground.entrance.handshake_count == 2)
    assert ground.clock.next_at_ms is None
    assert len(ground.server.connections) == 0
    for reader, writer in peers:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
