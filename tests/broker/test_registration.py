"""A broker and its name servers, official order: real sockets, a clock that the test moves."""

import asyncio
import pathlib
import socket
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

import pytest
from raw_calls import Caller, open_caller, until
from slow_disk import SlowDisk

from rocketlet.broker.config import BrokerConfig
from rocketlet.broker.server import Broker
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.addresses import format_address
from rocketlet.remoting.codes import RequestCode, ResponseCode
from rocketlet.remoting.command import Command
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.later import Later
from rocketlet.remoting.server import RemotingServer
from rocketlet.remoting.service import Service
from rocketlet.testing.manual_clock import ManualClock

TOPIC = {"topic": "T", "defaultTopic": "", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
CREATE = {**TOPIC, "topicFilterType": "SINGLE_TAG", "order": "false"}


@dataclass
class SilentNameServer:
    """A server that takes requests and never answers."""

    address: str
    asked: list[Command]


@pytest.fixture
async def silent_nameserver(clock: ManualClock) -> AsyncGenerator[SilentNameServer]:
    """Run a server that never answers."""
    asked: list[Command] = []

    def owe(command: Command, _connection: Connection) -> Later:
        asked.append(command)
        return Later(command)

    async with RemotingServer("127.0.0.1", 0, Service(fallback=owe), clock) as server:
        yield SilentNameServer(format_address(*server.address), asked)


async def route(address: str, topic: str = "TBW102") -> Command:
    """Ask a name server where a topic is."""
    async with open_caller(address) as caller:
        return await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.feature("N1", "N3")
async def test_broker_is_in_the_route_when_it_is_ready(broker: Broker, nameserver: NameServer) -> None:
    """Inside the broker's block its name server knows its address and the template TBW102."""
    answer = await route(nameserver.address)
    assert answer.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"%b"},"brokerName":"broker-a","cluster":"cluster-a"}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":7,"readQueueNums":8,"topicSysFlag":0,'
        b'"writeQueueNums":8}]}' % broker.address.encode()
    )


@pytest.mark.feature("N8")
async def test_stopped_broker_is_out_of_the_route(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """A broker unregisters before it closes its port."""
    async with Broker(BrokerConfig.from_java(settings), clock):
        assert (await route(nameserver.address)).code == ResponseCode.SUCCESS
    assert (await route(nameserver.address)).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.feature("N5")
async def test_new_name_server_learns_of_the_broker(settings: dict[str, str], clock: ManualClock) -> None:
    """A name server that starts late knows the broker after its next registration, well within 30 s."""
    port = free_port()
    settings["namesrvAddr"] = f"{settings['namesrvAddr']};127.0.0.1:{port}"
    async with Broker(BrokerConfig.from_java(settings), clock), NameServer(NameServerConfig(port=port), clock) as late:
        await until_registered(late, clock)


async def until_registered(nameserver: NameServer, clock: ManualClock) -> None:
    """Move the clock on until a name server knows the broker, 30 s at most."""
    start_ms = clock.now_ms()
    while (await route(nameserver.address)).code != ResponseCode.SUCCESS:
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
            assert (await route(nameserver.address, "T")).body == (await route(second.address, "T")).body != b""


async def test_silent_name_server_costs_a_second(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer, silent_nameserver: SilentNameServer
) -> None:
    """A name server that does not answer delays start and creation by one second, and the stop by three."""
    settings["namesrvAddr"] = f"{nameserver.address};{silent_nameserver.address}"
    asked, broker = silent_nameserver.asked, Broker(BrokerConfig.from_java(settings), clock)
    async with asyncio.TaskGroup() as group:
        start = group.create_task(broker.__aenter__())
        await until(lambda: len(asked) == 1)
        await until_known(nameserver, "TBW102")
        assert not start.done()
        clock.advance(1000)
    async with open_caller(broker.address) as caller, asyncio.TaskGroup() as group:
        answer = group.create_task(caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE))
        await until(lambda: len(asked) == 2)
        await until_known(nameserver, "T")
        assert not answer.done()
        clock.advance(1000)
    assert answer.result().code == ResponseCode.SUCCESS
    async with asyncio.TaskGroup() as group:
        group.create_task(broker.__aexit__(None, None, None))
        await until(lambda: len(asked) == 3)
        clock.advance(3000)


async def until_known(nameserver: NameServer, topic: str) -> None:
    """Wait until a name server has a route; the answers to us let the broker's requests come in between."""
    async with open_caller(nameserver.address) as caller:
        answer = await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        while answer.code != ResponseCode.SUCCESS:
            answer = await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


async def test_name_server_that_forgot_the_broker_is_told_everything(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """A restarted name server refuses a single topic, and is then told all topics at once."""
    port = int(nameserver.address.rpartition(":")[2])
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await nameserver.__aexit__(None, None, None)
        async with NameServer(NameServerConfig(port=port), clock) as restarted:
            await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
            assert (await route(restarted.address, "T")).code == ResponseCode.SUCCESS
            assert (await route(restarted.address)).code == ResponseCode.SUCCESS


async def test_advertised_address_is_registered(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """With brokerIP1 the route names that, whoever asks; message ids hold it too."""
    settings["brokerIP1"] = "192.0.2.7"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker:
        answer = await route(nameserver.address)
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
                answer = await route(f"{host}:{port}")
                assert f'"{host}:{broker_port}"'.encode() in answer.body


async def test_permission_of_the_broker_limits_the_route(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """brokerPermission=4 takes the write bit from every topic in the route."""
    settings["brokerPermission"] = "4"
    async with Broker(BrokerConfig.from_java(settings), clock):
        assert b'"perm":4' in (await route(nameserver.address)).body


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


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    """Give a disk whose flushes the test holds back."""
    made = SlowDisk()
    yield made
    made.go_on()


def is_saved(settings: dict[str, str], topic: str) -> bool:
    """Tell whether topics.json has a topic."""
    path = pathlib.Path(settings["storePathRootDir"], "config", "topics.json")
    return path.exists() and f'"{topic}"' in path.read_text()


async def test_topic_is_answered_while_no_flush_ends(
    settings: dict[str, str],
    clock: ManualClock,
    nameserver: NameServer,
    silent_nameserver: SilentNameServer,
    disk: SlowDisk,
) -> None:
    """Disk, its thread and a name server hang: creating a topic and sending are answered in a second, then at once."""
    settings["namesrvAddr"] = f"{nameserver.address};{silent_nameserver.address}"
    starting = Broker(BrokerConfig.from_java(settings), clock, disk)
    async with asyncio.TaskGroup() as group:
        group.create_task(starting.__aenter__())
        await until(lambda: len(silent_nameserver.asked) == 1)
        await until_known(nameserver, "TBW102")
        clock.advance(1000)
    async with open_caller(starting.address) as caller:
        disk.get_stuck()
        async with asyncio.TaskGroup() as group:
            answers = [
                group.create_task(caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)),
                group.create_task(caller.send("U")),
                group.create_task(caller.send("U")),
                group.create_task(caller.heartbeat("c", "g", {"U": "*"})),
            ]
            await until(disk.waiting.is_set)
            await until_known(nameserver, "T")
            await until_known(nameserver, "U")
            assert not any(answer.done() for answer in answers)
            asked = len(silent_nameserver.asked)
            clock.advance(1000)
        assert [answer.result().code for answer in answers] == [ResponseCode.SUCCESS] * 4
        assert [(await caller.send(topic)).code for topic in ("T", "U", "U")] == [ResponseCode.SUCCESS] * 3
        assert len(silent_nameserver.asked) == asked
        disk.go_on()
        while not await asyncio.to_thread(is_saved, settings, "U"):
            pass
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(starting.__aexit__(None, None, None))
        while not stopping.done():
            await clock.elapse(1000)


async def test_topic_that_has_changed_is_told_again(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer, disk: SlowDisk
) -> None:
    """While a topic waits for the disk, another number of queues reaches the route all the same."""
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        disk.get_stuck()
        for queues in ("1", "2"):
            async with asyncio.TaskGroup() as group:
                fields = {**CREATE, "readQueueNums": queues, "writeQueueNums": queues}
                created = group.create_task(caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
                await until_known(nameserver, "T")
                while f'"writeQueueNums":{queues}'.encode() not in (await route(nameserver.address, "T")).body:
                    pass
                assert not created.done()
                clock.advance(1000)
            assert created.result().code == ResponseCode.SUCCESS
        disk.go_on()


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
                assert f'"writeQueueNums":{queues}'.encode() in (await route(nameserver.address, "T")).body
                assert (await route(nameserver.address, "U")).code == ResponseCode.SUCCESS
                assert (await route(nameserver.address)).code == ResponseCode.SUCCESS
