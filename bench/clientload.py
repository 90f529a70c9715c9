"""Rows of our asyncio client, beside the official Java client on the same broker in the same run.

Both clients send the same messages to the same ``rocketlet up`` and share its cores; rounds alternate between them.
Ours is one process with one event loop (uvloop), Java's has as many threads as it starts. The last columns are the CPU
time of a message in either client, and in the broker beside either, which says what holds the rate: one core is full
at 1,000,000 us. What a client takes to start and to end is in it, what it takes to warm up is not.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import uvloop
from interop.driver import Driver
from interop.servers import RocketletServer
from javasides import start_client
from processes import cpu_us
from rounds import take_turns
from tables import Comparison, Table

from rocketlet.client import (
    ConsumeFrom,
    Message,
    Producer,
    PullConsumer,
    PullConsumerSettings,
    PushConsumer,
    PushConsumerSettings,
    ReceivedMessage,
)

_BODY = bytes(128)
_TOPIC = "BenchClient"
_BACKLOG = "BenchBacklog"
_BATCH = 32
_MESSAGES: Final = 40_000
_numbers = itertools.count()


CLIENTS: Final = Table(
    "clients",
    (
        *("on rocketlet", "Java client", "rocketlet.client", "ratio", "least to greatest"),
        *("client CPU, Java", "rocketlet", "broker CPU, Java", "rocketlet"),
    ),
    (30, 14, 20, 8, 20, 18, 12, 18, 12),
)


class Row(NamedTuple):
    """What both clients do: our way, and the command of the Java driver with its arguments, if it has one."""

    name: str
    messages: int
    own: Callable[[str, int], Coroutine[object, object, float]]
    command: str = ""
    arguments: Mapping[str, Any] = MappingProxyType({})


def measure_clients(is_wanted: Callable[[str], bool], rounds: int, scale: float, place: Path) -> Iterator[Comparison]:
    """Measure both clients."""
    rows = [row for row in find_rows(scale) if is_wanted(row.name)]
    if rows:
        with RocketletServer(place, {}) as server, start_client() as java:
            yield from measure_rows(rows, server, java, rounds)


def measure_rows(
    rows: Sequence[Row], server: RocketletServer, java: Driver | None, rounds: int
) -> Iterator[Comparison]:
    """Measure rows on a server that is new."""
    backlog = max(row.messages for row in rows)
    uvloop.run(send_backlog(server.namesrv, backlog))
    yield from (_measure(row, server, java, rounds) for row in rows)


def _measure(row: Row, server: RocketletServer, java: Driver | None, rounds: int) -> Comparison:
    """Measure a row, beside the Java client if there is one and it does such a thing."""
    sides: list[Callable[[int], Run]] = [lambda _: _run_own(row, server)]
    if java is not None and row.command:
        sides.insert(0, lambda _: _run_java(row, server, java))
    *others, own = take_turns(rounds, sides)
    official = others[0] if others else []
    costs = {
        "client, Java": [run.client_us for run in official],
        "client, rocketlet": [run.client_us for run in own],
        "broker beside Java": [run.broker_us for run in official],
        "broker beside rocketlet": [run.broker_us for run in own],
    }
    return Comparison(row.name, "/s", [run.rate for run in official], [run.rate for run in own], costs)


class Run(NamedTuple):
    """One run of a client: messages a second, and the CPU time of each in the client and in the broker."""

    rate: float
    client_us: float
    broker_us: float


def _run_own(row: Row, server: RocketletServer) -> Run:
    client_us, broker_us = time.process_time() * 1e6, cpu_us(server.pid)
    rate = uvloop.run(row.own(server.namesrv, row.messages))
    client_us, broker_us = time.process_time() * 1e6 - client_us, cpu_us(server.pid) - broker_us
    return Run(rate, client_us / row.messages, broker_us / row.messages)


def _run_java(row: Row, server: RocketletServer, java: Driver) -> Run:
    about = {"namesrv": server.namesrv, "topic": _TOPIC, "bodyBytes": len(_BODY), "count": row.messages}
    if row.command == "load.consume":
        about |= {"topic": _BACKLOG, "group": _new_group()}
    client_us, broker_us = cpu_us(java.pid), cpu_us(server.pid)
    answer = java.call(row.command, **about, **row.arguments)
    client_us, broker_us = cpu_us(java.pid) - client_us, cpu_us(server.pid) - broker_us
    if answer.get("failed") or not answer.get("complete", True):
        raise SystemExit(f"{row.name}: {answer}")
    return Run(float(answer["perSecond"]), client_us / row.messages, broker_us / row.messages)


def find_rows(scale: float) -> list[Row]:
    """Return all rows; ``scale`` is a factor of how much they send."""
    count = int(_MESSAGES * scale) // _BATCH * _BATCH
    backlog = 4 * count
    return [
        Row("send, 1 in flight", count // 8, _send_one, "load.send", {"threads": 1}),
        Row("send, 64 in flight", count, _send_64, "load.send", {"threads": 1, "inFlight": 64}),
        Row(f"send, batches of {_BATCH}", backlog, _send_batches, "load.send", {"threads": 4, "batch": _BATCH}),
        Row("push consumer, backlog", backlog, _consume, "load.consume"),
        Row(f"push consumer, {_BATCH} to a listener", backlog, _consume_batches, "load.consume", {"batch": _BATCH}),
        Row("async for, backlog", backlog, _iterate),
    ]


async def _send_one(namesrv: str, count: int) -> float:
    return await _send(namesrv, count, 1)


async def _send_64(namesrv: str, count: int) -> float:
    return await _send(namesrv, count, 64)


async def _send(namesrv: str, count: int, in_flight: int) -> float:
    async with Producer("bench", namesrv) as producer:

        async def send_some(share: int) -> None:
            for _ in range(share):
                await producer.send(Message(_TOPIC, _BODY))

        return await _timed(_together(send_some, count, in_flight), count)


async def send_backlog(namesrv: str, count: int) -> None:
    """Send what the rows that consume will consume."""
    await _send_batches(namesrv, count, _BACKLOG)


async def _send_batches(namesrv: str, count: int, topic: str = _TOPIC) -> float:
    async with Producer("bench", namesrv) as producer:

        async def send_some(share: int) -> None:
            for _ in range(share):
                await producer.send_batch([Message(topic, _BODY) for _ in range(_BATCH)])

        return await _timed(_together(send_some, count // _BATCH, 4), count)


async def _together(work: Callable[[int], Awaitable[None]], count: int, workers: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_as_coroutine(work, count // workers))


async def _as_coroutine(work: Callable[[int], Awaitable[None]], share: int) -> None:
    await work(share)


async def _consume(namesrv: str, count: int) -> float:
    return await _push(namesrv, count, 1)


async def _consume_batches(namesrv: str, count: int) -> float:
    return await _push(namesrv, count, _BATCH)


async def _push(namesrv: str, count: int, batch: int) -> float:
    settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, batch_messages=batch)
    consumer = PushConsumer(_new_group(), namesrv, settings=settings)
    left = count
    first, done = asyncio.Event(), asyncio.Event()

    async def count_down(messages: list[ReceivedMessage]) -> None:
        nonlocal left
        first.set()
        left -= len(messages)
        if left <= 0:
            done.set()

    consumer.subscribe(_BACKLOG, "*", count_down)
    async with consumer:
        await first.wait()
        return await _timed(done.wait(), left)


async def _iterate(namesrv: str, count: int) -> float:
    settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST, pull_messages=_BATCH)
    consumer = PullConsumer(_new_group(), namesrv, settings=settings)
    consumer.subscribe(_BACKLOG)
    async with consumer:
        await anext(consumer)

        async def read() -> None:
            for _ in range(count - 1):
                await anext(consumer)

        return await _timed(read(), count - 1)


async def _timed(work: Awaitable[object], count: int) -> float:
    """Return how many of ``count`` were done in a second."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    await work
    return count / (loop.time() - begin)


def _new_group() -> str:
    return f"bench-{os.getpid()}-{next(_numbers)}"
