"""Lists of topics, and single topics set and removed by administrators."""

import json
from collections.abc import Awaitable, Callable

import pytest
from raw_calls import Caller
from registrations import BROKER, LATER_VERSION, OTHER, register, route, route_body

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode

Start = Callable[..., Awaitable[Caller]]
LISTS = {
    RequestCode.GET_TOPICS_BY_CLUSTER: {"cluster": "c"},
    RequestCode.GET_UNIT_TOPIC_LIST: {},
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: {},
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: {},
}


def queues(*broker_names: str) -> bytes:
    """Return the body of a topic's registration, with two queues each."""
    datas = [{"brokerName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in broker_names]
    return json.dumps({"queueDatas": datas}).encode()


@pytest.mark.feature("N20")
async def test_deleted_topic_has_no_route(caller: Caller) -> None:
    """A topic is forgotten at all brokers, or at those of one cluster; other topics stay."""
    await register(caller)
    await register(caller, **OTHER, clusterName="d")
    await caller.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "d"})
    found = await route_body(caller)
    assert found is not None
    assert [broker["brokerName"] for broker in found["brokerDatas"]] == ["broker-a"]
    await caller.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "U"})
    assert (await route(caller, "U")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await route(caller, "T")).code == ResponseCode.SUCCESS
    for fields in ({"topic": "U"}, {"topic": "T", "clusterName": "nowhere"}):
        assert (await caller.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)).code == ResponseCode.SUCCESS
    assert (await route(caller, "T")).code == ResponseCode.SUCCESS
    await caller.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": ""})
    assert (await route(caller, "T")).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.feature("N20")
async def test_deleted_topic_comes_back_with_a_registration(caller: Caller) -> None:
    """The name server forgets; a broker that still has the topic tells it again."""
    await register(caller)
    await caller.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})
    await register(caller)
    assert (await route(caller, "T")).code == ResponseCode.SUCCESS


async def test_single_topic_is_registered_at_known_brokers(caller: Caller) -> None:
    """217 sets the queues of a topic; a new topic needs brokers that are all known. The answer is always success."""
    await register(caller)
    for topic, body in (("N", queues("broker-a")), ("T", queues("broker-a", "nobody")), ("M", queues("nobody"))):
        answer = await caller.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": topic}, body)
        assert answer.code == ResponseCode.SUCCESS
        assert (await caller.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": topic}, b"{}")).code == answer.code
    for topic in "NT":
        assert b'"readQueueNums":2' in (await route(caller, topic)).body
    assert (await route(caller, "M")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_brokers_of_a_registered_topic_are_bounded(caller: Caller) -> None:
    """A topic with as many brokers as are allowed is taken, one with more is refused, with both numbers."""
    names = [f"b{number}" for number in range(16_384)]
    fields = {"topic": "N"}
    answer = await caller.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, fields, queues(*names))
    assert answer.code == ResponseCode.SUCCESS
    answer = await caller.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, fields, queues(*names, "more"))
    assert answer.remark == "the route of N names 16385 brokers, limit is 16384"


@pytest.mark.feature("N19")
async def test_topics_of_units(caller: Caller) -> None:
    """The lists follow the bits of a topic's system flag: of a unit, subscribed by one, and only the latter."""
    for number, flag in enumerate((0, 1, 2, 3)):
        version = {**LATER_VERSION, "counter": 5 + number}
        await register(caller, f"flag {flag}", f"again {flag}", flag=flag, version=version)
    found: list[set[str]] = []
    for code in list(LISTS)[1:]:
        names = json.loads((await caller.ask(code)).body)["topicList"]
        found.append({name for name in names if name.startswith("flag")})
    assert found == [{"flag 1", "flag 3"}, {"flag 2", "flag 3"}, {"flag 2"}]


@pytest.mark.feature("N19")
async def test_lists_can_be_switched_off(start: Start) -> None:
    """Each of the two settings refuses its lists with "disable"; the system topics are told always."""
    refused = (ResponseCode.SYSTEM_ERROR, "disable")
    caller = await start(enableTopicList="false")
    for code, fields in LISTS.items():
        answer = await caller.ask(code, fields)
        assert (answer.code, answer.remark) == refused
    everything = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    assert (await caller.ask(everything)).code == ResponseCode.SUCCESS
    caller = await start(enableAllTopicList="false")
    await register(caller, **BROKER)
    answer = await caller.ask(everything)
    assert (answer.code, answer.remark) == refused
    for code in (RequestCode.GET_TOPICS_BY_CLUSTER, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS):
        assert (await caller.ask(code, {"cluster": "c"})).code == ResponseCode.SUCCESS
