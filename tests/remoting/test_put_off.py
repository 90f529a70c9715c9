"""Requests that a handler puts off and that are begun again: served once, in order, before what has come since."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from rocketlet.common.clock import Clock
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.later import Later
from rocketlet.remoting.transport.connection import Connection
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.remoting.transport.service import Limits, Reply, Service

pytestmark = pytest.mark.usefixtures("no_leftovers")
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]
LIMITS = Limits(high_water_bytes=100_000, low_water_bytes=50_000)
PUT_OFF, FLOOD, HELLO = 7, 8, 9


class Desk:
    """Puts requests off until it is told to begin; floods the peer when asked to."""

    def __init__(self) -> None:
        self.later: list[Later] = []
        self.has_begun = False
        self.served: list[int] = []
        self.has_flooded = asyncio.Event()

    def service(self) -> Service:
        """Return the handlers."""
        return Service({PUT_OFF: self.take, FLOOD: self.flood, HELLO: self.greet})

    def take(self, command: Command, _connection: Connection) -> Reply:
        """Serve, or put off."""
        if self.has_begun:
            self.served.append(command.opaque)
            return Command.response(0)
        self.later.append(Later(command))
        return self.later[-1]

    def flood(self, _command: Command, _connection: Connection) -> Reply:
        """Answer with more than the peer's socket holds."""
        asyncio.get_running_loop().call_soon(self.has_flooded.set)
        return Command.response(0, body=bytes(8 << 20))

    def greet(self, _command: Command, _connection: Connection) -> Reply:
        """Answer at once."""
        return Command.response(0)

    def begin(self, connection: Connection) -> None:
        """Serve what was put off, and what comes from now on."""
        self.has_begun = True
        connection.begin_again(self.later)


def frames(code: int, *opaques: int) -> bytes:
    """Return requests."""
    commands = [Command.request(code) for _ in opaques]
    for command, opaque in zip(commands, opaques, strict=True):
        command.opaque = opaque
    return b"".join(map(encode_command, commands))


async def test_requests_are_begun_in_order_and_answered_once(
    clock: Clock, dial: Dial, read_commands: ReadCommands
) -> None:
    """Nothing is owed any more afterwards, and what comes later is answered later."""
    desk = Desk()
    async with RemotingServer("127.0.0.1", 0, desk.service(), clock, LIMITS) as server:
        peer = await dial(f"127.0.0.1:{server.address[1]}")
        await asyncio.get_running_loop().sock_sendall(peer, frames(PUT_OFF, 1, 2, 3) + frames(HELLO, 4))
        assert [answer.opaque for answer in await read_commands(peer, 1)] == [4]
        [connection] = server.connections
        assert "owes 3" in repr(connection)
        desk.begin(connection)
        desk.later[0].answer(Command.response(1))
        await asyncio.get_running_loop().sock_sendall(peer, frames(PUT_OFF, 5))
        answers = await read_commands(peer, 4)
        assert [(answer.opaque, answer.code) for answer in answers] == [(1, 0), (2, 0), (3, 0), (5, 0)]
        assert "owes 0" in repr(connection)


async def test_peer_that_does_not_read_has_to_wait(clock: Clock, dial: Dial, read_commands: ReadCommands) -> None:
    """While the peer does not take its answers they are not begun; then they come before what was sent since."""
    desk = Desk()
    async with RemotingServer("127.0.0.1", 0, desk.service(), clock, LIMITS) as server:
        peer = await dial(f"127.0.0.1:{server.address[1]}")
        await asyncio.get_running_loop().sock_sendall(peer, frames(PUT_OFF, 1, 2) + frames(HELLO, 3))
        await read_commands(peer, 1)
        [connection] = server.connections
        await asyncio.get_running_loop().sock_sendall(peer, frames(FLOOD, 4) + frames(PUT_OFF, 5))
        await desk.has_flooded.wait()
        assert repr(connection).startswith("<Connection paused")
        desk.begin(connection)
        assert desk.served == []
        assert [answer.opaque for answer in await read_commands(peer, 4)] == [4, 1, 2, 5]


async def test_closed_connection_begins_nothing(clock: Clock, dial: Dial, read_commands: ReadCommands) -> None:
    """A connection that is being closed serves nothing any more."""
    desk = Desk()
    async with RemotingServer("127.0.0.1", 0, desk.service(), clock, LIMITS) as server:
        peer = await dial(f"127.0.0.1:{server.address[1]}")
        await asyncio.get_running_loop().sock_sendall(peer, frames(PUT_OFF, 1) + frames(HELLO, 2))
        await read_commands(peer, 1)
        [connection] = server.connections
        connection.close()
        desk.begin(connection)
        assert desk.served == []
