"""A broker for tests that takes TLS alone: its own helpers, our clients, and rows for Spark."""

import asyncio
from collections.abc import Iterator

import pytest
from live_clusters import Clients, bodies, numbered, read

from rocketlet.client import (
    Admin,
    ClientError,
    ClientSettings,
    ConsumeFrom,
    Message,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    ReceivedMessage,
    Tls,
)
from rocketlet.common.errors import RemotingError
from rocketlet.testing import RocketmqBroker

ANY_SERVER = Tls(verifies=False)


@pytest.fixture(scope="module")
def broker() -> Iterator[RocketmqBroker]:
    """Return a broker that takes TLS alone, and its name server does so, too."""
    with RocketmqBroker({"tls.server.mode": "enforcing"}) as started:
        yield started


@pytest.mark.feature("A5")
def test_helpers_of_the_fixture(broker: RocketmqBroker) -> None:
    """It makes topics and groups, sends, receives and looks as ever."""
    topic, group = broker.topic(), broker.group()
    broker.send(topic, b"one")
    assert [message.body for message in broker.messages(topic)] == [b"one"]
    assert [message.body for message in broker.receive(topic, 1, group=group)] == [b"one"]


@pytest.mark.feature("A5")
async def test_our_clients(broker: RocketmqBroker) -> None:
    """Under TLS a producer, a consumer and an administrator are served; in plain text nobody is."""
    topic, group = await broker.create_topic(), await broker.create_group()
    async with Producer("own", broker.nameserver, settings=ProducerSettings(tls=ANY_SERVER)) as producer:
        await producer.send(Message(topic, b"x" * 100_000))
    settings = PushConsumerSettings(tls=ANY_SERVER, consume_from=ConsumeFrom.FIRST)
    received: asyncio.Queue[int] = asyncio.Queue()

    async def listen(messages: list[ReceivedMessage]) -> None:
        received.put_nowait(len(messages[0].body))

    consumer = PushConsumer(group, broker.nameserver, settings=settings)
    consumer.subscribe(topic, "*", listen)
    async with consumer:
        assert await received.get() == 100_000
    async with Admin(broker.nameserver, settings=ClientSettings(tls=ANY_SERVER)) as admin:
        assert topic in await admin.topics()
    plain = ProducerSettings(retries=0, send_timeout_ms=2_000)
    async with Producer("plain", broker.nameserver, settings=plain) as producer:
        with pytest.raises((ClientError, RemotingError)):
            await producer.send(Message(topic, b"in plain text"))


@pytest.mark.feature("A5")
def test_rows_for_spark(broker: RocketmqBroker) -> None:
    """The options of Spark reach it as those of our client do."""
    clients = Clients(broker.nameserver, {"tls": "true", "tlsVerify": "false"}, ClientSettings(tls=ANY_SERVER))
    clients.create("Rows", queues=1)
    clients.send("Rows", numbered(5))
    assert bodies(read(clients, subscribe="Rows")) == numbered(5)
