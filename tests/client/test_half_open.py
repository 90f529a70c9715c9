"""Connections that are dead without anybody having closed them, and brokers that have not noticed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from inbox import Inbox
from scripted_cluster import ScriptedCluster, ScriptedServer, silent, stored

from rocketlet.client import Message, Producer, ProducerSettings, PushConsumer
from rocketlet.client.session.session import GHOST_MS
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import RequestTimeoutError
from rocketlet.remoting.bodies.body import encode_body
from rocketlet.remoting.bodies.client import ConsumerList
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import ManualClock

BEAT = RequestCode.HEART_BEAT
SEND = RequestCode.SEND_MESSAGE_V2
MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP


@asynccontextmanager
async def beating(cluster: ScriptedCluster) -> AsyncGenerator[tuple[ManualClock, Producer, ScriptedServer]]:
    """Give a producer that tries once and has sent a message to its one broker, before its second heartbeat."""
    clock = ManualClock()
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    settings = ProducerSettings(retries=0)
    async with Producer("pg", cluster.nameserver.address, clock=clock, settings=settings) as producer:
        await producer.send(Message("T", b"x"))
        yield clock, producer, broker


async def send_without_answer(clock: ManualClock, producer: Producer, broker: ScriptedServer) -> None:
    """Send a second message, to which nothing is answered, until its time is over; a heartbeat follows."""
    broker.answers[SEND] = silent
    sending = producer.send_nowait(Message("T", b"x"))
    await broker.wait_asked(SEND, 2)
    await clock.elapse(3000)
    with pytest.raises(RequestTimeoutError):
        await sending
    await broker.wait_asked(BEAT, 3)


async def leave_a_heartbeat_unanswered(clock: ManualClock, broker: ScriptedServer) -> None:
    """Let the second heartbeat come; neither it nor later ones are answered."""
    broker.answers[BEAT] = silent
    await clock.elapse(1000)
    await broker.wait_asked(BEAT, 2)


async def test_send_without_an_answer_leads_to_a_heartbeat(cluster: ScriptedCluster) -> None:
    """When that is not answered either, the connection is replaced; the next send does not wait for 30 s to pass."""
    async with beating(cluster) as (clock, producer, broker):
        await clock.elapse(1000)
        await broker.wait_asked(BEAT, 2)
        broker.answers[BEAT] = silent
        await send_without_answer(clock, producer, broker)
        await clock.elapse(3000)
        broker.answers[SEND] = stored
        del broker.answers[BEAT]
        await producer.send(Message("T", b"x"))
        assert len(broker.connections) == 2


async def test_answered_heartbeat_keeps_the_connection(cluster: ScriptedCluster) -> None:
    """A broker that was slow with one answer, but answers heartbeats, keeps its connection."""
    async with beating(cluster) as (clock, producer, broker):
        await clock.elapse(1000)
        await broker.wait_asked(BEAT, 2)
        await send_without_answer(clock, producer, broker)
        broker.answers[SEND] = stored
        await producer.send(Message("T", b"x"))
        assert len(broker.connections) == 1


async def test_silent_broker_is_connected_to_anew(cluster: ScriptedCluster) -> None:
    """A heartbeat without an answer closes the connection, which may be half open."""
    async with beating(cluster) as (clock, producer, broker):
        await leave_a_heartbeat_unanswered(clock, broker)
        await clock.elapse(3000)
        del broker.answers[BEAT]
        await producer.send(Message("T", b"x"))
        assert len(broker.connections) == 2


async def test_busy_broker_keeps_its_connection(cluster: ScriptedCluster) -> None:
    """A heartbeat that finds too much before it is no reason to close a connection on which answers come."""
    async with beating(cluster) as (clock, producer, broker):
        await leave_a_heartbeat_unanswered(clock, broker)
        await producer.send(Message("T", b"x"))
        await clock.elapse(3000)
        await producer.send(Message("T", b"x"))
        assert len(broker.connections) == 1


@pytest.mark.feature("B13")
async def test_broker_that_lists_a_lost_connection_takes_no_queues_from_us(cluster: ScriptedCluster) -> None:
    """For two minutes after the loss of a connection our own id counts once, however often it is listed."""
    clock = ManualClock()
    cluster.routes["T"] = {"broker-a": 4}
    broker = await cluster.add_broker("broker-a")
    consumer = PushConsumer("cg", cluster.nameserver.address, clock=clock)
    consumer.subscribe("T", "*", Inbox())
    twice = ConsumerList(consumer_id_list=[consumer.client_id] * 2)
    async with consumer:
        assert len(consumer.queues) == 4
        broker.answers[MEMBERS] = lambda _: Command.response(ResponseCode.SUCCESS, body=encode_body(twice))
        [connection] = broker.connections
        connection.close()
        for _ in range(2):  # when the second round asks, the first is over
            asked = len(broker.asked(MEMBERS))
            await clock.elapse(20_000)
            await broker.wait_asked(MEMBERS, asked + 1)
        assert len(consumer.queues) == 4
        while len(consumer.queues) == 4:
            await clock.elapse(GHOST_MS)
        assert len(consumer.queues) == 2
