"""Whatever comes in, the server closes or answers that connection, says so in its log, and serves the others."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hostile import BAD_FRAMES

from rocketlet.common.clock import Clock
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.frames import PREFIX, encode_command
from rocketlet.remoting.headers.pull import PullHeader
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.limits import Limits
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing import ManualClock

pytestmark = pytest.mark.usefixtures("no_leftovers")
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]


def _pull(command: Command, _connection: Connection) -> Reply:
    return Command.response(0, decode_header(PullHeader, command).topic)


@asynccontextmanager
async def _server(clock: Clock, limits: Limits | None = None) -> AsyncGenerator[str]:
    async with RemotingServer("127.0.0.1", 0, RequestHandlers({11: _pull}), clock, limits) as server:
        yield f"127.0.0.1:{server.address[1]}"


PULL = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "0",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
}


def _frame(opaque: int, fields: dict[str, str], code: int = 11) -> bytes:
    command = Command.request(code, fields)
    command.opaque = opaque
    return encode_command(command)


def _with_header(header: bytes, kind: int = 0) -> bytes:
    return PREFIX.pack(4 + len(header), kind << 24 | len(header)) + header


async def _send(peer: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(peer, data)


async def _is_closed(peer: socket.socket) -> bool:
    try:
        return await asyncio.get_running_loop().sock_recv(peer, 1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES)
async def test_bad_frame_closes_its_connection(
    data: bytes, clock: Clock, dial: Dial, read_commands: ReadCommands, caplog: pytest.LogCaptureFixture
):
    """A frame that cannot be read ends its connection with one warning, after the answers to what came before it."""
    async with _server(clock) as address:
        other, peer = await dial(address), await dial(address)
        await _send(peer, _frame(5, PULL) + data)
        [answer] = await read_commands(peer, 1)
        assert answer.opaque == 5
        assert await _is_closed(peer)
        await _send(other, _frame(6, PULL))
        assert [command.remark for command in await read_commands(other, 1)] == ["T"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "closing the connection to 127.0.0.1:" in caplog.text


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({}, "the custom field <consumerGroup> is null"),
        (PULL | {"queueId": "one"}, "the custom field <queueId> is not a valid number: 'one'"),
        (PULL | {"queueOffset": str(2**70)}, f"the custom field <queueOffset> is not a valid number: '{2**70}'"),
        (PULL | {"maxMsgNums": ""}, "the custom field <maxMsgNums> is not a valid number: ''"),
    ],
)
async def test_bad_field_is_answered(
    fields: dict[str, str], remark: str, clock: Clock, dial: Dial, read_commands: ReadCommands
):
    """A request whose fields are missing or wrong is answered 1 with the field's name; the connection goes on."""
    async with _server(clock) as address:
        peer = await dial(address)
        await _send(peer, _frame(1, fields) + _frame(2, PULL))
        bad, good = await read_commands(peer, 2)
        assert (bad.opaque, bad.code, bad.remark) == (1, 1, remark)
        assert (good.opaque, good.code) == (2, 0)


async def test_field_table_of_another_shape_is_answered(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """A field table that is no object is answered too."""
    async with _server(clock) as address:
        peer = await dial(address)
        await _send(peer, _with_header(b'{"code":11,"opaque":3,"extFields":[1]}'))
        [answer] = await read_commands(peer, 1)
        assert (answer.opaque, answer.code, answer.remark) == (3, 1, "the header fields are no JSON object")


async def test_frame_that_comes_byte_by_byte_is_served(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """A frame may come in as many pieces as it has bytes, and others are served meanwhile."""
    async with _server(clock) as address:
        slow, quick = await dial(address), await dial(address)
        for number, byte in enumerate(_frame(1, PULL)):
            await _send(slow, bytes((byte,)))
            if number % 50 == 0:
                await _send(quick, _frame(number, PULL))
                assert [command.opaque for command in await read_commands(quick, 1)] == [number]
        assert [command.opaque for command in await read_commands(slow, 1)] == [1]


async def test_frame_that_never_ends_is_given_up(dial: Dial, read_commands: ReadCommands):
    """A peer that sends half a frame and then nothing is closed as idle after 120 s."""
    manual = ManualClock()
    async with _server(manual) as address:
        peer = await dial(address)
        await _send(peer, _frame(1, PULL) + _frame(2, PULL)[:100])
        await read_commands(peer, 1)
        await manual.elapse(131_000)
        assert await _is_closed(peer)


async def test_peer_that_leaves_in_the_middle_of_a_frame(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """A peer that goes away in the middle of a frame leaves nothing behind."""
    async with RemotingServer("127.0.0.1", 0, RequestHandlers({11: _pull}), clock) as server:
        peer = await dial(f"127.0.0.1:{server.address[1]}")
        await _send(peer, _frame(1, PULL) + _frame(2, PULL)[:100])
        await read_commands(peer, 1)
        [connection] = server.connections
        ended = asyncio.Event()
        connection.on_close(lambda _: ended.set())
        peer.close()
        await ended.wait()
        assert len(server.connections) == 0


async def test_limit_of_a_frame_is_configurable(
    clock: Clock, dial: Dial, read_commands: ReadCommands, caplog: pytest.LogCaptureFixture
):
    """A frame above the configured limit is refused with both numbers, one below is served."""
    async with _server(clock, Limits(max_frame_bytes=1000)) as address:
        peer = await dial(address)
        await _send(peer, _frame(1, PULL) + _frame(2, PULL | {"subscription": "x" * 1000}))
        assert [command.opaque for command in await read_commands(peer, 1)] == [1]
        assert await _is_closed(peer)
    assert "limit is 1000" in caplog.text
