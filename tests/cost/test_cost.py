import asyncio
import gc
import json
import pathlib
import platform
import tracemalloc
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from clientframes import batch_body, batches, held_pull, pulls, sends
from growth import count_calls, counting_steps
from memory_connection import MemoryTransport
from raw_calls import heartbeat_body

from rocketlet.common.properties import codecs
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.connection import Connection

QUEUES = 4
BODY = bytes(128)
READS = 64
assert np, "once loaded, the index is built as records come"
TOLERANCE = 1.05
RECORDED = pathlib.Path(__file__).parent / "costs.json"


SMALL_FILES = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "100000"}
"""The backlog lies in some thirty files of the log, and in five of each queue."""


class Cost(msgspec.Struct):
    """What a workload costs for each message; ``peak_bytes`` are those allocated at once while a read is served."""

    calls: float
    peak_bytes: float


class Workload(NamedTuple):
    """Reads of frames, and how many messages stand for one read."""

    reads: Sequence[bytes]
    messages: int


def request(code: int, header: dict[str, str] | None, body: bytes = b"") -> bytes:
    """Return the frame of a request."""
    return encode_command(Command.request(code, header, body))


def send_reads(count: int) -> list[bytes]:
    """Return reads that hold as many sends each."""
    frames = sends("Cost", QUEUES, BODY)
    return [b"".join(next(frames) for _ in range(count)) for _ in range(READS)]


def workload(name: str) -> Workload:
    """Return what is measured under a name in ``costs.json``."""
    if name == "send alone":
        return Workload(send_reads(1), 1)
    if name == "send, 32 in a read":
        return Workload(send_reads(32), 32)
    if name == "send, batch of 32":
        frames = batches("Cost", QUEUES, batch_body(32, BODY))
        return Workload([next(frames) for _ in range(READS)], 32)
    frames = pulls("Cost", QUEUES, READS * 32 // QUEUES, 32)
    return Workload([next(frames) for _ in range(READS)], 32)


def calls_per_message(connection: Connection, work: Workload) -> float:
    """Return calls of Python and C functions per message."""

    def serve() -> None:
        for read in work.reads:
            connection.data_received(read)

    return count_calls(serve) / len(work.reads) / work.messages


def measure_peak(connection: Connection, work: Workload) -> float:
    """Return the largest number of bytes per message that one read holds beside what was there before it."""
    peaks: list[int] = []
    gc.disable()
    tracemalloc.start()
    try:
        for read in work.reads:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            connection.data_received(read)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
        gc.enable()
    return sorted(peaks)[len(peaks) // 2] / work.messages


def recorded(name: str) -> tuple[Cost, float]:
    """Return the recorded cost and how far it may be exceeded; another Python than the recorded one gets more room."""
    content = json.loads(RECORDED.read_text())
    version = ".".join(platform.python_version_tuple()[:2])
    costs = content["costs"] | (content["without compiled codecs"] if codecs is None else {})
    return msgspec.convert(costs[name], Cost), TOLERANCE if version == content["python"] else 1.3


@pytest.mark.parametrize("name", ["send alone", "send, 32 in a read", "send, batch of 32", "pull, 32 at a time"])
async def test_cost_of_a_message_has_not_risen(name: str, connected: tuple[Connection, MemoryTransport]) -> None:
    """A message takes no more calls and no more memory than ``costs.json`` says, which is changed only on purpose."""
    connection, transport = connected
    connection.data_received(send_reads(1)[0])
    await transport.has_written.wait()  # the first answer comes when the new topic is on disk
    if name.startswith("pull"):
        for read in send_reads(32):
            connection.data_received(read)
    calls_per_message(connection, workload(name))  # fills caches
    cost = Cost(
        round(calls_per_message(connection, workload(name)), 2), round(measure_peak(connection, workload(name)))
    )
    allowed, tolerance = recorded(name)
    assert b'"code":0,' in transport.last_write[:64]
    assert cost.calls <= allowed.calls * tolerance, f"{name}: {cost}"
    assert cost.peak_bytes <= allowed.peak_bytes * tolerance, f"{name}: {cost}"


async def usual_steps(connection: Connection) -> int:
    """Return the steps that a send takes, its commit and what follows in the next turn of the loop included."""
    taken: list[int] = []
    for read in send_reads(1):
        with counting_steps() as steps:
            connection.data_received(read)
            await next_turn()
        taken.append(steps())
    return sorted(taken)[len(taken) // 2]  # a send that opens a file takes more


async def next_turn() -> None:
    """Let the loop run what is due now."""
    has_run = asyncio.Event()
    asyncio.get_running_loop().call_soon(has_run.set)
    await has_run.wait()


@pytest.mark.feature("S27")
@pytest.mark.parametrize("sizes", [SMALL_FILES])
async def test_backlog_does_not_slow_sends(connected: tuple[Connection, MemoryTransport]) -> None:
    """With 100,000 messages in its queues that a group has not read a send takes the steps that it took before."""
    connection, transport = connected
    connection.data_received(send_reads(1)[0])
    await transport.has_written.wait()
    connection.data_received(request(RequestCode.HEART_BEAT, None, heartbeat_body("client", "g", {"Cost": "*"})))
    for queue_id in range(QUEUES):
        header = {"consumerGroup": "g", "topic": "Cost", "queueId": str(queue_id), "commitOffset": "0"}
        connection.data_received(request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        assert b'"code":0,' in transport.last_write[:64]
    await usual_steps(connection)  # fills caches
    empty = await usual_steps(connection)
    sent, backlog = 0, batches("Cost", QUEUES, batch_body(32, BODY))
    while sent < 100_000:
        connection.data_received(next(backlog))
        assert b'"code":0,' in transport.last_write[:64]
        sent += 32
    assert await usual_steps(connection) <= empty * 1.01


async def test_pull_that_waits_is_answered_with_the_read_of_its_message(
    connected: tuple[Connection, MemoryTransport],
) -> None:
    """Behind the answer to the sender, and with no turn of the loop in between."""
    connection, transport = connected
    body = b"what is waited for"
    frames = sends("Cost", 1, body)
    connection.data_received(next(frames))
    await transport.has_written.wait()
    connection.data_received(encode_command(held_pull("Cost", 0, 1)))
    assert body not in transport.last_write
    connection.data_received(next(frames))
    assert body in transport.last_write
