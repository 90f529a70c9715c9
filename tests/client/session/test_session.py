"""What producers and consumers share: client id, routes, heartbeats, notices."""

import asyncio
import contextlib
import logging
import os
import re

import pytest
from scripted_cluster import ScriptedCluster, refused, silent

from rocketlet.client import ClientSettings, Message, Producer, PullConsumer, PushConsumer, PushConsumerSettings
from rocketlet.client.session.session import OutageLog, Session
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError, RemotingError, RequestTimeoutError
from rocketlet.remoting.bodies.body import decode_body, encode_body
from rocketlet.remoting.bodies.client import HeartbeatData
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.client import ConsumerGroupHeader, UnregisterClientHeader
from rocketlet.testing import ManualClock

BEAT = RequestCode.HEART_BEAT
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP


@pytest.mark.feature("K1")
def test_client_id_is_unique_within_one_process() -> None:
    """Address, process id and a number that tells apart what containers call process 1."""
    first, second = Session("ns:1", None).client_id, Session("ns:1", None).client_id

    assert re.fullmatch(rf"\d+\.\d+\.\d+\.\d+@{os.getpid()}#\d+", first)
    assert first != second


@pytest.mark.feature("K1")
@pytest.mark.parametrize(
    ("settings", "form"),
    [
        (ClientSettings(unit_name="u1"), r"[\d.]+@\d+#\d+@u1"),
        (ClientSettings(instance_name="DEFAULT"), r"[\d.]+@DEFAULT"),
        (ClientSettings(instance_name="i", unit_name="u", client_host="10.0.0.7"), r"10\.0\.0\.7@i@u"),
    ],
)
def test_client_id_is_made_of_the_settings(settings: ClientSettings, form: str) -> None:
    """Host, instance and unit, as Java's ``buildMQClientId`` joins them."""
    assert re.fullmatch(form, Session("ns:1", settings=settings).client_id)


def test_host_that_is_no_address_is_refused() -> None:
    """It is part of every message's unique key, which has room for an address only."""
    with pytest.raises(ConfigError, match="client_host 'here' is no IP address"):
        ClientSettings(client_host="here")


async def test_unit_mode_is_told_with_heartbeats_and_sends(cluster: ScriptedCluster) -> None:
    """Java's ``unitMode``: of consumers in the heartbeat, of producers in each send."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    settings = ClientSettings(is_unit_mode=True)
    async with Session(cluster.nameserver.address, settings=settings) as session:
        consumer = PullConsumer("cg", session=session)
        consumer.subscribe("T")
        async with Producer("pg", session=session) as producer, consumer:
            await producer.send(Message("T", b"x"))
    [send] = broker.asked(RequestCode.SEND_MESSAGE_V2)
    assert send.ext["k"] == "true"
    beats = [decode_body(HeartbeatData, beat.body) for beat in broker.asked(BEAT)]
    consumers = [data for beat in beats for data in beat.consumer_data_set]
    assert consumers
    assert all(data.unit_mode for data in consumers)


async def test_producer_beats_after_its_first_send_and_every_30_s(cluster: ScriptedCluster) -> None:
    """A new connection begins with a heartbeat that names the group; then they come by the clock."""
    clock = ManualClock()
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    async with Producer("pg", cluster.nameserver.address, clock=clock) as producer:
        await producer.send(Message("T", b"x"))
        assert [command.code for command in broker.requests] == [BEAT, RequestCode.SEND_MESSAGE_V2]
        await clock.elapse(1000)
        await broker.wait_asked(BEAT, 2)
        await clock.elapse(30_000)
        [beat, *_] = await broker.wait_asked(BEAT, 3)
    data = decode_body(HeartbeatData, beat.body)
    assert re.fullmatch(r".*@.*#.*", data.client_id)
    assert [each.group_name for each in data.producer_data_set] == ["pg"]
    assert data.consumer_data_set == []


@pytest.mark.parametrize("has_consumer", [False, True])
async def test_slaves_get_heartbeats_of_consumers(cluster: ScriptedCluster, *, has_consumer: bool) -> None:
    """Who may be read from has to know who reads; a producer has nothing to do with slaves."""
    clock = ManualClock()
    cluster.routes["T"] = {"broker-a": 1}
    master, slave = await cluster.add_broker("broker-a"), await cluster.add_broker("broker-a as slave")
    route = cluster.route_of("T")
    route.broker_datas[0].broker_addrs[1] = slave.address
    cluster.nameserver.answers[ROUTE] = lambda _: Command.response(ResponseCode.SUCCESS, body=encode_body(route))
    async with (
        Session(cluster.nameserver.address, clock) as session,
        Producer("pg", session=session) as producer,
        contextlib.AsyncExitStack() as members,
    ):
        await producer.send(Message("T", b"x"))
        if has_consumer:
            consumer = PullConsumer("cg", session=session)
            consumer.subscribe("T")
            await members.enter_async_context(consumer)
            await slave.wait_asked(BEAT)
        beats = len(master.asked(BEAT))
        await session.heartbeat()
        assert len(master.asked(BEAT)) == beats + 1
    assert bool(slave.asked(BEAT)) is has_consumer


@pytest.mark.feature("K2")
async def test_routes_are_asked_for_every_30_s(cluster: ScriptedCluster) -> None:
    """A broker that joins a topic is sent to after the next poll."""
    clock = ManualClock()
    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a")
    await cluster.add_broker("broker-b")
    async with Producer("pg", cluster.nameserver.address, clock=clock) as producer:
        await producer.send(Message("T", b"x"))
        cluster.routes["T"] = {"broker-a": 1, "broker-b": 1}
        await clock.elapse(30_000)
        await cluster.nameserver.wait_asked(ROUTE, 2)
        while len(await producer.fetch_queues("T")) == 1:
            await clock.settle()
        brokers = {(await producer.send(Message("T", b"x"))).queue.broker_name for _ in range(2)}
    assert brokers == {"broker-a", "broker-b"}


@pytest.mark.feature("K2")
async def test_broker_that_is_back_at_another_address_is_found_soon(cluster: ScriptedCluster) -> None:
    """A connection that fails has the routes asked for within a second; sends and heartbeats go to the new address."""
    clock = ManualClock()
    cluster.routes["T"] = {"broker-a": 1}
    old = await cluster.add_broker("broker-a")
    async with Session(cluster.nameserver.address, clock) as session, Producer("pg", session=session) as producer:
        await producer.send(Message("T", b"x"))
        await old.close()
        new = await cluster.add_broker("broker-a")
        with pytest.raises(RemotingError):
            await session.call(old.address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO), 3000)
        await clock.elapse(1000)
        await cluster.nameserver.wait_asked(ROUTE, 2)
        await clock.settle()
        await producer.send(Message("T", b"x"))
        assert [command.code for command in new.requests] == [BEAT, RequestCode.SEND_MESSAGE_V2]
        assert (session.master_of("broker-a"), [*session.connections]) == (new.address, [new.address])
        await clock.elapse(30_000)
        await new.wait_asked(BEAT, 2)


async def test_broker_that_sends_its_clients_away_is_called_anew(cluster: ScriptedCluster) -> None:
    """A connection that ends after GO_AWAY is not used by a call that follows at once."""
    broker, code = await cluster.add_broker("broker-a"), RequestCode.GET_BROKER_RUNTIME_INFO
    broker.answers[code] = refused(ResponseCode.GO_AWAY)
    async with Session(cluster.nameserver.address) as session:
        answers = [await session.call(broker.address, Command.request(code), 3000) for _ in range(2)]
        assert [answer.code for answer in answers] == [ResponseCode.GO_AWAY] * 2
        assert len(broker.connections) == 2
        broker.answers[code] = lambda _: Command.response(ResponseCode.SUCCESS)
        for _ in range(2):
            assert (await session.call(broker.address, Command.request(code), 3000)).code == ResponseCode.SUCCESS
    assert len(broker.connections) == 3


@pytest.mark.feature("B13")
async def test_lost_connection_may_be_listed_for_two_minutes(cluster: ScriptedCluster) -> None:
    """So long a broker that has not noticed names us twice; before, and from then on, it does not."""
    clock, broker = ManualClock(), await cluster.add_broker("broker-a")
    async with Session(cluster.nameserver.address, clock) as session:
        assert not session.may_be_listed_twice
        await session.call(broker.address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO), 3000)
        assert len(session.local_addresses) == 1
        assert not session.may_be_listed_twice
        broker.connections[0].close()
        while session.connections:
            await clock.settle()
        assert session.local_addresses == frozenset()
        clock.advance(119_999)
        assert session.may_be_listed_twice
        clock.advance(1)
        assert not session.may_be_listed_twice


async def test_topic_that_vanishes_keeps_its_route(cluster: ScriptedCluster) -> None:
    """A name server that forgot a topic, as after its restart, does not stop the sends."""
    clock = ManualClock()
    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a")
    async with Producer("pg", cluster.nameserver.address, clock=clock) as producer:
        await producer.send(Message("T", b"x"))
        del cluster.routes["T"]
        await clock.elapse(30_000)
        await cluster.nameserver.wait_asked(ROUTE, 2)
        await clock.settle()
        assert (await producer.send(Message("T", b"x"))).queue.broker_name == "broker-a"


async def test_route_of_no_member_is_kept_for_30_s(cluster: ScriptedCluster) -> None:
    """A call that has looked up a route finds its brokers, although the routes are asked for meanwhile."""
    clock = ManualClock()
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    async with Session(cluster.nameserver.address, clock) as session:
        await clock.elapse(29_000)
        await session.refresh("T")
        await clock.elapse(1_000)
        await clock.settle()
        assert session.master_of("broker-a") == broker.address
        await clock.elapse(30_000)
        await clock.settle()
        assert session.routes.topics == ()


@pytest.mark.feature("K2")
async def test_route_that_does_not_come_is_given_up_after_3_s(cluster: ScriptedCluster) -> None:
    """A name server that hangs ends the call, not the producer."""
    clock = ManualClock()
    cluster.nameserver.answers[ROUTE] = silent
    async with Session(cluster.nameserver.address, clock) as session:
        waiting = session.tasks.start(failure_of(session), "route")
        await cluster.nameserver.wait_asked(ROUTE)
        await clock.elapse(2999)
        assert not waiting.done()
        await clock.elapse(1)
        assert isinstance(await waiting, RequestTimeoutError)


async def test_cancelled_call_is_waited_for_no_longer(cluster: ScriptedCluster) -> None:
    """Its place among the requests in flight is free at once, not when its time is over."""
    broker, code = await cluster.add_broker("broker-a"), RequestCode.GET_BROKER_RUNTIME_INFO
    broker.answers[code] = silent
    async with Session(cluster.nameserver.address) as session:
        calling = session.tasks.start(session.call(broker.address, Command.request(code), 3000), "call")
        await broker.wait_asked(code)
        connection = session.connections[broker.address]
        assert repr(connection).endswith("waits for 1>")
        calling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await calling
        assert repr(connection).endswith("waits for 0>")


async def failure_of(session: Session) -> Exception | None:
    """Return what asking for a route raises."""
    try:
        await session.route("T")
    except RequestTimeoutError as error:
        return error
    return None


@pytest.mark.feature("B1")
async def test_notice_of_changed_members_wakes_the_rebalance(cluster: ScriptedCluster) -> None:
    """Request 40 of a broker leads to the question who the members are; other groups and codes do not."""
    clock = ManualClock()
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    consumer = PushConsumer("cg", cluster.nameserver.address, clock=clock, settings=PushConsumerSettings(concurrency=1))
    consumer.subscribe("T", "*", lambda _: None)
    async with consumer:
        [connection] = broker.connections
        asked = len(broker.asked(MEMBERS))
        notice = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        connection.send_oneway(Command.request(notice, ConsumerGroupHeader(consumer_group="other")))
        unknown = await connection.request(Command.request(RequestCode.CHECK_TRANSACTION_STATE), 3000)
        assert unknown.code == 3
        assert len(broker.asked(MEMBERS)) == asked

        connection.send_oneway(Command.request(notice, ConsumerGroupHeader(consumer_group="cg")))
        await broker.wait_asked(MEMBERS, asked + 1)
    [farewell] = broker.asked(RequestCode.UNREGISTER_CLIENT)
    header = decode_header(UnregisterClientHeader, farewell)
    assert (header.client_id, header.consumer_group, header.producer_group) == (consumer.client_id, "cg", None)


def test_outage_is_said_once_until_the_broker_answers(caplog: pytest.LogCaptureFixture) -> None:
    """Each broker by itself; an answer ends its outage, whatever it says."""
    caplog.set_level(logging.INFO)
    outages, gone = OutageLog(), RemotingError("gone")
    for address in ("a:1", "a:1", "b:1"):
        outages.begin(address, gone)
    outages.heed("a:1", Command.response(ResponseCode.SUCCESS))
    outages.heed("a:1", Command.response(ResponseCode.SYSTEM_ERROR, "busy"))
    outages.begin("a:1", gone)
    assert caplog.messages == [
        "broker a:1 does not answer: gone",
        "broker b:1 does not answer: gone",
        "broker a:1 answers again",
        "broker a:1 answered a heartbeat with 1: busy",
        "broker a:1 does not answer: gone",
    ]
