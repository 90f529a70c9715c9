"""Floods of connections: thousands that stay, thousands that go at once, more than the process may have."""

import asyncio
import logging
import os
import pathlib
import resource
import socket
import tracemalloc
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from hostile import Ground, frame, reset, serving_broker
from raw_calls import heartbeat_body, open_caller, until

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.client import ConsumerList
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport import server as admission

pytestmark = pytest.mark.usefixtures("no_leftovers")
Dial = Callable[[str], Awaitable[socket.socket]]
ReadCommands = Callable[[socket.socket, int], Awaitable[list[Command]]]

CONNECTIONS = 5_000
MEMBERS = 500
GROUP_SIZE = 10
MOST_BYTES_EACH = 4_000  # of Python objects, for both ends; 2,950 were measured
DESCRIPTORS = 2 * CONNECTIONS + admission.FILE_DESCRIPTORS + 1_000  # both ends are in this process


@contextmanager
def _descriptors(count: int) -> Generator[None]:
    """Allow this process so many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Allow as many descriptors as both ends of the connections need, and the files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < DESCRIPTORS:
        pytest.skip(f"platform: {hard} descriptors are allowed here, {DESCRIPTORS} are needed")
    with _descriptors(max(DESCRIPTORS, soft)):
        yield


@pytest.fixture
def traced_bytes() -> Iterator[Callable[[], int]]:
    """Return a count of the bytes that Python's objects have taken since the test began."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


async def _dial_many(ground: Ground, sockets: ExitStack, count: int) -> list[socket.socket]:
    """Connect so often, as quickly as the server accepts."""
    peers: list[socket.socket] = []
    while len(peers) < count:
        peers.append(_connect(ground, sockets))
        if len(peers) % 500 == 0 or len(peers) == count:
            await until(lambda: len(ground.server.connections) == len(peers))
    return peers


async def _answers(peers: list[socket.socket], requests: list[bytes]) -> list[bytes]:
    """Send each peer's request, all before the first answer is read."""
    for peer, request in zip(peers, requests, strict=True):
        assert peer.send(request) == len(request)
    return [await asyncio.get_running_loop().sock_recv(peer, 1 << 16) for peer in peers]


@pytest.mark.usefixtures("many_descriptors")
async def test_five_thousand_connections(
    either: tuple[Ground, int, dict[str, str]], dial: Dial, traced_bytes: Callable[[], int]
):
    """Five thousand connections at once are all served, at some kilobytes each, and leave nothing when they go."""
    ground, code, fields = either
    request = frame(code, 1, fields)
    with ExitStack() as sockets:
        before = traced_bytes()
        peers = await _dial_many(ground, sockets, CONNECTIONS)
        assert traced_bytes() - before < CONNECTIONS * MOST_BYTES_EACH
        for answer in await _answers(peers, [request] * CONNECTIONS):
            assert b'"opaque":1' in answer
        assert (len(ground.server.connections), len(ground.server.connections.held)) == (CONNECTIONS, 0)
    await until(lambda: len(ground.server.connections) == 0)
    [answer] = await _answers([await dial(ground.address)], [request])
    assert b'"opaque":1' in answer


@pytest.mark.usefixtures("many_descriptors")
async def test_members_among_thousands_of_connections(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path):
    """Among 5,000 connections 500 are consumers in groups of ten; those that fall silent go, the others stay."""
    async with serving_broker(monkeypatch, tmp_path) as ground:
        with ExitStack() as sockets:
            peers = await _dial_many(ground, sockets, CONNECTIONS)
            members = peers[:: CONNECTIONS // MEMBERS]
            hellos = [
                frame(RequestCode.HEART_BEAT, 1, None, heartbeat_body(f"c{n}", f"g{n // GROUP_SIZE}", {"T": "*"}))
                for n in range(MEMBERS)
            ]
            await _answers(members, hellos)
            async with open_caller(ground.address) as other:
                for n in range(0, MEMBERS, 100):
                    header = {"consumerGroup": f"g{n // GROUP_SIZE}"}
                    answer = await other.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
                    assert len(decode_body(ConsumerList, answer.body).consumer_id_list) == GROUP_SIZE
            await ground.clock.elapse(110_000)
            await _answers(members[:100], hellos[:100])
            await ground.clock.elapse(25_000)
            await until(lambda: len(ground.server.connections) == 100)


async def test_connections_that_go_at_once(
    either: tuple[Ground, int, dict[str, str]], dial: Dial, caplog: pytest.LogCaptureFixture
):
    """Two thousand connections that close or reset at once, some of them with half a request, leave nothing behind."""
    ground, code, fields = either
    request = frame(code, 1, fields)
    for number in range(2_000):
        peer = await dial(ground.address)
        peer.send(request[: number % 3 * 20])
        if number % 2:
            reset(peer)
        else:
            peer.close()
    await until(lambda: len(ground.server.connections) == 0)
    [answer] = await _answers([await dial(ground.address)], [request])
    assert b'"opaque":1' in answer
    assert caplog.messages == []


async def test_files_are_kept_descriptors_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
):
    """A flood of connections is refused where the descriptors of files begin, and the broker goes on opening files."""
    async with serving_broker(monkeypatch, tmp_path) as ground, open_caller(ground.address) as other:
        assert (await other.send("first")).code == ResponseCode.SUCCESS
        with _descriptors(2 * _lowest_with_free_below(30)), ExitStack() as sockets:
            peers = [_connect(ground, sockets) for _ in range(20)]

            def refusals() -> int:
                return caplog.text.count("too many open files")

            await until(lambda: refusals() + len(ground.server.connections) - 1 == len(peers))
            await until(lambda: sum(map(_is_refused, peers)) == refusals())
            assert 0 < refusals() < len(peers)
            for number in range(20):
                assert (await other.send(f"T{number}")).code == ResponseCode.SUCCESS
            sockets.close()
            await until(lambda: len(ground.server.connections) == 1)
            late = _connect(ground, sockets)
            await until(lambda: len(ground.server.connections) == 2)
            assert not _is_refused(late)


async def test_server_without_descriptors(
    either: tuple[Ground, int, dict[str, str]],
    dial: Dial,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """A server that has no descriptor left for a connection serves those it has, and accepts again when it has one."""
    caplog.set_level(logging.CRITICAL, "asyncio")  # it reports each connection that it cannot accept
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", 0.05)
    monkeypatch.setattr(admission, "FILE_DESCRIPTORS", 0)
    ground, code, fields = either
    request = frame(code, 1, fields)
    old = await dial(ground.address)
    await ground.find(old)
    with ExitStack() as sockets:
        with _descriptors(_lowest_with_free_below(20)), ExitStack() as fillers:
            for _ in range(10):
                _connect(ground, sockets)
            _fill(fillers)
            for _ in range(50):
                [answer] = await _answers([old], [request])
                assert b'"opaque":1' in answer
            assert len(ground.server.connections) == 1
        new = await dial(ground.address)
        [answer] = await _answers([new], [request])
        assert b'"opaque":1' in answer


def _connect(ground: Ground, sockets: ExitStack) -> socket.socket:
    host, port = ground.address.split(":")
    peer = sockets.enter_context(socket.socket())
    peer.setblocking(False)
    peer.connect_ex((host, int(port)))
    return peer


def _lowest_with_free_below(count: int) -> int:
    """Return the number below which so many descriptors are free."""
    used = {int(name) for name in os.listdir("/dev/fd")}
    number = 0
    while count:
        count -= number not in used
        number += 1
    return number


def _fill(fillers: ExitStack) -> None:
    """Take every descriptor that is left."""
    while True:
        try:
            fillers.callback(os.close, os.dup(0))
        except OSError:
            return


def _is_refused(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
