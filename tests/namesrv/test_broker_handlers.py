"""Registrations in all their forms."""

import json
from collections.abc import Awaitable, Callable

import pytest
from raw_calls import Caller, open_caller
from registrations import BROKER, LATER_VERSION, OTHER, SLAVE, VERSION, register, route, route_body

from rocketlet.common.codes import ResponseCode
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

Start = Callable[..., Awaitable[Caller]]
HEADER = {**BROKER, "haServerAddr": "h:1", "compressed": "false"}


@pytest.mark.feature("N1")
async def test_registration_before_3_0_11_is_its_topics_alone(caller: Caller) -> None:
    """The body of an old broker is the topic table, without the list of filter servers; a newer one's has no topics."""
    table = {name: {"topicName": name, "readQueueNums": 3, "writeQueueNums": 3, "perm": 6} for name in "TU"}
    body = json.dumps({"dataVersion": VERSION, "topicConfigTable": table}).encode()
    assert (await caller.ask(RequestCode.REGISTER_BROKER, HEADER, body, version=37)).code == ResponseCode.SUCCESS
    assert (await route(caller)).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await caller.ask(RequestCode.REGISTER_BROKER, HEADER, body, version=36)).code == ResponseCode.SUCCESS
    assert b'"readQueueNums":3' in (await route(caller)).body


@pytest.mark.feature("N11")
async def test_registration_without_a_body_brings_no_topics(caller: Caller) -> None:
    """A broker that names no topics is known, and may then register a single one."""
    assert (await caller.ask(RequestCode.REGISTER_BROKER, HEADER)).code == ResponseCode.SUCCESS
    assert b'"broker-a"' in (await caller.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body
    assert (await route(caller)).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await register(caller, "T", version=LATER_VERSION)).code == ResponseCode.SUCCESS
    assert (await route(caller)).code == ResponseCode.SUCCESS


@pytest.mark.feature("N13")
async def test_topics_change_with_the_version_only(caller: Caller) -> None:
    """Queues are taken over when the data version differs; permissions wiped by an administrator last until then."""
    await register(caller)
    await caller.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    await register(caller)
    assert b'"perm":4' in (await route(caller)).body
    await register(caller, version=LATER_VERSION)
    assert b'"perm":6' in (await route(caller)).body


@pytest.mark.parametrize(("setting", "stays"), [("true", False), ("false", True)])
async def test_topics_left_out_of_a_registration(setting: str, stays: bool, start: Start) -> None:
    """Topics that a registration leaves out stay, unless the setting says otherwise; other brokers' always do."""
    caller = await start(deleteTopicWithBrokerRegistration=setting)
    await register(caller, "T", "U", "V")
    await register(caller, "T", "U", **OTHER)
    await register(caller, "T", "W", version=LATER_VERSION)
    found = await route_body(caller, "U")
    assert found is not None
    names = [broker["brokerName"] for broker in found["brokerDatas"]]
    assert names == (["broker-a", "broker-b"] if stays else ["broker-b"])
    assert ((await route(caller, "V")).code == ResponseCode.SUCCESS) is stays


@pytest.mark.feature("N6")
async def test_broker_may_ask_for_its_own_expiry(caller: Caller, nameserver: NameServer, clock: ManualClock) -> None:
    """A registration can name the time after which silence means death; master and slave die at their own times."""
    async with open_caller(nameserver.address) as slave:
        await register(caller, heartbeatTimeoutMillis="30000")
        await register(slave, **SLAVE, heartbeatTimeoutMillis="9000")
        for _ in range(3):
            await clock.elapse(5000)
        found = await route_body(caller)
    assert found is not None
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": BROKER["brokerAddr"]}


@pytest.mark.feature("N6")
@pytest.mark.parametrize("code", [RequestCode.QUERY_DATA_VERSION, RequestCode.BROKER_HEARTBEAT, None])
async def test_question_for_the_data_version_is_a_sign_of_life(
    code: RequestCode | None, caller: Caller, nameserver: NameServer, clock: ManualClock
) -> None:
    """A broker whose topics do not change asks for their version instead of registering, and stays."""
    async with open_caller(nameserver.address) as broker:
        await register(broker, heartbeatTimeoutMillis="30000")
        for _ in range(3):
            await clock.elapse(20_000)
            if code is not None:
                assert (await broker.ask(code, BROKER, json.dumps(VERSION).encode())).code == ResponseCode.SUCCESS
        assert (await route_body(caller) is None) is (code is None)


@pytest.mark.feature("N8")
async def test_unregistration_names_the_address(caller: Caller) -> None:
    """An address is taken out whatever id it is said to have; the rest of its group, and other groups, stay."""
    await register(caller)
    await register(caller, **SLAVE)
    await register(caller, **OTHER)
    await caller.ask(RequestCode.UNREGISTER_BROKER, {**BROKER, "brokerId": "7"})
    found = await route_body(caller)
    assert found is not None
    assert [broker["brokerAddrs"] for broker in found["brokerDatas"]] == [
        {"1": SLAVE["brokerAddr"]},
        {"0": OTHER["brokerAddr"]},
    ]
    unknown = {**BROKER, "brokerName": "nobody", "brokerAddr": "h:1"}
    assert (await caller.ask(RequestCode.UNREGISTER_BROKER, unknown)).code == ResponseCode.SUCCESS


@pytest.mark.feature("N7")
async def test_lost_connection_takes_every_broker_that_registered_on_it(caller: Caller, nameserver: NameServer) -> None:
    """Brokers that share a connection go together; one that has registered again elsewhere stays."""
    async with open_caller(nameserver.address) as shared:
        await register(shared)
        await register(shared, **OTHER)
        await register(shared, brokerName="broker-c", brokerAddr="10.0.0.4:10911")
        await register(caller, **OTHER)
    clusters: list[str] = []
    while clusters != ["broker-b"]:  # ends by the time limit of tests if they never go
        answer = await caller.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        clusters = json.loads(answer.body)["clusterAddrTable"]["c"]
    assert [broker["brokerName"] for broker in ((await route_body(caller)) or {})["brokerDatas"]] == ["broker-b"]


async def test_two_masters_of_one_name_are_told(
    caller: Caller, nameserver: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, however often they register by turns; one that comes when the others are gone is no second."""
    async with open_caller(nameserver.address) as other:
        for _ in range(3):
            await register(caller)
            await register(other, brokerAddr="10.0.0.9:10911")
        [said] = caplog.messages
    assert said == (
        f"brokers at {BROKER['brokerAddr']} and 10.0.0.9:10911 both register as broker-a with id 0: "
        "clients are sent to the one that was heard of last"
    )
    await caller.ask(RequestCode.UNREGISTER_BROKER, BROKER)
    await register(caller, brokerAddr="10.0.0.10:10911")
    assert len(caplog.messages) == 1
