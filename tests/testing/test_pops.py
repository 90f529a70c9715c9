"""Groups to which the fixture's broker hands messages out for a time: what they have, what waits, and the clock."""

from collections.abc import Iterator

import pytest

from rocketlet.client import ConsumeFrom, SimpleConsumer, SimpleConsumerSettings
from rocketlet.testing import RocketmqBroker

SETTINGS = SimpleConsumerSettings(consume_from=ConsumeFrom.FIRST, invisible_ms=3_600_000, wait_ms=5_000)


@pytest.fixture
def broker(rocketmq_broker: RocketmqBroker) -> Iterator[RocketmqBroker]:
    """Return the broker of the session; its time runs again afterwards."""
    yield rocketmq_broker
    rocketmq_broker.clock.resume()


@pytest.mark.feature("O2")
async def test_what_is_handed_out_is_in_flight(broker: RocketmqBroker) -> None:
    """Until it is acknowledged; a clock that is moved on brings back what is not."""
    topic, group = broker.topic(queues=1), broker.group()
    for body in ("a", "b", "c"):
        broker.send(topic, body)
    consumer = SimpleConsumer(group, broker.nameserver, settings=SETTINGS)
    consumer.subscribe(topic)
    async with consumer:
        first, second = await consumer.receive(2)
        assert [each.body for each in broker.in_flight(group)] == [b"a", b"b"]
        assert broker.lag(group).total == 3
        with pytest.raises(TimeoutError, match="queue 0: 1 of 3 messages have not been fetched"):
            await broker.consumed(group, timeout=0.05)
        [third] = await consumer.receive()
        await consumer.ack(first, third)
        assert [each.body for each in broker.in_flight(group)] == [b"b"]
        with pytest.raises(TimeoutError, match="queue 0: 1 messages have been handed out and are not acknowledged"):
            await broker.consumed(group, timeout=0.05)
        await broker.clock.elapse(hours=1)
        [again] = await consumer.receive()
        assert (again.body, again.reconsume_times) == (second.body, 1)
        assert [each.body for each in broker.in_flight(group)] == [b"b"]
        await consumer.ack(again)
        await broker.consumed(group)
        assert (broker.in_flight(group), broker.lag(group).total) == ([], 0)


async def test_messages_of_a_later_lease_are_acknowledged_together(broker: RocketmqBroker) -> None:
    """One request names each of them, however far its queue is."""
    topic, group = broker.topic(queues=1), broker.group()
    for body in ("a", "b", "c", "d", "e"):
        broker.send(topic, body)
    consumer = SimpleConsumer(group, broker.nameserver, settings=SETTINGS)
    consumer.subscribe(topic)
    async with consumer:
        await consumer.ack(*await consumer.receive(2))
        third, _, fifth = await consumer.receive()
        await consumer.ack(third, fifth)
        assert [each.body for each in broker.in_flight(group)] == [b"d"]
