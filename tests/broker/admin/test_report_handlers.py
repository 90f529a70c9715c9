"""How far topics and groups are and who is connected, by raw requests to a broker whose clock the test moves."""

from typing import TypeVar

import pytest
from raw_calls import Caller, open_caller

from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.bodies.admin import (
    BrokerConsumeStats,
    ConsumeStats,
    GroupList,
    ProducerConnections,
    QueueExtent,
    QueueProgress,
    TopicStats,
)
from rocketlet.remoting.bodies.body import decode_answer
from rocketlet.remoting.bodies.client import ConsumerConnections
from rocketlet.remoting.bodies.reports import BrokerStats
from rocketlet.remoting.bodies.route import TopicList
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

T = TypeVar("T")
QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


async def ask(caller: Caller, kind: type[T], code: Code, **fields: str) -> T:
    """Ask and return the body of a successful answer."""
    answer = await caller.ask(code, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_answer(kind, answer.body)


async def commit(caller: Caller, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
    """Commit an offset of a group that is there."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": f"{queue_id}", "commitOffset": f"{queue_offset}"}
    assert (await caller.ask(Code.UPDATE_CONSUMER_OFFSET, fields)).code == ResponseCode.SUCCESS


@pytest.fixture
async def caller(caller: Caller, clock: ManualClock) -> Caller:
    """Return a caller that has stored three messages in queue 1 of T, a second apart; the group g is there."""
    for _ in range(3):
        await clock.elapse(1_000)
        await caller.send("T", queue_id=1)
    await caller.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    return caller


async def test_ends_of_a_topic(caller: Caller, clock: ManualClock) -> None:
    """Each queue has its ends and the time of its last message, an empty one zeros; an unknown topic is answered 17."""
    stats = await ask(caller, TopicStats, Code.GET_TOPIC_STATS_INFO, topic="T")
    last = QueueExtent(min_offset=0, max_offset=3, last_update_timestamp=clock.now_ms())
    assert stats.offset_table == {queue: last if queue.queue_id == 1 else QueueExtent() for queue in QUEUES}
    unknown = await caller.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "nobody"})
    assert (unknown.code, unknown.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[nobody] not exist")


async def test_queues_that_are_only_read_are_told(caller: Caller) -> None:
    """A topic with more queues to read than to write has them all."""
    more = {"topic": "wide", "defaultTopic": "TBW102", "readQueueNums": "5", "writeQueueNums": "2", "perm": "6"}
    await caller.ask(Code.UPDATE_AND_CREATE_TOPIC, {**more, "topicFilterType": "SINGLE_TAG", "order": "false"})
    assert len((await ask(caller, TopicStats, Code.GET_TOPIC_STATS_INFO, topic="wide")).offset_table) == 5


async def test_progress_of_a_group(caller: Caller, clock: ManualClock) -> None:
    """Where the queue ends, what is committed and when that was stored, and what was handed out."""
    await caller.pull("T", 0, queue_id=1, consumer_group="g", max_messages=2)
    await commit(caller, "g", "T", 1, 1)
    stats = await ask(caller, ConsumeStats, Code.GET_CONSUME_STATS, consumerGroup="g")
    assert stats.offset_table.pop(QUEUES[1]) == QueueProgress(
        broker_offset=3, consumer_offset=1, pull_offset=2, last_timestamp=clock.now_ms() - 2_000
    )
    assert stats.offset_table == dict.fromkeys((QUEUES[0], QUEUES[2], QUEUES[3]), QueueProgress())
    await commit(caller, "g", "T", 1, 3)
    stats = await ask(caller, ConsumeStats, Code.GET_CONSUME_STATS, consumerGroup="g")
    assert (stats.lag, stats.in_flight) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "topics"),
    [
        ({}, {"T", "other"}),
        ({"topic": "other"}, {"other"}),
        ({"topic": "given-up"}, set[str]()),
        ({"topicList": "other;given-up;nobody"}, {"other"}),
    ],
)
async def test_topics_of_a_group_that_is_online(caller: Caller, fields: dict[str, str], topics: set[str]) -> None:
    """A member's subscriptions are told, with offsets or without; what it has given up is not."""
    for topic in ("other", "given-up"):
        await caller.send(topic, queue_id=0)
    await commit(caller, "g", "given-up", 0, 1)
    await caller.heartbeat("c", "g", {"T": "*", "other": "*"})
    stats = await ask(caller, ConsumeStats, Code.GET_CONSUME_STATS, consumerGroup="g", **fields)
    assert {queue.topic for queue in stats.offset_table} == topics


async def test_topics_of_a_group_that_is_offline(caller: Caller) -> None:
    """They are those that it has offsets of; one that is unknown is none."""
    await commit(caller, "g", "T", 0, 0)
    for fields, topics in (
        ({}, {"T"}),
        ({"topic": "T"}, {"T"}),
        ({"topicList": "T;x"}, {"T"}),
        ({"topic": "x"}, set[str]()),
    ):
        stats = await ask(caller, ConsumeStats, Code.GET_CONSUME_STATS, consumerGroup="g", **fields)
        assert {queue.topic for queue in stats.offset_table} == topics
    assert (await ask(caller, ConsumeStats, Code.GET_CONSUME_STATS, consumerGroup="nobody")).offset_table == {}


async def test_rates_are_those_of_the_last_minute(caller: Caller, clock: ManualClock) -> None:
    """What came and what was handed out in the last minute is told per second, and forgotten after it."""
    await clock.elapse(10_000)
    for _ in range(30):
        await caller.send("T", queue_id=1)
    await caller.pull("T", 0, queue_id=1, consumer_group="g", max_messages=32)
    await commit(caller, "g", "T", 1, 32)
    await clock.elapse(50_000)
    rate = (await ask(caller, TopicStats, Code.GET_TOPIC_STATS_INFO, topic="T")).topic_put_tps
    read = (await ask(caller, ConsumeStats, Code.GET_CONSUME_STATS, consumerGroup="g")).consume_tps
    assert (round(rate * 60) in range(30, 41), round(read * 60) in range(32, 41)) == (True, True)
    await clock.elapse(70_000)
    async with open_caller(caller.connection.peer) as later:
        assert (await ask(later, TopicStats, Code.GET_TOPIC_STATS_INFO, topic="T")).topic_put_tps == 0
        assert (await ask(later, ConsumeStats, Code.GET_CONSUME_STATS, consumerGroup="g")).consume_tps == 0


@pytest.mark.parametrize(("is_order", "found"), [("false", ["T", "sorted"]), ("true", ["sorted"])])
async def test_progress_of_all_groups(broker: Broker, caller: Caller, is_order: str, found: list[str]) -> None:
    """All groups are told, with their ordered topics alone if these are asked for, and the totals over all."""
    ordered = {"topic": "sorted", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    await caller.ask(Code.UPDATE_AND_CREATE_TOPIC, {**ordered, "topicFilterType": "SINGLE_TAG", "order": "true"})
    await caller.send("sorted", queue_id=0)
    await commit(caller, "g", "sorted", 0, 0)
    await commit(caller, "g", "T", 1, 1)
    stats = await ask(caller, BrokerConsumeStats, Code.GET_BROKER_CONSUME_STATS, isOrder=is_order)
    groups = {name: told for entry in stats.consume_stats_list for name, told in entry.items()}
    assert [{queue.topic for queue in one.offset_table} for one in groups.pop("g")] == [{topic} for topic in found]
    assert {"TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"} <= groups.keys()
    assert (stats.total_diff, stats.total_inflight_diff) == (1 + 2 * ("T" in found), 0)
    assert stats.broker_addr == broker.address


async def test_groups_of_a_topic(caller: Caller) -> None:
    """They are those that subscribe to it and those that have offsets of it, each once."""
    await commit(caller, "g", "T", 0, 0)
    await caller.heartbeat("c", "online", {"T": "*"})
    await caller.heartbeat("c", "g", {"T": "*"})
    groups = await ask(caller, GroupList, Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
    assert groups.group_list == ["g", "online"]
    assert (await ask(caller, GroupList, Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="nobody")).group_list == []


async def test_members_of_a_consumer_group(broker: Broker, caller: Caller) -> None:
    """Each connection has its client id, address, language and version; they share what they subscribe to."""
    await caller.heartbeat("first", "g", {"T": "a || b"})
    async with open_caller(broker.address) as other:
        await other.heartbeat("second", "g", {"T": "a || b"})
        told = await ask(caller, ConsumerConnections, Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
        assert [one.client_id for one in told.connection_set] == ["first", "second"]
        assert len({one.client_addr for one in told.connection_set}) == 2
        assert {(one.language, one.version) for one in told.connection_set} == {("PYTHON", 479)}
    assert (told.message_model, told.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")
    assert told.subscription_table["T"].sub_string == "a || b"
    nobody = await caller.ask(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "nobody"})
    assert (nobody.code, nobody.remark) == (206, "the consumer group[nobody] not online")


async def test_members_of_a_producer_group(caller: Caller) -> None:
    """They are told as those of consumers are; a group without members is answered 1."""
    body = b'{"clientID":"c","producerDataSet":[{"groupName":"p"}]}'
    await caller.ask(Code.HEART_BEAT, None, body)
    told = await ask(caller, ProducerConnections, Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="p")
    assert [one.client_id for one in told.connection_set] == ["c"]
    nobody = await caller.ask(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "nobody"})
    assert (nobody.code, nobody.remark) == (1, "the producer group[nobody] not exist")


async def test_system_topics(caller: Caller) -> None:
    """They are those of every broker, and its own; no user's."""
    topics = (await ask(caller, TopicList, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).topic_list
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "cluster-a", "rmq_sys_wheel_timer"} <= set(topics)
    assert "T" not in topics


@pytest.mark.feature("D20")
async def test_progress_of_a_group_that_broadcasts(caller: Caller) -> None:
    """It keeps its offsets itself, so that the broker knows of no queue: by that tools tell that it broadcasts."""
    await caller.heartbeat("c", "g", {"T": "*"}, messageModel="BROADCASTING")
    assert (await ask(caller, ConsumeStats, Code.GET_CONSUME_STATS, consumerGroup="g")).offset_table == {}
    await caller.heartbeat("c", "g", {"T": "*"})
    assert (await ask(caller, ConsumeStats, Code.GET_CONSUME_STATS, consumerGroup="g")).offset_table.keys() == set(
        QUEUES
    )


@pytest.mark.feature("D13")
async def test_members_and_connections_are_counted(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """How often members registered is told by cluster, what happened to connections by the event; zero is an error."""
    for group in ("g", "other"):
        await caller.heartbeat("c", group, {"T": "*"})
    async with open_caller(broker.address):
        await clock.elapse(1_000)
    await clock.elapse(10_000)
    for name, key, least in (
        ("CONSUMER_REGISTER_TIME", "cluster-a", 0),
        ("CHANNEL_ACTIVITY", "CONNECT", 2),
        ("CHANNEL_ACTIVITY", "CLOSE", 1),
    ):
        told = await ask(caller, BrokerStats, Code.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        assert told.stats_minute.sum >= least
    for name, key in (("PRODUCER_REGISTER_TIME", "cluster-a"), ("CHANNEL_ACTIVITY", "IDLE")):
        answer = await caller.ask(Code.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
