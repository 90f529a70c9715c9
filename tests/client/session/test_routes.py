"""Routes as values."""

import asyncio

import pytest
from scripted_cluster import ScriptedCluster, refused, scripted_server, silent

from rocketlet.client import ClientSettings, Message, Producer, SendStatus
from rocketlet.client.session.interceptors import RequestPipeline
from rocketlet.client.session.routes import (
    NameServers,
    QueueShare,
    TopicRoute,
    TopicRoutes,
    choose_address,
    limit_queues,
    parse_addresses,
    publish_queues,
    route_from,
    subscribe_queues,
)
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError, RemotingError
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.route import TopicRouteData
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.testing import ManualClock

TWO_BROKERS = TopicRoute(
    (QueueShare("broker-a", 6, 2, 1), QueueShare("broker-b", 6, 1, 2)),
    {"broker-a": {0: "a:1", 1: "a:2"}, "broker-b": {0: "b:1"}},
)


def names(queues: tuple[tuple[str, str, int], ...]) -> list[str]:
    """Return queues as ``broker:id``."""
    return [f"{broker}:{queue_id}" for _, broker, queue_id in queues]


@pytest.mark.feature("K3")
def test_publish_list_of_the_template_topic_has_all_queues_by_broker() -> None:
    """TBW102 with 8 write queues on each of two brokers gives 16 queues, broker-a's first."""
    text = (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"b:1"},"brokerName":"broker-b"},'
        b'{"brokerAddrs":{"0":"a:1"},"brokerName":"broker-a"}],"queueDatas":['
        b'{"brokerName":"broker-b","perm":7,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8},'
        b'{"brokerName":"broker-a","perm":7,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )
    route = route_from(decode_body(TopicRouteData, text))

    expected = [f"broker-{name}:{queue_id}" for name in "ab" for queue_id in range(8)]
    assert names(publish_queues("TBW102", route)) == expected


@pytest.mark.feature("K3")
def test_publish_list_needs_write_permission_and_a_master() -> None:
    """A broker that is read-only, unknown or without its master gets no messages, but is still consumed from."""
    route = TopicRoute(
        (QueueShare("gone", 6, 1, 1), QueueShare("readonly", 4, 1, 1), QueueShare("slave", 6, 1, 1)),
        {"readonly": {0: "r:1"}, "slave": {1: "s:1"}},
    )

    assert publish_queues("T", route) == ()
    assert names(subscribe_queues("T", route)) == ["gone:0", "readonly:0", "slave:0"]


def test_lists_use_their_own_queue_numbers() -> None:
    """Write queues count for producers, read queues for consumers."""
    assert names(publish_queues("T", TWO_BROKERS)) == ["broker-a:0", "broker-b:0", "broker-b:1"]
    assert names(subscribe_queues("T", TWO_BROKERS)) == ["broker-a:0", "broker-a:1", "broker-b:0"]


def test_order_configuration_alone_makes_the_publish_list() -> None:
    """With an order configuration the brokers that are alive do not matter."""
    route = TWO_BROKERS._replace(order_configuration="broker-z:2;nonsense;broker-a:1")

    assert names(publish_queues("T", route)) == ["broker-z:0", "broker-z:1", "broker-a:0"]


def test_template_is_cut_to_the_queues_of_a_new_topic() -> None:
    """Both numbers become the template's read number, at most the number for new topics."""
    route = TopicRoute((QueueShare("broker-a", 7, 8, 16), QueueShare("broker-b", 7, 2, 8)), {})

    assert [share[2:] for share in limit_queues(route, 4).shares] == [(4, 4), (2, 2)]


def test_last_route_says_where_brokers_are() -> None:
    """That of another topic may still name the master that is gone; asked again, it counts, whatever it says."""
    table = TopicRoutes()
    old, new = ({"broker-a": {0: "a:1", 1: "a:2"}}, {"broker-a": {1: "a:2"}})
    for topic in ("T", "U"):
        table.put(topic, TWO_BROKERS._replace(brokers=old))
    assert table.put("T", TWO_BROKERS._replace(brokers=new))
    assert (dict(table.brokers), dict(table.masters)) == (new, {})
    assert not table.put("U", TWO_BROKERS._replace(brokers=old))
    assert (dict(table.brokers), dict(table.masters)) == (old, {"broker-a": "a:1"})


@pytest.mark.parametrize(
    ("wanted", "address", "is_slave"),
    [(0, "m:1", False), (1, "s:2", True), (2, "s:2", True)],
    ids=["master", "the next slave id", "that slave"],
)
def test_address_is_chosen_by_broker_id(wanted: int, address: str, is_slave: bool) -> None:
    """The wanted id is taken, for a slave also the next one."""
    chosen = choose_address({0: "m:1", 2: "s:2"}, wanted)

    assert chosen == (address, is_slave)


def test_address_is_any_when_the_wanted_broker_is_gone() -> None:
    """Without its master a group is read from a slave; without any broker there is no address."""
    assert choose_address({3: "s:3"}, 0) == ("s:3", True)
    assert choose_address({}, 0) is None


def test_table_forgets_brokers_that_left_every_route() -> None:
    """Addresses follow the routes that are in use."""
    table = TopicRoutes()
    assert table.put("T", TWO_BROKERS)
    assert not table.put("T", TWO_BROKERS._replace(brokers=dict(TWO_BROKERS.brokers)))
    assert sorted(table.addresses(with_slaves=True)) == ["a:1", "a:2", "b:1"]
    assert sorted(table.addresses(with_slaves=False)) == ["a:1", "b:1"]

    assert table.put("T", TWO_BROKERS._replace(brokers={"broker-a": {0: "a:9"}}))
    assert table.master_of("broker-a") == "a:9"
    assert table.master_of("broker-b") is None


NOTHING = RequestPipeline(ClientSettings(), namespace="")
ASK = RequestCode.GET_BROKER_CLUSTER_INFO


@pytest.mark.parametrize("text", ["a:1;b:2", " a:1 ; b:2; ", "a:1,b:2"])
def test_addresses_are_separated_by_semicolons(text: str) -> None:
    """Blanks and empty parts do not matter, a comma separates as well."""
    assert parse_addresses(text) == ("a:1", "b:2")


@pytest.mark.parametrize("text", ["", ";", "host", "host:", ":1", "host:x", "host:0", "host:65536"])
def test_address_without_host_and_port_is_refused(text: str) -> None:
    """A mistake in the option is found before the first connection."""
    with pytest.raises(ConfigError) as raised:
        parse_addresses(text)
    assert raised.value.key == "nameserver"


async def test_chosen_name_server_is_kept_until_it_fails(cluster: ScriptedCluster) -> None:
    """All requests go to one; when it is gone the other answers the same call and is kept from then on."""
    async with scripted_server("second") as second, ConnectionPool(LoopClock()) as pool:
        servers = {each.address: each for each in (cluster.nameserver, second)}
        nameservers = NameServers(tuple(servers), pool, LoopClock(), NOTHING)
        first = servers[nameservers.chosen]
        other = second if first is cluster.nameserver else cluster.nameserver
        for _ in range(3):
            await nameservers.request(Command.request(ASK), 3000)
        assert (len(first.asked(ASK)), len(other.asked(ASK))) == (3, 0)

        await first.close()
        for _ in range(2):
            await nameservers.request(Command.request(ASK), 3000)
        assert nameservers.chosen == other.address
        assert len(other.asked(ASK)) == 2


async def test_name_server_that_hangs_leaves_time_for_the_other(cluster: ScriptedCluster) -> None:
    """Of 3 s the first of two has 1.5, so the second answers within the call."""
    clock = ManualClock()
    async with (
        scripted_server("second") as second,
        ConnectionPool(clock) as pool,
        asyncio.TaskGroup() as group,
    ):
        servers = {each.address: each for each in (cluster.nameserver, second)}
        nameservers = NameServers(tuple(servers), pool, clock, NOTHING)
        hanging = servers[nameservers.chosen]
        hanging.answers[ASK] = silent
        call = group.create_task(nameservers.request(Command.request(ASK), 3000))
        await hanging.wait_asked(ASK)
        await clock.elapse(1500)

        assert (await call).code == 0
        assert nameservers.chosen != hanging.address


async def test_last_failure_is_raised_when_none_answers() -> None:
    """Each is tried once, then the call fails."""
    async with scripted_server("closed") as first, scripted_server("closed too") as second:
        addresses = (first.address, second.address)
    async with ConnectionPool(LoopClock()) as pool:
        with pytest.raises(RemotingError, match="cannot connect"):
            await NameServers(addresses, pool, LoopClock(), NOTHING).request(Command.request(ASK), 3000)


async def test_dead_name_server_costs_no_call_when_many_ask_at_once() -> None:
    """Calls that find the same server dead move on together: each asks the living one, and it is kept."""
    async with (
        scripted_server("dead") as dead,
        scripted_server("alive") as alive,
        ConnectionPool(LoopClock()) as pool,
    ):
        addresses = (dead.address, alive.address)
        await dead.close()
        nameservers = NameServers(addresses, pool, LoopClock(), NOTHING)
        while nameservers.chosen != dead.address:
            nameservers = NameServers(addresses, pool, LoopClock(), NOTHING)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(nameservers.request(Command.request(ASK), 3000)) for _ in range(5)]
        assert [call.result().code for call in calls] == [0] * 5
        assert nameservers.chosen == alive.address


async def test_server_that_is_no_name_server_is_passed_over(cluster: ScriptedCluster) -> None:
    """A broker's address among them is asked once; its "not supported" is the answer only when all say so."""
    async with scripted_server("broker") as broker, ConnectionPool(LoopClock()) as pool:
        broker.answers[ASK] = refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "what?")
        nameservers = NameServers(
            (broker.address, cluster.nameserver.address),
            pool,
            LoopClock(),
            NOTHING,
        )
        for _ in range(3):
            assert (await nameservers.request(Command.request(ASK), 3000)).code == 0
        assert len(broker.asked(ASK)) <= 1
        only = NameServers((broker.address,), pool, LoopClock(), NOTHING)
        assert (await only.request(Command.request(ASK), 3000)).remark == "what?"


async def test_server_of_another_protocol_is_passed_over(cluster: ScriptedCluster) -> None:
    """A web server among the name servers breaks the connection, and the other is asked within the same call."""

    async def answer_as_a_web_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    web = await asyncio.start_server(answer_as_a_web_server, "127.0.0.1", 0)
    host, port = web.sockets[0].getsockname()
    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a")
    async with web:
        for _ in range(4):
            async with Producer("g", f"{host}:{port};{cluster.nameserver.address}") as producer:
                assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_producer_goes_on_while_one_name_server_lives(cluster: ScriptedCluster) -> None:
    """Of three one is alive: sends reach the brokers that it names; without it known routes are still good."""
    async with scripted_server("dead") as dead, scripted_server("dead too") as other:
        addresses = f"{dead.address};{cluster.nameserver.address};{other.address}"
    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a")
    async with Producer("g", addresses) as producer:
        await producer.send(Message("T", b"x"))
        await cluster.nameserver.close()
        await producer.send(Message("T", b"x"))
        with pytest.raises(RemotingError, match="cannot connect to"):
            await producer.send(Message("Unknown", b"x"))
