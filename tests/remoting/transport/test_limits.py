"""The log of a server whose peers make mistakes all the time."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest
from hostile import frame, is_ended, numbered, serving

from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.transport.connection import Service
from rocketlet.remoting.transport.limits import MOST, PERIOD_MS, LogRateLimiter
from rocketlet.testing import ManualClock

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


@pytest.mark.usefixtures("no_leftovers")
async def test_peers_cannot_fill_the_log(dial: Dial, read_commands: ReadCommands, caplog: pytest.LogCaptureFixture):
    """Ten thousand unknown requests are all answered, and garbage ends 200 connections, in a hundred lines and one."""
    caplog.set_level(logging.INFO)
    async with serving(Service()) as ground:
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
