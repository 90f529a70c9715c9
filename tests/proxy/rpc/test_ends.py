"""How calls end that are not answered: by their deadline, by a stop, by the end of their server."""

import asyncio
import pathlib

import grpc
import pytest
from grpc_ground import SERVICE, GrpcGround, ask, serving_grpc

from rocketlet.proxy.http2.links import DRAIN_MS
from rocketlet.testing.manual_clock import ManualClock


@pytest.mark.parametrize("name", ["Hold", "Owe"])
async def test_deadline(tmp_path: pathlib.Path, name: str) -> None:
    """A call that is not answered in time ends by the clock of the server, and its service hears of it."""
    clock = ManualClock()
    async with serving_grpc(tmp_path / "store", clock) as ground, ground.open() as channel:
        call = channel.unary_unary(f"{SERVICE}/{name}")(b"1", timeout=5_000)
        await ground.echo.has_come.wait()
        (held,) = ground.echo.held
        remaining_ms = held.remaining_ms()
        assert remaining_ms is not None
        assert 4_990_000 < remaining_ms <= 5_000_000
        clock.advance(remaining_ms - 1)
        assert not held.is_over
        clock.advance(1)
        assert held.is_over
        assert ground.echo.over.is_set()
        assert held.remaining_ms() == 0
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await ask(channel, "Say", b"on") == b"on"


async def test_deadline_of_a_stream_that_says_nothing(tmp_path: pathlib.Path) -> None:
    """The deadline counts from the headers on, also while the request is not complete."""
    clock = ManualClock()
    async with serving_grpc(tmp_path / "store", clock) as ground, ground.open() as channel:
        call = channel.stream_stream(f"{SERVICE}/Talk")(timeout=5_000)
        await call.write(b"1")
        assert await call.read() == b"1"
        clock.advance(5_000_000)
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert ground.echo.over.is_set()


async def test_stop_ends_those_who_wait_at_once(tmp_path: pathlib.Path) -> None:
    """Long polls and streams end as UNAVAILABLE when the server stops, however long they would wait."""
    clock = ManualClock()
    async with serving_grpc(tmp_path / "store", clock) as ground:
        channel = ground.open()
        poll = channel.unary_unary(f"{SERVICE}/Hold")(b"1")
        await ground.echo.has_come.wait()
        talk = channel.stream_stream(f"{SERVICE}/Talk")()
        await talk.write(b"1")
        assert await talk.read() == b"1"
    assert [await poll.code(), await talk.code()] == [grpc.StatusCode.UNAVAILABLE] * 2
    assert ground.echo.over.is_set()
    assert await poll.details() == "the server is stopping"
    await channel.close()


class StoppedServer:
    """A server that a test stops while it does something else."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._stopping = asyncio.Event()
        self.ground: asyncio.Future[GrpcGround] = asyncio.get_running_loop().create_future()

    async def run(self, store: pathlib.Path) -> None:
        """Serve until it is stopped."""
        async with serving_grpc(store, self._clock) as ground:
            self.ground.set_result(ground)
            await self._stopping.wait()

    async def begin_stop(self) -> None:
        """Return when it waits for the answers that are owed."""
        self._stopping.set()
        await self._clock.settle()


async def test_stop_waits_for_answers_that_are_owed(tmp_path: pathlib.Path) -> None:
    """A call that is answered after the stop began is answered, over the connection that was told to end."""
    server = StoppedServer(ManualClock())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run(tmp_path / "store"))
        ground = await server.ground
        async with ground.open() as channel:
            answer = group.create_task(ask(channel, "Owe", b"1"))
            await ground.echo.has_come.wait()
            (held,) = ground.echo.held
            await server.begin_stop()
            assert not held.is_over
            held.send(b"paid")
            held.finish()
            assert await answer == b"paid"
            await running


async def test_stop_waits_no_longer_than_a_moment(tmp_path: pathlib.Path) -> None:
    """What is still owed then ends as UNAVAILABLE."""
    clock = ManualClock()
    server = StoppedServer(clock)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(tmp_path / "store"))
        ground = await server.ground
        async with ground.open() as channel:
            call = channel.unary_unary(f"{SERVICE}/Owe")(b"1")
            await ground.echo.has_come.wait()
            await server.begin_stop()
            clock.advance(DRAIN_MS)
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert ground.echo.over.is_set()
