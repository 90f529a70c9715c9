"""Groups that are set elsewhere or deleted, and topics that are deleted, while messages are handed out."""

import asyncio
import json
import pathlib
import shutil
from typing import Any

import pytest
from pops import MINUTE_MS, acknowledge, ask_pop, pop
from raw_calls import Caller, open_caller, until

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

RETRY_TOPIC = "%RETRY%g_T"


@pytest.fixture(autouse=True)
async def messages(caller: Caller) -> None:
    """Make the topic, with one queue and three messages."""
    await send_three(caller)


async def send_three(caller: Caller) -> None:
    """Send three messages."""
    for number in range(3):
        answer = await caller.send("T", b"%d" % number, queue_id=0, default_topic_queue_nums=1)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def reset(caller: Caller, queue_offset: int) -> None:
    """Set the group to an offset."""
    fields = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true", "queueId": "0"}
    answer = await caller.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, fields | {"offset": str(queue_offset)})
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def bodies(caller: Caller, **fields: Any) -> list[bytes]:
    """Return the bodies of what is handed out."""
    return [message.body for message in await pop(caller, **fields)]


@pytest.mark.feature("O9")
@pytest.mark.parametrize("merges", ["true", "false"])
async def test_leases_from_before_a_reset_do_not_come_again(
    settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path, merges: str
) -> None:
    """The next pop begins where the group was set; Java's broker hands the older ones out once more."""
    own = {**settings, "enablePopBufferMerge": merges, "storePathRootDir": str(tmp_path / "own")}
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        await send_three(caller)
        assert await bodies(caller, invisibleTime=20_000) == [b"0", b"1", b"2"]
        await reset(caller, 1)
        again = await pop(caller, invisibleTime=20_000)
        assert [message.body for message in again] == [b"1", b"2"]
        await acknowledge(caller, *again)
        await clock.elapse(MINUTE_MS)
        assert await bodies(caller) == []
        assert broker.parts.state.topics.get(RETRY_TOPIC) is None


@pytest.mark.feature("O9")
async def test_leases_of_an_earlier_life_do_not_come_after_a_reset(
    settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path
) -> None:
    """Their check points are still in the timer when the group is set elsewhere."""
    own = {**settings, "storePathRootDir": str(tmp_path / "own")}
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        await send_three(caller)
        assert len(await pop(caller)) == 3
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        delivery = broker.parts.timer_delivery
        assert delivery is not None
        await reset(caller, 2)
        assert await bodies(caller) == [b"2"]
        await until(lambda: delivery.is_idle)
        for _ in range(70):
            await clock.elapse(1_000)
            await until(lambda: delivery.is_idle)
        assert await bodies(caller) == [b"2"]


@pytest.mark.feature("O9")
async def test_reset_wakes_who_waits(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """A consumer that found nothing goes on at once where its group was set."""
    await acknowledge(caller, *await pop(caller))
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(ask_pop(other, pollTime=15_000, bornTime=clock.now_ms()))
        await until(lambda: len(broker.parts.pop.pop.waiting) == 1)
        await reset(caller, 2)
        assert (await waiting).ext["msgOffsetInfo"] == "0 0 2"


@pytest.mark.feature("O9")
async def test_reset_forgets_an_ordered_batch(caller: Caller) -> None:
    """The queue is free, and read from where the group was set."""
    assert len(await pop(caller, order=True, attemptId="a")) == 3
    assert await bodies(caller, order=True, attemptId="b") == []
    await reset(caller, 1)
    assert await bodies(caller, order=True, attemptId="b") == [b"1", b"2"]


async def test_deleted_topic_takes_leases_and_retries_with_it(
    broker: Broker, caller: Caller, clock: ManualClock
) -> None:
    """A topic of the same name starts anew: nothing of the old one is handed out, and who waited is answered."""
    assert len(await pop(caller, invisibleTime=20_000)) == 3
    await clock.elapse(20_000)
    assert broker.parts.state.topics.get(RETRY_TOPIC) is not None
    assert len(await pop(caller)) == 3
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(ask_pop(other, pollTime=15_000, bornTime=clock.now_ms()))
        await until(lambda: len(broker.parts.pop.pop.waiting) == 1)
        await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.parts.state.topics.get(RETRY_TOPIC) is None
    assert len(broker.parts.pop.pop.leases) == 0
    await send_three(caller)
    assert await bodies(caller) == [b"0", b"1", b"2"]
    await clock.elapse(MINUTE_MS)
    assert await bodies(caller) == [b"0", b"1", b"2"]


async def test_deleted_group_starts_anew(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """What was handed out to it is forgotten; its offset goes where that is asked for."""
    assert len(await pop(caller)) == 3
    fields = {"groupName": "g", "cleanOffset": "true"}
    assert (await caller.ask(Code.DELETE_SUBSCRIPTIONGROUP, fields)).code == ResponseCode.SUCCESS
    assert len(broker.parts.pop.pop.leases) == 0
    assert await bodies(caller) == [b"0", b"1", b"2"]


async def test_nobody_writes_into_the_revive_topic(caller: Caller) -> None:
    """A check point of a stranger would hand out whatever it names."""
    body = json.dumps({"c": "g", "t": "T", "so": 0, "n": 1, "d": [0], "pt": 1, "it": 1}).encode()
    topic = "rmq_sys_REVIVE_LOG_cluster-a"
    answer = await caller.send(topic, body, properties="TAGS\x01ck\x02")
    expected = (ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    assert (answer.code, answer.remark) == expected


@pytest.mark.feature("O13")
async def test_members_that_pull_and_pop_move_one_offset(caller: Caller) -> None:
    """What a member that pulls commits counts for the next pop, and what is popped for the next pull."""
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
    await acknowledge(caller, *await pop(caller, maxMsgNums=1))
    assert (await caller.ask(Code.QUERY_CONSUMER_OFFSET, fields)).ext["offset"] == "1"
    await caller.ask(Code.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": "2"})
    assert await bodies(caller) == [b"2"]


@pytest.mark.feature("O14")
async def test_retry_topics_of_both_versions_are_read(
    settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path
) -> None:
    """The newer one is written when that is asked for; what is in the older one is handed out, too, and goes back."""
    root = tmp_path / "own"
    own = {**settings, "storePathRootDir": str(root)}
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        await send_three(caller)
        assert len(await pop(caller, invisibleTime=20_000)) == 3
        await clock.elapse(20_000)
    own["enableRetryTopicV2"] = "true"
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        await caller.send("T", b"new", queue_id=0)
        found: set[tuple[bytes, str, int]] = set()
        for _ in range(60):
            for message in await pop(caller, invisibleTime=20_000):
                found.add((message.body, message.handle.retry, message.record.reconsume_times))
            await clock.elapse(1_000)
        old = {(b"%d" % number, "1", attempt) for number in range(3) for attempt in (1, 2, 3)}
        assert {(b"new", "0", 0), (b"new", "2", 1), *old} <= found
        names = {topic.topic_name for topic in broker.parts.state.topics}
        assert {"%RETRY%g_T", "%RETRY%g+T"} <= names
    shutil.rmtree(root)


@pytest.mark.feature("O15")
async def test_higher_priorities_come_first(caller: Caller) -> None:
    """The queue of a message is its priority, the last one for what is above; pops begin with the highest."""
    fields = {
        "topic": "P",
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        "attributes": "+message.type=PRIORITY",
    }
    assert (await caller.ask(Code.UPDATE_AND_CREATE_TOPIC, fields)).code == ResponseCode.SUCCESS
    for priority in (0, 2, 9, 1, 3):
        properties = f"_SYS_MSG_PRIORITY_\x01{priority}\x02"
        answer = await caller.send("P", b"%d" % priority, queue_id=0, properties=properties)
        assert answer.ext["queueId"] == str(min(priority, 3))
    popped = await pop(caller, "P")
    assert [message.body for message in popped] == [b"9", b"3", b"2", b"1", b"0"]


@pytest.mark.feature("O6")
async def test_peek_moves_nothing(caller: Caller, clock: ManualClock) -> None:
    """It shows what would be handed out next, of the retry topic under its own name."""
    await caller.send("T", b"3", queue_id=0)
    first, *_ = await pop(caller, maxMsgNums=2, invisibleTime=20_000)
    await acknowledge(caller, first)
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "-1", "maxMsgNums": "40"}
    for rest in ("2", "3"):
        for _ in range(2):
            answer = await caller.ask(Code.PEEK_MESSAGE, fields)
            assert (answer.code, answer.remark, answer.ext["restNum"]) == (0, "FOUND", rest)
        await clock.elapse(20_000)
    assert RETRY_TOPIC.encode() in (await caller.ask(Code.PEEK_MESSAGE, fields)).body


async def test_check_point_of_a_deleted_topic_is_nothing_to_the_next(
    broker: Broker, caller: Caller, clock: ManualClock
) -> None:
    """It is still in the timer when the topic is made anew, and comes out of it then."""
    delivery, leases = broker.parts.timer_delivery, broker.parts.pop.pop.leases
    assert delivery is not None
    assert len(await pop(caller, invisibleTime=20_000)) == 3
    await clock.elapse(12_000)
    assert (len(leases), leases.kept) == (1, 0)
    await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert len(leases) == 0
    await send_three(caller)
    assert await bodies(caller) == [b"0", b"1", b"2"]
    for _ in range(15):
        await clock.elapse(1_000)
        await until(lambda: delivery.is_idle)
        assert len(leases) == 1
    assert await bodies(caller) == []
