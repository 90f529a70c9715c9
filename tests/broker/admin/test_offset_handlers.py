"""Offsets of groups and entries of queues, by raw requests to a broker whose clock the test moves."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest
from raw_calls import TIMEOUT_MS, Caller, send_header

from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.java_json import read_json
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.testing.manual_clock import ManualClock

MOST_ENTRIES = 10_000


@pytest.fixture
async def caller(caller: Caller, clock: ManualClock) -> Caller:
    """Return a caller that has stored five messages in queue 1 of T, a second apart; g, h and new are groups."""
    for _ in range(5):
        await clock.elapse(1_000)
        await caller.send("T", queue_id=1, properties="TAGS\x01a\x02")
    for group in ("g", "h", "new"):
        await caller.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
    await commit(caller, "g", "T", 1, 2)
    return caller


async def ask(caller: Caller, code: Code, **fields: Any) -> Any:
    """Ask and return the body of a successful answer."""
    answer = await caller.ask(code, {name: str(value) for name, value in fields.items()})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return read_json(answer.body) if answer.body else answer.remark


async def commit(caller: Caller, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
    """Commit an offset of a group that is there."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": f"{queue_id}", "commitOffset": f"{queue_offset}"}
    assert (await caller.ask(Code.UPDATE_CONSUMER_OFFSET, fields)).code == ResponseCode.SUCCESS


async def committed(caller: Caller, group: str, topic: str = "T", queue_id: int = 1) -> str | None:
    """Return the stored offset of a group, None when it has none."""
    about = {"consumerGroup": group, "topic": topic, "queueId": f"{queue_id}", "setZeroIfNotFound": "false"}
    return (await caller.ask(Code.QUERY_CONSUMER_OFFSET, about)).ext.get("offset")


async def test_all_offsets(caller: Caller) -> None:
    """The table of all groups is what the file of a Java broker holds."""
    told = await ask(caller, Code.GET_ALL_CONSUMER_OFFSET)
    assert (told["offsetTable"], told["groupTopicMap"]) == ({"T@g": {"1": 2}}, {"g": ["T"]})


async def test_all_delays(caller: Caller, clock: ManualClock) -> None:
    """How far the delay levels are comes with bare numbers, as Java writes them."""
    await caller.send("T", queue_id=1, properties="DELAY\x011\x02")
    async with LoopClock().timeout(TIMEOUT_MS):  # a thread commits what was delivered
        while b'"offsetTable":{}' in (answer := await caller.ask(Code.GET_ALL_DELAY_OFFSET)).body:
            await clock.elapse(1_000)
    assert b'"offsetTable":{1:1}' in answer.body


async def test_delay_of_a_group(caller: Caller, clock: ManualClock) -> None:
    """The ends of each queue in time, where the group is, and how long the next message has waited."""
    spans = (await ask(caller, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="g"))["consumeTimeSpanSet"]
    now_ms = clock.now_ms()
    assert [span["messageQueue"]["queueId"] for span in spans] == [0, 1, 2, 3]
    names = ("minTimeStamp", "consumeTimeStamp", "maxTimeStamp", "delayTime")
    assert [spans[1][name] for name in names] == [now_ms - 4_000, now_ms - 3_000, now_ms, 2_000]
    assert [spans[0][name] for name in names] == [-1, -1, -1, 0]
    await commit(caller, "g", "T", 1, 5)
    (_, span, *_) = (await ask(caller, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="g"))["consumeTimeSpanSet"]
    assert [span[name] for name in names] == [now_ms - 4_000, now_ms, now_ms, 0]
    await commit(caller, "g", "T", 1, 4)
    (_, span, *_) = (await ask(caller, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="g"))["consumeTimeSpanSet"]
    assert [span[name] for name in names] == [now_ms - 4_000, now_ms - 1_000, now_ms, 0]
    (_, span, *_) = (await ask(caller, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="h"))["consumeTimeSpanSet"]
    assert [span[name] for name in names] == [now_ms - 4_000, now_ms - 4_000, now_ms, 4_000]


async def test_delay_as_text(caller: Caller, clock: ManualClock, time_zone: Any) -> None:
    """Times are also told in Java's words, in the zone of the broker."""
    time_zone("CET-1")
    spans = (await ask(caller, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="g"))["consumeTimeSpanSet"]
    assert spans[0]["minTimeStampStr"] == "1970-01-01#00:59:59:999"
    missing = await caller.ask(Code.QUERY_CONSUME_TIME_SPAN, {"topic": "nobody", "group": "g"})
    assert (missing.code, missing.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[nobody] not exist")


@pytest.mark.parametrize(
    ("filtered", "compared", "expected"),
    [
        ("", "", {"1": 2, "2": 0}),
        ("", "g", {"1": 2, "2": 0}),
        ("g", "h", {"1": 4, "2": 0}),
        ("h", "g", {"1": 2}),
        ("g,h", "g", {}),
        ("g,h", "h", {}),
        ("g", "g", {"1": 2**63 - 1, "2": 0}),
    ],
)
async def test_last_of_groups(caller: Caller, filtered: str, compared: str, expected: dict[str, int]) -> None:
    """The least offset of those groups that count; none when the compared one is behind it. Nobody loses an offset."""
    await commit(caller, "h", "T", 1, 4)
    await commit(caller, "h", "T", 2, 0)
    about = {"filterGroups": filtered, "compareGroup": compared, "topic": "T"}
    told = (await ask(caller, Code.QUERY_CORRECTION_OFFSET, **about))["correctionOffsets"]
    assert told == expected
    assert [await committed(caller, group) for group in ("g", "h")] == ["2", "4"]


def saved_offsets(directory: pathlib.Path) -> Mapping[str, object]:
    """Return the offsets that stand in the file of a broker."""
    (path,) = directory.rglob("consumerOffset.json")
    return json.loads(path.read_text())["offsetTable"]


@pytest.mark.feature("D11")
@pytest.mark.parametrize("topic", ["T", "", " ", None])
async def test_clone_offsets(caller: Caller, broker: Broker, tmp_path: pathlib.Path, topic: str | None) -> None:
    """One topic or all: the other group goes on where the first is, and that is saved before it is answered."""
    await caller.send("other", queue_id=0)
    await commit(caller, "g", "other", 0, 1)
    fields = {} if topic is None else {"topic": topic}
    await ask(caller, Code.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="new", **fields)
    assert await committed(caller, "new") == "2"
    assert await committed(caller, "new", "other", 0) == (None if topic == "T" else "1")
    assert saved_offsets(tmp_path)["T@new"] == {"1": 2}


async def test_clone_leaves_out_what_is_given_up(caller: Caller) -> None:
    """Of a group that is online its subscriptions count, unless that is not to be looked at; unknown topics do not."""
    await caller.send("other", queue_id=0)
    await commit(caller, "g", "other", 0, 1)
    await caller.heartbeat("c", "g", {"other": "*"})
    await ask(caller, Code.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="new", offline="false")
    assert [await committed(caller, "new"), await committed(caller, "new", "other", 0)] == [None, "1"]
    await ask(caller, Code.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="new", topic="nobody", offline="true")
    await ask(caller, Code.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="new", offline="true")
    assert await committed(caller, "new") == "2"


async def test_clone_ends_a_reset(caller: Caller) -> None:
    """A group that was reset goes on where the other is: the later order counts."""
    fields = {"topic": "T", "group": "new", "timestamp": "-1", "isForce": "true", "queueId": "1", "offset": "5"}
    assert (await caller.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, fields)).code == ResponseCode.SUCCESS
    await ask(caller, Code.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="new", topic="T")
    assert await committed(caller, "new") == "2"


async def test_clone_to_a_group_that_cannot_be(caller: Caller) -> None:
    """Offsets belong to groups that are there or may be made."""
    answer = await caller.ask(Code.CLONE_GROUP_OFFSET, {"srcGroup": "g", "destGroup": "a b"})
    assert (answer.code, answer.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group a b not exist!")
    assert "T@a b" not in (await ask(caller, Code.GET_ALL_CONSUMER_OFFSET))["offsetTable"]


@pytest.mark.parametrize(
    ("index", "count", "found"), [(0, 2, [0, 1]), (3, 100, [3, 4]), (4, 1, [4]), (0, 0, []), (0, -1, [])]
)
async def test_entries_of_a_queue(caller: Caller, index: int, count: int, found: list[int]) -> None:
    """Where records are, how large, and their tag code, as many as were asked for and are there."""
    told = await ask(caller, Code.QUERY_CONSUME_QUEUE, topic="T", queueId=1, index=index, count=count)
    assert (told["minQueueIndex"], told["maxQueueIndex"]) == (0, 5)
    size = told["queueData"][0]["physicSize"] if found else 0
    expected = [{"eval": False, "physicOffset": one * size, "physicSize": size, "tagsCode": 97} for one in found]
    assert told["queueData"] == expected


async def test_entries_for_a_group(caller: Caller) -> None:
    """What a group wants of the topic comes with them, or that it is not online."""
    about = {"topic": "T", "queueId": 1, "index": 0, "count": 1}
    told = await ask(caller, Code.QUERY_CONSUME_QUEUE, **about, consumerGroup="g")
    assert (told["filterData"], "subscriptionData" in told) == ("g@T is not online!", False)
    await caller.heartbeat("c", "g", {"T": "a || b"})
    told = await ask(caller, Code.QUERY_CONSUME_QUEUE, **about, consumerGroup="g")
    assert (told["filterData"], told["subscriptionData"]["subString"]) == ("null", "a || b")


@pytest.mark.parametrize(
    ("topic", "queue_id", "index", "code", "remark"),
    [
        ("T", 1, 5, 0, "Index 5 of 1@T is not exist!"),
        ("T", 1, -3, 0, "Index -3 of 1@T is not exist!"),
        ("T", 0, 0, 1, "0@T is not exist!"),
        ("nobody", 0, 0, 1, "0@nobody is not exist!"),
    ],
)
async def test_entries_that_are_not_there(
    caller: Caller, topic: str, queue_id: int, index: int, code: int, remark: str
) -> None:
    """A queue without messages does not exist, an index outside of one neither; Java's words."""
    fields = {"topic": topic, "queueId": f"{queue_id}", "index": f"{index}", "count": "1"}
    answer = await caller.ask(Code.QUERY_CONSUME_QUEUE, fields)
    assert (answer.code, answer.remark, answer.body) == (code, remark, b"")


async def test_entries_in_one_answer_are_bounded(caller: Caller) -> None:
    """Whatever is asked for, no more than so many come."""
    batch = encode_batch(BatchPart(0, b"x", b"") for _ in range(MOST_ENTRIES + 2))
    sent = await caller.ask(Code.SEND_BATCH_MESSAGE, send_header("T", 2, batch=True), batch)
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    told = await ask(caller, Code.QUERY_CONSUME_QUEUE, topic="T", queueId=2, index=0, count=2**31 - 1)
    assert (told["maxQueueIndex"], len(told["queueData"])) == (MOST_ENTRIES + 2, MOST_ENTRIES)
