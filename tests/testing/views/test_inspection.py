"""Looking into the fixture's broker, and waiting for what happens there."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from rocketlet.client import (
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    PushConsumerSettings,
    ReceivedMessage,
    Sql,
)
from rocketlet.testing import RocketmqBroker

ALL = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)


@pytest.fixture
async def producer(rocketmq_broker: RocketmqBroker) -> AsyncIterator[Producer]:
    """Return a producer."""
    async with Producer("shop", rocketmq_broker.nameserver) as producer:
        yield producer


async def test_messages_are_found_by_tag_and_key(rocketmq_broker: RocketmqBroker, producer: Producer) -> None:
    """Messages are narrowed down by tag and by key."""
    topic = await rocketmq_broker.create_topic(queues=1)
    for number in range(4):
        await producer.send(
            Message(topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd", keys=[f"k{number}"])
        )
    assert [message.body for message in rocketmq_broker.messages(topic, tag="odd")] == [b"1", b"3"]
    assert [message.body for message in rocketmq_broker.messages(topic, key="k2")] == [b"2"]
    assert rocketmq_broker.messages(topic, tag="odd", key="k2") == []


def test_names_that_do_not_exist_are_refused(rocketmq_broker: RocketmqBroker) -> None:
    """A topic or group that is not there is an error with the nearest name, not an empty list."""
    topic = rocketmq_broker.topic("orders-of-the-shop")
    with pytest.raises(ValueError, match="there is no topic 'orders-of-the-shup'; did you mean orders-of-the-shop"):
        rocketmq_broker.messages("orders-of-the-shup")
    with pytest.raises(ValueError, match="there is no consumer group 'nobody'"):
        rocketmq_broker.messages(topic, group="nobody")
    for look in (rocketmq_broker.lag, rocketmq_broker.in_flight, rocketmq_broker.dead_letters):
        with pytest.raises(ValueError, match="there is no consumer group 'nobody'"):
            look("nobody")
    with pytest.raises(ValueError, match="there is no topic 'orders-of-the-shup'"):
        rocketmq_broker.assert_sent("orders-of-the-shup")


async def test_lag_and_flight_of_a_group(rocketmq_broker: RocketmqBroker, producer: Producer) -> None:
    """What a listener has not finished is in flight, and counts as lag with what nobody has asked for yet."""
    topic, group, may_finish = (
        await rocketmq_broker.create_topic(queues=1),
        await rocketmq_broker.create_group(),
        asyncio.Event(),
    )
    begun = asyncio.Event()

    async def listen(messages: list[ReceivedMessage]) -> None:
        begun.set()
        await may_finish.wait()

    await producer.send(Message(topic, b"1", tags="paid"))
    await producer.send(Message(topic, b"2", tags="new"))
    consumer = PushConsumer(group, rocketmq_broker.nameserver, settings=ALL)
    consumer.subscribe(topic, "paid", listen)
    async with consumer:
        await begun.wait()
        assert [message.body for message in rocketmq_broker.in_flight(group)] == [b"1"]
        lag = rocketmq_broker.lag(group)
        assert lag.total == 1
        assert lag.queues == {MessageQueue(topic, "broker-a", 0): 1}
        assert [message.body for message in rocketmq_broker.messages(topic, group=group)] == [b"1"]
        with pytest.raises(TimeoutError, match=f"group '{group}' .* in 50 ms: {topic} queue 0"):
            await rocketmq_broker.consumed(group, timeout=0.05)
        with pytest.raises(TimeoutError, match=r"not idle after 50 ms: group .* messages have been handed out"):
            await rocketmq_broker.idle(timeout=0.05)
        may_finish.set()
        await rocketmq_broker.consumed(group)
        await rocketmq_broker.idle()
        assert rocketmq_broker.in_flight(group) == []
        assert rocketmq_broker.lag(group).total == 0
        assert rocketmq_broker.messages(topic, group=group) == []


async def test_messages_are_waited_for(rocketmq_broker: RocketmqBroker, producer: Producer) -> None:
    """A wait ends with the message that makes them enough, also in a topic that comes with it."""
    topic = await rocketmq_broker.create_topic()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(rocketmq_broker.arrived(topic, 2, tag="a"))
        unborn = tasks.create_task(rocketmq_broker.arrived(f"{topic}-of-nobody"))
        for tag in "aba":
            await producer.send(Message(topic, tag.encode(), tags=tag))
        await producer.send(Message(f"{topic}-of-nobody", b"first"))
    assert [message.body for message in waiting.result()] == [b"a", b"a"]
    assert [message.body for message in unborn.result()] == [b"first"]
    with pytest.raises(TimeoutError, match=f"2 of 3 messages came to '{topic}' in 50 ms"):
        await rocketmq_broker.arrived(topic, 3, tag="a", timeout=0.05)
    with pytest.raises(ValueError, match="there is no topic"):
        await rocketmq_broker.arrived("never-made", timeout=0.01)


async def test_blocking_waits_are_refused_on_a_loop(rocketmq_broker: RocketmqBroker) -> None:
    """A wait that would block the loop on which clients live says what to await instead."""
    with pytest.raises(RuntimeError, match=r"wait_for\(\) would block this event loop.*: await arrived\(\) instead"):
        rocketmq_broker.wait_for("orders")
    with pytest.raises(RuntimeError, match=r"await consumed\(\) instead"):
        rocketmq_broker.wait_consumed("shipping")
    with pytest.raises(RuntimeError, match=r"await idle\(\) instead"):
        rocketmq_broker.wait_idle()


async def test_group_without_members_is_waited_for(rocketmq_broker: RocketmqBroker) -> None:
    """A group that nobody is a member of has not consumed; the text says so."""
    with pytest.raises(TimeoutError, match="it has no members"):
        await rocketmq_broker.consumed(rocketmq_broker.group(), timeout=0.01)


def test_sent_is_asserted(rocketmq_broker: RocketmqBroker) -> None:
    """What was sent is found by any of its parts; times counts."""
    topic = rocketmq_broker.topic(queues=1)

    async def send() -> None:
        async with Producer("shop", rocketmq_broker.nameserver) as producer:
            await producer.send(
                Message(topic, b'{"id": 42, "paid": true}', tags="paid", keys=["42"], properties={"shop": "x"})
            )
            await producer.send(Message(topic, b"\xff", tags="raw"))

    asyncio.run(send())
    assert len(rocketmq_broker.wait_for(topic, 2)) == 2
    rocketmq_broker.assert_sent(topic, json={"paid": True, "id": 42}, tags="paid", keys=["42"], times=1)
    rocketmq_broker.assert_sent(topic, body=b"\xff", properties={})
    rocketmq_broker.assert_sent(topic, times=2)
    rocketmq_broker.assert_sent(topic, tags="none", times=0)
    with pytest.raises(AssertionError) as failed:
        rocketmq_broker.assert_sent(topic, json={"id": 43}, tags="paid", properties={"shop": "y"})
    wanted = "json={'id': 43}, tags='paid', properties={'shop': 'y'}"
    assert str(failed.value).splitlines() == [
        f"'{topic}' should have a message with {wanted}; 0 of its 2 are so",
        "  queue 0, offset 0: json is {'id': 42, 'paid': True}; property shop is 'x'",
        "  queue 0, offset 1: body is no JSON: b'\\xff'; tags are 'raw'; property shop is None",
    ]
    with pytest.raises(AssertionError, match="should have 1 message with anything; 2 of its 2 are so"):
        rocketmq_broker.assert_sent(topic, times=1)


@pytest.fixture
def broker() -> Iterator[RocketmqBroker]:
    """Return a broker that filters by SQL."""
    with RocketmqBroker({"enablePropertyFilter": "true"}) as broker:
        yield broker


@pytest.mark.parametrize("wanted", ["paid", Sql("amount > 10")], ids=["tag", "sql"])
async def test_message_that_the_filter_leaves_out_is_waited_for_by_nobody(
    broker: RocketmqBroker, wanted: str | Sql
) -> None:
    """A group is done although its held pull, which such a message does not wake, has not gone past it."""
    topic, group = await broker.create_topic(queues=1), await broker.create_group()

    async def listen(messages: list[ReceivedMessage]) -> None:
        pass

    consumer = PushConsumer(group, broker.nameserver, settings=ALL)
    consumer.subscribe(topic, wanted, listen)
    async with consumer, Producer("shop", broker.nameserver) as producer:
        await broker.consumed(group)
        broker.clock.freeze()  # no pull is held for too long
        for number, (tag, amount) in enumerate([("new", "1"), ("paid", "11"), ("new", "2")]):
            await producer.send(Message(topic, b"%d" % number, tags=tag, properties={"amount": amount}))
            await broker.consumed(group)
        assert (await asyncio.to_thread(broker.lag, group)).total == 0
        assert await asyncio.to_thread(broker.in_flight, group) == []
    broker.clock.resume()
