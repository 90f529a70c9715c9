"""Topics and groups are deleted and groups sent elsewhere, by raw requests to a broker whose clock the test moves."""

import asyncio
import os
import pathlib
import shutil
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import pytest
from raw_calls import Caller, open_caller

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND, MessageQueue
from rocketlet.remoting.bodies.admin import ConsumeStats, TopicStats
from rocketlet.remoting.bodies.body import decode_answer
from rocketlet.remoting.bodies.client import ResetOffsets
from rocketlet.remoting.bodies.route import KVTable
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.headers.offset import OffsetReply
from rocketlet.remoting.headers.pull import PullReply
from rocketlet.testing.manual_clock import ManualClock

MAX_QUEUES = 65_536


@pytest.fixture
async def caller(caller: Caller, clock: ManualClock) -> Caller:
    """Return a caller that has stored three messages in queue 1 of T, a second apart; the group g is there."""
    for _ in range(3):
        await clock.elapse(1_000)
        await caller.send("T", queue_id=1)
    await caller.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    return caller


async def commit(caller: Caller, queue_offset: int, queue_id: int = 1) -> Command:
    """Commit an offset of g in T."""
    fields = {"consumerGroup": "g", "topic": "T", "queueId": f"{queue_id}", "commitOffset": f"{queue_offset}"}
    return await caller.ask(Code.UPDATE_CONSUMER_OFFSET, fields)


async def committed(caller: Caller, queue_id: int = 1, group: str = "g") -> int | None:
    """Return the offset of a group in T."""
    fields = {"consumerGroup": group, "topic": "T", "queueId": f"{queue_id}", "setZeroIfNotFound": "false"}
    answer = await caller.ask(Code.QUERY_CONSUMER_OFFSET, fields)
    return decode_header(OffsetReply, answer).queue_offset if answer.code == ResponseCode.SUCCESS else None


async def reset(caller: Caller, **fields: str) -> dict[int, int]:
    """Set g elsewhere in T; return where, by queue."""
    answer = await caller.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET | fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    table = decode_answer(ResetOffsets, answer.body).offset_table
    assert {(queue.topic, queue.broker_name) for queue in table} == {("T", "broker-a")}
    return {queue.queue_id: queue_offset for queue, queue_offset in table.items()}


RESET = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}


@asynccontextmanager
async def as_if_killed(settings: dict[str, str], clock: ManualClock) -> AsyncGenerator[Caller]:
    """Return a caller of a broker that has started over a copy of the files as they are now."""
    root = settings["storePathRootDir"]
    await asyncio.to_thread(shutil.copytree, root, f"{root}-copy")
    config = BrokerConfig.from_java({**settings, "storePathRootDir": f"{root}-copy"})
    async with Broker(config, clock) as again, open_caller(again.address) as caller:
        yield caller


async def park(tasks: asyncio.TaskGroup, caller: Caller, topic: str, queue_offset: int) -> asyncio.Task[Command]:
    """Pull for g at the end of queue 1, and return when that is held."""
    fields = {"queue_id": 1, "consumer_group": "g", "sys_flag": PULL_SUBSCRIPTION | PULL_SUSPEND}
    pull = tasks.create_task(caller.pull(topic, queue_offset, **fields))
    await caller.ask(Code.GET_MAX_OFFSET, {"topic": topic, "queueId": "1"})
    assert not pull.done()
    return pull


# --- 215


async def test_deleted_topic_is_gone(caller: Caller, settings: dict[str, str]) -> None:
    """Its settings, queues and files go, and the offsets of all groups in it; then it may be made anew, from 0 on."""
    await commit(caller, 2)
    directory = os.path.join(settings["storePathRootDir"], "consumequeue/T")
    assert os.listdir(directory)
    assert (await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == ResponseCode.SUCCESS
    assert (await caller.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST
    assert "T" not in os.listdir(os.path.dirname(directory))
    assert await committed(caller) is None
    await caller.send("T", queue_id=1)
    stats = decode_answer(TopicStats, (await caller.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "T"})).body)
    extent = stats.offset_table[MessageQueue("T", "broker-a", 1)]
    assert (extent.min_offset, extent.max_offset) == (0, 1)


async def test_deletion_spares_other_topics(caller: Caller) -> None:
    """Topics whose names begin or end alike stay, with their messages and offsets."""
    for name in ("TT", "T2", "xT"):
        await caller.send(name, queue_id=0)
        fields = {"consumerGroup": "g", "topic": name, "queueId": "0", "commitOffset": "1"}
        await caller.ask(Code.UPDATE_CONSUMER_OFFSET, fields)
    await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    stats = decode_answer(
        ConsumeStats, (await caller.ask(Code.GET_CONSUME_STATS, {"consumerGroup": "g"})).body
    ).offset_table
    ends = {queue.topic: (one.broker_offset, one.consumer_offset) for queue, one in stats.items() if not queue.queue_id}
    assert ends == {"TT": (1, 1), "T2": (1, 1), "xT": (1, 1)}


@pytest.mark.parametrize("name", ["%RETRY%g_T", "%RETRY%g+T"])
async def test_deletion_takes_the_retries_of_pop_consumers(caller: Caller, name: str) -> None:
    """What a group has in the topic's name to consume again goes with it; the group's own retries stay."""
    await commit(caller, 1)
    for topic in (name, "%RETRY%g"):
        await caller.send(topic, queue_id=0)
    await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert (await caller.ask(Code.GET_TOPIC_CONFIG, {"topic": name})).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await caller.ask(Code.GET_TOPIC_CONFIG, {"topic": "%RETRY%g"})).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        (" ", "The specified topic is blank."),
        ("SCHEDULE_TOPIC_XXXX", "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic."),
        ("broker-a", "The topic[broker-a] is conflict with system topic."),
    ],
)
async def test_topics_that_are_not_deleted(caller: Caller, name: str, remark: str) -> None:
    """A blank name, and topics that every broker has."""
    answer = await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": name})
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)


async def test_unknown_topic_and_group_are_gone(caller: Caller) -> None:
    """Deleting what is not there succeeds, as with Java."""
    assert (await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "nobody"})).code == ResponseCode.SUCCESS
    assert (await caller.ask(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "nobody"})).code == ResponseCode.SUCCESS


async def test_pull_that_waits_learns_of_the_deletion(broker: Broker, caller: Caller) -> None:
    """It is answered at once that the topic is not there; one that waits for another topic goes on waiting."""
    await caller.send("other", queue_id=1)
    async with open_caller(broker.address) as waiter, asyncio.TaskGroup() as tasks:
        gone, other = await park(tasks, waiter, "T", 3), await park(tasks, waiter, "other", 1)
        await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert (await gone).code == ResponseCode.TOPIC_NOT_EXIST
        assert not other.done()
        await caller.send("other", queue_id=1)
        assert (await other).code == ResponseCode.SUCCESS


async def test_deletions_outlive_a_kill(caller: Caller, settings: dict[str, str], clock: ManualClock) -> None:
    """What is answered is on the disk: neither the topic nor the group nor its offsets come again."""
    await commit(caller, 2)
    await caller.send("stays", queue_id=1)
    await caller.ask(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"})
    await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    async with as_if_killed(settings, clock) as later:
        assert (await later.ask(Code.GET_TOPIC_CONFIG, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await later.ask(Code.GET_TOPIC_CONFIG, {"topic": "stays"})).code == ResponseCode.SUCCESS
        groups = (await later.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body
        assert b'"g"' not in groups
        assert await committed(later) is None


@contextmanager
def without_a_config_folder(settings: dict[str, str]) -> Generator[pathlib.Path]:
    """Put a file in the place of the folder for tables; return where the folder is meanwhile."""
    config = pathlib.Path(settings["storePathRootDir"], "config")
    away = config.rename(config.with_name("away"))
    config.touch()
    yield away
    config.unlink()
    away.rename(config)


async def test_deletion_that_cannot_be_saved(caller: Caller, settings: dict[str, str]) -> None:
    """The answer says so; the topic is gone all the same, and the next save writes it."""
    await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "first"})
    with without_a_config_folder(settings) as config:
        answer = await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        remark = "done, but not saved: the log of the broker tells why"
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert (await caller.ask(Code.GET_TOPIC_CONFIG, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST
        assert '"T"' in await asyncio.to_thread((config / "topics.json").read_text)
    await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "nobody"})
    table = pathlib.Path(settings["storePathRootDir"], "config/topics.json")
    assert '"T"' not in await asyncio.to_thread(table.read_text)


async def test_deletion_leaves_totals_and_takes_rates(caller: Caller, clock: ManualClock) -> None:
    """What the broker has stored and handed out does not shrink; a topic made anew begins without a past."""
    await caller.pull("T", 0, queue_id=1, consumer_group="g")
    await clock.elapse(20_000)
    await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    async with asyncio.timeout(60):
        await caller.send("T", queue_id=1)
        await caller.pull("T", 0, queue_id=1, consumer_group="g")
    await clock.elapse(20_000)
    stats = decode_answer(TopicStats, (await caller.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "T"})).body)
    assert 0 < round(stats.topic_put_tps * 30) <= 2
    found = await caller.ask(Code.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "T"})
    assert 0 < round(decode_answer(ConsumeStats, found.body).consume_tps * 30) <= 2
    table = decode_answer(KVTable, (await caller.ask(Code.GET_BROKER_RUNTIME_INFO)).body).table
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("4", "4")


# --- 207


@pytest.mark.parametrize(
    ("fields", "left"),
    [({}, 2), ({"cleanOffset": "false"}, 2), ({"cleanOffset": "true"}, None), ({"removeOffset": "true"}, None)],
)
async def test_deleted_group(caller: Caller, fields: dict[str, str], left: int | None) -> None:
    """Its settings go, its offsets only if that is asked for (4.9 has another name for it); other groups stay."""
    await commit(caller, 2)
    for group in ("gg", "xg"):
        other = {"consumerGroup": group, "topic": "T", "queueId": "1", "commitOffset": "1"}
        await caller.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
        await caller.ask(Code.UPDATE_CONSUMER_OFFSET, other)
    assert (await caller.ask(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"} | fields)).code == ResponseCode.SUCCESS
    assert (await commit(caller, 3)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert await committed(caller) == left
    assert (await committed(caller, group="gg"), await committed(caller, group="xg")) == (1, 1)


# --- 222


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"timestamp": "0"}, {0: 0, 1: 0, 2: 0, 3: 0}),
        ({"timestamp": "-1"}, {0: 0, 1: 3, 2: 0, 3: 0}),
        ({"timestamp": "-1", "queueId": "-1", "offset": "-1"}, {0: 0, 1: 3, 2: 0, 3: 0}),
        ({"timestamp": "-1", "queueId": "1", "offset": "-1"}, {1: 3}),
        ({"queueId": "1", "offset": "0"}, {1: 0}),
        ({"queueId": "1", "offset": "2"}, {1: 2}),
        ({"queueId": "1", "offset": "4"}, {1: 4}),
        ({"timestamp": "-1", "queueId": "1"}, {1: 3}),
    ],
)
async def test_where_a_group_is_sent(caller: Caller, fields: dict[str, str], where: dict[int, int]) -> None:
    """By time in all queues or in one, to the ends for a negative time, or to an offset up to one past the end."""
    await commit(caller, 1)
    assert await reset(caller, **fields) == where
    for queue_id, queue_offset in where.items():
        assert await committed(caller, queue_id) == queue_offset


async def test_group_is_sent_to_an_instant(caller: Caller, clock: ManualClock) -> None:
    """It goes on at the first message that was stored then or later."""
    for back_ms, expected in ((0, 2), (1, 2), (1_000, 1), (1_001, 1), (2_000, 0)):
        where = await reset(caller, timestamp=f"{clock.now_ms() - back_ms}")
        assert where[1] == expected


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "x"}, ResponseCode.TOPIC_NOT_EXIST, "Topic x does not exist"),
        ({"group": "x"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group x does not exist"),
        (
            {"queueId": "1", "offset": "5"},
            ResponseCode.SYSTEM_ERROR,
            "Target offset 5 not in consume queue range [0-3]",
        ),
        (
            {"queueId": "1", "offset": "-2"},
            ResponseCode.SYSTEM_ERROR,
            "Target offset -2 not in consume queue range [0-3]",
        ),
    ],
)
async def test_where_no_group_is_sent(caller: Caller, fields: dict[str, str], code: int, remark: str) -> None:
    """To an unknown topic, as an unknown group, or beyond the ends of a queue; then nothing changes."""
    await commit(caller, 1)
    answer = await caller.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET | fields)
    assert (answer.code, answer.remark) == (code, remark)
    assert (await commit(caller, 2)).remark is None
    assert await committed(caller) == 2


async def test_topic_that_nobody_may_read_has_no_queue_to_reset(caller: Caller) -> None:
    """Without a queue to read there is nothing to set."""
    fields = {"topic": "none", "defaultTopic": "TBW102", "readQueueNums": "0", "writeQueueNums": "1", "perm": "6"}
    await caller.ask(Code.UPDATE_AND_CREATE_TOPIC, {**fields, "topicFilterType": "SINGLE_TAG", "order": "false"})
    answer = await caller.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET | {"topic": "none"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "No queues to reset.")


async def test_commits_wait_until_a_member_knows(caller: Caller) -> None:
    """What members commit is passed over, by itself and with a pull, until one has pulled and was sent elsewhere."""
    await commit(caller, 3)
    await reset(caller, queueId="1", offset="1")
    passed = await commit(caller, 3)
    assert (passed.code, passed.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
    pull = {
        "queue_id": 1,
        "consumer_group": "g",
        "commit_offset": 3,
        "sys_flag": PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET,
    }
    moved = await caller.pull("T", 3, **pull)
    assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    reply = decode_header(PullReply, moved)
    assert (reply.next_begin_offset, reply.min_offset, reply.max_offset) == (1, 0, 3)
    assert await committed(caller) == 1
    assert (await caller.pull("T", 1, **{**pull, "commit_offset": 2})).code == ResponseCode.SUCCESS
    assert await committed(caller) == 2
    assert (await commit(caller, 3)).remark is None
    assert await committed(caller) == 3


async def test_other_queues_and_groups_go_on(caller: Caller) -> None:
    """Only the group that was meant is sent elsewhere, and only in the queue that was meant."""
    await reset(caller, queueId="1", offset="1")
    for fields in ({"queue_id": 1, "consumer_group": "gg"}, {"queue_id": 0, "consumer_group": "g"}):
        assert (await caller.pull("T", 0, **fields)).code != ResponseCode.PULL_OFFSET_MOVED
    assert (await commit(caller, 7, queue_id=0)).remark is None


async def test_pull_that_waits_is_sent_elsewhere(broker: Broker, caller: Caller) -> None:
    """A consumer at the end of a queue learns at once that it shall begin again."""
    async with open_caller(broker.address) as waiter, asyncio.TaskGroup() as tasks:
        pull = await park(tasks, waiter, "T", 3)
        await reset(caller)
        moved = await pull
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        assert decode_header(PullReply, moved).next_begin_offset == 0


async def test_later_reset_takes_the_place_of_an_earlier_one(caller: Caller) -> None:
    """The member that comes is sent to where the last one said."""
    await reset(caller, queueId="1", offset="1")
    await reset(caller, queueId="1", offset="2")
    moved = await caller.pull("T", 3, queue_id=1, consumer_group="g")
    assert decode_header(PullReply, moved).next_begin_offset == 2
    assert await committed(caller) == 2


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
        (Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"}),
    ],
)
async def test_deletion_ends_a_reset(caller: Caller, code: Code, fields: dict[str, str]) -> None:
    """Topic and group begin anew when they are made again."""
    await reset(caller, queueId="1", offset="2")
    await caller.ask(code, fields)
    await caller.send("T", queue_id=1)
    assert (await caller.pull("T", 0, queue_id=1, consumer_group="g")).code == ResponseCode.SUCCESS


async def test_reset_outlives_a_kill(caller: Caller, settings: dict[str, str], clock: ManualClock) -> None:
    """The offset that was answered is on the disk."""
    await commit(caller, 3)
    await reset(caller, queueId="1", offset="1")
    async with as_if_killed(settings, clock) as later:
        assert await committed(later) == 1


async def test_offsets_of_queues_have_a_limit(caller: Caller) -> None:
    """No group has offsets of more queues than 65,536 of one topic, by whatever way they come."""
    for number in range(4, MAX_QUEUES + 4):
        caller.ask_oneway(
            Code.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": "g", "topic": "T", "queueId": f"{number}", "commitOffset": "1"},
        )
    answer = await caller.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET | {"queueId": "1"})
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "g has offsets of 65536 queues of T, which is the limit",
    )
