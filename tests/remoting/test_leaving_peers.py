"""Peers that leave halfway, vanish, or take their time: what was answered goes out, nothing stays behind."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from hostile import Ground, frame, is_ended, numbered, reset, send_while_taken, serving
from raw_calls import until

from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import PREFIX
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.limits import Limits

pytestmark = pytest.mark.usefixtures("no_leftovers")
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]

LIMITS = Limits(high_water_bytes=100_000, low_water_bytes=50_000, max_unsent_bytes=1 << 30)
ANSWER_BYTES = 1_000_000
SMALL, BIG, OWED, GOODBYE = 7, 8, 9, 10
TEN_BIG = b"".join(frame(BIG, opaque) for opaque in range(10))


class _Debts:
    """Handlers of a service, and what they owe."""

    def __init__(self) -> None:
        self.owed: list[Outcome[Command]] = []

    def owe(self, command: Command, _connection: Connection) -> Reply:
        self.owed.append(Outcome[Command]())
        return self.owed[-1]

    def service(self) -> RequestHandlers:
        return RequestHandlers({SMALL: _answer_small, BIG: _answer_big, OWED: self.owe, GOODBYE: _close})


def _answer_small(_command: Command, _connection: Connection) -> Reply:
    return Command.response(0)


def _answer_big(_command: Command, _connection: Connection) -> Reply:
    return Command.response(0, body=bytes(ANSWER_BYTES))


def _close(_command: Command, connection: Connection) -> Reply:
    connection.close()
    return Command.response(0)


async def _send(peer: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(peer, data)


async def _stop_reading(ground: Ground, peer: socket.socket) -> Connection:
    """Ask for more than the peer's window takes, and return the connection that is paused for it."""
    connection = await ground.find(peer)
    await _send(peer, TEN_BIG)
    await until(lambda: "paused" in repr(connection))
    return connection


async def _is_gone(ground: Ground) -> bool:
    await until(lambda: len(ground.server.connections) == 0)
    return ground.server.connections.held.total == 0


async def test_half_closed_peer_gets_what_was_answered(dial: Dial, read_commands: ReadCommands):
    """Who ends its own direction gets the answers to all that it sent before, and then the end; debts are dropped."""
    debts = _Debts()
    async with serving(debts.service()) as ground:
        peer = await dial(ground.address)
        await _send(peer, frame(OWED, 1) + b"".join(numbered(frame(SMALL), 1000)))
        peer.shutdown(socket.SHUT_WR)
        assert [answer.opaque for answer in await read_commands(peer, 1000)] == list(range(1000))
        assert await is_ended(peer)
        assert debts.owed[0].is_dropped
        assert await _is_gone(ground)


async def test_half_closed_peer_that_reads_late(dial: Dial, read_commands: ReadCommands):
    """Answers that a peer had not read when it ended its direction still reach it, whole and in order."""
    async with serving(_Debts().service(), LIMITS) as ground:
        peer = await dial(ground.address)
        await _stop_reading(ground, peer)
        peer.shutdown(socket.SHUT_WR)
        answers = await read_commands(peer, 10)
        assert [(answer.opaque, len(answer.body)) for answer in answers] == [(n, ANSWER_BYTES) for n in range(10)]
        assert await is_ended(peer)
        assert await _is_gone(ground)


async def test_half_closed_peer_that_never_reads(dial: Dial):
    """A peer that ends its direction and leaves its answers unread is idle, and goes after 120 s."""
    async with serving(_Debts().service(), LIMITS) as ground:
        peer = await dial(ground.address)
        await _stop_reading(ground, peer)
        peer.shutdown(socket.SHUT_WR)
        await ground.clock.elapse(131_000)
        assert await _is_gone(ground)


async def test_reset_in_the_middle_of_an_answer(dial: Dial, caplog: pytest.LogCaptureFixture):
    """Peers that reset their connection while answers are on their way leave nothing behind, no line in the log."""
    debts = _Debts()
    async with serving(debts.service(), LIMITS) as ground:
        for _ in range(20):
            peer = await dial(ground.address)
            await _send(peer, frame(OWED, 11))
            await _stop_reading(ground, peer)
            reset(peer)
            assert await _is_gone(ground)
        assert all(later.is_dropped for later in debts.owed)
        assert len(debts.owed) == 20
    assert caplog.messages == []


async def test_vanished_peer_is_idle_whatever_is_sent_to_it(dial: Dial):
    """Answers that nobody takes do not keep a connection: a peer that vanished without a word goes after 120 s."""
    debts = _Debts()
    async with serving(debts.service(), LIMITS) as ground:
        peer = await dial(ground.address)
        await _send(peer, b"".join(frame(OWED, opaque) for opaque in range(20, 40)))
        await _stop_reading(ground, peer)
        assert len(debts.owed) == 20
        for later in debts.owed:
            assert len(ground.server.connections) == 1 or later.is_dropped
            later.answer_with(Command.response(0, body=b"news"))
            await ground.clock.elapse(10_000)
        assert await _is_gone(ground)


async def test_silent_peer_that_is_owed_an_answer_is_idle(dial: Dial):
    """A peer that vanishes while it waits goes after 120 s too, and what waited for it is told."""
    debts = _Debts()
    async with serving(debts.service()) as ground:
        peer = await dial(ground.address)
        await _send(peer, frame(OWED, 1))
        await until(lambda: len(debts.owed) == 1)
        await ground.clock.elapse(131_000)
        assert await is_ended(peer)
        assert debts.owed[0].is_dropped


async def test_slow_reader_is_not_idle(dial: Dial):
    """A peer that takes a little of its answers every hundred seconds keeps its connection."""
    async with serving(_Debts().service(), LIMITS) as ground:
        peer = await dial(ground.address)
        await _send(peer, 10 * TEN_BIG)
        connection = await _stop_reading(ground, peer)
        for _ in range(5):
            taken_bytes = connection.writer.taken_bytes
            while connection.writer.taken_bytes == taken_bytes:
                await asyncio.get_running_loop().sock_recv(peer, 1 << 16)
            await ground.clock.elapse(100_000)
        assert [*ground.server.connections] == [connection]
        assert "paused" in repr(connection)


async def test_connection_that_is_closed_for_a_peer_that_never_reads(dial: Dial):
    """A server that closes a connection waits for the peer to read, but only until it is idle."""
    async with serving(_Debts().service(), LIMITS) as ground:
        connection = await _stop_reading(ground, await dial(ground.address))
        connection.close()
        assert [*ground.server.connections] == [connection]
        await ground.clock.elapse(131_000)
        assert await _is_gone(ground)


async def test_garbage_behind_requests_that_wait(dial: Dial, read_commands: ReadCommands):
    """Requests that wait until their peer reads are answered before the garbage behind them ends the connection."""
    async with serving(_Debts().service(), LIMITS) as ground:
        peer = await dial(ground.address)
        await _send(peer, TEN_BIG + PREFIX.pack(-1, 0))
        connection = await ground.find(peer)
        await until(lambda: "paused" in repr(connection))
        assert [answer.opaque for answer in await read_commands(peer, 10)] == list(range(10))
        assert await is_ended(peer)
        assert await _is_gone(ground)


async def test_handler_that_closes_while_answers_wait(dial: Dial, read_commands: ReadCommands):
    """A handler that closes the connection ends it with its own answer, also behind answers that are not read yet."""
    async with serving(_Debts().service(), LIMITS) as ground:
        peer = await dial(ground.address)
        await _send(peer, TEN_BIG + frame(GOODBYE, 10))
        assert [answer.opaque for answer in await read_commands(peer, 11)] == list(range(11))
        assert await is_ended(peer)


async def test_thousands_of_tiny_frames_in_one_read(dial: Dial, read_commands: ReadCommands):
    """Ten thousand requests of thirty bytes that come at once are answered once each, in order."""
    turns: list[int] = []
    service = RequestHandlers({SMALL: _answer_small}, after_batch=lambda: turns.append(1))
    async with serving(service) as ground:
        peer = await dial(ground.address)
        requests = b"".join(numbered(PREFIX.pack(0, 0) + b'{"code":7,"opaque":0}', 10_000))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_send(peer, requests))
            answers = await read_commands(peer, 10_000)
        assert [answer.opaque for answer in answers] == list(range(10_000))
        assert len(turns) < 100


async def test_answer_that_is_written_off_is_not_owed(dial: Dial, read_commands: ReadCommands):
    """A request that by the protocol gets no answer leaves no debt."""

    def say_nothing(command: Command, _connection: Connection) -> Reply:
        later = Outcome[Command]()
        later.drop()
        return later

    async with serving(RequestHandlers({SMALL: _answer_small, OWED: say_nothing})) as ground:
        peer = await dial(ground.address)
        await _send(peer, frame(OWED, 1) + frame(SMALL, 2))
        assert [answer.opaque for answer in await read_commands(peer, 1)] == [2]
        assert "owes 0" in repr(await ground.find(peer))


async def test_sender_that_stops_in_the_middle_of_large_frames(dial: Dial):
    """Bytes of frames that are not finished are counted while they are many, and forgotten when their peer leaves."""
    async with serving(_Debts().service()) as ground:
        peers = [await dial(ground.address) for _ in range(3)]
        for peer in peers:
            await send_while_taken(peer, frame(SMALL, 1, None, bytes(1_000_000))[:-1], lambda: False)
        connections = [await ground.find(peer) for peer in peers]
        await until(lambda: sum(connection.held_bytes for connection in connections) > 3_000_000)
        assert ground.server.connections.held.total == sum(connection.held_bytes for connection in connections)
        for peer in peers:
            reset(peer)
        assert await _is_gone(ground)
