"""The listening end: addresses, starting and stopping, idle connections."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from rocketlet.common.clock import Clock
from rocketlet.common.errors import ConfigError
from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.limits import Limits
from rocketlet.remoting.transport.server import RemotingServer, open_listener
from rocketlet.testing import ManualClock

WAIT_MS = 60_000
pytestmark = pytest.mark.usefixtures("no_leftovers")
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]


def _echo(command: Command, _connection: Connection) -> Reply:
    return Command.response(0, body=command.body)


def _owe(command: Command, _connection: Connection) -> Reply:
    return Outcome[Command]()


SERVICE = RequestHandlers({7: _echo, 8: _owe})


def _at(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.address[1]}"


async def _meet(peer: socket.socket, read_commands: ReadCommands) -> None:
    """Exchange a request and its answer, so that both ends know of the connection."""
    await asyncio.get_running_loop().sock_sendall(peer, encode_command(Command.request(7)))
    await read_commands(peer, 1)


async def test_port_is_bound_inside_the_block_only(clock: Clock, dial: Dial):
    """A server on port 0 knows its port once it is entered, and the port is free again afterwards."""
    server = RemotingServer("127.0.0.1", 0, SERVICE, clock)
    async with server:
        address = _at(server)
        assert server.address[1] != 0
        await dial(address)
    with pytest.raises(ConnectionRefusedError):
        await dial(address)
    async with RemotingServer("127.0.0.1", int(address.rpartition(":")[2]), SERVICE, clock):
        await dial(address)
    assert repr(server).startswith("<RemotingServer closed")


async def test_server_starts_and_stops_many_times(clock: Clock):
    """Fifty servers with connections, open requests and debts come and go, and nothing is left of them."""
    for _ in range(50):
        async with (
            RemotingServer("127.0.0.1", 0, SERVICE, clock) as server,
            ConnectionPool(clock) as pool,
            asyncio.TaskGroup() as tasks,
        ):
            owed = tasks.create_task(pool.request(_at(server), Command.request(8), WAIT_MS))
            assert (await pool.request(_at(server), Command.request(7, body=b"x"), WAIT_MS)).body == b"x"
            owed.cancel()
        assert len(server.connections) == len(pool.connections) == 0


async def test_server_stops_with_peers_that_stay(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """Peers that neither read nor leave do not hold up the end of a server; what they got is whole."""
    async with RemotingServer("127.0.0.1", 0, SERVICE, clock) as server:
        peer = await dial(_at(server))
        big = Command.request(7, body=bytes(8_000_000))
        await asyncio.get_running_loop().sock_sendall(peer, encode_command(big))
        await _meet(await dial(_at(server)), read_commands)
    assert len(server.connections) == 0


async def test_answers_written_last_are_sent(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """An answer that was written just before the end still reaches its peer."""
    answered = asyncio.Event()

    def answer(_command: Command, _connection: Connection) -> Reply:
        answered.set()
        return Command.response(0, "the last word")

    async with RemotingServer("127.0.0.1", 0, RequestHandlers({7: answer}), clock) as server:
        peer = await dial(_at(server))
        await asyncio.get_running_loop().sock_sendall(peer, encode_command(Command.request(7)))
        await answered.wait()
    assert [command.remark for command in await read_commands(peer, 1)] == ["the last word"]
    assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""


async def test_busy_port_is_a_config_error(clock: Clock):
    """A port that another server has is named in one sentence."""
    async with RemotingServer("127.0.0.1", 0, SERVICE, clock) as server:
        with pytest.raises(ConfigError, match=rf"^cannot listen on {_at(server)}: the address is in use$"):
            await RemotingServer("127.0.0.1", server.address[1], SERVICE, clock).__aenter__()


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("192.0.2.77", 0, "cannot assign requested address"),
        ("no.such.host.invalid", 0, "[A-Z][a-z]"),  # the system's sentence, without its number
        ("x" * 64, 0, "label too long"),
        ("127.0.0.1", 65_536, "a port ends at 65535"),
        ("127.0.0.1", -1, "a port ends at 65535"),
    ],
)
async def test_address_that_cannot_be_bound_is_a_config_error(host: str, port: int, reason: str, clock: Clock):
    """An address that is not ours, a name that nobody knows or can know, and an impossible port are config errors."""
    with pytest.raises(ConfigError, match=rf"^cannot listen on {host}:{port}: [^\[]*{reason}"):
        await RemotingServer(host, port, SERVICE, clock).__aenter__()


async def test_connection_knows_both_addresses(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """A connection knows the peer's address and the local one that the peer reached."""
    async with RemotingServer("0.0.0.0", 0, SERVICE, clock) as server:  # noqa: S104 # every local address is the point
        peer = await dial(_at(server))
        await _meet(peer, read_commands)
        [connection] = server.connections
        assert connection.remote_address == peer.getsockname()
        assert connection.local_address == ("127.0.0.1", server.address[1])


async def test_socket_options_are_javas(clock: Clock):
    """Nagle's delay is off and keep-alive probes are off, at both ends."""
    async with RemotingServer("127.0.0.1", 0, SERVICE, clock) as server, ConnectionPool(clock) as pool:
        await pool.request(_at(server), Command.request(7), WAIT_MS)
        for connection in [*server.connections, *pool.connections]:
            transport = connection._transport  # pyright: ignore[reportPrivateUsage] # no part may touch the socket
            assert transport is not None
            own = transport.get_extra_info("socket")
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_listener_accepts_without_delay(host: str):
    """What a server of HTTP writes in parts does not wait for acknowledgements between them."""
    with open_listener(host, 0, key="host") as listener, socket.create_connection(listener.getsockname()[:2]):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_idle_connections_are_closed(dial: Dial, read_commands: ReadCommands):
    """A connection without traffic ends after the idle limit, one with traffic stays; the timer goes with the last."""
    manual = ManualClock()
    async with RemotingServer("127.0.0.1", 0, SERVICE, manual, Limits(idle_ms=120_000)) as server:
        idle, busy = await dial(_at(server)), await dial(_at(server))
        await _meet(idle, read_commands)
        for opaque in range(14):
            await _meet(busy, read_commands)
            assert len(server.connections) == 2 or opaque > 12
            await manual.elapse(10_000)
        assert await asyncio.get_running_loop().sock_recv(idle, 1) == b""
        assert len(server.connections) == 1
        await manual.elapse(131_000)
        assert await asyncio.get_running_loop().sock_recv(busy, 1) == b""
        assert len(server.connections) == 0
        assert manual.next_at_ms is None
