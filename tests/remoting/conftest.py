"""Fixtures of the wire's tests: both event loops, recorded frames, a limit on what may stay behind."""

import asyncio
import gzip
import json
import os
import pathlib
import socket
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from hostile import Ground, serving_broker, serving_names

from rocketlet.common.clock import Clock
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import FrameParser
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.event_loop import LoopClock


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every asynchronous test on plain asyncio and on uvloop."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def clock() -> Clock:
    """Return real time, for tests in which nothing is awaited that time would bring."""
    return LoopClock()


@pytest.fixture(scope="session")
def read_frames(vectors: pathlib.Path) -> Callable[[str], list[dict[str, Any]]]:
    """Return a reader of one scenario of recorded traffic, by its name such as ``producer-5.4.0``."""

    def read(scenario: str) -> list[dict[str, Any]]:
        with gzip.open(vectors / "frames" / f"{scenario}.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    return read


@pytest.fixture(params=["broker", "name server"])
async def either(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> AsyncGenerator[tuple[Ground, int, dict[str, str]]]:
    """Run a broker or a name server; yield with it a request that costs it little."""
    if request.param == "broker":
        async with serving_broker(monkeypatch, tmp_path) as ground:
            yield ground, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "none"}
    else:
        async with serving_names(monkeypatch) as ground:
            yield ground, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"}


@pytest.fixture
def dial() -> Iterator[Callable[[str], Awaitable[socket.socket]]]:
    """Return a way to connect a bare socket, without any manners, to ``host:port``; the test's end closes it."""
    with ExitStack() as sockets:

        async def connect(address: str) -> socket.socket:
            host, port = address.rsplit(":", 1)
            peer = sockets.enter_context(socket.socket())
            peer.setblocking(False)
            await asyncio.get_running_loop().sock_connect(peer, (host, int(port)))
            return peer

        yield connect


@pytest.fixture
def read_commands() -> Callable[[socket.socket, int], Awaitable[list[Command]]]:
    """Return a reader of the next commands from a bare socket."""

    async def read(peer: socket.socket, count: int) -> list[Command]:
        parser, commands = FrameParser(), list[Command]()
        while len(commands) < count:
            data = await asyncio.get_running_loop().sock_recv(peer, 1 << 20)
            assert data, f"closed after {len(commands)} of {count} commands"
            commands += parser.feed(data)
        return commands

    return read


@pytest.fixture
def open_sockets() -> Callable[[], int]:
    """Return a count of the sockets that this process has open."""

    def is_socket(descriptor: str) -> bool:
        try:
            return stat.S_ISSOCK(os.fstat(int(descriptor)).st_mode)
        except OSError:
            return False  # the listing's own descriptor

    def count() -> int:
        return sum(map(is_socket, os.listdir("/dev/fd")))

    return count


@pytest.fixture
async def no_leftovers(open_sockets: Callable[[], int]) -> AsyncGenerator[None]:
    """Fail a test after which more sockets are open than before, or a task still runs."""
    before = open_sockets()
    yield
    assert open_sockets() <= before
    assert asyncio.all_tasks() <= {asyncio.current_task()}
