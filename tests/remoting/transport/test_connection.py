"""Connections over real sockets: who is answered what, when, and how often."""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from rocketlet.common.clock import Clock
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import HeaderError, RemotingError, StoreFullError
from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import ONEWAY, ROCKETMQ, Command
from rocketlet.remoting.codec.frames import PREFIX, encode_command
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.limits import Limits
from rocketlet.remoting.transport.server import RemotingServer

WAIT_MS = 60_000  # longer than any test takes: nothing here waits it out
pytestmark = pytest.mark.usefixtures("no_leftovers")
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]


class _Link(NamedTuple):
    pool: ConnectionPool
    address: str
    server: RemotingServer

    async def ask(self, code: int, fields: dict[str, str] | None = None, *, serialize: int = 0) -> Command:
        return await self.pool.request(self.address, Command.request(code, fields, serialize=serialize), WAIT_MS)


@asynccontextmanager
async def _link(clock: Clock, service: RequestHandlers, limits: Limits | None = None) -> AsyncGenerator[_Link]:
    async with RemotingServer("127.0.0.1", 0, service, clock, limits) as server, ConnectionPool(clock) as pool:
        host, port = server.address
        yield _Link(pool, f"{host}:{port}", server)


def _echo(command: Command, _connection: Connection) -> Reply:
    return Command.response(0, "echo", command.ext, command.body)


def _explode(command: Command, _connection: Connection) -> Reply:
    raise RuntimeError(f"no luck with {command.code}")


def _frame(code: int, opaque: int, flag: int = 0, fields: dict[str, str] | None = None) -> bytes:
    command = Command.request(code, fields)
    command.opaque, command.flag = opaque, flag
    return encode_command(command)


async def _send(peer: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(peer, data)


@pytest.mark.parametrize("serialize", [0, ROCKETMQ])
async def test_request_is_answered_in_its_own_form(clock: Clock, serialize: int):
    """An answer carries the request's opaque, mirrors its serialisation, and says who we are."""
    async with _link(clock, RequestHandlers({7: _echo})) as link:
        for number in range(3):
            answer = await link.ask(7, {"n": str(number)}, serialize=serialize)
            assert (answer.code, answer.flag, answer.serialize, answer.remark) == (0, 1, serialize, "echo")
            assert (answer.ext, answer.language, answer.version) == ({"n": str(number)}, "PYTHON", 479)


@pytest.mark.feature("N22")
@pytest.mark.parametrize("serialize", [0, ROCKETMQ])
async def test_unknown_code_is_answered(clock: Clock, serialize: int, caplog: pytest.LogCaptureFixture):
    """A request code that nobody handles is answered 3 with Java's text, and logged."""
    async with _link(clock, RequestHandlers()) as link:
        answer = await link.ask(9999, serialize=serialize)
        assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
    assert "9999" in caplog.text


async def test_failing_handler_is_answered_as_java_does(clock: Clock, caplog: pytest.LogCaptureFixture):
    """An exception in a handler is answered 1 with class, message and place; the traceback is logged, nothing else."""
    async with _link(clock, RequestHandlers({7: _explode, 8: _echo})) as link:
        answer = await link.ask(7)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("builtins.RuntimeError: no luck with 7, ")
        assert "_explode(test_connection.py:" in answer.remark
        assert (await link.ask(8)).code == 0
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.WARNING] == [True]


async def test_unreadable_request_is_answered_with_its_fault(clock: Clock, caplog: pytest.LogCaptureFixture):
    """What the requester got wrong is answered 1 with nothing but that, and logged as a warning."""

    def refuse(_command: Command, _connection: Connection) -> Reply:
        raise HeaderError("the custom field <topic> is null")

    async with _link(clock, RequestHandlers({7: refuse})) as link:
        answer = await link.ask(7)
        assert (answer.code, answer.remark) == (1, "the custom field <topic> is null")
    assert [record.levelname for record in caplog.records if record.levelno >= logging.WARNING] == ["WARNING"]


async def test_handler_without_an_answer_is_answered(clock: Clock):
    """A request that a handler leaves without an answer gets the one of a fresh Java response."""
    async with _link(clock, RequestHandlers({7: lambda _command, _connection: None})) as link:
        answer = await link.ask(7)
        assert (answer.code, answer.remark) == (1, "not set any response code")


async def test_oneway_requests_are_never_answered(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """A one-way request is not answered: not when it succeeds, fails, is unknown or is owed an answer."""
    debts: list[Outcome[Command]] = []

    def owe(command: Command, _connection: Connection) -> Reply:
        debts.append(Outcome[Command]())
        return debts[-1]

    async with _link(clock, RequestHandlers({7: _echo, 8: _explode, 9: owe})) as link:
        peer = await dial(link.address)
        await _send(peer, b"".join(_frame(code, code, ONEWAY) for code in (7, 8, 9, 999)) + _frame(7, 70))
        [answer] = await read_commands(peer, 1)
        debts[0].answer_with(Command.response(0))
        await _send(peer, _frame(7, 71))
        [second] = await read_commands(peer, 1)
        assert (answer.opaque, second.opaque) == (70, 71)


async def test_ready_frames_are_sent_as_they_are(clock: Clock):
    """A handler may answer with a frame of its own making, in one buffer or in several."""

    def ready(command: Command, _connection: Connection) -> Reply:
        answer = Command.response(0, body=b"onetwo")
        answer.opaque = command.opaque
        frame = encode_command(answer)
        return frame if command.code == 7 else [frame[:-6], b"one", memoryview(b"two")]

    async with _link(clock, RequestHandlers({7: ready, 8: ready})) as link:
        assert [(await link.ask(code)).body for code in (7, 8)] == [b"onetwo", b"onetwo"]


async def test_large_answers_pass_whole(clock: Clock):
    """Answers beyond what is joined, and beyond the high-water mark, arrive whole and in order."""
    blocks = [memoryview(bytes([number]) * 300_000) for number in range(8)]

    def large(command: Command, _connection: Connection) -> Reply:
        answer = Command.response(0)
        answer.opaque = command.opaque
        head = encode_command(answer)
        total = len(head) - 4 + 2_400_000
        return [PREFIX.pack(total, len(head) - 8) + head[8:], *blocks]

    async with _link(clock, RequestHandlers({7: large})) as link:
        assert (await link.ask(7)).body == b"".join(blocks)


async def test_owed_answers_do_not_hold_up_others(clock: Clock):
    """A request that is answered later lets those behind it pass; owed answers may be paid in any order."""
    debts: dict[str, Outcome[Command]] = {}
    owed = asyncio.Event()

    def owe(command: Command, _connection: Connection) -> Reply:
        debts[command.ext["name"]] = Outcome[Command]()
        if len(debts) == 2:
            owed.set()
        return debts[command.ext["name"]]

    async with _link(clock, RequestHandlers({7: owe, 8: _echo})) as link, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(link.ask(7, {"name": "first"}))
        second = tasks.create_task(link.ask(7, {"name": "second"}))
        await owed.wait()
        assert (await link.ask(8)).code == 0
        assert not first.done()
        debts["second"].answer_with(Command.response(0, "paid second"))
        assert (await second).remark == "paid second"
        debts["first"].answer_with(Command.response(0, "paid first"))
        debts["first"].answer_with(Command.response(0, "paid twice"))
        assert (await first).remark == "paid first"


async def test_answer_owed_and_paid_at_once(clock: Clock):
    """A handler may owe an answer that was paid before it returns."""

    def owe(command: Command, _connection: Connection) -> Reply:
        later = Outcome[Command]()
        later.answer_with(Command.response(0, "at once"))
        return later

    async with _link(clock, RequestHandlers({7: owe})) as link:
        assert (await link.ask(7)).remark == "at once"


async def test_owed_answer_that_cannot_be_sent_is_replaced(clock: Clock):
    """An owed answer whose header is beyond all limits becomes an error answer."""

    def owe(command: Command, _connection: Connection) -> Reply:
        later = Outcome[Command]()
        asyncio.get_running_loop().call_soon(later.answer_with, Command.response(0, "x" * (1 << 24)))
        return later

    async with _link(clock, RequestHandlers({7: owe})) as link:
        answer = await link.ask(7)
        assert (answer.code, answer.remark) == (1, "header is 16777340 bytes, limit is 16777215")


async def test_debts_end_with_their_connection(clock: Clock, dial: Dial):
    """When the peer goes, everybody who owes it an answer is told, and so is who watches the connection."""
    told: list[str] = []
    dropped, closed = asyncio.Event(), asyncio.Event()

    def owe(command: Command, connection: Connection) -> Reply:
        def fail(_connection: Connection) -> None:
            raise RuntimeError("a watcher that fails")

        connection.on_close(fail)
        connection.on_close(lambda ended: (told.append("closed" if ended.is_closed else "open"), closed.set()))
        later = Outcome[Command]()
        later.on_drop = lambda: (told.append("dropped"), dropped.set())
        return later

    async with _link(clock, RequestHandlers({7: owe})) as link:
        peer = await dial(link.address)
        await _send(peer, _frame(7, 1))
        peer.close()
        await dropped.wait()
        await closed.wait()
        assert told == ["dropped", "closed"]
        assert len(link.server.connections) == 0


async def test_too_many_debts_are_refused(clock: Clock):
    """A connection that waits for more answers than its limit is told to slow down."""
    debts: list[Outcome[Command]] = []

    def owe(command: Command, _connection: Connection) -> Reply:
        debts.append(Outcome[Command]())
        return debts[-1]

    async with (
        _link(clock, RequestHandlers({7: owe}), Limits(max_owed_answers=2)) as link,
        asyncio.TaskGroup() as tasks,
    ):
        waiting = [tasks.create_task(link.ask(7)) for _ in range(3)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        answer = done.pop().result()
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark == "[OVERLOAD]system busy, start flow control for a while"
        assert debts[2].is_dropped
        for later in debts:
            later.answer_with(Command.response(0))


class _Book:
    """A store that counts its commits, and fails those it is told to."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        self.pending = 0
        self.failure: Exception | None = None

    def note(self, _command: Command, _connection: Connection) -> Reply:
        self.pending += 1
        return Command.response(0, "noted")

    def commit(self) -> None:
        self.commits.append(self.pending)
        self.pending = 0
        if self.failure is not None:
            raise self.failure


async def test_batch_ends_once_a_read(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """All requests of one read are committed together, before any of them is answered."""
    book = _Book()
    async with _link(clock, RequestHandlers({7: book.note}, after_batch=book.commit)) as link:
        peer = await dial(link.address)
        await _send(peer, b"".join(_frame(7, opaque) for opaque in range(20)))
        answers = await read_commands(peer, 20)
        assert [answer.opaque for answer in answers] == list(range(20))
        assert [answer.remark for answer in answers] == ["noted"] * 20
        assert book.commits == [20]


class _Desk:
    """Settles some outcomes at the end of a batch, and rejects others."""

    def __init__(self) -> None:
        self.begun: dict[int, Outcome[str]] = {}
        self.written: dict[int, Outcome[Command]] = {}

    def begin(self, command: Command, _connection: Connection) -> Reply:
        """Begin what is answered with a text."""
        outcome = self.begun[command.opaque] = Outcome[str](encode=self._write)
        return outcome

    def begin_written(self, command: Command, _connection: Connection) -> Reply:
        """Begin what is answered with a command."""
        outcome = self.written[command.opaque] = Outcome[Command]()
        return outcome

    def end_batch(self) -> None:
        """Settle what was begun by then."""
        if 2 in self.begun:
            self.begun[2].answer_with("stored")
            for rejected in (self.begun[3], self.begun[7]):
                rejected.answer = "stored"
                rejected.fail(StoreFullError("disk is full"))
            self.written[8].answer_with(Command.response(0, "ready"))

    def _write(self, command: Command, outcome: Outcome[str]) -> Command:
        return Command.response(0, f"{command.opaque}: {outcome.failure or outcome.answer}")


async def test_outcomes_are_looked_at_when_the_batch_is_over(
    clock: Clock, dial: Dial, read_commands: ReadCommands, caplog: pytest.LogCaptureFixture
):
    """What is settled then goes out in its place, also with a failure; what is not is owed, one-way requests never."""
    desk = _Desk()
    handlers = {7: desk.begin, 8: _echo, 9: desk.begin_written}
    async with _link(clock, RequestHandlers(handlers, after_batch=desk.end_batch)) as link:
        peer = await dial(link.address)
        asked = (
            _frame(8, 1)
            + _frame(7, 2)
            + _frame(7, 3, 0, {"topic": "T"})
            + _frame(7, 4)
            + _frame(7, 5, ONEWAY)
            + _frame(8, 6)
        )
        await _send(peer, asked + _frame(7, 7) + _frame(9, 8))
        answers = [(answer.opaque, answer.remark) for answer in await read_commands(peer, 6)]
        full = "disk is full"
        assert answers == [
            (1, "echo"),
            (2, "2: stored"),
            (3, f"3: {full}"),
            (6, "echo"),
            (7, f"7: {full}"),
            (8, "ready"),
        ]
        [connection] = link.server.connections
        assert "owes 1" in repr(connection)
        desk.begun[4].answer_with("late")
        desk.begun[5].answer_with("nobody hears this")
        [answer] = await read_commands(peer, 1)
        assert answer.remark == "4: late"
    [warning] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.fullmatch(
        r"rejecting request of unknown code 7 from 127\.0\.0\.1:\d+, topic T and 1 more of the same read, "
        r"not stored: disk is full",
        warning,
    )


async def test_end_of_a_batch_that_breaks_ends_the_connection(clock: Clock, caplog: pytest.LogCaptureFixture):
    """If the end of a read raises what nobody foresaw, no answer claims success; the server lives on."""
    book = _Book()
    book.failure = RuntimeError("a bug")
    async with _link(clock, RequestHandlers({7: book.note}, after_batch=book.commit)) as link:
        with pytest.raises(RemotingError):
            await link.ask(7)
        book.failure = None
        assert (await link.ask(7)).remark == "noted"
    assert "a bug" in caplog.text


async def test_handler_may_close_its_connection(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """A connection that a handler closes still sends the answers of that read."""

    def part(_command: Command, connection: Connection) -> Reply:
        connection.close()
        return Command.response(0, "good bye")

    async with _link(clock, RequestHandlers({7: part, 8: _echo})) as link:
        peer = await dial(link.address)
        await _send(peer, _frame(8, 1) + _frame(7, 2) + _frame(8, 3))
        answers = await read_commands(peer, 3)
        assert [answer.remark for answer in answers] == ["echo", "good bye", "echo"]
        assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""


async def test_answers_that_nobody_waits_for_are_ignored(clock: Clock, dial: Dial, read_commands: ReadCommands):
    """An answer to nothing that we asked changes nothing."""
    async with _link(clock, RequestHandlers({7: _echo})) as link:
        peer = await dial(link.address)
        await _send(peer, _frame(0, 5, 1) + _frame(0, 5, 3) + _frame(7, 6))
        assert [answer.opaque for answer in await read_commands(peer, 1)] == [6]


async def test_descriptions_tell_the_state(clock: Clock):
    """The text of server, pool and connection says what they are doing."""
    async with _link(clock, RequestHandlers({7: _echo})) as link:
        await link.ask(7)
        [connection] = link.server.connections
        assert repr(connection).startswith("<Connection open to 127.0.0.1:")
        assert repr(link.server) == f"<RemotingServer serving {link.address}, 1 connections>"
        assert link.address in repr(link.pool)
    assert repr(connection).startswith("<Connection closed to")
