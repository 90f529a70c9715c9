"""Peers that do not read, on real servers: what a server keeps for one is bounded, and others are served."""

import asyncio
import pathlib
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from hostile import BAD_FRAMES, Ground, frame, is_ended, numbered, send_while_taken, serving_broker
from raw_calls import heartbeat_body, open_caller, pull_header, until

from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.limits import Limits

pytestmark = pytest.mark.usefixtures("no_leftovers")
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]

LIMITS = Limits()
ANSWER_BYTES = (1 << 18) + 10_000  # of a pull: Java's limit for messages in memory, and what stands around it
READ_BYTES = 1 << 18  # at once, by either loop
REQUESTS = 100_000


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> AsyncGenerator[Ground]:
    """Run a broker."""
    async with serving_broker(monkeypatch, tmp_path) as ground:
        yield ground


def _small_window(peer: socket.socket) -> socket.socket:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    return peer


async def _store(ground: Ground, count: int, body: bytes) -> None:
    async with open_caller(ground.address) as caller:
        for _ in range(count):
            assert (await caller.send(body=body)).code == ResponseCode.SUCCESS


async def test_consumer_that_never_reads(broker: Ground, dial: Dial):
    """Of 2,000 pulls for 500 MB so many are served that less than 1 MiB is unsent; a peer that stays so is idle."""
    await _store(broker, 40, bytes(8000))
    peer = _small_window(await dial(broker.address))
    connection = await broker.find(peer)
    pulls = b"".join(frame(RequestCode.PULL_MESSAGE, opaque, pull_header("T")) for opaque in range(2000))
    await send_while_taken(peer, pulls, lambda: "paused" in repr(connection))
    await until(lambda: "paused" in repr(connection))
    assert LIMITS.high_water_bytes < connection.unsent_bytes <= 2 * LIMITS.high_water_bytes + ANSWER_BYTES
    assert connection.held_bytes <= connection.unsent_bytes + READ_BYTES
    assert broker.server.connections.held.total == connection.held_bytes
    async with open_caller(broker.address) as other:
        assert (await other.pull()).code == ResponseCode.SUCCESS
    await broker.clock.elapse(131_000)
    assert await is_ended(peer)
    assert broker.server.connections.held.total == 0


async def test_consumer_that_never_reads_what_it_waits_for(
    broker: Ground, dial: Dial, caplog: pytest.LogCaptureFixture
):
    """Who lets a hundred pulls wait and reads none of their answers is cut off at 64 MiB; others go on."""
    await _store(broker, 1, b"first")
    peer = _small_window(await dial(broker.address))
    connection = await broker.find(peer)
    header = pull_header("T", 1, sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND)
    holds = b"".join(frame(RequestCode.PULL_MESSAGE, opaque, header) for opaque in range(100))
    await asyncio.get_running_loop().sock_sendall(peer, holds)
    await until(lambda: "owes 100" in repr(connection))
    async with open_caller(broker.address) as other:
        assert (await other.send(body=bytes(1_000_000))).code == ResponseCode.SUCCESS
        assert (await other.pull(queue_offset=1)).code == ResponseCode.SUCCESS
    assert await is_ended(peer)
    assert "bytes are unread, limit is 67108864" in caplog.text
    assert broker.server.connections.held.total == 0


async def test_member_that_never_reads_notices(broker: Ground, dial: Dial):
    """Notices to a member that does not read them wait in its socket, then in its connection, and end with it."""
    peer = _small_window(await dial(broker.address))
    connection = await broker.find(peer)
    hello = frame(RequestCode.HEART_BEAT, 1, None, heartbeat_body("silent", "g", {"T": "*"}))
    await asyncio.get_running_loop().sock_sendall(peer, hello)
    async with open_caller(broker.address) as other:
        for version in range(2, 102):
            await other.heartbeat("other", "g", {f"T{version}": "*"}, version=version)
            assert connection.held_bytes <= LIMITS.high_water_bytes
    await broker.clock.elapse(131_000)
    assert await is_ended(peer)
    await until(lambda: len(broker.server.connections) == 0)


async def test_client_that_pipelines_without_reading(either: tuple[Ground, int, dict[str, str]], dial: Dial):
    """Of 100,000 requests as many are served as the peer takes answers; when it reads, each is answered, in order."""
    ground, code, fields = either
    peer = _small_window(await dial(ground.address))
    connection = await ground.find(peer)
    requests = b"".join(numbered(frame(code, 0, fields), REQUESTS))
    sent = await send_while_taken(peer, requests, lambda: "paused" in repr(connection))
    assert sent < len(requests)
    assert connection.held_bytes <= 2 * LIMITS.high_water_bytes + READ_BYTES
    async with open_caller(ground.address) as other:
        await other.ask(code, fields)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.get_running_loop().sock_sendall(peer, requests[sent:]))
        assert await _read_opaques(peer, REQUESTS) == list(range(REQUESTS))
    assert ground.server.connections.held.total == 0


async def _read_opaques(peer: socket.socket, count: int) -> list[int]:
    opaques, rest = list[int](), b""
    while len(opaques) < count:
        data = await asyncio.get_running_loop().sock_recv(peer, 1 << 20)
        assert data, f"closed after {len(opaques)} of {count} answers"
        whole, mark, begun = (rest + data).rpartition(b'"serialize')  # what follows the opaque
        rest = mark + begun
        opaques += map(int, re.findall(rb'"opaque":(\d+)', whole))
    return opaques


async def test_garbage_ends_its_connection_only(either: tuple[Ground, int, dict[str, str]], dial: Dial):
    """Whatever garbage comes, its connection ends, and one that was open before is served after all of it."""
    ground, code, fields = either
    async with open_caller(ground.address) as other:
        for data in BAD_FRAMES.values():
            peer = await dial(ground.address)
            await send_while_taken(peer, data, lambda: False)
            assert await is_ended(peer)
            await other.ask(code, fields)
        assert len(ground.server.connections) == 1


async def test_send_that_comes_byte_by_byte(broker: Ground, dial: Dial, read_commands: ReadCommands):
    """Fifty producers that send a byte each in turn are all served, and what is held for them is not counted."""
    await _store(broker, 1, b"first")
    header = {"consumerGroup": "none"}
    peers = [await dial(broker.address) for _ in range(50)]
    for byte in frame(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 1, header):
        for peer in peers:
            await asyncio.get_running_loop().sock_sendall(peer, bytes((byte,)))
        assert len(broker.server.connections.held) == 0
    for peer in peers:
        assert [answer.opaque for answer in await read_commands(peer, 1)] == [1]
