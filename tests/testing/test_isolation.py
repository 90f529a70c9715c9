"""Brokers that nothing has happened to: one for a test, and one that is emptied."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from rocketlet.client import ConsumeFrom, Message, Producer, PushConsumer, PushConsumerSettings, ReceivedMessage
from rocketlet.testing import RocketmqBroker


def test_reset_empties_the_broker(isolated_rocketmq_broker: RocketmqBroker) -> None:
    """Messages, topics, groups and offsets are gone, delayed ones too, and the clock shows the machine's time."""
    broker = isolated_rocketmq_broker
    topic, group, address = broker.topic("orders"), broker.group("shipping"), broker.address
    broker.send(topic, "1")
    broker.send(topic, "late", delay_ms=600_000)
    broker.receive(topic, group=group)
    broker.clock.advance(minutes=1)
    broker.clock.freeze()
    broker.reset()
    assert broker.address == address
    assert abs(broker.clock.now() - datetime.now(UTC)) < timedelta(seconds=30)
    with pytest.raises(ValueError, match="there is no topic 'orders'"):
        broker.messages(topic)
    with pytest.raises(ValueError, match="there is no consumer group 'shipping'"):
        broker.lag(group)
    broker.topic("orders")
    broker.clock.advance(hours=1)
    assert broker.messages("orders") == []
    broker.send("orders", "2")
    assert [message.body for message in broker.receive("orders", group="shipping")] == [b"2"]


async def test_clients_outlast_a_reset(isolated_rocketmq_broker: RocketmqBroker) -> None:
    """A producer and a consumer that are connected connect anew, and work on."""
    broker, came = isolated_rocketmq_broker, asyncio.Queue[bytes]()

    async def listen(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            await came.put(message.body)

    topic, group = await broker.create_topic(), await broker.create_group()
    settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, rebalance_interval_ms=100)
    consumer = PushConsumer(group, broker.nameserver, settings=settings)
    consumer.subscribe(topic, "*", listen)
    async with consumer, Producer("shop", broker.nameserver) as producer:
        await producer.send(Message(topic, b"1"))
        assert await came.get() == b"1"
        broker.reset()
        await broker.create_topic(topic)
        await producer.send(Message(topic, b"2"))
        assert await came.get() == b"2"


def test_next_test_has_the_time_of_the_machine(isolated_rocketmq_broker: RocketmqBroker) -> None:
    """The end of a test that has moved time empties the broker and brings its clock back; that of others does not."""
    broker = isolated_rocketmq_broker
    broker.topic("orders")
    broker.end_test()
    assert broker.messages("orders") == []
    broker.clock.advance(days=1)
    broker.end_test()
    assert abs(broker.clock.now() - datetime.now(UTC)) < timedelta(seconds=30)
    with pytest.raises(ValueError, match="there is no topic 'orders'"):
        broker.messages("orders")


@pytest.mark.parametrize("turn", [1, 2])
def test_isolated_broker_is_new_each_time(turn: int, isolated_rocketmq_broker: RocketmqBroker) -> None:
    """A topic of the last test is not there."""
    isolated_rocketmq_broker.topic("mine")
    isolated_rocketmq_broker.send("mine", str(turn))
    isolated_rocketmq_broker.assert_sent("mine", times=1)
