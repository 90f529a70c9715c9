"""Offsets of queues and groups, by raw requests."""

import pytest
from raw_calls import Caller, open_caller

from rocketlet.broker.group.handlers import NOT_FOUND_REMARK, NOT_ZERO_REMARK
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

QUEUE = {"topic": "T", "queueId": "0"}
GROUP_QUEUE = {**QUEUE, "consumerGroup": "g"}


async def committed(caller: Caller, **changes: str) -> str | int:
    """Return the committed offset, or the code of the refusal."""
    answer = await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, {**GROUP_QUEUE, **changes})
    return answer.ext["offset"] if answer.code == ResponseCode.SUCCESS else answer.code


async def commit(caller: Caller, offset: int, **changes: str) -> int:
    """Commit an offset and return the code of the answer."""
    header = {**GROUP_QUEUE, "commitOffset": str(offset), **changes}
    return (await caller.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code


@pytest.mark.feature("C6")
async def test_offset_is_stored_and_may_go_back(caller: Caller) -> None:
    """What was committed is answered, a smaller offset too; negative ones are passed over."""
    await caller.send()
    await caller.heartbeat("one", "g", {"T": "*"})
    for offset in (10, 3):
        assert await commit(caller, offset) == ResponseCode.SUCCESS
        assert await committed(caller) == str(offset)
    assert await commit(caller, -1) == ResponseCode.SUCCESS
    assert await committed(caller) == "3"


@pytest.mark.feature("C6")
async def test_missing_offset_is_answered_22(caller: Caller) -> None:
    """Nothing stored and no message 0 in the queue: 22 with Java's remark."""
    answer = await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, GROUP_QUEUE)
    assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, NOT_FOUND_REMARK)


@pytest.mark.feature("C7")
async def test_new_group_on_a_young_topic_begins_at_zero(caller: Caller) -> None:
    """While message 0 is in memory a new group gets offset 0, unless it says setZeroIfNotFound=false."""
    await caller.send()
    assert await committed(caller) == "0"
    refused = await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, {**GROUP_QUEUE, "setZeroIfNotFound": "false"})
    assert (refused.code, refused.remark) == (ResponseCode.QUERY_NOT_FOUND, NOT_ZERO_REMARK)
    assert await committed(caller, queueId="1") == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.feature("P29")
async def test_new_group_on_a_topic_whose_start_is_cold(settings: dict[str, str], clock: ManualClock) -> None:
    """Once message 0 lies further behind than the share of memory that counts as hot, a new group gets 22."""
    settings["accessMessageInMemoryMaxRatio"] = "0"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await caller.send()
        assert await committed(caller) == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.feature("C7")
async def test_group_that_came_before_the_messages_begins_at_zero(settings: dict[str, str], clock: ManualClock) -> None:
    """Of a queue that gets its first message after a member of the group has come none is skipped, hot or cold."""
    settings["accessMessageInMemoryMaxRatio"] = "0"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await caller.send(queue_id=0)
        await caller.heartbeat("one", "g", {"T": "*"})
        assert await committed(caller, queueId="1") == "0"
        await caller.send(queue_id=1)
        assert await committed(caller, queueId="1") == "0"
        assert await committed(caller, queueId="0") == ResponseCode.QUERY_NOT_FOUND
        assert await committed(caller, queueId="1", consumerGroup="late") == ResponseCode.QUERY_NOT_FOUND
        assert await committed(caller, queueId="1", setZeroIfNotFound="false") == ResponseCode.QUERY_NOT_FOUND
        assert await committed(caller, topic="Unknown") == ResponseCode.QUERY_NOT_FOUND


async def test_commit_needs_group_and_topic(caller: Caller) -> None:
    """An unknown group is answered 26, an unknown topic 17."""
    assert await commit(caller, 1) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    await caller.heartbeat("one", "g", {"T": "*"})
    assert await commit(caller, 1) == ResponseCode.TOPIC_NOT_EXIST


async def test_bounds_of_a_queue(caller: Caller) -> None:
    """31 answers the first offset, 30 the next one to be written; an unknown queue has 0 and 0."""
    for _ in range(3):
        await caller.send()
    for topic, least, most in (("T", "0", "3"), ("Unknown", "0", "0")):
        assert (await caller.ask(RequestCode.GET_MIN_OFFSET, {**QUEUE, "topic": topic})).ext["offset"] == least
        assert (await caller.ask(RequestCode.GET_MAX_OFFSET, {**QUEUE, "topic": topic})).ext["offset"] == most


@pytest.mark.feature("Q8")
async def test_offset_by_time(caller: Caller, clock: ManualClock) -> None:
    """29 finds the first message stored at or after a time, with UPPER the last one at or before it."""
    start_ms = clock.now_ms()
    for _ in range(3):
        await caller.send()
        clock.advance(1000)

    async def offset(at_ms: int, boundary: str) -> str:
        header = {**QUEUE, "timestamp": str(at_ms), "boundaryType": boundary}
        return (await caller.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)).ext["offset"]

    assert await offset(start_ms + 500, "LOWER") == "1"
    assert await offset(start_ms + 1500, "upper") == "1"
    assert await offset(start_ms + 9000, "LOWER") == "3"
    assert await offset(start_ms - 9000, "LOWER") == "0"


async def test_time_of_the_first_message(caller: Caller, clock: ManualClock) -> None:
    """32 answers when the first message of a queue was stored, -1 without one."""
    stored_at_ms = clock.now_ms()
    await caller.send()
    clock.advance(1000)
    await caller.send()

    async def timestamp(queue_id: str) -> str:
        header = {**QUEUE, "queueId": queue_id}
        return (await caller.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header)).ext["timestamp"]

    assert await timestamp("0") == str(stored_at_ms)
    assert await timestamp("1") == "-1"
