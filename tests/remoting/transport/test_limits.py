"""What peers may cost: limits from settings, what all peers together make a server hold, and lines in the log."""

import asyncio
import logging
import pathlib
import socket
from collections.abc import Awaitable, Callable

import pytest
from hostile import Ground, frame, is_ended, numbered, send_while_taken, serving
from raw_calls import until

from rocketlet.common.errors import ConfigError
from rocketlet.common.outcome import Outcome
from rocketlet.remoting.bodies.client import MAX_GROUPS, MAX_QUEUES
from rocketlet.remoting.bodies.route import MAX_INFLATED_BYTES, MAX_TOPICS
from rocketlet.remoting.codec.command import ANSWER_SLOW_BYTES, SLOW_BYTES, Command
from rocketlet.remoting.codec.frames import MAX_FIELDS
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.limits import (
    CLIENT_LIMITS,
    COUNTED_BYTES,
    MOST,
    PERIOD_MS,
    Limits,
    LogRateLimiter,
    MemoryBudget,
    server_limits,
)
from rocketlet.remoting.transport.server import FILE_DESCRIPTORS
from rocketlet.testing import ManualClock

PAGE = pathlib.Path(__file__).parent.parent.parent.parent / "docs" / "reference" / "limits.md"
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]


def test_hundred_mistakes_are_logged_in_ten_seconds(caplog: pytest.LogCaptureFixture):
    """Of all mistakes of a period the first hundred may be logged; one line says that more came."""
    clock = ManualClock()
    complaints = LogRateLimiter(clock)
    for _ in range(3):
        assert [complaints.may_log() for _ in range(3 * MOST)] == [True] * MOST + [False] * 2 * MOST
        clock.advance(PERIOD_MS)
    assert caplog.messages == ["101 requests refused within 10000 ms: logging no more of them for 10000 ms"] * 3


def test_lines_of_other_kinds_are_counted_alike(caplog: pytest.LogCaptureFixture):
    """Who limits something else says what, and how many of its lines are enough."""
    comings = LogRateLimiter(ManualClock(), "visitors have come", 2)
    assert [comings.may_log() for _ in range(5)] == [True, True, False, False, False]
    assert caplog.messages == ["3 visitors have come within 10000 ms: logging no more of them for 10000 ms"]


@pytest.mark.usefixtures("no_leftovers")
async def test_peers_cannot_fill_the_log(dial: Dial, read_commands: ReadCommands, caplog: pytest.LogCaptureFixture):
    """Ten thousand unknown requests are all answered, and garbage ends 200 connections, in a hundred lines and one."""
    caplog.set_level(logging.INFO)
    async with serving(RequestHandlers()) as ground:
        peer = await dial(ground.address)
        requests = b"".join(numbered(frame(999), 10_000))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.get_running_loop().sock_sendall(peer, requests))
            answers = await read_commands(peer, 10_000)
        assert {answer.code for answer in answers} == {3}
        for _ in range(200):
            other = await dial(ground.address)
            await asyncio.get_running_loop().sock_sendall(other, b"GET / HTTP/1.1\r\n\r\n")
            assert await is_ended(other)
    assert len(caplog.messages) == MOST + 1


SMALL, BIG, OWED = 7, 8, 9
ANSWER_BYTES = 1_000_000


class _Holder:
    """Holds what the test says; notes why it is cut off."""

    def __init__(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes
        self.reasons: list[str] = []

    def cut_off(self, reason: str) -> None:
        self.reasons.append(reason)
        self.held_bytes = 0


def test_total_follows_its_holders():
    """A holder counts with what it held when it was noted last, and no more when it is forgotten."""
    held = MemoryBudget(1000)
    one, other = _Holder(300), _Holder(400)
    held.note(one)
    held.note(other)
    one.held_bytes = 200
    held.note(one)
    assert (held.total, len(held)) == (600, 2)
    held.forget(other)
    held.forget(other)
    assert (held.total, len(held), repr(held)) == (200, 1, "<MemoryBudget 200 of 1000 by 1 holders>")


def test_largest_is_cut_off():
    """Above the limit the largest holders are cut off, as many as it takes, whoever was noted last."""
    held = MemoryBudget(1000)
    holders = [_Holder(size) for size in (500, 100, 300, 450)]
    for holder in holders:
        held.note(holder)
    assert [bool(holder.reasons) for holder in holders] == [True, False, False, False]
    assert holders[0].reasons == ["500 of 1350 bytes that are held for all peers, limit is 1000"]
    assert held.total == 850


def test_holder_that_holds_less_by_now_is_not_cut_off():
    """What holders hold is asked again before one of them is cut off."""
    held = MemoryBudget(1000)
    shrunk, grown = _Holder(900), _Holder(200)
    held.note(shrunk)
    shrunk.held_bytes = 10
    held.note(grown)
    assert (shrunk.reasons, grown.reasons, held.total) == ([], [], 210)


def _answer_small(_command: Command, _connection: Connection) -> Reply:
    return Command.response(0)


def _answer_big(_command: Command, _connection: Connection) -> Reply:
    return Command.response(0, body=bytes(ANSWER_BYTES))


def _owe(command: Command, _connection: Connection) -> Reply:
    return Outcome[Command]()


SERVICE = RequestHandlers({SMALL: _answer_small, BIG: _answer_big, OWED: _owe})
LIMITS = Limits(max_held_bytes=20_000_000)


async def _hold_unfinished(peer: socket.socket, size: int) -> None:
    """Send a frame but for its last byte."""
    await send_while_taken(peer, frame(SMALL, 1, None, bytes(size))[:-1], lambda: False)


async def _hold_owed(peer: socket.socket, size: int) -> None:
    """Send requests that are not answered, each of them small."""
    requests = [frame(OWED, opaque, {"text": "x" * 20_000}, bytes(20_000)) for opaque in range(size // 60_000)]
    await asyncio.get_running_loop().sock_sendall(peer, b"".join(requests))


async def _hold_unsent(peer: socket.socket, size: int) -> None:
    """Wait for answers and read none: they come when a later request is answered."""
    requests = [frame(BIG, opaque) for opaque in range(size // ANSWER_BYTES)]
    await asyncio.get_running_loop().sock_sendall(peer, b"".join(requests))


@pytest.mark.usefixtures("no_leftovers")
@pytest.mark.parametrize("hold", [_hold_unfinished, _hold_owed])
async def test_peer_that_makes_a_server_hold_most_is_cut_off(
    hold: Callable[[socket.socket, int], Awaitable[None]],
    dial: Dial,
    read_commands: ReadCommands,
    caplog: pytest.LogCaptureFixture,
):
    """When frames without end, or requests that wait, exceed what all may hold, the peer that holds most goes."""
    async with serving(SERVICE, LIMITS) as ground:
        small, large, last = [await dial(ground.address) for _ in range(3)]
        await hold(small, 5_000_000)
        await _has_counted(ground, 5_000_000)
        await hold(large, 10_000_000)
        await _has_counted(ground, 15_000_000)
        await hold(last, 6_000_000)
        assert await is_ended(large)
        await until(lambda: len(ground.server.connections) == 2)
        await _has_counted(ground, 11_000_000)
        other = await dial(ground.address)
        await asyncio.get_running_loop().sock_sendall(other, frame(SMALL, 5))
        assert [answer.opaque for answer in await read_commands(other, 1)] == [5]
    assert "bytes that are held for all peers, limit is 20000000" in caplog.text


async def _has_counted(ground: Ground, least_bytes: int) -> None:
    await until(lambda: ground.server.connections.held.total > least_bytes - COUNTED_BYTES)


@pytest.mark.usefixtures("no_leftovers")
async def test_peers_that_do_not_read_share_one_limit(dial: Dial):
    """However many peers read nothing of what they ask for, their unsent answers stay below what all may hold."""
    limits = Limits(high_water_bytes=100_000, low_water_bytes=50_000, max_held_bytes=20_000_000)
    async with serving(SERVICE, limits) as ground:
        peers = [await dial(ground.address) for _ in range(40)]
        for peer in peers:
            await _hold_unsent(peer, 10_000_000)
            connection = await ground.find(peer)
            await until(lambda open_now=connection: "open" not in repr(open_now))
            unsent_bytes = sum(each.unsent_bytes for each in ground.server.connections)
            assert unsent_bytes <= limits.max_held_bytes + 2 * ANSWER_BYTES  # of one that has just been cut off
        await until(lambda: len(ground.server.connections) < len(peers))
        assert len(ground.server.connections) > limits.max_held_bytes // 2_000_000


async def test_what_is_little_is_not_counted(dial: Dial, read_commands: ReadCommands):
    """A peer that holds less than 64 KiB is not counted, and one that held more is not any longer once it is served."""
    async with serving(SERVICE, LIMITS) as ground:
        peer = await dial(ground.address)
        request = frame(SMALL, 1, None, bytes(COUNTED_BYTES))
        await asyncio.get_running_loop().sock_sendall(peer, request[: COUNTED_BYTES // 2])
        connection = await ground.find(peer)
        await until(lambda: connection.held_bytes > 0)
        assert len(ground.server.connections.held) == 0
        await asyncio.get_running_loop().sock_sendall(peer, request[COUNTED_BYTES // 2 : -1])
        await until(lambda: len(ground.server.connections.held) == 1)
        await asyncio.get_running_loop().sock_sendall(peer, request[-1:])
        assert [answer.opaque for answer in await read_commands(peer, 1)] == [1]
        assert (len(ground.server.connections.held), ground.server.connections.held.total) == (0, 0)


def test_marks_count_if_both_are_given():
    """As in Java, one mark without the other changes nothing; both together do."""
    assert server_limits(120, 0, 0) == server_limits(120, 500_000, 0) == Limits()
    limits = server_limits(7, 500_000, 100_000)
    assert (limits.high_water_bytes, limits.low_water_bytes, limits.idle_ms) == (500_000, 100_000, 7000)


def test_low_mark_above_the_high_one_is_a_config_error():
    """Marks in the wrong order stop the start, and the key is named."""
    with pytest.raises(
        ConfigError, match=r"^writeBufferLowWaterMark is 2000, above writeBufferHighWaterMark=1000$"
    ) as told:
        server_limits(120, 1000, 2000)
    assert told.value.key == "writeBufferLowWaterMark"


@pytest.mark.parametrize(
    ("limit", "number", "words"),
    [
        (Limits().max_frame_bytes, 16 << 20, "a frame | 16 MiB"),
        (Limits().high_water_bytes, 256 << 10, "256 KiB, then nothing more is read"),
        (Limits().low_water_bytes, 64 << 10, "until 64 KiB are left"),
        (Limits().max_unsent_bytes, 64 << 20, "64 MiB unsent"),
        (Limits().max_held_bytes, 1 << 30, "requests that wait | 1 GiB"),
        (Limits().max_owed_answers, 16_384, "whose answers it waits for | 16,384"),
        (Limits().max_calls, 65_536, "that it has not answered | 65,536"),
        (Limits().idle_ms, 120_000, "120 s, looked at every 10 s"),
        (CLIENT_LIMITS.max_unsent_bytes, 1 << 30, "1 GiB of its requests"),
        (CLIENT_LIMITS.reads_on, True, "it `reads_on`"),
        (Limits().reads_on, False, "nothing more is read from it"),
        (COUNTED_BYTES, 64 << 10, "less than 64 KiB"),
        (MOST, 100, "100 in 10 s"),
        (PERIOD_MS, 10_000, "100 in 10 s"),
        (SLOW_BYTES, 32 << 10, "32 KiB (a client reads"),
        (ANSWER_SLOW_BYTES, 256 << 10, "up to 256 KiB so)"),
        (MAX_FIELDS, 1024, "fields of a binary header | 1,024"),
        (MAX_GROUPS, 1024, "in one heartbeat | 1,024 each"),
        (MAX_QUEUES, 16_384, "queues in one request for locks | 16,384"),
        (MAX_TOPICS, 100_000, "topics in one registration; brokers in one route | 100,000"),
        (MAX_INFLATED_BYTES, 64 << 20, "64 MiB inflated"),
        (FILE_DESCRIPTORS, 6_000, "less 6,000 for files"),
    ],
)
def test_limit_is_as_large_as_the_page_says(limit: int, number: int, words: str):
    """Who plans by the page of limits finds the numbers that count."""
    assert limit == number
    assert words in PAGE.read_text()


def test_every_limit_is_on_the_page():
    """The page of limits names each of them, by its field or by the setting that changes it."""
    page = PAGE.read_text()
    settings = {
        "high_water_bytes": "writeBufferHighWaterMark",
        "low_water_bytes": "writeBufferLowWaterMark",
        "idle_ms": "serverChannelMaxIdleTimeSeconds",
    }
    for limit in Limits.__struct_fields__:
        assert f"`{settings.get(limit, limit)}`" in page
