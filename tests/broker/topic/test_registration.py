"""A broker and its name servers, official order: real sockets, a clock that the test moves."""

import asyncio
import json
import logging
import pathlib
import re
from contextlib import AsyncExitStack

import pytest
from interop.servers import free_port
from raw_calls import Caller, open_caller, until
from registrations import SilentNameServer, route_at, topics_known, until_known

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import format_address
from rocketlet.common.outcome import Outcome
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.connection import Connection, Handler, RequestHandlers
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.store.files.config_files import save_config_text
from rocketlet.testing.manual_clock import ManualClock

TOPIC = {"topic": "T", "defaultTopic": "", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
CREATE = {**TOPIC, "topicFilterType": "SINGLE_TAG", "order": "false"}


@pytest.mark.feature("N1", "N3")
async def test_broker_is_in_the_route_when_it_is_ready(broker: Broker, nameserver: NameServer) -> None:
    """Inside the broker's block its name server knows its address and the template TBW102."""
    answer = await route_at(nameserver.address)
    assert answer.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"%b"},"brokerName":"broker-a","cluster":"cluster-a"}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":7,"readQueueNums":8,"topicSysFlag":0,'
        b'"writeQueueNums":8}]}' % broker.address.encode()
    )


@pytest.mark.feature("N10")
async def test_slave_that_is_alone_is_in_the_route(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """A name server that starts when the master is gone has the topics from the slave."""
    settings |= {"brokerRole": "SLAVE", "brokerId": "1"}
    async with Broker(BrokerConfig.from_java(settings), clock) as slave:
        answer = await route_at(nameserver.address)
    assert b'{"brokerAddrs":{"1":"%b"}' % slave.address.encode() in answer.body


@pytest.mark.feature("N8")
async def test_stopped_broker_is_out_of_the_route(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """A broker unregisters before it closes its port."""
    async with Broker(BrokerConfig.from_java(settings), clock):
        assert (await route_at(nameserver.address)).code == ResponseCode.SUCCESS
    assert (await route_at(nameserver.address)).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.feature("N5")
async def test_new_name_server_learns_of_the_broker(settings: dict[str, str], clock: ManualClock) -> None:
    """A name server that starts late knows the broker after its next registration, well within 30 s."""
    port = free_port(1)
    settings["namesrvAddr"] = f"{settings['namesrvAddr']};127.0.0.1:{port}"
    async with Broker(BrokerConfig.from_java(settings), clock), NameServer(NameServerConfig(port=port), clock) as late:
        await until_registered(late, clock)


async def until_registered(nameserver: NameServer, clock: ManualClock) -> None:
    """Move the clock on until a name server knows the broker, 30 s at most."""
    start_ms = clock.now_ms()
    while (await route_at(nameserver.address)).code != ResponseCode.SUCCESS:
        assert clock.now_ms() < start_ms + 30_000
        await clock.elapse(1000)


@pytest.mark.feature("N4")
async def test_topic_is_at_every_name_server_when_it_is_answered(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """The creation of a topic is answered when both name servers give the same route."""
    async with NameServer(NameServerConfig(port=0), clock) as second:
        settings["namesrvAddr"] = f"{nameserver.address};{second.address}"
        async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
            assert (await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)).code == ResponseCode.SUCCESS
            assert (await route_at(nameserver.address, "T")).body == (await route_at(second.address, "T")).body != b""


async def test_silent_name_server_costs_a_second(
    settings: dict[str, str],
    clock: ManualClock,
    nameserver: NameServer,
    silent_nameserver: SilentNameServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that does not answer delays start and creation by one second, and the stop by three; the log names it."""
    settings["namesrvAddr"] = f"{nameserver.address};{silent_nameserver.address}"
    asked, broker = silent_nameserver.asked, Broker(BrokerConfig.from_java(settings), clock)
    async with asyncio.TaskGroup() as group:
        start = group.create_task(broker.__aenter__())
        await until(lambda: len(asked) == 1)
        await until_known(nameserver.address, "TBW102")
        assert not start.done()
        clock.advance(1000)
    async with open_caller(broker.address) as caller, asyncio.TaskGroup() as group:
        answer = group.create_task(caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE))
        await until(lambda: len(asked) == 2)
        await until_known(nameserver.address, "T")
        assert not answer.done()
        clock.advance(1000)
    assert answer.result().code == ResponseCode.SUCCESS
    async with asyncio.TaskGroup() as group:
        group.create_task(broker.__aexit__(None, None, None))
        await until(lambda: len(asked) == 3)
        clock.advance(3000)
    told = "not done after 1000 ms, going on in the background: (.*)"
    late = [found[1] for line in caplog.messages if (found := re.fullmatch(told, line))]
    for said, what in zip(late, ("first registration", "register topics"), strict=True):
        # Before it the other name server may stand, whose answer is on its way, and the disk.
        assert said.endswith(f"{what} at {silent_nameserver.address}")


async def test_name_server_that_forgot_the_broker_is_told_everything(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """A restarted name server refuses a single topic, and is then told all topics at once."""
    port = int(nameserver.address.rpartition(":")[2])
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await nameserver.__aexit__(None, None, None)
        async with NameServer(NameServerConfig(port=port), clock) as restarted:
            await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
            assert (await route_at(restarted.address, "T")).code == ResponseCode.SUCCESS
            assert (await route_at(restarted.address)).code == ResponseCode.SUCCESS


async def test_advertised_address_is_registered(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """With brokerIP1 the route names that, whoever asks; message ids hold it too."""
    settings["brokerIP1"] = "192.0.2.7"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker:
        answer = await route_at(nameserver.address)
        assert broker.address.encode() in answer.body
        assert broker.address.startswith("192.0.2.7:")
        async with open_caller(f"127.0.0.1:{broker.address.rpartition(':')[2]}") as caller:
            sent = await caller.send()
        assert sent.ext["msgId"].startswith("C0000207")


async def test_route_follows_the_client(clock: ManualClock, tmp_path: pathlib.Path) -> None:
    """Both at all addresses: a client that came over 127.0.0.2 is sent to the broker over 127.0.0.2."""
    async with NameServer(NameServerConfig(host="0.0.0.0", port=0), clock) as nameserver:  # noqa: S104 - the point here
        port = nameserver.local_address.rpartition(":")[2]
        config = {
            "bindAddress": "0.0.0.0",  # noqa: S104 - as above
            "listenPort": "0",
            "brokerName": "b",
            "namesrvAddr": f"127.0.0.1:{port}",
            "storePathRootDir": str(tmp_path),
        }
        async with Broker(BrokerConfig.from_java(config), clock) as broker:
            broker_port = broker.address.rpartition(":")[2]
            for host in ("127.0.0.1", "127.0.0.2"):
                answer = await route_at(f"{host}:{port}")
                assert f'"{host}:{broker_port}"'.encode() in answer.body


async def test_permission_of_the_broker_limits_the_route(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """brokerPermission=4 takes the write bit from every topic in the route."""
    settings["brokerPermission"] = "4"
    async with Broker(BrokerConfig.from_java(settings), clock):
        assert b'"perm":4' in (await route_at(nameserver.address)).body


@pytest.mark.feature("N15")
async def test_order_list_of_the_name_server_marks_topics(
    broker: Broker, caller: Caller, nameserver: NameServer, clock: ManualClock
) -> None:
    """Topics in the name server's order list are ordered after the next registration."""
    await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
    async with open_caller(nameserver.address) as other:
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:1"}
        await other.ask(RequestCode.PUT_KV_CONFIG, order)
    body = b""
    while b'"order":true' not in body:
        await clock.elapse(10_000)
        body = (await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})).body


async def save_topics(settings: dict[str, str], count: int) -> set[str]:
    """Give a broker that has not started so many topics; return their names, which are too long for a frame of JSON."""
    names = [f"Topic-{number:06d}-{'x' * 100}" for number in range(count)]
    topics = {name: {"topicName": name, "attributes": {"+message.type": "NORMAL"}} for name in names}
    path = f"{settings['storePathRootDir']}/config/topics.json"
    await asyncio.to_thread(save_config_text, path, json.dumps({"topicConfigTable": topics}))
    return {*names, "TBW102"}


async def test_many_topics_take_no_others_back(settings: dict[str, str], clock: ManualClock) -> None:
    """A name server that forgets what a registration leaves out has routes of all 60,000 topics, from the first on.

    They stay when one is created, with the next registration, and are there again when the name server restarts.
    """
    names = await save_topics(settings, 60_000)
    async with AsyncExitStack() as servers:
        strict = NameServer(NameServerConfig(port=0, deletes_absent_topics=True), clock)
        await strict.__aenter__()
        given = {**settings, "namesrvAddr": strict.address}
        broker = await servers.enter_async_context(Broker(BrokerConfig.from_java(given), clock))
        assert await topics_known(strict.address) >= names
        async with open_caller(broker.address) as caller:
            assert (await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)).code == ResponseCode.SUCCESS
        names.add("T")
        assert await topics_known(strict.address) >= names
        async with open_caller(strict.address) as caller:
            await caller.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "TBW102"})
        clock.advance(30_000)
        await until_known(strict.address, "TBW102")  # it comes back with the next registration
        assert await topics_known(strict.address) >= names
        port = int(strict.address.rpartition(":")[2])
        await strict.__aexit__(None, None, None)
        again = NameServer(NameServerConfig(port=port, deletes_absent_topics=True), clock)
        await servers.enter_async_context(again)
        await clock.settle()
        clock.advance(30_000)
        await until_known(again.address, "TBW102")
        assert await topics_known(again.address) >= names


async def test_more_topics_than_a_registration_holds_go_in_parts(
    settings: dict[str, str],
    clock: ManualClock,
    nameserver: NameServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Above the limit of a registration, 100,000 topics, all have routes when the broker is ready; the log says how."""
    monkeypatch.setattr("rocketlet.remoting.bodies.route.MAX_TOPICS", 50)
    names = await save_topics(settings, 170)
    async with Broker(BrokerConfig.from_java(settings), clock):
        assert await topics_known(nameserver.address) >= names
    assert "topics are more than one registration holds: registering them in parts of 9" in caplog.text
    assert caplog.text.count("topics are more than one registration holds") == 1


async def test_topic_created_during_a_registration_is_told_again(settings: dict[str, str], clock: ManualClock) -> None:
    """A registration that was made before a topic came does not take it back: it is told by itself once more."""
    registered: list[Outcome[Command]] = []
    told: list[str] = []

    def register(command: Command, _connection: Connection) -> Outcome[Command]:
        owed = Outcome[Command]()
        if not registered:
            owed.answer_with(Command.response(ResponseCode.SUCCESS))
        registered.append(owed)
        return owed

    def register_topic(command: Command, _connection: Connection) -> Command:
        told.append(command.ext["topic"])
        return Command.response(ResponseCode.SUCCESS)

    handlers: dict[int, Handler] = {
        RequestCode.REGISTER_BROKER: register,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: register_topic,
    }
    async with RemotingServer("127.0.0.1", 0, RequestHandlers(handlers), clock) as slow:
        given = {**settings, "namesrvAddr": format_address(*slow.address)}
        async with Broker(BrokerConfig.from_java(given), clock) as broker, open_caller(broker.address) as caller:
            clock.advance(30_000)
            await until(lambda: len(registered) == 2)
            await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
            assert told == ["T"]
            registered[1].answer_with(Command.response(ResponseCode.SUCCESS))
            await until(lambda: told == ["T", "T"])


async def test_parts_of_a_registration_are_as_small_as_wanted(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer, silent_nameserver: SilentNameServer
) -> None:
    """With enableSplitRegistration a part has splitRegistrationSize topics, and a version of its own, as in Java."""
    settings |= {"enableSplitRegistration": "true", "splitRegistrationSize": "4"}
    async with Broker(BrokerConfig.from_java(settings), clock):
        known = await topics_known(nameserver.address)
        assert len(known) > 8
    settings["namesrvAddr"] = silent_nameserver.address
    async with asyncio.TaskGroup() as group:
        broker = Broker(BrokerConfig.from_java(settings), clock)
        start = group.create_task(broker.__aenter__())
        await until(lambda: bool(silent_nameserver.asked))
        clock.advance(1000)
        await start
        stop = group.create_task(broker.__aexit__(None, None, None))
        await until(lambda: len(silent_nameserver.asked) == 2)
        clock.advance(3000)
        await stop
    assert len(json.loads(silent_nameserver.asked[0].body)["topicConfigSerializeWrapper"]["topicConfigTable"]) == 4


async def test_groups_of_a_heartbeat_are_bounded(
    broker: Broker, nameserver: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A heartbeat creates a retry topic for each of 1,024 groups, and none at all for more; the log names the limit."""

    def heartbeat(count: int) -> bytes:
        groups = [{"groupName": f"group-{count}-{number}"} for number in range(count)]
        return json.dumps({"clientID": "one", "consumerDataSet": groups}).encode()

    async with open_caller(broker.address) as caller:
        for count in (1_025, 62_000):
            answer = await caller.ask(RequestCode.HEART_BEAT, None, heartbeat(count))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "length <= 1024" in str(answer.remark)
        assert caplog.text.count("length <= 1024 - at `$.consumerDataSet`") == 2
        assert not [topic for topic in await topics_known(nameserver.address) if topic.startswith("%RETRY%group")]
        assert (await caller.ask(RequestCode.HEART_BEAT, None, heartbeat(1_024))).code == ResponseCode.SUCCESS
    assert len([topic for topic in await topics_known(nameserver.address) if topic.startswith("%RETRY%group")]) == 1_024


@pytest.mark.parametrize("is_single", [True, False])
async def test_new_topic_takes_no_other_back(settings: dict[str, str], clock: ManualClock, is_single: bool) -> None:
    """A name server that forgets what a registration leaves out knows all topics when a new one is answered.

    With Java's default, a registration of the new topic alone, it has forgotten the others until the next one.
    """
    async with NameServer(NameServerConfig(port=0, deletes_absent_topics=True), clock) as strict:
        given = {**settings, "namesrvAddr": strict.address, "enableSingleTopicRegister": str(is_single).lower()}
        async with Broker(BrokerConfig.from_java(given), clock) as broker, open_caller(broker.address) as caller:
            for topic in ("one", "two"):
                assert (await caller.send(topic)).code == ResponseCode.SUCCESS
            codes = {topic: (await route_at(strict.address, topic)).code for topic in ("TBW102", "one", "two")}
    others = ResponseCode.SUCCESS if is_single else ResponseCode.TOPIC_NOT_EXIST
    assert codes == {"TBW102": others, "one": others, "two": ResponseCode.SUCCESS}


async def test_name_server_without_single_topics_is_told_by_a_registration(
    settings: dict[str, str], clock: ManualClock
) -> None:
    """One of RocketMQ 4, which does not know the request for a single topic, knows a new topic when it is answered."""
    registered: list[Command] = []

    def register(command: Command, _connection: Connection) -> Command:
        registered.append(command)
        return Command.response(ResponseCode.SUCCESS)

    async with RemotingServer("127.0.0.1", 0, RequestHandlers({RequestCode.REGISTER_BROKER: register}), clock) as old:
        given = {**settings, "namesrvAddr": format_address(*old.address)}
        async with Broker(BrokerConfig.from_java(given), clock) as broker, open_caller(broker.address) as caller:
            assert (await caller.send("one")).code == ResponseCode.SUCCESS
            assert [b'"one"' in command.body for command in registered] == [False, True]


async def test_new_topic_leaves_the_others_in_the_routes(settings: dict[str, str], clock: ManualClock) -> None:
    """A name server that removes what a registration does not name keeps the broker's topics when one is added."""
    removing = NameServerConfig(port=0, deletes_absent_topics=True)
    async with NameServer(removing, clock) as nameserver:
        settings["namesrvAddr"] = nameserver.address
        async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
            assert (await caller.send("U")).code == ResponseCode.SUCCESS
            for queues in ("1", "3"):
                fields = {**CREATE, "readQueueNums": queues, "writeQueueNums": queues}
                assert (await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == ResponseCode.SUCCESS
                assert f'"writeQueueNums":{queues}'.encode() in (await route_at(nameserver.address, "T")).body
                assert (await route_at(nameserver.address, "U")).code == ResponseCode.SUCCESS
                assert (await route_at(nameserver.address)).code == ResponseCode.SUCCESS


async def test_name_server_that_closes_its_connections_is_told_once_a_second(
    settings: dict[str, str], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A second after the last registration, and not before: another end would follow; later at once."""
    told: list[tuple[int, Connection]] = []

    def register(_command: Command, connection: Connection) -> Command:
        told.append((clock.monotonic_ms(), connection))
        return Command.response(ResponseCode.SUCCESS)

    caplog.set_level(logging.INFO, "rocketlet.broker.topic.registration")
    handlers = RequestHandlers({RequestCode.REGISTER_BROKER: register})
    async with RemotingServer("127.0.0.1", 0, handlers, clock) as server:
        settings["namesrvAddr"] = format_address(*server.address)
        async with Broker(BrokerConfig.from_java(settings), clock):
            told[0][1].abort()
            await until(lambda: "has closed the connection: registering again" in caplog.text)
            await clock.elapse(999)
            assert len(told) == 1
            await clock.elapse(1)
            await until(lambda: len(told) == 2)
            await clock.elapse(2_000)
            told[1][1].abort()
            await until(lambda: len(told) == 3)
    assert [at_ms - told[0][0] for at_ms, _ in told] == [0, 1_000, 3_000]
