"""Locks of ordered consumption end by the broker's time: another member has the queue a minute later, at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from inbox import Inbox
from polling import ask_until

from rocketlet.client import ConsumeFrom, Message, MessageQueue, Producer, PushConsumer, PushConsumerSettings
from rocketlet.common.codes import ResponseCode
from rocketlet.testing import Fault, RocketmqBroker

ORDERED = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, is_orderly=True, rebalance_interval_ms=100)


@pytest.fixture
async def producer(rocketmq_broker: RocketmqBroker) -> AsyncIterator[Producer]:
    """Return a producer."""
    async with Producer("shop", rocketmq_broker.nameserver) as producer:
        yield producer


def ordered(broker: RocketmqBroker, topic: str, group: str) -> tuple[PushConsumer, Inbox]:
    """Return an ordered consumer, and what it gets."""
    consumer, inbox = PushConsumer(group, broker.nameserver, settings=ORDERED), Inbox()
    consumer.subscribe(topic, "*", inbox)
    return consumer, inbox


async def ask_again(broker: RocketmqBroker, client_id: str) -> None:
    """Return when a client has asked for locks once more."""

    def count() -> int:
        return sum(request.client == client_id for request in broker.requests("lock_queues"))

    before = count()
    await asyncio.to_thread(ask_until, count, lambda now: now > before + 1)  # the first may have been under way


async def test_queue_of_a_member_that_is_gone_without_a_word(
    rocketmq_broker: RocketmqBroker, producer: Producer
) -> None:
    """Its lock outlives it for a minute of the broker's time, and then the next member has the queue."""
    broker = rocketmq_broker
    topic, group = await broker.create_topic(queues=1), await broker.create_group()
    gone, inbox = ordered(broker, topic, group)
    async with gone:
        await producer.send(Message(topic, b"1"))
        await inbox.wait_for(1)
        await broker.consumed(group)
        broker.faults.add(on="unlock_queues", client=gone.client_id, answer=Fault.DROP)
        broker.faults.add(on="unregister_client", client=gone.client_id, answer=ResponseCode.SYSTEM_ERROR)
    heir, inbox = ordered(broker, topic, group)
    async with heir:
        await producer.send(Message(topic, b"2"))
        broker.clock.advance(seconds=55)
        await ask_again(broker, heir.client_id)
        assert inbox.messages == []
        broker.clock.advance(seconds=10)
        assert [message.body for message in await inbox.wait_for(1)] == [b"2"]


async def test_queue_of_a_member_that_stands_still(rocketmq_broker: RocketmqBroker, producer: Producer) -> None:
    """A member that hears nothing does not give up the half that is another's now: that one has it a minute later."""
    broker = rocketmq_broker
    topic, group = await broker.create_topic(queues=2), await broker.create_group()
    still, inbox = ordered(broker, topic, group)
    queues = [MessageQueue(topic, broker.name, number) for number in range(2)]
    async with still:
        for queue in queues:
            await producer.send(Message(topic, b"1"), queue=queue)
        await inbox.wait_for(2)
        await broker.consumed(group)
        heir, heirs = ordered(broker, topic, group)
        with broker.partition(still.client_id):
            async with heir:
                for queue in queues:
                    await producer.send(Message(topic, b"2"), queue=queue)
                broker.clock.advance(seconds=55)
                await ask_again(broker, heir.client_id)
                assert heirs.messages == []
                broker.clock.advance(seconds=10)
                while (await heirs.wait_for(1))[-1].body != b"2":  # what was consumed and not committed comes again
                    await heirs.wait_for(len(heirs.messages) + 1)
                assert len(inbox.messages) == 2
