"""What groups are about, what they may not read, and members that move themselves, by raw requests to a broker."""

import asyncio
import shutil

import pytest
from raw_calls import Caller, open_caller

from rocketlet.broker.group.groups import GroupTable
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.bodies.admin import GroupForbidden, GroupSubscription, ProducerInfo, ProducerTable
from rocketlet.remoting.bodies.body import decode_answer
from rocketlet.remoting.bodies.client import ResetOffsets, ResetOffsetsForC
from rocketlet.remoting.bodies.route import TopicList
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

MAX_FORBIDDEN = 65_536

FORBID = {"group": "g", "topic": "T"}
RESET = {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true"}


async def commit(caller: Caller, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
    """Commit an offset of a group, which is there then."""
    await caller.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
    fields = {"consumerGroup": group, "topic": topic, "queueId": f"{queue_id}", "commitOffset": f"{queue_offset}"}
    assert (await caller.ask(Code.UPDATE_CONSUMER_OFFSET, fields)).code == ResponseCode.SUCCESS


async def forbid(caller: Caller, **fields: str) -> bool:
    """Forbid, allow or ask; return whether the group may read then."""
    answer = await caller.ask(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, FORBID | fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    told = decode_answer(GroupForbidden, answer.body)
    assert (told.group, told.topic) == ((FORBID | fields)["group"], (FORBID | fields)["topic"])
    return told.readable


async def pull(caller: Caller) -> Command:
    """Pull for g from T as a push consumer does, whose subscription the broker has from its heartbeat."""
    return await caller.pull("T", 0, consumer_group="g", sys_flag=0, sub_version=1)


# --- 328, 343, 345


@pytest.mark.feature("D6")
async def test_all_producers(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """By group, with their addresses as Java writes them and the time of their last heartbeat."""
    assert decode_answer(ProducerTable, (await caller.ask(Code.GET_ALL_PRODUCER_INFO)).body).data == {}
    body = b'{"clientID":"p","producerDataSet":[{"groupName":"one"},{"groupName":"two"}]}'
    await caller.ask(Code.HEART_BEAT, None, body)
    heard_at_ms = clock.now_ms()
    await clock.elapse(5_000)
    table = decode_answer(ProducerTable, (await caller.ask(Code.GET_ALL_PRODUCER_INFO)).body).data
    host, port = caller.connection.local_address
    expected = ProducerInfo(
        client_id="p",
        language="PYTHON",
        last_update_timestamp=heard_at_ms,
        remote_address=f"/{host}:{port}",
        version=479,
    )
    assert table == {"one": [expected], "two": [expected]}
    async with open_caller(broker.address) as other:
        await other.ask(Code.HEART_BEAT, None, b'{"clientID":"q","producerDataSet":[{"groupName":"two"}]}')
        table = decode_answer(ProducerTable, (await caller.ask(Code.GET_ALL_PRODUCER_INFO)).body).data
    assert [info.client_id for info in table["two"]] == ["p", "q"]


@pytest.mark.feature("D6")
async def test_topics_of_a_group(broker: Broker, caller: Caller) -> None:
    """Those that it has offsets of; an unknown group has none."""
    for topic in ("U", "T"):
        await caller.send(topic, queue_id=0)
        await commit(caller, "g", topic, 0, 1)
    for group, topics in (("g", ["T", "U"]), ("nobody", [])):
        answer = await caller.ask(Code.QUERY_TOPICS_BY_CONSUMER, {"group": group})
        assert decode_answer(TopicList, answer.body) == TopicList(broker_addr=broker.address, topic_list=topics)


@pytest.mark.feature("D6")
async def test_subscription_of_a_group(caller: Caller) -> None:
    """As its members have it; nothing of a topic that they do not want, and none of a group that is not there."""
    await caller.heartbeat("c", "g", {"T": "a || b"})
    answer = await caller.ask(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "g", "topic": "T"})
    told = decode_answer(GroupSubscription, answer.body)
    assert (told.group, told.topic) == ("g", "T")
    assert told.subscription_data is not None
    assert (told.subscription_data.sub_string, told.subscription_data.tags_set) == ("a || b", ["a", "b"])
    for fields in ({"group": "g", "topic": "U"}, {"group": "nobody", "topic": "T"}):
        answer = await caller.ask(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, fields)
        told = decode_answer(GroupSubscription, answer.body)
        assert (told.group, told.topic, told.subscription_data) == (fields["group"], fields["topic"], None)


# --- 353


@pytest.mark.feature("D3")
async def test_group_that_may_not_read_a_topic(caller: Caller) -> None:
    """Its pulls are refused until it is allowed again; other topics of the group, and other groups, are not touched."""
    await caller.send("T", queue_id=0)
    await caller.send("U", queue_id=0)
    await caller.heartbeat("c", "g", {"T": "*", "U": "*"})
    assert (await pull(caller)).code == ResponseCode.SUCCESS
    assert await forbid(caller)
    assert not await forbid(caller, readable="false")
    assert not await forbid(caller)
    answer = await pull(caller)
    remark = "the consumer group[g] is forbidden for topic[T]"
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)
    assert (await caller.pull("U", 0, consumer_group="g", sys_flag=0, sub_version=1)).code == ResponseCode.SUCCESS
    assert not await forbid(caller, topic="U", readable="false")
    assert await forbid(caller, topic="U", readable="true")
    assert not await forbid(caller)
    assert await forbid(caller, group="other")
    assert await forbid(caller, readable="true")
    assert (await pull(caller)).code == ResponseCode.SUCCESS


@pytest.mark.feature("D3")
async def test_forbidding_outlives_a_kill(caller: Caller, settings: dict[str, str], clock: ManualClock) -> None:
    """What is answered is on the disk, in the file and the form that Java has for it."""
    await forbid(caller, readable="false")
    await forbid(caller, group="other", readable="false")
    await forbid(caller, group="other", readable="true")
    root = settings["storePathRootDir"]
    await asyncio.to_thread(shutil.copytree, root, f"{root}-copy")
    config = BrokerConfig.from_java({**settings, "storePathRootDir": f"{root}-copy"})
    async with Broker(config, clock) as again, open_caller(again.address) as later:
        assert not await forbid(later)
        assert await forbid(later, group="other")
        groups = (await later.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body
    assert b'"forbiddenTable":{"g":{"T":4}}' in groups


async def test_name_that_is_too_long_is_not_kept(caller: Caller) -> None:
    """Neither a group nor a topic has a thousand characters."""
    for fields in ({"group": "g" * 1_025}, {"topic": "T" * 1_025}):
        answer = await caller.ask(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, FORBID | fields | {"readable": "false"})
        remark = "the name has 1025 characters, the limit is 1024"
        assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)


def test_forbidden_pairs_have_a_limit() -> None:
    """No more than 65,536 of them are kept; one of them is allowed again, then there is room for another."""
    groups = GroupTable(lambda: 0)
    for number in range(MAX_FORBIDDEN // 256):
        groups.forbidden[f"g{number}"] = {f"T{topic}": 4 for topic in range(256)}
    assert groups.forbid_reading("g1", "T1", is_forbidden=True)
    assert not groups.forbid_reading("new", "T", is_forbidden=True)
    assert groups.forbid_reading("new", "T", is_forbidden=False)
    assert groups.forbid_reading("g1", "T1", is_forbidden=False)
    assert groups.forbid_reading("new", "T", is_forbidden=True)
    assert groups.is_reading_forbidden("new", "T")
    assert not groups.is_reading_forbidden("g1", "T1")


# --- 220


@pytest.fixture
async def moving(caller: Caller, clock: ManualClock) -> Caller:
    """Return a caller to a broker that leaves resets to members; g is at 1 of 3 in queue 1, and at 0 in the others."""
    changed = await caller.ask(Code.UPDATE_BROKER_CONFIG, None, b"useServerSideResetOffset=false\n")
    assert changed.code == ResponseCode.SUCCESS, changed.remark
    for _ in range(3):
        await clock.elapse(1_000)
        await caller.send("T", queue_id=1)
    for queue_id in range(4):
        await commit(caller, "g", "T", queue_id, int(queue_id == 1))
    return caller


def queues_at(offsets: dict[int, int]) -> dict[MessageQueue, int]:
    """Return the offsets of queues of T."""
    return {MessageQueue("T", "broker-a", queue_id): at for queue_id, at in offsets.items()}


@pytest.mark.feature("D8")
@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({}, 3),
        ({"timestamp": "0"}, 0),
        ({"isForce": "false"}, 1),
        ({"timestamp": "0", "isForce": "false"}, 0),
    ],
)
async def test_members_are_told_to_move(broker: Broker, moving: Caller, fields: dict[str, str], at: int) -> None:
    """All of them, with the new offsets as Java writes them; without force a group is only set back."""
    expected = queues_at({0: 0, 1: at, 2: 0, 3: 0})
    async with open_caller(broker.address) as member, open_caller(broker.address) as for_cpp:
        await member.heartbeat("c", "g", {"T": "*"})
        body = b'{"clientID":"d","consumerDataSet":[{"groupName":"g"}]}'
        await for_cpp.ask(Code.HEART_BEAT, None, body, language="CPP")
        answer = await moving.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET | fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert decode_answer(ResetOffsets, answer.body).offset_table == expected
        pushed = [await _pushed(caller) for caller in (member, for_cpp)]
    told = {"topic": "T", "group": "g", "timestamp": (RESET | fields)["timestamp"], "isForce": "false"}
    assert [(one.ext, one.is_oneway) for one in pushed] == [(told, True)] * 2
    assert pushed[0].body == answer.body
    assert b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0,' in answer.body
    entries = decode_answer(ResetOffsetsForC, pushed[1].body).offset_table
    assert {MessageQueue(one.topic, one.broker_name, one.queue_id): one.queue_offset for one in entries} == expected


async def _pushed(caller: Caller) -> Command:
    while (pushed := await caller.next_request()).code != Code.RESET_CONSUMER_CLIENT_OFFSET:
        pass
    return pushed


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        (
            {"topic": "x"},
            ResponseCode.TOPIC_NOT_EXIST,
            "[reset-offset] reset offset failed, no topic in this broker. topic=x",
        ),
        ({"group": "x"}, ResponseCode.SYSTEM_ERROR, "THe consumer group <x> not exist"),
        (
            {},
            ResponseCode.CONSUMER_NOT_ONLINE,
            "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: -1",
        ),
    ],
)
async def test_nobody_is_told_to_move(moving: Caller, fields: dict[str, str], code: int, remark: str) -> None:
    """An unknown topic, a group without offsets, and one without members, on which mqadmin moves it by hand."""
    answer = await moving.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET | fields)
    assert (answer.code, answer.remark) == (code, remark)


async def test_member_that_cannot_move(broker: Broker, moving: Caller) -> None:
    """Clients before 3.0.7 do not know how."""
    async with open_caller(broker.address) as old:
        await old.ask(Code.HEART_BEAT, None, b'{"clientID":"c","consumerDataSet":[{"groupName":"g"}]}', version=27)
        answer = await moving.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
    remark = "the client does not support this feature. version=V3_0_6"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
