"""Requests that an end sends itself: from broker to client and from client to broker over one connection."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from memory_connection import connect_in_memory

from rocketlet.common.clock import Clock
from rocketlet.common.errors import ConnectionClosedError, RemotingError, RequestTimeoutError
from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import ONEWAY, Command
from rocketlet.remoting.codec.frames import Encoded, FrameParser, encode_command
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, FrameWriter, Reply, RequestHandlers
from rocketlet.remoting.transport.limits import Limits
from rocketlet.remoting.transport.pending_requests import PendingRequests
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing import ManualClock

WAIT_MS = 60_000  # longer than any test takes: nothing here waits it out
pytestmark = pytest.mark.usefixtures("no_leftovers")
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]


def _owe(command: Command, _connection: Connection) -> Reply:
    return Outcome[Command]()


async def _outcome(request: Awaitable[Command]) -> Command | RemotingError:
    try:
        return await request
    except RemotingError as error:
        return error


@asynccontextmanager
async def _server(
    clock: Clock, limits: Limits | None = None
) -> AsyncGenerator[tuple[str, "asyncio.Queue[Connection]"]]:
    """Serve code 7, which is never answered, code 8, which is, and hand out the connections."""
    connections: asyncio.Queue[Connection] = asyncio.Queue()

    def note(_command: Command, connection: Connection) -> Reply:
        connections.put_nowait(connection)
        return Command.response(0, "noted")

    async with RemotingServer("127.0.0.1", 0, RequestHandlers({7: _owe, 8: note}), clock, limits) as server:
        yield f"127.0.0.1:{server.address[1]}", connections


async def test_broker_asks_its_client(clock: Clock):
    """A server may send requests, one-way or not, on a client's connection; both ends count for themselves."""
    asked: list[tuple[int, int]] = []

    def answer(command: Command, _connection: Connection) -> Reply:
        asked.append((command.code, command.flag))
        return Command.response(0, "from the client")

    client = RequestHandlers({40: answer, 309: answer})
    async with _server(clock) as (address, connections), ConnectionPool(clock, client) as pool:
        assert (await pool.request(address, Command.request(8), WAIT_MS)).remark == "noted"
        connection = connections.get_nowait()
        connection.send_oneway(Command.request(40))
        reply = await connection.request(Command.request(309), WAIT_MS)
        assert reply.remark == "from the client"
        assert asked == [(40, ONEWAY), (309, 0)]
        assert (await connection.request(Command.request(77), WAIT_MS)).code == 3


async def test_client_leaves_the_requests_of_its_pool_apart(clock: Clock):
    """A request that the server sends while one of ours is open with the same number gets its own answer."""

    def answer(_command: Command, _connection: Connection) -> Reply:
        return Command.response(0, "from the client")

    async with (
        _server(clock) as (address, connections),
        ConnectionPool(clock, RequestHandlers({309: answer})) as pool,
        asyncio.TaskGroup() as tasks,
    ):
        open_request = tasks.create_task(pool.request(address, Command.request(7), WAIT_MS))
        await pool.request(address, Command.request(8), WAIT_MS)
        reply = await connections.get_nowait().request(Command.request(309), WAIT_MS)
        assert reply.remark == "from the client"
        assert not open_request.done()
        open_request.cancel()


async def test_request_that_is_not_answered_in_time(dial: Dial, read_commands: ReadCommands):
    """A request ends when its time is over; an answer that comes later is ignored, the connection goes on."""
    manual = ManualClock()
    async with _server(manual) as (address, connections):
        peer = await dial(address)
        await asyncio.get_running_loop().sock_sendall(peer, encode_command(Command.request(8)))
        connection = await connections.get()
        async with asyncio.TaskGroup() as tasks:
            late = tasks.create_task(_outcome(connection.request(Command.request(307), 10_000)))
            _noted, question = await read_commands(peer, 2)
            await manual.elapse(10_000)
            failure = await late
            assert isinstance(failure, RequestTimeoutError)
            assert str(failure).endswith(" did not answer 307 in 10000 ms")
            next_one = tasks.create_task(connection.request(Command.request(309), 10_000))
            [second] = await read_commands(peer, 1)
            for opaque in (question.opaque, second.opaque):
                answer = Command.response(0, f"answer to {opaque}")
                answer.opaque = opaque
                await asyncio.get_running_loop().sock_sendall(peer, encode_command(answer))
            assert (await next_one).remark == f"answer to {second.opaque}"


async def test_requests_end_with_their_connection(clock: Clock, dial: Dial):
    """When the peer goes, every request to it fails at once, and later ones do not even start."""
    async with _server(clock) as (address, connections):
        peer = await dial(address)
        await asyncio.get_running_loop().sock_sendall(peer, encode_command(Command.request(8)))
        connection = await connections.get()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(_outcome(connection.request(Command.request(307), WAIT_MS)))
            await asyncio.sleep(0)
            peer.close()
        assert isinstance(waiting.result(), ConnectionClosedError)
        assert str(waiting.result()).endswith(" ended before the answer")
        with pytest.raises(ConnectionClosedError, match="is closed"):
            await connection.request(Command.request(307), WAIT_MS)
        connection.send_oneway(Command.request(40))
        told: list[Connection] = []
        connection.on_close(told.append)
        assert told == [connection]


async def test_cancelled_request_is_forgotten(clock: Clock):
    """A request whose task is cancelled leaves nothing behind on its connection."""
    async with _server(clock) as (address, _), ConnectionPool(clock) as pool:
        connection = await pool.connect(address)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(connection.request(Command.request(7), WAIT_MS))
            await pool.request(address, Command.request(8), WAIT_MS)
            assert "waits for 1>" in repr(connection)
            waiting.cancel()
        assert "waits for 0>" in repr(connection)


async def test_requests_in_flight_are_bounded(clock: Clock):
    """A connection takes no more requests than its limit."""
    async with (
        _server(clock) as (address, _),
        ConnectionPool(clock, limits=Limits(max_calls=1)) as pool,
        asyncio.TaskGroup() as tasks,
    ):
        await pool.connect(address)
        waiting = tasks.create_task(pool.request(address, Command.request(7), WAIT_MS))
        await asyncio.sleep(0)
        with pytest.raises(RemotingError, match="1 requests are in flight, limit is 1"):
            await pool.request(address, Command.request(8), WAIT_MS)
        waiting.cancel()


async def test_numbers_of_requests_in_flight_are_not_used_twice():
    """The count begins again after Java's largest int, and skips what is still waited for."""
    calls = PendingRequests(ManualClock(), 10, last_opaque=2**31 - 2)
    calls.start(1, 1000, 10)
    calls.start(2, 1000, 10)
    assert [calls.next_opaque(), calls.next_opaque()] == [2**31 - 1, 3]
    calls.fail_all("the test is over")
    assert len(calls) == 0


async def test_frames_of_one_turn_go_out_in_their_order() -> None:
    """Answers that are one buffer and answers that are several, as pulls are, stand behind each other, none is lost."""
    connection, transport = connect_in_memory(RequestHandlers(), ManualClock())
    frames: list[Encoded] = [b"a", [b"b", memoryview(b"c")], b"d", [b"e"], [b"f", b"g"]]
    for frame in frames:
        connection.push(frame)
    assert connection.unsent_bytes == 7
    connection.writer.flush()
    assert transport.last_write == b"abcdefg"
    assert connection.unsent_bytes == 0


@pytest.mark.parametrize(("body_bytes", "is_sent"), [((1 << 12) - 1, False), (1 << 12, True)])
async def test_large_frame_does_not_wait_for_others(body_bytes: int, is_sent: bool) -> None:
    """Below 4 KiB a frame waits for the others of its turn, a larger one goes out at once."""
    connection, transport = connect_in_memory(RequestHandlers(), ManualClock())
    connection.push(bytes(body_bytes))
    assert (len(transport.last_write) > 0) is is_sent
    connection.writer.flush()
    assert len(transport.last_write) == body_bytes


@pytest.mark.parametrize("serialize", [0, 1])
async def test_request_that_waits_is_held_with_its_texts(serialize: int) -> None:
    """What a server keeps for a peer is counted, fields, remark, body and what the answer needs, until it is sent."""
    debts: list[Outcome[Command]] = []

    def owe(_command: Command, _connection: Connection) -> Reply:
        debts.append(Outcome(extra_bytes=70_000))
        return debts[-1]

    connection, _ = connect_in_memory(RequestHandlers({7: owe}), ManualClock())
    command = Command.request(7, {"name": "x" * 200}, bytes(1000), serialize=serialize)
    command.remark = "r" * 30
    connection.data_received(encode_command(command))
    fields = len('{"name":""}') if serialize == 0 else len("name")
    assert connection.held_bytes == 2200 + 2 * (fields + 200) + 30 + 1000 + 70_000
    debts[0].answer_with(Command.response(0))
    connection.writer.flush()
    assert connection.held_bytes == 0


async def test_frames_for_a_connection_that_is_over_are_dropped() -> None:
    """What is sent while a connection closes, or before it is made, is not written and not kept."""
    connection, transport = connect_in_memory(RequestHandlers(), ManualClock())
    connection.push(b"last")
    connection.close()
    assert transport.last_write == b"last"
    connection.push(b"too late")
    connection.writer.flush()
    assert (transport.last_write, connection.unsent_bytes) == (b"last", 0)
    unmade = FrameWriter(lambda: None)
    unmade.push(b"x")
    unmade.flush()
    assert unmade.unsent_bytes == 0


async def test_long_bursts_of_requests_are_written_in_parts() -> None:
    """The other end has the first of many requests before the last is made; a short burst is one write."""
    connection, transport = connect_in_memory(RequestHandlers(), ManualClock())
    for _ in range(15):
        connection.send_oneway(Command.request(7))
    assert transport.last_write == b""
    connection.send_oneway(Command.request(7))
    assert len(FrameParser().feed(transport.last_write)) == 16

    for _ in range(3):
        connection.send_oneway(Command.request(7))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(FrameParser().feed(transport.last_write)) == 3


async def test_request_that_is_awaited_goes_out_at_once() -> None:
    """Its peer can begin while this turn of the loop goes on; inside of a read it goes out with the answers."""
    connection, transport = connect_in_memory(RequestHandlers(), ManualClock())
    asking = connection.request(Command.request(7), 1_000)
    asking.send(None)
    assert len(transport.last_write) > 0
    asking.close()
    transport.last_write = b""
    connection.writer.is_collecting = True
    asking = connection.request(Command.request(7), 1_000)
    asking.send(None)
    assert transport.last_write == b""
    asking.close()
