"""Our push consumer beside Java's: one offset file of a broadcast, and one orderly group."""

import asyncio
import pathlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from inbox import Inbox
from interop import clients
from interop.driver import Driver
from interop.servers import Server
from subscribed import push_consumer

from rocketlet.client import ConsumeFrom, Message, MessageQueue, Producer, PushConsumer, PushConsumerSettings

NewTopic = Callable[..., str]
BROADCAST = {"messageModel": "BROADCASTING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
INSTANCE = "one-of-two"


@asynccontextmanager
async def java_member(java: Driver, **about: object) -> AsyncGenerator[clients.PushConsumer]:
    """Run a consumer of Java's."""
    consumer = await asyncio.to_thread(lambda: clients.PushConsumer(java, **about))
    try:
        yield consumer
    finally:
        await asyncio.to_thread(consumer.stop)


@pytest.mark.feature("B21")
async def test_java_and_we_go_on_from_one_offset_file(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """What one broadcasting consumer has had the other does not get again, in both directions."""
    topic = await asyncio.to_thread(new_topic)
    group, directory = f"{topic}-group", pathlib.Path(java.directory, ".rocketmq_offsets")

    async def send(producer: Producer, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await producer.send(Message(topic, body))

    async def consume_by_java(count: int) -> tuple[str, list[bytes]]:
        about = {"namesrv": server.namesrv, "group": group, "subscriptions": {topic: "*"}, "settings": BROADCAST}
        async with java_member(java, **about, instance=INSTANCE) as consumer:
            got = await asyncio.to_thread(consumer.received, count)
            assert consumer.client_id is not None
            return consumer.client_id, sorted(message.body for message in got)

    async with Producer("pg", server.namesrv) as producer:
        await send(producer, [b"%d" % number for number in range(10)])
        client_id, bodies = await consume_by_java(10)
        assert len(bodies) == 10

        await send(producer, [b"ours"] * 4)
        inbox = Inbox()
        settings = PushConsumerSettings(
            consume_from=ConsumeFrom.FIRST,
            is_broadcast=True,
            client_host=client_id.partition("@")[0],
            instance_name=client_id.partition("@")[2],
            offset_directory=str(directory),
        )
        consumer = PushConsumer(group, server.namesrv, settings=settings)
        consumer.subscribe(topic, "*", inbox)
        async with consumer:
            await inbox.wait_for(4)
        assert inbox.bodies == {b"ours": 4}

        await send(producer, [b"theirs"] * 4)
        assert await consume_by_java(4) == (client_id, [b"theirs"] * 4)


@pytest.mark.feature("B22")
async def test_orderly_group_of_java_and_us(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Each respects the locks of the other: every queue's messages come in order, and all of them."""
    topic = await asyncio.to_thread(new_topic)
    group, inbox = f"{topic}-group", Inbox()
    about = {"namesrv": server.namesrv, "group": group, "subscriptions": {topic: "*"}, "orderly": True}
    numbers = range(200)

    async def send_all(producer: Producer) -> None:
        for number in numbers:
            await producer.send(Message(topic, b"%d" % number), queue=MessageQueue(topic, "broker-a", number % 4))

    consumer = push_consumer(server.namesrv, inbox, group=group, topic=topic, is_orderly=True)
    settings = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
    async with Producer("pg", server.namesrv) as producer, asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        async with consumer, java_member(java, **about, settings=settings) as official:
            tasks.create_task(send_all(producer))
            await asyncio.to_thread(official.queues, topic, 2)
            theirs = {message.body for message in await asyncio.to_thread(official.received, 50)}
            while len(theirs | set(inbox.bodies)) < 150:
                await inbox.wait_for(len(inbox.messages) + 1)
                theirs = {message.body for message in await asyncio.to_thread(official.received)}
        last = [message.body for message in await asyncio.to_thread(official.received)]
        async with java_member(java, **about, settings=settings) as official:
            while len({*last, *inbox.bodies}) < len(numbers):
                last += [message.body for message in await asyncio.to_thread(official.received, 1)]
    assert {int(body) for body in {*last, *inbox.bodies}} == set(numbers)
    for queue in range(4):
        ours = [int(message.body) for message in inbox.messages if message.queue.queue_id == queue]
        assert ours == sorted(ours)
