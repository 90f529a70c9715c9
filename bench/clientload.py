"""Rows of our asyncio client, beside the official Java client on the same broker in the same run.

Both clients send the same messages to the same ``rocketlet up`` and share its cores; rounds alternate between them.
Ours is one process with one event loop (uvloop), Java's has as many threads as it starts. The last column is the CPU
time of a message in our client and in the broker, which says what holds the rate: one core is full at 1,000,000 us.
"""

import asyncio
import itertools
import os
import pathlib
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple

import uvloop
from interop.driver import Driver
from interop.servers import RocketletServer, Server
from javasides import start_client

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
_BATCH = 32
_numbers = itertools.count()


class Row(NamedTuple):
    """What both clients do: our way, and the command of the Java driver with its arguments, if it has one."""

    name: str
    messages: int
    own: Callable[[str, int], Coroutine[object, object, float]]
    command: str = ""
    arguments: Mapping[str, Any] = MappingProxyType({})


def measure_client(server: RocketletServer, rounds: int, scale: float, *, with_java: bool) -> None:
    """Print a row for each load."""
    with start_client() if with_java else nullcontext() as java:
        _measure_rows(server, java, rounds, scale)


def _measure_rows(server: RocketletServer, java: Driver | None, rounds: int, scale: float) -> None:
    print(f"{'on rocketlet, messages/s':<28}{'Java client':>14}{'our client':>14}{'ratio':>8}{'CPU, us each':>18}")
    for row in find_rows(int(40_000 * scale)):
        runs: list[Run] = []
        rates: list[float] = []
        for _ in range(rounds):
            runs.append(_run(row, server))
            if java is not None and row.command:
                rates.append(_java_rate(java, server, row))
        own, client_us, broker_us = (statistics.median(column) for column in zip(*runs, strict=True))
        other = statistics.median(rates) if rates else None
        official, ratio = ("-", "-") if other is None else (f"{other:,.0f}", f"{own / other:.2f}")
        cost = f"{client_us:.0f} + {broker_us:.0f}"
        print(f"{row.name:<28}{official:>14}{own:>14,.0f}{ratio:>8}{cost:>18}", flush=True)


class Run(NamedTuple):
    """One run of our client: messages a second, and the CPU time of each in the client and in the broker."""

    rate: float
    client_us: float
    broker_us: float


def _run(row: Row, server: RocketletServer) -> Run:
    client_us, broker_us = time.process_time() * 1e6, cpu_us(server.pid)
    rate = uvloop.run(row.own(server.namesrv, row.messages))
    client_us, broker_us = time.process_time() * 1e6 - client_us, cpu_us(server.pid) - broker_us
    return Run(rate, client_us / row.messages, broker_us / row.messages)


def cpu_us(pid: int) -> float:
    """Return the CPU time that a process has used (Linux)."""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def find_rows(count: int) -> list[Row]:
    """Return all rows; ``count`` is how many messages most of them send."""
    backlog = 4 * count
    return [
        Row("send, 1 in flight", count // 8, _send_one, "load.send", {"threads": 1}),
        Row("send, 64 in flight", count, _send_64, "load.send", {"threads": 1, "inFlight": 64}),
        Row(f"send, batches of {_BATCH}", backlog, _send_batches, "load.send", {"threads": 4, "batch": _BATCH}),
        Row("push consumer, backlog", backlog, _consume, "load.consume"),
        Row(f"the same, {_BATCH} to a listener", backlog, _consume_batches, "load.consume", {"batch": _BATCH}),
        Row("async for, backlog", backlog, _iterate),
    ]


def _java_rate(java: Driver, server: Server, row: Row) -> float:
    about = {"namesrv": server.namesrv, "topic": _TOPIC, "bodyBytes": len(_BODY), "count": row.messages}
    if row.command == "load.consume":
        about["group"] = _new_group()
    else:
        about["warmup"] = row.messages // 4
    answer = java.call(row.command, **about, **row.arguments)
    if answer.get("failed") or not answer.get("complete", True):
        raise SystemExit(f"{row.name}: {answer}")
    return float(answer["perSecond"])


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


async def _send_batches(namesrv: str, count: int) -> float:
    async with Producer("bench", namesrv) as producer:

        async def send_some(share: int) -> None:
            for _ in range(share):
                await producer.send_batch([Message(_TOPIC, _BODY) for _ in range(_BATCH)])

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

    consumer.subscribe(_TOPIC, "*", count_down)
    async with consumer:
        await first.wait()
        return await _timed(done.wait(), left)


async def _iterate(namesrv: str, count: int) -> float:
    settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST, pull_messages=_BATCH)
    consumer = PullConsumer(_new_group(), namesrv, settings=settings)
    consumer.subscribe(_TOPIC)
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
