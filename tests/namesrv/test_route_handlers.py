"""Routes as settings and requesters shape them: order, zones, acting masters, a start that takes its time."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from raw_calls import Caller, open_caller
from registrations import BROKER, LATER_VERSION, OTHER, SLAVE, register, route, route_body

from rocketlet.common.codes import ResponseCode
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

Start = Callable[..., Awaitable[Caller]]
ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4;broker-b:2"}
IN_ZONE_1 = {"__ZONE_MODE": "true", "__ZONE_NAME": "Z1"}
SYNC_TOPIC = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"


async def brokers_of(caller: Caller, topic: str = "T", **fields: str) -> dict[str, dict[str, str]]:
    """Return the addresses of a route by broker name; its queues are those of the same brokers."""
    found = await route_body(caller, topic, **fields)
    assert found is not None
    assert {queue["brokerName"] for queue in found["queueDatas"]} == {
        broker["brokerName"] for broker in found["brokerDatas"]
    }
    return {broker["brokerName"]: broker["brokerAddrs"] for broker in found["brokerDatas"]}


@pytest.mark.feature("N17")
async def test_route_carries_the_order_configuration(start: Start) -> None:
    """With orderMessageEnable the order configuration stands in the route of its topic, also of brokers now dead."""
    caller = await start(orderMessageEnable="true")
    await register(caller)
    await caller.ask(RequestCode.PUT_KV_CONFIG, ORDER)
    assert b'"orderTopicConf":"broker-a:4;broker-b:2","queueDatas"' in (await route(caller)).body
    assert b"orderTopicConf" not in (await route(caller, "U")).body


@pytest.mark.feature("N17")
async def test_route_leaves_order_out_unless_enabled(caller: Caller) -> None:
    """The order configuration is for brokers only by default."""
    await register(caller)
    await caller.ask(RequestCode.PUT_KV_CONFIG, ORDER)
    assert b"orderTopicConf" not in (await route(caller)).body
    assert (await register(caller)).body == b'{"table":{"T":"broker-a:4;broker-b:2"}}'
    await caller.ask(RequestCode.DELETE_KV_CONFIG, ORDER)
    assert (await register(caller)).body == b'{"table":{}}'


@pytest.mark.feature("N17")
async def test_brokers_are_not_told_the_order_configuration_when_that_is_off(start: Start) -> None:
    """With returnOrderTopicConfigToBroker=false a registration is answered without a body."""
    caller = await start(returnOrderTopicConfigToBroker="false")
    await caller.ask(RequestCode.PUT_KV_CONFIG, ORDER)
    answer = await register(caller)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"")


@pytest.mark.feature("N18")
async def test_system_topics_name_a_master_first(caller: Caller) -> None:
    """Tools ask the broker that stands beside the system topics: a master although its slave came first; or none."""
    answer = await caller.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert answer.body == b'{"topicList":[]}'
    await register(caller, **SLAVE)
    await register(caller)
    answer = await caller.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert answer.body == b'{"brokerAddr":"10.0.0.1:10911","topicList":["c","broker-a"]}'


@pytest.mark.parametrize(
    ("host", "follows", "port", "expected"),
    [
        ("127.0.0.1", "true", ":7", "127.0.0.2:7"),
        ("127.0.0.1", "false", ":7", "127.0.0.1:7"),
        ("127.0.0.2", "true", ":7", "127.0.0.1:7"),  # it came from 127.0.0.1, hence from elsewhere
        ("127.0.0.1", "true", ":x", "127.0.0.1:x"),
    ],
)
async def test_client_is_told_the_host_that_it_reached(
    host: str, follows: str, port: str, expected: str, clock: ManualClock
) -> None:
    """A broker of this machine that follows its clients is found at the host under which they reached the server."""
    async with AsyncExitStack() as opened:
        server = await opened.enter_async_context(NameServer(NameServerConfig(host="0.0.0.0", port=0), clock))  # noqa: S104 # two addresses of this machine
        bound = server.local_address.rpartition(":")[2]
        broker = await opened.enter_async_context(open_caller(f"{host}:{bound}"))
        await register(broker, brokerAddr=f"127.0.0.1{port}", rocketletFollowsClients=follows)
        client = await opened.enter_async_context(open_caller(f"127.0.0.2:{bound}"))
        assert await brokers_of(client) == {"broker-a": {"0": expected}}
        client = await opened.enter_async_context(open_caller(f"127.0.0.1:{bound}"))
        assert await brokers_of(client) == {"broker-a": {"0": f"127.0.0.1{port}"}}


@pytest.mark.feature("N24")
async def test_zone_limits_the_route(caller: Caller) -> None:
    """Who asks for a zone gets the brokers of that zone, in any case of letters, with their queues only."""
    await register(caller, __ZONE_NAME="z1")
    await register(caller, **OTHER, __ZONE_NAME="z2")
    assert sorted(await brokers_of(caller, **IN_ZONE_1)) == ["broker-a"]
    assert sorted(await brokers_of(caller, **{**IN_ZONE_1, "__ZONE_NAME": "z3"})) == []
    for fields in ({"__ZONE_MODE": "true"}, {**IN_ZONE_1, "__ZONE_MODE": "no"}, {**IN_ZONE_1, "__ZONE_NAME": " "}):
        assert sorted(await brokers_of(caller, **fields)) == ["broker-a", "broker-b"]
    found = await route_body(caller)
    assert found is not None
    assert [broker["zoneName"] for broker in found["brokerDatas"]] == ["z1", "z2"]


@pytest.mark.feature("N24")
async def test_zone_of_brokers_without_master_is_passed_over(caller: Caller) -> None:
    """A group whose master is gone is in every zone: its slaves may be read from anywhere."""
    await register(caller, __ZONE_NAME="z2")
    await register(caller, **SLAVE, __ZONE_NAME="z2")
    await register(caller, **OTHER)
    assert await brokers_of(caller, **IN_ZONE_1) == {}
    await caller.ask(RequestCode.UNREGISTER_BROKER, BROKER)
    assert await brokers_of(caller, **IN_ZONE_1) == {"broker-a": {"1": SLAVE["brokerAddr"]}}


@pytest.mark.feature("N25")
async def test_first_slave_acts_as_master(start: Start) -> None:
    """When the master of a willing group is gone, its first slave is shown under 0, to be read from only."""
    caller = await start(supportActingMaster="true")
    third: dict[str, Any] = {**SLAVE, "brokerAddr": "10.0.0.9:10911", "brokerId": "3"}
    second: dict[str, Any] = {**SLAVE, "brokerId": "2"}
    for broker in (BROKER, third, second):
        await register(caller, "T", SYNC_TOPIC, **broker, enableActingMaster="true")
    assert sorted((await brokers_of(caller))["broker-a"]) == ["0", "2", "3"]
    await caller.ask(RequestCode.UNREGISTER_BROKER, BROKER)
    answer = await route(caller)
    assert b'"brokerAddrs":{"0":"10.0.0.2:10911","3":"10.0.0.9:10911"}' in answer.body
    assert b'"enableActingMaster":true' in answer.body
    assert b'"perm":4' in answer.body
    assert sorted((await brokers_of(caller, SYNC_TOPIC))["broker-a"]) == ["2", "3"]


@pytest.mark.feature("N25")
@pytest.mark.parametrize(
    ("setting", "agrees", "perm"), [("false", "true", 4), ("true", "false", 6), ("false", "false", 6)]
)
async def test_no_slave_acts_unless_both_sides_agree(setting: str, agrees: str, perm: int, start: Start) -> None:
    """Name server and broker must both want an acting master."""
    caller = await start(supportActingMaster=setting)
    await register(caller, enableActingMaster=agrees)
    await register(caller, **SLAVE, enableActingMaster=agrees)
    await caller.ask(RequestCode.UNREGISTER_BROKER, BROKER)
    found = await route_body(caller)
    assert found is not None
    assert found["brokerDatas"][0]["brokerAddrs"] == {"1": SLAVE["brokerAddr"]}
    assert found["queueDatas"][0]["perm"] == perm
    await caller.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert await brokers_of(caller) == {"broker-a": {"1": SLAVE["brokerAddr"]}}


@pytest.mark.feature("N25")
async def test_returning_master_may_be_written_to(start: Start) -> None:
    """The write permission comes back with the master's next registration."""
    caller = await start(supportActingMaster="true")
    await register(caller, enableActingMaster="true")
    await register(caller, **SLAVE, enableActingMaster="true")
    await caller.ask(RequestCode.UNREGISTER_BROKER, BROKER)
    assert b'"perm":4' in (await route(caller)).body
    await register(caller, enableActingMaster="true")
    assert b'"perm":6' in (await route(caller)).body
    assert sorted((await brokers_of(caller))["broker-a"]) == ["0", "1"]


@pytest.mark.feature("N25")
async def test_slave_alone_brings_topics_to_a_new_name_server(start: Start) -> None:
    """A restarted name server learns topics from the first slave of 5.0 or newer; an older one brings none."""
    caller = await start(supportActingMaster="true")
    await register(caller, **SLAVE)
    assert (await route(caller)).code == ResponseCode.TOPIC_NOT_EXIST
    await register(caller, **SLAVE, enableActingMaster="false", version=LATER_VERSION)
    assert b'"perm":6' in (await route(caller)).body
    other: dict[str, Any] = {**SLAVE, "brokerName": "broker-b", "enableActingMaster": "true"}
    await register(caller, **other)
    found = await route_body(caller)
    assert found is not None
    assert [queue["perm"] for queue in found["queueDatas"]] == [6, 4]


async def test_no_routes_for_a_while_after_the_start(start: Start, clock: ManualClock) -> None:
    """With needWaitForService, routes are given only when the brokers had time to register."""
    caller = await start(needWaitForService="true", waitSecondsForService="7")
    await register(caller)
    await clock.elapse(6999)
    answer = await route(caller)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    assert (await caller.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == ResponseCode.SUCCESS
    await clock.elapse(1)
    assert (await route(caller)).code == ResponseCode.SUCCESS


@pytest.mark.feature("N2")
async def test_request_for_no_topic_is_answered_17(caller: Caller) -> None:
    """A route request that does not name a topic is told that there is no topic ``null``, as by Java."""
    for fields in (None, {}, {"acceptStandardJsonOnly": "true"}):
        answer = await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert (answer.remark or "").startswith("No topic route info in name server for the topic: null\n")


async def test_entry_of_the_key_value_table_is_bounded(start: Start) -> None:
    """What is kept and saved for good has a limit; an entry of that size is kept."""
    caller = await start()
    value = "v" * ((1 << 20) - len("ORDER_TOPIC_CONFIG") - len("T"))
    answer = await caller.ask(RequestCode.PUT_KV_CONFIG, {**ORDER, "value": value + "x"})
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "namespace, key and value are 1048577 characters, limit is 1048576",
    )
    assert (await caller.ask(RequestCode.PUT_KV_CONFIG, {**ORDER, "value": value})).code == ResponseCode.SUCCESS
