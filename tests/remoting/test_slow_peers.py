"""Peers that do not read their answers: they are not read from, and in the end cut off."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from rocketlet.common.clock import Clock
from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.limits import Limits
from rocketlet.remoting.transport.server import RemotingServer

pytestmark = pytest.mark.usefixtures("no_leftovers")
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]
LIMITS = Limits(high_water_bytes=100_000, low_water_bytes=50_000, max_unsent_bytes=20_000_000)
ANSWER_BYTES = 1_000_000


def _frames(count: int) -> bytes:
    frames: list[bytes] = []
    for opaque in range(count):
        command = Command.request(7)
        command.opaque = opaque
        frames.append(encode_command(command))
    return b"".join(frames)


async def test_peer_that_does_not_read_is_not_served_further(
    clock: Clock, dial: Dial, read_commands: ReadCommands, caplog: pytest.LogCaptureFixture
):
    """A hundred requests of one read are served as far as the peer takes the answers, and all once it does."""
    served: list[int] = []
    paused = asyncio.Event()

    def answer(command: Command, connection: Connection) -> Reply:
        served.append(command.opaque)
        asyncio.get_running_loop().call_soon(lambda: connection.unsent_bytes > LIMITS.high_water_bytes and paused.set())
        return Command.response(0, body=bytes(ANSWER_BYTES))

    async with RemotingServer("127.0.0.1", 0, RequestHandlers({7: answer}), clock, LIMITS) as server:
        peer = await dial(f"127.0.0.1:{server.address[1]}")
        await asyncio.get_running_loop().sock_sendall(peer, _frames(100))
        await paused.wait()
        [connection] = server.connections
        assert repr(connection).startswith("<Connection paused")
        assert len(served) < 100
        assert connection.unsent_bytes < LIMITS.high_water_bytes + 2 * ANSWER_BYTES
        answers = await read_commands(peer, 100)
        assert [answer.opaque for answer in answers] == served == list(range(100))
        await asyncio.get_running_loop().sock_sendall(peer, _frames(1))
        await read_commands(peer, 1)
    assert caplog.messages == []


async def test_peer_that_lets_answers_pile_up_is_cut_off(clock: Clock, dial: Dial, caplog: pytest.LogCaptureFixture):
    """Owed answers are sent to a peer that does not read until the limit, then its connection ends with a warning."""
    debts: list[Outcome[Command]] = []
    ready, ended = asyncio.Event(), asyncio.Event()

    def owe(command: Command, connection: Connection) -> Reply:
        debts.append(Outcome[Command]())
        connection.on_close(lambda _: ended.set())
        if len(debts) == 100:
            ready.set()
        return debts[-1]

    async with RemotingServer("127.0.0.1", 0, RequestHandlers({7: owe}), clock, LIMITS) as server:
        peer = await dial(f"127.0.0.1:{server.address[1]}")
        await asyncio.get_running_loop().sock_sendall(peer, _frames(100))
        await ready.wait()
        for later in debts:
            later.answer_with(Command.response(0, body=bytes(ANSWER_BYTES)))
        await ended.wait()
        assert len(server.connections) == 0
    assert "bytes are unread, limit is 20000000" in caplog.text
