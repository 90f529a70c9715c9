"""A name server, by raw requests as brokers, clients and tools make them."""

import asyncio
import json
import pathlib
import zlib
from contextlib import AsyncExitStack
from typing import Any

import pytest
from raw_calls import Caller, open_caller, until
from registrations import BROKER, VERSION, register, registration_body, route

from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError
from rocketlet.common.properties import crc31
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

NO_ROUTE = "No topic route info in name server for the topic: "
QUEUES = b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]'


@pytest.mark.feature("N1")
async def test_registered_topic_has_a_route(caller: Caller) -> None:
    """The route holds the broker's address and its queues."""
    assert (await register(caller)).code == ResponseCode.SUCCESS
    answer = await route(caller)
    assert answer.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c"}],'
        b'"filterServerTable":{},%b}' % QUEUES
    )


@pytest.mark.feature("N2")
async def test_unknown_topic_is_answered_17(caller: Caller) -> None:
    """An unknown topic is named in the remark."""
    answer = await route(caller, "Unknown")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith(f"{NO_ROUTE}Unknown\n")


@pytest.mark.feature("N23")
@pytest.mark.parametrize(
    ("version", "fields", "key"),
    [
        (1, {}, b"{0:"),
        (400, {}, b"{0:"),
        (401, {}, b'{"0":'),
        (479, {}, b'{"0":'),
        (317, {"acceptStandardJsonOnly": "true"}, b'{"0":'),
        (317, {"acceptStandardJsonOnly": "false"}, b"{0:"),
        (479, {"acceptStandardJsonOnly": "false"}, b'{"0":'),
    ],
)
async def test_keys_are_quoted_for_those_who_read_it(
    version: int, fields: dict[str, str], key: bytes, caller: Caller
) -> None:
    """Integer keys are quoted from 4.9.4 on, or when asked for."""
    await register(caller)
    answer = await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T", **fields}, version=version)
    assert b'"brokerAddrs":' + key in answer.body


@pytest.mark.feature("N11")
async def test_single_topic_of_an_unknown_broker_is_refused(caller: Caller) -> None:
    """A restarted name server does not take one topic for the whole table, nor show a broker without address."""
    answer = await register(caller, "T")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
    info = await caller.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert info.body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


@pytest.mark.feature("N12")
async def test_checksum_of_a_registration(caller: Caller) -> None:
    """A body with another checksum than the header says is refused; 0 says nothing."""
    answer = await register(caller, bodyCrc32="7")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    right = str(crc31(registration_body("T", "U")))
    assert (await register(caller, bodyCrc32=right)).code == ResponseCode.SUCCESS


async def test_compressed_registration(caller: Caller) -> None:
    """A compressed body is read, whatever its header says."""
    version, topics = json.dumps(VERSION).encode(), [b"T 4 4 6 SINGLE_TAG {}", b"U 4 4 6 SINGLE_TAG"]
    parts = [version, *topics, b"[]"]
    texts = [len(part).to_bytes(4, "big") + part for part in parts]
    body = zlib.compress(texts[0] + (2).to_bytes(4, "big") + b"".join(texts[1:]) + bytes(4))
    header = {**BROKER, "haServerAddr": "h:1", "compressed": "false"}
    assert (await caller.ask(RequestCode.REGISTER_BROKER, header, body)).code == ResponseCode.SUCCESS
    assert QUEUES in (await route(caller)).body


@pytest.mark.feature("N13")
async def test_data_version_is_compared(caller: Caller) -> None:
    """322 tells whether the topics are the registered ones; an unknown broker is told to register."""
    same, other = json.dumps(VERSION).encode(), json.dumps({**VERSION, "counter": 2}).encode()
    answer = await caller.ask(RequestCode.QUERY_DATA_VERSION, BROKER, same)
    assert (answer.ext["changed"], answer.body) == ("true", b"")
    await register(caller)
    answer = await caller.ask(RequestCode.QUERY_DATA_VERSION, BROKER, same)
    assert (answer.ext["changed"], json.loads(answer.body)) == ("false", VERSION)
    assert (await caller.ask(RequestCode.QUERY_DATA_VERSION, BROKER, other)).ext["changed"] == "true"


@pytest.mark.feature("N6")
async def test_silent_broker_disappears(caller: Caller, nameserver: NameServer, clock: ManualClock) -> None:
    """A broker that says nothing for 120 s is gone after the next scan, and its connection is closed."""
    closed = asyncio.Event()
    async with open_caller(nameserver.address) as broker:
        broker.connection.on_close(lambda _: closed.set())
        await register(broker)
        for _ in range(12):
            await clock.elapse(10_000)
            await route(caller)  # keeps this connection from being idle
            await broker.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert (await route(caller)).code == ResponseCode.SUCCESS
        await clock.elapse(5000)
        await closed.wait()
    assert (await route(caller)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_heartbeats_keep_a_broker(caller: Caller, clock: ManualClock) -> None:
    """904 and 322 count as signs of life; 904 of an unknown broker is fine."""
    assert (await caller.ask(RequestCode.BROKER_HEARTBEAT, BROKER)).code == ResponseCode.SUCCESS
    await register(caller)
    for number in range(30):
        await clock.elapse(10_000)
        code = RequestCode.BROKER_HEARTBEAT if number % 2 else RequestCode.QUERY_DATA_VERSION
        await caller.ask(code, BROKER, json.dumps(VERSION).encode())
    assert (await route(caller)).code == ResponseCode.SUCCESS


@pytest.mark.feature("N7")
async def test_lost_connection_removes_the_broker_at_once(caller: Caller, nameserver: NameServer) -> None:
    """The route is gone with the connection; the clock does not move."""
    async with open_caller(nameserver.address) as broker:
        await register(broker)
        assert (await route(caller)).code == ResponseCode.SUCCESS
    async with asyncio.timeout(20):
        while (await route(caller)).code == ResponseCode.SUCCESS:
            pass
    assert (await route(caller)).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.feature("N8")
async def test_unregistered_broker_is_gone(caller: Caller) -> None:
    """104 takes the broker out of every route."""
    await register(caller)
    assert (await caller.ask(RequestCode.UNREGISTER_BROKER, BROKER)).code == ResponseCode.SUCCESS
    assert (await route(caller)).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.feature("N9", "N10", "R18")
async def test_slave_learns_its_master_and_outlives_it(caller: Caller) -> None:
    """A slave is told the master's addresses; without the master the route has no key 0."""
    await register(caller)
    slave: dict[str, Any] = {"brokerAddr": "10.0.0.2:10911", "brokerId": "1"}
    answer = await register(caller, **slave)
    assert (answer.ext["masterAddr"], answer.ext["haServerAddr"]) == ("10.0.0.1:10911", "10.0.0.1:10912")
    assert b'{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"}' in (await route(caller)).body
    await caller.ask(RequestCode.UNREGISTER_BROKER, BROKER)
    assert b'{"1":"10.0.0.2:10911"}' in (await route(caller)).body
    assert (await register(caller, **slave)).ext == {}


@pytest.mark.feature("N14")
async def test_write_permission_of_a_broker(caller: Caller) -> None:
    """205 takes the write bit from every topic of a broker, 327 gives it back; both tell how many."""
    await register(caller)
    name = {"brokerName": "broker-a"}
    assert (await caller.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, name)).ext["wipeTopicCount"] == "2"
    assert b'"perm":4' in (await route(caller)).body
    assert (await caller.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, name)).ext["addTopicCount"] == "2"
    assert b'"perm":6' in (await route(caller)).body


@pytest.mark.feature("N18", "N19")
async def test_lists(caller: Caller) -> None:
    """Cluster info, members, all topics, topics of a cluster and system names."""
    await register(caller)
    assert (await caller.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["broker-a"]}}'
    )
    members = await caller.ask(RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "c", "brokerName": "broker-a"})
    assert members.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c"}}'
    )
    everything = await caller.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert everything.body == b'{"topicList":["T","U"]}'
    assert (await caller.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"})).body == everything.body
    assert (await caller.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "d"})).body == b'{"topicList":[]}'
    system = await caller.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert system.body == b'{"brokerAddr":"10.0.0.1:10911","topicList":["c","broker-a"]}'


@pytest.mark.feature("N22")
async def test_unknown_code_is_answered_3(caller: Caller) -> None:
    """The number stands in the remark."""
    answer = await caller.ask(9999)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 9999 not supported"


async def test_requests_without_fields_are_refused(caller: Caller) -> None:
    """What cannot be done without is named, or the body refused; the name server goes on."""
    for code in (100, 103, 217, 322, 904):
        answer = await caller.ask(code, {}, b"{")
        assert answer.code == ResponseCode.SYSTEM_ERROR, code
    header = {**BROKER, "haServerAddr": "h:1", "compressed": "false"}
    for body in (b"[]", b"x\x9c garbage", b'{"topicConfigSerializeWrapper":7}', b"null"):
        assert (await caller.ask(RequestCode.REGISTER_BROKER, header, body)).code == ResponseCode.SYSTEM_ERROR, body
    assert (await route(caller)).code == ResponseCode.TOPIC_NOT_EXIST


KEY = {"namespace": "n", "key": "k"}


@pytest.mark.feature("N15")
async def test_key_value_table(caller: Caller) -> None:
    """Put, get, list and delete; what is missing is answered 22."""
    answer = await caller.ask(RequestCode.GET_KV_CONFIG, KEY)
    assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: n Key: k")
    assert (await caller.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, KEY)).code == ResponseCode.QUERY_NOT_FOUND
    assert (await caller.ask(RequestCode.PUT_KV_CONFIG, {**KEY, "value": "v"})).code == ResponseCode.SUCCESS
    assert (await caller.ask(RequestCode.GET_KV_CONFIG, KEY)).ext["value"] == "v"
    assert (await caller.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, KEY)).body == b'{"table":{"k":"v"}}'
    for _ in range(2):
        assert (await caller.ask(RequestCode.DELETE_KV_CONFIG, KEY)).code == ResponseCode.SUCCESS
    assert (await caller.ask(RequestCode.GET_KV_CONFIG, KEY)).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.feature("N15")
async def test_registration_is_answered_with_the_order_list(caller: Caller) -> None:
    """A broker hears which topics are ordered."""
    assert (await register(caller)).body == b""
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
    await caller.ask(RequestCode.PUT_KV_CONFIG, order)
    assert (await register(caller)).body == b'{"table":{"T":"broker-a:4"}}'


@pytest.mark.feature("N16")
async def test_key_value_table_survives_a_restart(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    """With a file the table is there again; a put is answered when it is on disk."""
    config = NameServerConfig(port=0, kv_path=str(tmp_path / "namesrv" / "kvConfig.json"))
    async with NameServer(config, clock) as server, open_caller(server.address) as caller:
        assert (await caller.ask(RequestCode.PUT_KV_CONFIG, {**KEY, "value": "v"})).code == ResponseCode.SUCCESS
        stored = (tmp_path / "namesrv" / "kvConfig.json").read_text()
        assert stored == '{\n "configTable": {\n  "n": {\n   "k": "v"\n  }\n }\n}'
    async with NameServer(config, clock) as server, open_caller(server.address) as caller:
        assert (await caller.ask(RequestCode.GET_KV_CONFIG, KEY)).ext["value"] == "v"


async def test_broken_key_value_file_stops_the_start(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    """The table is not lost silently."""
    path = tmp_path / "kvConfig.json"
    path.write_text("[]")
    with pytest.raises(ConfigError, match=r"kvConfig\.json"):
        await NameServer(NameServerConfig(port=0, kv_path=str(path)), clock).__aenter__()


async def test_damaged_key_value_file_is_kept_beside_its_copy(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    """The server goes on with the copy of the last save; the damaged file stays for whoever wants to look."""
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    (tmp_path / "kvConfig.json.bak").write_text('{"configTable":{"n":{"k":"v"}}}')
    config = NameServerConfig(port=0, kv_path=str(path))
    async with NameServer(config, clock) as server, open_caller(server.address) as caller:
        assert (await caller.ask(RequestCode.GET_KV_CONFIG, KEY)).ext["value"] == "v"
        assert (await caller.ask(RequestCode.PUT_KV_CONFIG, {**KEY, "value": "w"})).code == ResponseCode.SUCCESS
    assert (tmp_path / "kvConfig.json.damaged").read_text() == "{"


@pytest.mark.parametrize(("port", "is_refused"), [(0, True), (7000, False)])
async def test_address_that_nobody_serves_is_not_told(port: int, is_refused: bool, clock: ManualClock) -> None:
    """A host of this machine that the server does not listen at is refused, unless a port says who forwards."""
    config = NameServerConfig(host="127.0.0.1", port=0, advertised_host="127.0.0.2", advertised_port=port)
    async with AsyncExitStack() as opened:
        if is_refused:
            opened.enter_context(pytest.raises(ConfigError, match=r"clients would be told 127\.0\.0\.2 "))
        server = await opened.enter_async_context(NameServer(config, clock))
        assert server.address == "127.0.0.2:7000"
        assert server.local_address.startswith("127.0.0.1:")


async def test_start_and_stop_many_times_leaves_nothing(clock: ManualClock) -> None:
    """Twenty name servers leave no task and no timer."""
    tasks = len(asyncio.all_tasks())
    for _ in range(20):
        async with NameServer(NameServerConfig(port=0), clock) as server, open_caller(server.address) as caller:
            await register(caller)
    assert len(asyncio.all_tasks()) == tasks
    await until(lambda: clock.next_at_ms is None)
