"""A client with more requests on their way than the sockets take: they all arrive, and so do their answers."""

import asyncio

import pytest

from rocketlet.common.clock import Clock
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.server import RemotingServer

WAIT_MS = 20_000
pytestmark = pytest.mark.usefixtures("no_leftovers")


async def _ask(clock: Clock, service: RequestHandlers, body: bytes, count: int) -> list[int]:
    """Send so many requests at once, and return how long the bodies of their answers are."""
    async with RemotingServer("127.0.0.1", 0, service, clock) as server, ConnectionPool(clock) as pool:
        address = f"127.0.0.1:{server.address[1]}"
        await pool.connect(address)
        async with asyncio.TaskGroup() as tasks:
            requests = [
                tasks.create_task(pool.request(address, Command.request(7, body=body), WAIT_MS)) for _ in range(count)
            ]
    return [len(request.result().body) for request in requests]


async def test_answers_come_in_while_requests_wait(clock: Clock):
    """Both ends have more to send than the sockets hold: the client reads on, so that the server can."""

    def echo(command: Command, _connection: Connection) -> Reply:
        return Command.response(0, body=command.body)

    assert await _ask(clock, RequestHandlers({7: echo}), bytes(20_000), 2_000) == [20_000] * 2_000


async def test_requests_of_many_bytes_wait_for_each_other(clock: Clock):
    """A hundred mebibytes of requests at once are no reason to end the connection."""

    def take(_command: Command, _connection: Connection) -> Reply:
        return Command.response(0)

    assert await _ask(clock, RequestHandlers({7: take}), bytes(2 << 20), 50) == [0] * 50
