"""Messages that are handed out in order, by raw requests: the exchange that was recorded from Java's broker."""

import asyncio
import json
from typing import Any

import pytest
from javastores import VECTORS
from pops import ack_fields, ask_pop, read_popped
from raw_calls import Caller, open_caller, until

from rocketlet.broker.pop.ordered_batches import Attempt, OrderedBatches, OrderedPlace
from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

RECORDED = json.loads((VECTORS / "pop/pop-order.json").read_text())["exchanges"]
BY_TIME = ("popTime", "invisibleTime")


@pytest.fixture(autouse=True)
async def topic(caller: Caller) -> None:
    """Make the topic, with one queue and six messages."""
    for number in range(6):
        answer = await caller.send("T", b"o%d" % number, queue_id=0, default_topic_queue_nums=1)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def pop_ordered(caller: Caller, attempt: str, **fields: Any) -> Command:
    """Ask for three messages."""
    usual: dict[str, Any] = {"order": True, "attemptId": attempt, "maxMsgNums": 3, "invisibleTime": 4_000}
    return await ask_pop(caller, **(usual | fields))


def said(answer: Command) -> dict[str, str]:
    """Return what an answer says beside times."""
    return {name: value for name, value in answer.ext.items() if name not in BY_TIME}


def recorded(name: str) -> dict[str, str]:
    """Return what Java's broker said beside times."""
    answer = next(exchange["answer"] for exchange in RECORDED if exchange["name"] == name)
    return {name: value for name, value in answer["ext"].items() if name not in BY_TIME}


async def committed(caller: Caller) -> int:
    """Return how far the group has come."""
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
    return int((await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)).ext["offset"])


@pytest.mark.feature("O4")
async def test_batches_are_handed_out_as_by_java(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """Blocked, repeated, acknowledged out of order, refused, changed, and again with what follows."""
    first = await pop_ordered(caller, "att-1")
    assert said(first) == recorded("pop 3")
    assert said(await pop_ordered(caller, "att-2")) == recorded("pop again")
    await clock.elapse(1)
    again = await pop_ordered(caller, "att-1")
    assert said(again) == recorded("pop again same attempt")
    messages = read_popped(again, "broker-a")
    assert await committed(caller) == 0
    assert (await caller.ask(RequestCode.ACK_MESSAGE, ack_fields(messages[1]))).code == ResponseCode.SUCCESS
    assert await committed(caller) == 0
    assert (await caller.ask(RequestCode.ACK_MESSAGE, ack_fields(messages[0]))).code == ResponseCode.SUCCESS
    assert await committed(caller) == 2
    assert (await caller.ask(RequestCode.ACK_MESSAGE, ack_fields(messages[0]))).code == ResponseCode.SUCCESS
    foreign = await caller.ask(RequestCode.ACK_MESSAGE, ack_fields(messages[2]) | {"offset": "4"})
    assert (foreign.code, str(foreign.remark).partition(", /")[0]) == (
        13,
        "offset is illegal, key:T@g@0, old:2, commit:4, next:-1",
    )
    stale = messages[2]._replace(handle=messages[2].handle._replace(popped_at_ms=messages[2].handle.popped_at_ms - 1))
    assert (await caller.ask(RequestCode.ACK_MESSAGE, ack_fields(stale))).code == ResponseCode.SUCCESS
    assert await committed(caller) == 2

    await clock.elapse(22)
    fields = ack_fields(messages[2]) | {"invisibleTime": "2000"}
    changed = await caller.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
    assert changed.ext == {
        "popTime": str(messages[2].handle.popped_at_ms),
        "invisibleTime": "2022",
        "reviveQid": "999",
    }
    fields = ack_fields(messages[0]) | {"invisibleTime": "2000"}
    below = await caller.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
    assert below.ext == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}

    async with open_caller(broker.address) as other, asyncio.TaskGroup() as tasks:
        for name, lease_ms, wait_ms in [
            ("pop, waits for the lease", 3_000, 2_000),
            ("pop, waits for the next lease", 3_000, 3_000),
        ]:
            asking = pop_ordered(other, name, invisibleTime=lease_ms, pollTime=6_000, bornTime=clock.now_ms())
            waiting = tasks.create_task(asking)
            await until(lambda: len(broker.parts.pop.pop.waiting) == 1)
            await clock.elapse(wait_ms - 1)
            assert not waiting.done()
            await clock.elapse(1)
            answer = await waiting
            assert said(answer) == recorded(name)
    for message in read_popped(answer, "broker-a"):
        assert (await caller.ask(RequestCode.ACK_MESSAGE, ack_fields(message))).code == ResponseCode.SUCCESS
    assert await committed(caller) == 5
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "-1", "pollTime": "0", "bornTime": "0", "order": "true"}
    told = await caller.ask(RequestCode.NOTIFICATION, fields)
    assert (told.ext, told.remark) == (recorded("notification order"), "not set any response code")


def test_time_of_the_handles_names_a_batch() -> None:
    """A batch is acknowledged by the time of its handles, though the clock has gone on while it was read."""
    times = iter(range(1_000, 2_000))
    batches, place = OrderedBatches(lambda: next(times)), OrderedPlace("T", "g", 0)
    batches.hand_out(place, [5, 6], Attempt("att-1", 4_000, popped_at_ms=998))
    assert batches.acknowledge(place, 5, 998) == 6
    assert batches.acknowledge(place, 6, 998) == 7
