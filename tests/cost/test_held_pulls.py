"""What pulls that wait hold is counted for what it is, and given back when they are answered or their peer has gone."""

import gc
import tracemalloc
from functools import partial

import pytest
from badinput import samples
from growth import count_calls
from memory_connection import connect_in_memory
from raw_calls import heartbeat_body
from served import Served

from rocketlet.broker.group.filters import MAX_CACHED_TERMS
from rocketlet.remoting.codec.command import ROCKETMQ, Command
from rocketlet.remoting.codec.frames import FrameParser, encode_command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.transport.connection import RequestHandlers
from rocketlet.testing.manual_clock import ManualClock

PULLS = 20
SMALL_PULLS = 400  # so many of a few bytes weigh more than what is made once: a connection, a table that grows
MADE_ONCE = 50_000
HELD = {**samples.PULL, "queueOffset": "3", "sysFlag": "6", "suspendTimeoutMillis": "1000"}
FIELDS = {
    "everything": {"subscription": "*"},
    "tags": {"subscription": "||".join(f"{number}" for number in range(4_096))},
    "short tags": {"subscription": "||".join(map(chr, range(0x4E00, 0x4E00 + 4_000)))},
    "unread field": {"subscription": "*", "unheardOf": "x" * 500_000},
    "name": {"subscription": "*", "bname": "x" * 500_000},
}


def pull(fields: dict[str, str], number: int, *, serialize: int) -> bytes:
    """Return a pull that will wait; those by SQL92 have an expression each."""
    if "SQL92" in fields:
        expression = f"a={number} OR " + " OR ".join(["a=1"] * 2_000)
        fields = {"subscription": expression, "expressionType": "SQL92"}
    command = Command.request(Code.PULL_MESSAGE, {**HELD, **fields}, serialize=serialize)
    command.opaque = number
    return encode_command(command)


@pytest.mark.parametrize("serialize", [0, ROCKETMQ])
@pytest.mark.parametrize("kind", [*FIELDS, "SQL92", "unread header"])
async def test_held_pulls_count_what_they_hold_and_give_it_back(
    served_broker: Served, kind: str, serialize: int
) -> None:
    """Of what is held nine tenths are counted at least; when the peer has gone it is given back at once."""
    fields = FIELDS.get(kind, {kind: ""} if kind == "SQL92" else {"subscription": "*"})
    service, clock = RequestHandlers(served_broker.handlers), ManualClock()
    count = SMALL_PULLS if kind == "everything" else PULLS
    frames = [pull(fields, number, serialize=serialize) for number in range(count + 1)]
    if kind == "unread header":
        frames = [encode_with_remark(frame) for frame in frames]
    warm, _ = connect_in_memory(service, clock)
    warm.data_received(frames.pop())
    warm.connection_lost(None)
    gc.collect()
    gc.disable()  # what is held in a circle would wait for the collector, which a broker seldom runs
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        connection, _ = connect_in_memory(service, clock)
        for frame in frames:
            connection.data_received(frame)
        held = tracemalloc.get_traced_memory()[0] - before
        counted = connection.held_bytes
        connection.connection_lost(None)
        del connection
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held <= counted * 1.1 + MADE_ONCE
    kept_filters = 1_000 * MAX_CACHED_TERMS if kind == "SQL92" else 0  # for whoever asks next
    assert left <= held * 0.1 + 400_000 + kept_filters


def encode_with_remark(frame: bytes) -> bytes:
    """Return a frame whose header holds much that nobody reads, beside the fields."""
    (command,) = FrameParser().feed(frame)
    command.remark = "x" * 500_000
    command.ext_table = command.ext
    return encode_command(command)


async def test_notice_to_a_group_is_encoded_once(served_broker: Served) -> None:
    """A member that joins costs a few calls for each other member, who is told of it."""
    service, clock = RequestHandlers(served_broker.handlers), ManualClock()
    costs: list[int] = []
    for number in range(201):
        connection, transport = connect_in_memory(service, clock)
        body = heartbeat_body(f"client-{number}", "many", {})
        frame = encode_command(Command.request(Code.HEART_BEAT, None, body))
        calls = count_calls(partial(connection.data_received, frame))
        if number in (100, 200):
            costs.append(calls)
        assert b"NOTIFY" not in transport.last_write
    assert costs[1] - costs[0] <= 100 * 20


async def test_list_of_members_takes_as_many_calls_for_many(served_broker: Served) -> None:
    """Each member asks who is in its group when that changes: the answer is not put together id by id."""
    service, clock = RequestHandlers(served_broker.handlers), ManualClock()
    question = encode_command(Command.request(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "many"}))
    costs: list[int] = []
    for number in range(200):
        connection, transport = connect_in_memory(service, clock)
        body = heartbeat_body(f"client-{number}", "many", {})
        connection.data_received(encode_command(Command.request(Code.HEART_BEAT, None, body)))
        costs.append(count_calls(partial(connection.data_received, question)))
        assert b'"client-%d"]' % number in transport.last_write
    assert costs[199] <= costs[9] + 5


@pytest.mark.parametrize("serialize", [0, ROCKETMQ])
async def test_held_pull_keeps_nothing_that_nobody_reads(served_broker: Served, serialize: int) -> None:
    """A field of half a megabyte that is unknown, or that no answer needs, is gone while the pull waits."""
    service, clock = RequestHandlers(served_broker.handlers), ManualClock()
    counted: list[int] = []
    for kind in ("everything", "unread field", "name"):
        connection, _ = connect_in_memory(service, clock)
        connection.data_received(pull(FIELDS[kind], 1, serialize=serialize))
        counted.append(connection.held_bytes)
        connection.connection_lost(None)
    assert counted == [counted[0]] * 3
    assert counted[0] > 0
