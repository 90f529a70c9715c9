"""The open connections of an end, without sockets: who is refused, who is idle, who is told of an end."""

import asyncio
import logging

import pytest
from memory_connection import MemoryTransport

from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.connections import ConnectionEvents, Connections, WatchedConnections
from rocketlet.remoting.transport.limits import Limits
from rocketlet.testing import ManualClock


class _Socket:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


class _Transport(MemoryTransport):
    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._extra["socket"] = _Socket(descriptor)  # pyright: ignore[reportAttributeAccessIssue] # asyncio's own


def _connect(connections: Connections, clock: ManualClock, descriptor: int = 5) -> tuple[Connection, _Transport]:
    connection, transport = Connection(RequestHandlers(), clock, Limits(), connections), _Transport(descriptor)
    connection.connection_made(transport)
    return connection, transport


@pytest.mark.parametrize(("kept", "is_refused"), [(None, False), (6, False), (5, True), (4, True)])
def test_descriptors_are_kept_for_files(kept: int | None, is_refused: bool, caplog: pytest.LogCaptureFixture) -> None:
    """From the first descriptor that is kept for files on, a connection is closed at once, and the log says why."""
    clock = ManualClock()
    _, transport = _connect(Connections(clock, Limits(), lambda: kept), clock)
    assert transport.is_over is is_refused
    text = "rejecting the connection from 127.0.0.1:50000: too many open files "
    assert caplog.messages == [f"{text}(descriptor 5, the store keeps those from {kept})"] * is_refused


def test_refusals_are_logged_a_hundred_times(caplog: pytest.LogCaptureFixture) -> None:
    """A flood of connections is refused whole, but does not fill the log."""
    clock = ManualClock()
    connections = Connections(clock, Limits(), lambda: 5)
    transports = [_connect(connections, clock)[1] for _ in range(150)]
    assert all(transport.is_over for transport in transports)
    assert sum("rejecting the connection" in message for message in caplog.messages) == 100


def test_silent_connection_ends_at_the_first_look_after_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Connections are looked at each twelfth of the limit; one that was silent for all of it is closed."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    connections = Connections(clock, Limits(idle_ms=120_000))
    _, first = _connect(connections, clock)
    clock.advance(4_000)
    busy, second = _connect(connections, clock)
    clock.advance(110_000)
    busy.reads += 1
    clock.advance(5_999)
    assert (first.is_over, second.is_over) == (False, False)
    clock.advance(1)
    assert (first.is_over, second.is_over) == (False, False)  # the first look begins its silence
    clock.advance(9_999)
    assert (first.is_over, second.is_over) == (False, False)
    clock.advance(1)
    assert (first.is_over, second.is_over) == (True, False)
    assert caplog.messages == ["closing the connection to 127.0.0.1:50000: idle for 120000 ms"]


def test_what_happens_to_connections_is_counted() -> None:
    """Those that open and end, those that end by an error, and those that were idle; an end counts once."""
    clock, events = ManualClock(), ConnectionEvents()
    connections = Connections(clock, Limits(idle_ms=5), events=events)
    ended, failed, idle = (_connect(connections, clock)[0] for _ in range(3))
    assert events == ConnectionEvents(opened=3)
    ended.connection_lost(None)
    failed.connection_lost(ConnectionResetError())
    assert events == ConnectionEvents(opened=3, ended=2, failed=1)
    clock.advance(6)
    idle.connection_lost(None)
    assert events == ConnectionEvents(opened=3, ended=3, failed=1, idle=1)


def test_nobody_is_looked_at_when_the_last_has_ended() -> None:
    """The timer goes with the last connection and comes with the next; a short limit is looked at each millisecond."""
    clock = ManualClock()
    connections = Connections(clock, Limits(idle_ms=5))
    assert clock.next_at_ms is None
    one, _ = _connect(connections, clock)
    other, _ = _connect(connections, clock)
    assert clock.next_at_ms == clock.now_ms() + 1
    one.connection_lost(None)
    assert clock.next_at_ms is not None
    other.connection_lost(None)
    assert (clock.next_at_ms, len(connections)) == (None, 0)


async def test_peer_that_does_not_read_is_counted_until_it_does() -> None:
    """What is unsent counts from the moment the socket is full, grows with each later answer, and is free again."""
    clock = ManualClock()
    debts: list[Outcome[Command]] = []

    def owe(_command: Command, _connection: Connection) -> Reply:
        debts.append(Outcome[Command]())
        return debts[-1]

    connections, transport = Connections(clock, Limits()), _Transport(5)
    connection = Connection(RequestHandlers({7: owe}), clock, Limits(), connections)
    connection.connection_made(transport)
    connection.data_received(encode_command(Command.request(7)))
    owed_bytes = connection.held_bytes
    transport.unsent_bytes = 300_000
    assert connections.held.total == 0
    connection.pause_writing()
    assert (connections.held.total, transport.is_read) == (300_000 + owed_bytes, False)
    transport.unsent_bytes = 400_000
    debts[0].answer_with(Command.response(0))
    connection.writer.flush()
    assert connections.held.total == 400_000
    transport.unsent_bytes = 1000
    connection.resume_writing()
    assert (connections.held.total, transport.is_read) == (0, False)
    await asyncio.sleep(0)
    assert transport.is_read


async def test_end_is_said_before_connections_are_cut() -> None:
    """What was written last goes out, and each peer is told of the end as TLS wants it, before anything is lost."""
    clock, steps = ManualClock(), list[str]()
    connections = Connections(clock, Limits())
    connection, transport = Connection(RequestHandlers(), clock, Limits(), connections), _Recorder(steps)
    transport.connection = connection
    connection.connection_made(transport)
    connection.push(b"last")
    await connections.close_all()
    assert steps == ["write last", "close", "abort"]


class _Recorder(MemoryTransport):
    connection: Connection

    def __init__(self, steps: list[str]) -> None:
        super().__init__()
        self._steps = steps

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._steps.append(f"write {bytes(data).decode()}")

    def close(self) -> None:
        self._steps.append("close")

    def abort(self) -> None:
        self._steps.append("abort")
        self.connection.connection_lost(None)


async def test_connection_that_opens_at_the_end_is_closed() -> None:
    """One that was accepted just before the end does not outlive it."""
    clock = ManualClock()
    connections = Connections(clock, Limits())
    await connections.close_all()
    connection, transport = _connect(connections, clock)
    assert transport.is_over
    connection.connection_lost(None)
    await connections.close_all()


def test_owner_is_told_once_of_each_end() -> None:
    """However often a connection was added; one that is added again after its end was told is told again."""
    clock = ManualClock()
    told: list[Connection] = []
    watched = WatchedConnections(told.append)
    connection, _ = _connect(Connections(clock, Limits()), clock)
    for _ in range(3):
        watched.add(connection)
    connection.connection_lost(None)
    assert told == [connection]
    watched.add(connection)
    assert told == [connection] * 2
