"""Topics and groups for administrators, by raw requests."""

import json
from typing import Any

import pytest
from raw_calls import Caller, open_caller

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.metadata import SubscriptionGroupConfig, SubscriptionGroupTable, TopicConfig, TopicConfigTable
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

COMMIT = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
TOPIC = {
    "topic": "Made",
    "defaultTopic": "TBW102",
    "readQueueNums": "6",
    "writeQueueNums": "5",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "true",
    "attributes": "+message.type=NORMAL,+reserve.time=5",
}


async def put(caller: Caller, **changes: str) -> Command:
    """Create or change the topic."""
    return await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, **changes})


async def test_created_topic_is_known_everywhere(caller: Caller, nameserver: NameServer) -> None:
    """When 17 is answered, 351 tells the topic and the name server has its route."""
    assert (await put(caller)).code == ResponseCode.SUCCESS
    topic = decode_body(TopicConfig, (await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Made"})).body)
    assert topic == TopicConfig(
        topic_name="Made",
        read_queue_nums=6,
        write_queue_nums=5,
        order=True,
        attributes={"message.type": "NORMAL", "reserve.time": "5"},
    )
    async with open_caller(nameserver.address) as other:
        route = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Made"})
    assert b'"readQueueNums":6,"topicSysFlag":0,"writeQueueNums":5' in route.body


async def test_changed_topic_is_changed_everywhere(caller: Caller, nameserver: NameServer) -> None:
    """A second 17 changes queues and attributes, in the route too."""
    await put(caller)
    await put(caller, readQueueNums="2", attributes="-reserve.time")
    topic = decode_body(TopicConfig, (await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Made"})).body)
    assert (topic.read_queue_nums, topic.attributes) == (2, {"message.type": "NORMAL"})
    async with open_caller(nameserver.address) as other:
        route = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Made"})
    assert b'"readQueueNums":2' in route.body


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "bad topic"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "TBW102"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "rmq_sys_x"}, ResponseCode.INVALID_PARAMETER),
        ({"readQueueNums": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"topicFilterType": "NO_TAG"}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "cluster-a"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "broker-a"}, ResponseCode.INVALID_PARAMETER),
        ({"attributes": "x=y"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+message.type=MIXED"}, ResponseCode.INVALID_PARAMETER),
        ({"perm": "all"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_topic_that_cannot_be(changes: dict[str, str], code: int, caller: Caller) -> None:
    """Bad names, system topics, negative queue numbers, bad filter types and bad attributes are refused."""
    assert (await put(caller, **changes)).code == code


async def test_unknown_topic_is_answered_17(caller: Caller) -> None:
    """351 of a topic that is not there."""
    answer = await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Unknown"})
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker. topic: Unknown")


async def test_lists_hold_everything(caller: Caller) -> None:
    """21 and 201 tell all topics and groups."""
    await put(caller)
    topics = decode_body(TopicConfigTable, (await caller.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
    assert {"Made", "TBW102", "broker-a", "cluster-a"} <= topics.topic_config_table.keys()
    body = (await caller.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body
    assert "TOOLS_CONSUMER" in decode_body(SubscriptionGroupTable, body).subscription_group_table


async def test_unknown_group_is_created_by_looking_at_it(caller: Caller) -> None:
    """352 creates a group with the defaults; a name that cannot be is answered 26."""
    answer = await caller.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert decode_body(SubscriptionGroupConfig, answer.body) == SubscriptionGroupConfig(group_name="g")
    answer = await caller.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "bad group"})
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_group_with_a_bad_name_is_refused(caller: Caller) -> None:
    """200 checks the name."""
    answer = await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"bad group"}')
    assert answer.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("place", ['"x":{}', '"groupRetryPolicy":{{"x":{}}}', '"groupRetryPolicy":{{"type":{}}}'])
@pytest.mark.parametrize("depth", [90, 980, 5_000])
async def test_nested_group_costs_no_offsets(
    settings: dict[str, str], clock: ManualClock, caplog: pytest.LogCaptureFixture, place: str, depth: int
) -> None:
    """Whatever is accepted of a group can be saved: nothing of it is kept that has no place in Java's."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await caller.send()
        await caller.heartbeat("one", "g", {"T": "*"})
        body = f'{{"groupName":"nested",{place.format("[" * depth + "]" * depth)}}}'.encode()
        answer = await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        await caller.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**COMMIT, "commitOffset": "29"})
    assert " failed" not in caplog.text
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        assert (await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, COMMIT)).ext["offset"] == "29"


@pytest.mark.parametrize(
    ("kept", "refused"),
    [
        (
            {"attributes": {str(number): "" for number in range(256)}},
            {"attributes": dict.fromkeys(map(str, range(257)), "")},
        ),
        ({"attributes": {"a": "x" * 4_096}}, {"attributes": {"a": "x" * 4_097}}),
        ({"subscriptionDataSet": [{"topic": "T"}] * 256}, {"subscriptionDataSet": [{"topic": "T"}] * 257}),
        (
            {"groupRetryPolicy": {"customizedRetryPolicy": {"next": [1] * 256}}},
            {"groupRetryPolicy": {"customizedRetryPolicy": {"next": [1] * 257}}},
        ),
    ],
)
async def test_group_is_bounded(caller: Caller, kept: dict[str, Any], refused: dict[str, Any]) -> None:
    """Counts and lengths have limits, which the refusal names; up to them everything is kept."""
    codes: list[int] = []
    for name, fields in (("kept", kept), ("refused", refused)):
        body = json.dumps({"groupName": name, **fields}).encode()
        answer = await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        codes.append(answer.code)
    assert codes == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR]
    assert "length <= " in (answer.remark or "")
    groups = json.loads((await caller.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)["subscriptionGroupTable"]
    assert "refused" not in groups
    (name,) = kept
    assert len(json.dumps(groups["kept"][name])) >= len(json.dumps(kept[name])) - 100


async def list_topics(caller: Caller, *topics: dict[str, Any]) -> Command:
    """Create or change topics at once."""
    base = {"readQueueNums": 2, "writeQueueNums": 3, "perm": 6}
    body = json.dumps({"topicConfigList": [{**base, **topic} for topic in topics]}).encode()
    return await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)


async def test_topics_made_at_once_are_known_everywhere(caller: Caller, nameserver: NameServer) -> None:
    """When 18 is answered, the name server has the routes of all of them."""
    made = await list_topics(
        caller, {"topicName": "One", "attributes": {"+message.type": "FIFO"}}, {"topicName": "Two"}
    )
    assert made.code == ResponseCode.SUCCESS
    async with open_caller(nameserver.address) as other:
        for name in ("One", "Two"):
            route = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name})
            assert b'"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":3' in route.body
    topic = decode_body(TopicConfig, (await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "One"})).body)
    assert topic.attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    ("bad", "code", "remark"),
    [
        ({"topicName": "a b"}, 29, "contains illegal characters"),
        ({"topicName": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topicName": "Bad", "attributes": {"+gone": "x"}}, 1, "unsupported key: gone"),
        ({"topicName": "Bad", "attributes": {"message.type": "FIFO"}}, 1, "only add attribute is supported while"),
        ({"topicName": "Bad", "attributes": {"+message.type": "MIXED"}}, 29, "MIXED message type is not supported."),
    ],
)
async def test_of_topics_at_once_all_or_none_are_made(
    caller: Caller, bad: dict[str, Any], code: int, remark: str
) -> None:
    """A bad one among them refuses the others, whether it is the first or the last."""
    for topics in ([{"topicName": "Good"}, bad], [bad, {"topicName": "Good"}]):
        answer = await list_topics(caller, *topics)
        assert (answer.code, remark in (answer.remark or "")) == (code, True)
    assert (await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Good"})).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(("change", "remark"), [("~x", "wrong format key: x"), ("-gone", "attempt to delete a")])
async def test_attributes_of_a_topic_that_is_there(caller: Caller, change: str, remark: str) -> None:
    """They are added, changed and taken away by their signs."""
    await list_topics(caller, {"topicName": "One", "attributes": {"+reserve.time": "5"}})
    answer = await list_topics(caller, {"topicName": "One", "attributes": {change: ""}})
    assert remark in (answer.remark or "")
    await list_topics(caller, {"topicName": "One", "attributes": {"-reserve.time": "", "+message.type": "DELAY"}})
    topic = decode_body(TopicConfig, (await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "One"})).body)
    assert topic.attributes == {"message.type": "DELAY"}


async def test_groups_made_at_once(caller: Caller) -> None:
    """225 makes all groups, or none when one has a bad name."""

    async def put_groups(*names: str) -> int:
        body = json.dumps({"groupConfigList": [{"groupName": name, "retryMaxTimes": 3} for name in names]}).encode()
        return (await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body)).code

    assert [await put_groups("g1", "g2"), await put_groups("g3", "a b"), await put_groups()] == [0, 29, 0]
    told = await caller.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
    table = decode_body(SubscriptionGroupTable, told.body).subscription_group_table
    assert {name: table[name].retry_max_times for name in ("g1", "g2")} == {"g1": 3, "g2": 3}
    assert "g3" not in table


@pytest.mark.parametrize(("count", "told"), [(4_096, "contains illegal characters"), (4_097, "limit is 4096")])
async def test_list_of_topics_or_groups_is_bounded(caller: Caller, count: int, told: str) -> None:
    """A longer one is refused before anybody looks at its names."""
    groups = json.dumps({"groupConfigList": [{"groupName": "a b"}] * count}).encode()
    for answer in (
        await list_topics(caller, *[{"topicName": "a b"}] * count),
        await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, groups),
    ):
        assert told in (answer.remark or "")
