"""Heartbeats, consumer lists and change notices, by raw requests."""

import asyncio
import json

import pytest
from raw_calls import Caller, heartbeat_body, open_caller

from rocketlet.broker.server import Broker
from rocketlet.common.codes import VERSION, ResponseCode
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

GROUP = {"consumerGroup": "g"}
SQL_BODY = b'{"clientId":"c","group":"g","subscriptionData":{"topic":"T","expressionType":"%b","subString":"a > 1"}}'


async def client_ids(caller: Caller) -> bytes:
    """Return the body of the consumer list."""
    return (await caller.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GROUP)).body


async def notified_group(caller: Caller) -> str:
    """Return the group that the next notice names."""
    notice = await caller.next_request()
    assert (notice.code, notice.is_oneway) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, True)
    return notice.ext["consumerGroup"]


@pytest.mark.feature("C1")
async def test_heartbeat_creates_group_and_retry_topic(caller: Caller, nameserver: NameServer) -> None:
    """A heartbeat's group exists, its retry topic has one queue and permission 6, and the name server knows it."""
    answer = await caller.heartbeat("client", "g", {"T": "*"})
    assert (answer.code, answer.version) == (ResponseCode.SUCCESS, VERSION)
    async with open_caller(nameserver.address) as other:
        route = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%g"})
    assert b'"perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1' in route.body
    groups = await caller.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert b'"groupName":"g"' in groups.body


async def test_retry_topic_is_ordered_as_what_the_group_reads(caller: Caller, nameserver: NameServer) -> None:
    """A group that subscribes to an ordered topic has an ordered retry topic, as long as it does."""
    header = {"topic": "T", "defaultTopic": "", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**header, "topicFilterType": "SINGLE_TAG", "order": "true"})
    for topic, is_ordered in (("T", b"true"), ("U", b"false")):
        await caller.heartbeat("one", "g", {topic: "*"}, unitMode=True)
        short = fingerprinted(7, is_short=True)
        assert (await caller.ask(RequestCode.HEART_BEAT, None, short)).code == ResponseCode.SUCCESS
        answer = await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "%RETRY%g"})
        assert b'"order":%b' % is_ordered in answer.body
        assert b'"topicSysFlag":2' in answer.body


@pytest.mark.feature("C5")
async def test_consumer_list_names_each_member(caller: Caller, broker: Broker) -> None:
    """The list holds one id per connection, equal ones too; nobody is answered 1."""
    answer = await caller.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GROUP)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, g")
    async with open_caller(broker.address) as other:
        await caller.heartbeat("same", "g", {"T": "*"})
        await other.heartbeat("same", "g", {"T": "*"})
        assert await client_ids(caller) == b'{"consumerIdList":["same","same"]}'


@pytest.mark.feature("C2", "C4")
async def test_members_hear_of_joining_and_dying(caller: Caller, broker: Broker) -> None:
    """All members are told when one joins, the joiner too, and the rest when a connection ends."""
    await caller.heartbeat("one", "g", {"T": "*"})
    assert await notified_group(caller) == "g"
    async with open_caller(broker.address) as other:
        await other.heartbeat("two", "g", {"T": "*"})
        assert await notified_group(other) == "g"
        assert await notified_group(caller) == "g"
    assert await notified_group(caller) == "g"
    assert await client_ids(caller) == b'{"consumerIdList":["one"]}'


@pytest.mark.feature("C28")
async def test_unregistered_client_leaves_the_list(caller: Caller, broker: Broker) -> None:
    """A client that says goodbye is off the list at once, and the others are told."""
    await caller.heartbeat("one", "g", {"T": "*"})
    async with open_caller(broker.address) as other:
        await other.heartbeat("two", "g", {"T": "*"})
        for _ in range(2):
            assert await notified_group(caller) == "g"
        await other.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "two", **GROUP})
        assert await notified_group(caller) == "g"
        assert await client_ids(caller) == b'{"consumerIdList":["one"]}'


async def test_unchanged_heartbeat_tells_nobody(caller: Caller) -> None:
    """The same heartbeat again, and one with a newer subscription to the same topic, bring no notice."""
    await caller.heartbeat("one", "g", {"T": "*"})
    await caller.next_request()
    await caller.heartbeat("one", "g", {"T": "*"})
    await caller.heartbeat("one", "g", {"T": "a"}, version=2)
    assert caller.requests.empty()
    await caller.heartbeat("one", "g", {"T": "a", "U": "*"})
    assert await notified_group(caller) == "g"


async def test_broadcasting_group_is_not_told(caller: Caller) -> None:
    """Members of a broadcasting group share nothing and hear of nobody."""
    await caller.heartbeat("one", "g", {"T": "*"}, messageModel="BROADCASTING")
    await client_ids(caller)
    assert caller.requests.empty()


async def test_group_that_wants_no_notices(caller: Caller) -> None:
    """notifyConsumerIdsChangedEnable=false of a group keeps its members quiet."""
    body = b'{"groupName":"g","notifyConsumerIdsChangedEnable":false}'
    await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    await caller.heartbeat("one", "g", {"T": "*"})
    await client_ids(caller)
    assert caller.requests.empty()


@pytest.mark.feature("C3")
async def test_silent_client_is_closed(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """Without heartbeats a client is a member for 120 s, whatever else it asks; the next scan closes it.

    Those that stay are told.
    """
    closed = asyncio.Event()
    await caller.heartbeat("one", "g", {"T": "*"})
    async with open_caller(broker.address) as other:
        other.connection.on_close(lambda _: closed.set())
        await other.heartbeat("two", "g", {"T": "*"})
        for _ in range(2):
            assert await notified_group(caller) == "g"
        for _ in range(12):
            await clock.elapse(10_000)
            assert await client_ids(other) == b'{"consumerIdList":["one","two"]}'
            await caller.heartbeat("one", "g", {"T": "*"})
        assert (closed.is_set(), caller.requests.empty()) == (False, True)
        await clock.elapse(10_000)
        await closed.wait()
    assert await notified_group(caller) == "g"
    assert await client_ids(caller) == b'{"consumerIdList":["one"]}'


async def test_short_heartbeat_keeps_subscriptions(caller: Caller) -> None:
    """A heartbeat without subscriptions (withoutSub) erases none."""
    await caller.send()
    await caller.heartbeat("one", "g", {"T": "*"})
    body = b'{"clientID":"one","consumerDataSet":[{"groupName":"g"}],"withoutSub":true}'
    await caller.ask(RequestCode.HEART_BEAT, None, body)
    assert (await caller.pull(consumer_group="g", sys_flag=0)).code == ResponseCode.SUCCESS


def fingerprinted(fingerprint: int, *topics: str, is_short: bool = False, group: str = "g") -> bytes:
    """Return the body of a heartbeat of version 2."""
    data = json.loads(heartbeat_body("one", group, dict.fromkeys(topics, "*")))
    return json.dumps({**data, "heartbeatFingerprint": fingerprint, "withoutSub": is_short}).encode()


async def test_heartbeats_of_version_2(caller: Caller) -> None:
    """Short heartbeats are enough until the fingerprint changes; a plain heartbeat is told to stay full.

    Answers are those of ``ClientManageProcessor.heartBeatV2``.
    """
    await caller.send()
    steps = [
        (fingerprinted(7, "T"), "false"),
        (fingerprinted(7, is_short=True), "false"),
        (fingerprinted(-8, is_short=True), "true"),
        (fingerprinted(-8, "T", "U"), "true"),
        (fingerprinted(-8, is_short=True), "false"),
        (heartbeat_body("one", "g", {"T": "*"}), "true"),
        (fingerprinted(-8, is_short=True), "true"),
    ]
    for number, (body, changed) in enumerate(steps):
        answer = await caller.ask(RequestCode.HEART_BEAT, None, body)
        expected = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": changed}
        assert (number, answer.code, answer.ext) == (number, ResponseCode.SUCCESS, expected)
        assert (await caller.pull(consumer_group="g", sys_flag=0)).code == ResponseCode.SUCCESS


async def test_short_heartbeat_to_a_broker_that_knows_nothing(caller: Caller) -> None:
    """A broker that does not know the group, since it is new, asks for the subscriptions; then they are there."""
    await caller.send()
    for body, changed, code in (
        (fingerprinted(7, is_short=True), "true", ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (fingerprinted(7, is_short=True), "true", ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (fingerprinted(7, "T"), "false", ResponseCode.SUCCESS),
    ):
        answer = await caller.ask(RequestCode.HEART_BEAT, None, body)
        assert answer.ext["IS_SUB_CHANGE"] == changed
        assert (await caller.pull(consumer_group="g", sys_flag=0)).code == code


async def test_heartbeat_of_a_go_client(caller: Caller) -> None:
    """Go writes tag codes as texts and versions in nanoseconds."""
    await caller.send(properties="TAGS\x01TagA\x02")
    body = (
        b'{"clientID":"go","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"classFilterMode":false,"topic":"T","subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],'
        b'"subVersion":1700000000000000000,"expressionType":"TAG"}]}]}'
    )
    assert (await caller.ask(RequestCode.HEART_BEAT, None, body)).code == ResponseCode.SUCCESS
    assert (await caller.pull(consumer_group="g", sys_flag=0)).code == ResponseCode.SUCCESS


async def test_group_with_a_bad_name_is_passed_over(caller: Caller) -> None:
    """A consumer whose group cannot be created is left out; the heartbeat is fine all the same."""
    assert (await caller.heartbeat("one", "bad group!", {"T": "*"})).code == ResponseCode.SUCCESS
    answer = await caller.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "bad group!"})
    assert answer.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.feature("P25")
async def test_filter_check_of_a_starting_client(caller: Caller) -> None:
    """A tag expression is fine; SQL92 is answered as a broker with enablePropertyFilter=false does."""
    assert (await caller.ask(RequestCode.CHECK_CLIENT_CONFIG, None, SQL_BODY % b"TAG")).code == ResponseCode.SUCCESS
    answer: Command = await caller.ask(RequestCode.CHECK_CLIENT_CONFIG, None, SQL_BODY % b"SQL92")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "The broker does not support consumer to filter message by SQL92"


async def test_subscriptions_of_a_heartbeat_are_bounded(caller: Caller) -> None:
    """All groups of a heartbeat together may have 16,384; one more is refused, and nothing of it is taken in."""
    for count, code in ((16_384, ResponseCode.SUCCESS), (16_385, ResponseCode.SYSTEM_ERROR)):
        topics = [{"topic": f"T{number}"} for number in range(count)]
        sets = [topics[start : start + 4_000] for start in range(0, count, 4_000)]
        data = [{"groupName": f"g{count}-{number}", "subscriptionDataSet": part} for number, part in enumerate(sets)]
        body = json.dumps({"clientID": "one", "consumerDataSet": data}).encode()
        answer = await caller.ask(RequestCode.HEART_BEAT, None, body)
        assert answer.code == code
    assert answer.remark == "the heartbeat of one has 16385 subscriptions, limit is 16384"
    assert (await caller.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g16385-0"})).code == 1


async def test_tags_of_a_heartbeat_are_bounded(caller: Caller) -> None:
    """All subscriptions of a heartbeat together may have 65,536 tags, or codes of tags."""
    for parts, code in ((16, ResponseCode.SUCCESS), (17, ResponseCode.SYSTEM_ERROR)):
        topics = [{"topic": f"T{part}", "codeSet": list(range(4_096))} for part in range(parts)]
        body = json.dumps({"clientID": "one", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": topics}]})
        answer = await caller.ask(RequestCode.HEART_BEAT, None, body.encode())
        assert answer.code == code
    assert answer.remark == "the heartbeat of one has 69632 tags, limit is 65536"
