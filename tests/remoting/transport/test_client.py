"""The connecting end: shared connections, failures, time-outs, cancellation."""

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack

import pytest
from interop.servers import free_port

from rocketlet.common.clock import Clock
from rocketlet.common.errors import ConnectFailedError, ConnectionClosedError, RemotingError, RequestTimeoutError
from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.transport.client import CONNECT_TIMEOUT_MS, ConnectionPool, parse_address
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.limits import Limits
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing import ManualClock

WAIT_MS = 60_000
pytestmark = pytest.mark.usefixtures("no_leftovers")


def _echo(command: Command, _connection: Connection) -> Reply:
    return Command.response(0, body=command.body)


def _owe(command: Command, _connection: Connection) -> Reply:
    return Outcome[Command]()


SERVICE = RequestHandlers({7: _echo, 8: _owe})


def _at(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.address[1]}"


async def _outcome(request: Awaitable[Command]) -> Command | RemotingError:
    try:
        return await request
    except RemotingError as error:
        return error


@pytest.fixture(name="free_port")
def _free_port() -> int:
    """Return a port on which nobody listens."""
    return free_port(1)


async def test_requests_at_once_share_one_connection(clock: Clock):
    """A hundred requests that start together make one connection and each get their own answer."""
    async with RemotingServer("127.0.0.1", 0, SERVICE, clock) as server, ConnectionPool(clock) as pool:
        async with asyncio.TaskGroup() as tasks:
            requests = [
                tasks.create_task(pool.request(_at(server), Command.request(7, body=b"%d" % number), WAIT_MS))
                for number in range(100)
            ]
        assert [request.result().body for request in requests] == [b"%d" % number for number in range(100)]
        assert len(server.connections) == len(pool.connections) == 1


async def test_refused_connection_is_an_error(clock: Clock, free_port: int):
    """Nobody listening fails every request that waits for the connection, and says where."""
    address = f"127.0.0.1:{free_port}"
    async with ConnectionPool(clock) as pool:
        requests = [pool.request(address, Command.request(7), WAIT_MS) for _ in range(3)]
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(_outcome(request)) for request in requests]
        failures = [task.result() for task in waiting]
        assert [type(failure) for failure in failures] == [ConnectFailedError] * 3
        assert str(failures[0]).startswith(f"cannot connect to {address}: ")
        with pytest.raises(ConnectFailedError):
            await pool.oneway(address, Command.request(7))


async def test_connection_that_is_closed_at_once_under_tls_is_an_error(clock: Clock):
    """As by a server that takes plain connections alone; the system has no words for it."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with ConnectionPool(clock, tls=ssl.create_default_context()) as pool:
            with pytest.raises(ConnectFailedError, match=f"cannot connect to {address}: .*closed"):
                await pool.request(address, Command.request(7), WAIT_MS)


@pytest.mark.feature("A5")
@pytest.mark.parametrize("answers", [True, False], ids=["answers in plain text", "hangs up"])
async def test_client_under_tls_falls_back_to_nothing(clock: Clock, answers: bool):
    """A peer that answers its hello in plain text, or hangs up, is told nothing but hellos, and gets no request."""
    heard: list[bytes] = []
    answer = bytes(encode_command(Command.response(0, body=b"come in")))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1 << 16))
        if answers:
            writer.write(answer)
        writer.close()

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with ConnectionPool(clock, tls=context) as pool:
            for _ in range(2):
                with pytest.raises(ConnectFailedError):
                    await pool.request(address, Command.request(7, body=b"a secret"), WAIT_MS)
            with pytest.raises(ConnectFailedError):
                await pool.oneway(address, Command.request(7, body=b"a secret"))
    assert len(heard) == 3
    assert all(each[0] == 0x16 and b"a secret" not in each for each in heard)


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":1", "host:x", "host:0", "host:65536", "host:-1", "host:1.5", "host:\u0663"]
)
async def test_text_that_is_no_address_is_an_error(address: str, clock: Clock):
    """An address needs a host and a port."""
    async with ConnectionPool(clock) as pool:
        with pytest.raises(ConnectFailedError, match="is no host:port"):
            await pool.request(address, Command.request(7), WAIT_MS)


async def test_host_that_nobody_knows_is_an_error(clock: Clock):
    """A name that cannot be resolved, or is none, fails the request."""
    async with ConnectionPool(clock) as pool:
        for host in ("no.such.host.invalid", "x" * 80, "a..b"):
            with pytest.raises(ConnectFailedError, match="cannot connect to"):
                await pool.request(f"{host}:9876", Command.request(7), WAIT_MS)


def test_address_of_ipv6_may_have_brackets():
    """Both spellings of an IPv6 address are read."""
    assert parse_address("[::1]:9876") == parse_address("::1:9876") == ("::1", 9876)
    assert parse_address("broker.example:10911") == ("broker.example", 10911)


async def test_lost_connection_is_made_again(clock: Clock, free_port: int):
    """After its server went and came back, the next request connects anew."""
    address = f"127.0.0.1:{free_port}"
    async with ConnectionPool(clock) as pool:
        for number in range(3):
            async with RemotingServer("127.0.0.1", free_port, SERVICE, clock):
                answer = await pool.request(address, Command.request(7, body=b"%d" % number), WAIT_MS)
                assert answer.body == b"%d" % number
                ended = asyncio.Event()
                connection = await pool.connect(address)
                connection.on_close(lambda _, ended=ended: ended.set())
            await ended.wait()
        with pytest.raises(ConnectFailedError):
            await pool.request(address, Command.request(7), WAIT_MS)


async def test_connection_can_be_closed_by_address(clock: Clock):
    """Closing an address ends its connection; the next request makes another."""
    async with RemotingServer("127.0.0.1", 0, SERVICE, clock) as server, ConnectionPool(clock) as pool:
        first = await pool.connect(_at(server))
        pool.close(_at(server))
        pool.close("127.0.0.1:1")
        second = await pool.connect(_at(server))
        assert second is not first
        assert (await pool.request(_at(server), Command.request(7), WAIT_MS)).code == 0


async def test_oneway_request_arrives(clock: Clock):
    """A one-way request over a new connection reaches its handler."""
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def note(command: Command, _connection: Connection) -> Reply:
        arrived.put_nowait(command.body)
        return None

    async with (
        RemotingServer("127.0.0.1", 0, RequestHandlers({7: note}), clock) as server,
        ConnectionPool(clock) as pool,
    ):
        await pool.oneway(_at(server), Command.request(7, body=b"first"))
        await pool.oneway(_at(server), Command.request(7, body=b"second"))
        assert [await arrived.get(), await arrived.get()] == [b"first", b"second"]


@pytest.mark.parametrize("is_connected", [False, True])
async def test_request_times_out(is_connected: bool):
    """A request that gets no answer ends with its time, over a new connection or an old one."""
    manual = ManualClock()
    asked = asyncio.Event()

    def owe(command: Command, _connection: Connection) -> Reply:
        asked.set()
        return Outcome[Command]()

    async with (
        RemotingServer("127.0.0.1", 0, RequestHandlers({8: owe}), manual) as server,
        ConnectionPool(manual) as pool,
    ):
        if is_connected:
            await pool.connect(_at(server))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(_outcome(pool.request(_at(server), Command.request(8), 3_000)))
            await asked.wait()
            await manual.elapse(2_999)
            assert not waiting.done()
            await manual.elapse(1)
        assert isinstance(waiting.result(), RequestTimeoutError)
        assert str(waiting.result()) == f"{_at(server)} did not answer 8 in 3000 ms"


async def test_cancelled_request_takes_nothing_from_others(clock: Clock):
    """A request that is cancelled while the connection is made leaves the attempt to those that wait too."""
    async with RemotingServer("127.0.0.1", 0, SERVICE, clock) as server, ConnectionPool(clock) as pool:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(pool.request(_at(server), Command.request(7), WAIT_MS))
            second = tasks.create_task(pool.request(_at(server), Command.request(7, body=b"second"), WAIT_MS))
            await asyncio.sleep(0)
            first.cancel()
        assert second.result().body == b"second"
        assert first.cancelled()


@pytest.fixture
def deaf_address() -> Iterator[str]:
    """Return an address whose system takes no more connections: the attempt neither succeeds nor fails."""
    if sys.platform != "linux":
        pytest.skip("only Linux leaves attempts unanswered when the queue of a listener is full")
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # the queue holds one or two
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_attempt_to_connect_times_out(deaf_address: str):
    """An attempt that nobody answers ends after its own time; a request may give up before."""
    manual = ManualClock()
    async with ConnectionPool(manual) as pool, asyncio.TaskGroup() as tasks:
        short = tasks.create_task(_outcome(pool.request(deaf_address, Command.request(7), 1_000)))
        long = tasks.create_task(_outcome(pool.request(deaf_address, Command.request(7), 10_000)))
        await manual.elapse(1_000)
        assert isinstance(await short, RequestTimeoutError)
        assert not long.done()
        await manual.elapse(CONNECT_TIMEOUT_MS - 1_000)
        assert str(await long) == f"cannot connect to {deaf_address}: no answer in {CONNECT_TIMEOUT_MS} ms"


@pytest.mark.parametrize("turns", [1, 2, 5])
async def test_pool_ends_with_requests_and_attempts_open(clock: Clock, deaf_address: str, turns: int):
    """The end of a pool fails what still waits, for an answer or for a connection, however far it has come."""
    async with RemotingServer("127.0.0.1", 0, SERVICE, clock) as server, asyncio.TaskGroup() as tasks:
        async with ConnectionPool(clock) as pool:
            await pool.connect(_at(server))
            waiting = [
                tasks.create_task(_outcome(pool.request(address, Command.request(8), WAIT_MS)))
                for address in (_at(server), deaf_address)
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
        assert [type(await request) for request in waiting] == [ConnectionClosedError] * 2
        with pytest.raises(ConnectionClosedError, match="the connection pool is closed"):
            await pool.request(_at(server), Command.request(7), WAIT_MS)
        assert repr(pool) == "<ConnectionPool closed, connected to [], connecting to []>"


async def test_error_in_the_block_comes_out_as_it_is(clock: Clock):
    """An error of the caller's own block passes the pool unchanged."""
    with pytest.raises(LookupError, match="mine"):
        async with ConnectionPool(clock):
            raise LookupError("mine")


async def test_idle_connection_is_closed_by_the_client():
    """A connection that a client does not use for 120 s is closed, and made again on demand."""
    manual = ManualClock()
    async with (
        RemotingServer("127.0.0.1", 0, SERVICE, ManualClock()) as server,
        ConnectionPool(manual, limits=Limits(idle_ms=120_000)) as pool,
    ):
        first = await pool.connect(_at(server))
        ended = asyncio.Event()
        first.on_close(lambda _: ended.set())
        await manual.elapse(131_000)
        await ended.wait()
        assert (await pool.request(_at(server), Command.request(7), WAIT_MS)).code == 0
