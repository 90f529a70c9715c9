"""Acknowledgements of many messages in one request, and pops by tag and by expression, by raw requests."""

import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest
from pops import GROUP, MINUTE_MS, PoppedMessage, acknowledge, ask_pop, pop, read_popped
from raw_calls import Caller

from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.record import decode_record
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock


async def send(caller: Caller, *tags: str) -> None:
    """Send a message with each tag, and a property, to queue 0 of a topic with one queue."""
    for number, tag in enumerate(tags):
        properties = f"TAGS\x01{tag}\x02a\x01{number}\x02"
        answer = await caller.send("T", b"%d" % number, queue_id=0, properties=properties, default_topic_queue_nums=1)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


def entry(message: PoppedMessage, queue_offsets: Iterable[int], **changes: Any) -> dict[str, Any]:
    """Return the acknowledgement of messages of the lease that a message is of."""
    handle = message.handle
    bits = sum(1 << offset - handle.start_offset for offset in queue_offsets)
    return {
        "c": GROUP,
        "t": "T",
        "r": handle.retry,
        "so": handle.start_offset,
        "q": handle.queue_id,
        "rq": handle.revive_queue_id,
        "pt": handle.popped_at_ms,
        "it": handle.invisible_ms,
        "b": base64.b64encode(bits.to_bytes(2, "little")).decode(),
        **changes,
    }


async def acknowledge_all(caller: Caller, *entries: dict[str, Any]) -> Command:
    """Acknowledge in one request."""
    body = json.dumps({"brokerName": "broker-a", "acks": entries}).encode()
    return await caller.ask(Code.BATCH_ACK_MESSAGE, None, body)


@pytest.mark.feature("O5")
async def test_some_of_a_lease_are_acknowledged_together(caller: Caller, clock: ManualClock) -> None:
    """Every other one of five; the rest comes again, once. What is not in the queue is passed over."""
    await send(caller, *"ABCDE")
    first, *_ = await pop(caller, invisibleTime=20_000)
    answer = await acknowledge_all(caller, entry(first, [0, 2, 4, 9]), entry(first, [0], t="NoSuch"))
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    await clock.elapse(20_000)
    again = await pop(caller)
    assert [message.body for message in again] == [b"1", b"3"]
    assert (await acknowledge_all(caller, entry(again[0], [0, 1]))).code == ResponseCode.SUCCESS
    await clock.elapse(MINUTE_MS)
    assert await pop(caller) == []


@pytest.mark.feature("O5")
async def test_what_is_not_in_the_queue_is_not_logged(broker: Broker, caller: Caller) -> None:
    """Of a lease that only the log may know, what stands behind the queue is passed over, too."""
    await send(caller, *"AB")
    first, *_ = await pop(caller)
    store = broker.operations.store
    before = store.log_max_offset
    await acknowledge_all(caller, entry(first, [1, 9], pt=first.handle.popped_at_ms - 1))
    logged = store.record_at(before)
    assert logged is not None
    record = decode_record(logged)
    assert record is not None
    assert (json.loads(bytes(record.body))["ao"], before + len(logged)) == (1, store.log_max_offset)


@pytest.mark.feature("O5")
async def test_ordered_messages_are_acknowledged_together(broker: Broker, caller: Caller) -> None:
    """The group moves to the first that is not done."""
    await send(caller, *"ABC")
    first, *_ = await pop(caller, order=True, attemptId="a")
    assert (await acknowledge_all(caller, entry(first, [0, 1]))).code == ResponseCode.SUCCESS
    assert broker.parts.state.offsets.committed(GROUP, "T", 0) == 2


@pytest.mark.feature("O5")
async def test_request_without_acknowledgements(caller: Caller) -> None:
    """It says nothing; one of more leases than a consumer has, or of more messages, is refused."""
    for body in (b"", b"{}", b'{"acks":[]}'):
        answer = await caller.ask(Code.BATCH_ACK_MESSAGE, None, body)
        assert (answer.code, answer.remark) == (ResponseCode.NO_MESSAGE, None)
    await send(caller, *"AB")
    first, *_ = await pop(caller)
    wide = base64.b64encode(b"\xff" * 512).decode()
    answer = await acknowledge_all(caller, *[entry(first, [0], b=wide)] * 5)
    assert (answer.code, answer.remark) == (1, "the request acknowledges 20480 messages, limit is 16384")
    answer = await acknowledge_all(caller, entry(first, [0], b=base64.b64encode(bytes(513)).decode()))
    assert (answer.code, answer.remark) == (1, "an acknowledgement has 4104 bits, the most are 4096")


@pytest.mark.feature("O12")
@pytest.mark.parametrize("wanted", [{"exp": "B"}, {"expType": "SQL92", "exp": "a >= 3"}], ids=["tag", "expression"])
async def test_what_is_not_wanted_does_not_come(
    broker: Broker, caller: Caller, clock: ManualClock, wanted: dict[str, str]
) -> None:
    """Messages that are left out are passed for good; a read that finds none of its own moves the group."""
    await send(caller, *"AAABB")
    answer = await ask_pop(caller, "T", invisibleTime=20_000, **wanted)
    assert (answer.ext["startOffsetInfo"], answer.ext["msgOffsetInfo"]) == ("0 0 0", "0 0 3,4")
    await acknowledge(caller, *read_popped(answer, "broker-a"))
    assert broker.parts.state.offsets.committed(GROUP, "T", 0) == 5
    await send(caller, *"AA")
    assert await pop(caller, **wanted) == []
    assert broker.parts.state.offsets.committed(GROUP, "T", 0) == 7
    await clock.elapse(MINUTE_MS)
    assert await pop(caller) == []
