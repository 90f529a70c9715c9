"""The pull consumer against a real broker."""

import asyncio
import pathlib
from collections import Counter
from collections.abc import AsyncGenerator

import pytest
from real_broker import running_broker

from rocketlet.client import (
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullConsumerSettings,
    PushConsumer,
    PushConsumerSettings,
    ReceivedMessage,
)
from rocketlet.common.errors import ClientStateError, RouteNotFoundError
from rocketlet.namesrv.server import NameServer

FIRST = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)


@pytest.fixture
async def producer(address: str) -> AsyncGenerator[Producer]:
    """Yield a producer at the real broker."""
    async with Producer("pg", address) as running:
        yield running


async def send_to_one_queue(producer: Producer, count: int, topic: str = "T") -> MessageQueue:
    """Send messages with the bodies 0, 1, … to one queue."""
    queue: MessageQueue | None = None
    for number in range(count):
        queue = (await producer.send(Message(topic, str(number).encode()), queue=queue)).queue
    assert queue is not None
    return queue


async def poll_all(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    """Return so many messages."""
    messages: list[ReceivedMessage] = []
    while len(messages) < count:
        messages += await consumer.poll()
    return messages


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    """Return the bodies as numbers."""
    return [int(message.body) for message in messages]


@pytest.mark.feature("B23")
async def test_messages_of_a_subscription_come_one_by_one(address: str, producer: Producer) -> None:
    """Iteration gives every message of every queue, in the order of each queue."""
    for number in range(12):
        await producer.send(Message("T", str(number).encode()))
    consumer = PullConsumer("cg", address, settings=FIRST)
    consumer.subscribe("T")
    got: list[ReceivedMessage] = []
    async with consumer:
        async for message in consumer:
            got.append(message)
            if len(got) == 12:
                break
    assert Counter(numbers(got)) == Counter(range(12))
    for queue in {message.queue for message in got}:
        offsets = [message.queue_offset for message in got if message.queue == queue]
        assert offsets == sorted(offsets)


async def test_unknown_topic_is_told(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer of a topic that does not exist starts, and says that nothing comes until it is created."""
    consumer = PullConsumer("cg", address)
    consumer.subscribe("no-such-topic")
    async with consumer:
        assert await consumer.poll(timeout_ms=1) == []
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("group cg: topic no-such-topic not found, consuming nothing of it until it is created")


@pytest.mark.feature("B23")
async def test_finished_messages_do_not_come_again(address: str, producer: Producer) -> None:
    """What was handed out last was not finished by asking for more, so it comes again; what was before does not."""
    await send_to_one_queue(producer, 10)
    consumer = PullConsumer("cg", address, settings=FIRST)
    consumer.subscribe("T")
    async with consumer:
        async for message in consumer:
            if message.body == b"6":
                break
    again = PullConsumer("cg", address, settings=FIRST)
    again.subscribe("T")
    async with again:
        assert numbers(await poll_all(again, 4)) == [6, 7, 8, 9]


@pytest.mark.feature("B23")
async def test_commit_stores_what_was_handed_out(address: str, producer: Producer) -> None:
    """With committing left to the caller, only ``commit`` moves what is stored."""
    queue = await send_to_one_queue(producer, 10)
    settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST, commits_itself=False, pull_messages=4)
    consumer = PullConsumer("cg", address, settings=settings)
    consumer.subscribe("T")
    async with consumer:
        await poll_all(consumer, 4)
        await poll_all(consumer, 4)
        assert not await consumer.committed(queue)
        await consumer.commit()
        assert await consumer.committed(queue) == 8
        await poll_all(consumer, 2)
    async with PullConsumer("cg", address) as other:
        assert await other.committed(queue) == 8


@pytest.mark.feature("B23")
async def test_assigned_queues_are_exactly_those(address: str, producer: Producer) -> None:
    """Assigning again gives up what is no longer wanted; subscribing as well is refused."""
    for number in range(8):
        await producer.send(Message("T", str(number).encode()))
    async with PullConsumer("cg", address, settings=FIRST) as consumer:
        queues = await consumer.fetch_queues("T")
        assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
        await consumer.assign(queues[:2])
        assert consumer.queues == queues[:2]
        assert {message.queue for message in await poll_all(consumer, 4)} == set(queues[:2])

        await consumer.assign(queues[1:3])
        assert consumer.queues == queues[1:3]
        assert {message.queue for message in await poll_all(consumer, 2)} == {queues[2]}
        with pytest.raises(ClientStateError, match="cannot subscribe"):
            consumer.subscribe("T")


async def test_subscribed_consumer_refuses_to_assign(address: str, producer: Producer) -> None:
    """The two ways exclude each other."""
    queue = await send_to_one_queue(producer, 1)
    consumer = PullConsumer("cg", address)
    consumer.subscribe("T")
    async with consumer:
        with pytest.raises(ClientStateError, match="cannot assign"):
            await consumer.assign([queue])


async def test_assigning_an_unknown_topic_is_an_error(address: str) -> None:
    """The caller learns at once that there is nothing to read."""
    async with PullConsumer("cg", address) as consumer:
        with pytest.raises(RouteNotFoundError):
            await consumer.assign([MessageQueue("missing", "broker-a", 0)])


@pytest.mark.feature("B23")
async def test_seek_moves_within_the_queue(address: str, producer: Producer) -> None:
    """Back, forth, to both ends; outside the queue and in foreign queues it is refused."""
    queue = await send_to_one_queue(producer, 10)
    async with PullConsumer("cg", address, settings=FIRST) as consumer:
        await consumer.assign([queue])
        assert numbers(await poll_all(consumer, 10)) == list(range(10))
        await consumer.seek(queue, 7)
        assert consumer.position(queue) == 7
        assert numbers(await poll_all(consumer, 3)) == [7, 8, 9]
        await consumer.seek_to_begin(queue)
        assert numbers(await consumer.poll(max_messages=2)) == [0, 1]
        assert consumer.position(queue) == 2
        await consumer.seek_to_end(queue)
        await producer.send(Message("T", b"10"), queue=queue)
        assert numbers(await poll_all(consumer, 1)) == [10]
        with pytest.raises(ValueError, match="outside"):
            await consumer.seek(queue, 12)
        with pytest.raises(ValueError, match="not owned"):
            await consumer.seek(queue._replace(queue_id=99), 0)


async def test_offset_of_a_time_is_found(address: str, producer: Producer) -> None:
    """Before all messages it is the first, after all the end."""
    queue = await send_to_one_queue(producer, 3)
    async with PullConsumer("cg", address) as consumer:
        assert await consumer.offset_at(queue, 0) == 0
        assert await consumer.offset_at(queue, 1 << 50) == 3


@pytest.mark.feature("B23")
async def test_paused_queue_gives_nothing_until_it_goes_on(address: str, producer: Producer) -> None:
    """What was pulled before the pause waits with it."""
    queue = await send_to_one_queue(producer, 3)
    async with PullConsumer("cg", address, settings=FIRST) as consumer:
        await consumer.assign([queue])
        await consumer.poll(max_messages=1)
        consumer.pause([queue])
        assert await consumer.poll(timeout_ms=0) == []
        consumer.resume([queue])
        assert numbers(await poll_all(consumer, 2)) == [1, 2]


async def test_poll_without_a_message_returns_in_time(address: str, producer: Producer) -> None:
    """An empty list, and the next poll gets what comes."""
    queue = await send_to_one_queue(producer, 1)
    async with PullConsumer("cg", address) as consumer:
        await consumer.assign([queue])
        await consumer.poll()
        assert await consumer.poll(timeout_ms=0) == []
        async with asyncio.TaskGroup() as group:
            polling = group.create_task(consumer.poll())
            await producer.send(Message("T", b"7"), queue=queue)
        assert numbers(polling.result()) == [7]


async def test_tags_are_filtered_and_not_read_again(address: str, producer: Producer) -> None:
    """What the expression leaves out moves the offset as well."""
    queue = await send_to_one_queue(producer, 5)
    await producer.send(Message("T", b"5", tags="A"), queue=queue)
    consumer = PullConsumer("cg", address, settings=FIRST)
    consumer.subscribe("T", "A || B")
    async with consumer:
        assert numbers(await poll_all(consumer, 1)) == [5]
        await consumer.commit()
        assert await consumer.committed(queue) == 6


@pytest.mark.feature("B1")
async def test_pull_and_push_members_share_the_queues(address: str, producer: Producer) -> None:
    """One group, two kinds of members: each queue has one owner."""
    await send_to_one_queue(producer, 1)
    pulling = PullConsumer("cg", address)
    pulling.subscribe("T")
    pushing = PushConsumer("cg", address, settings=PushConsumerSettings(consume_from=ConsumeFrom.FIRST))
    pushing.subscribe("T", "*", lambda _: None)
    halved = asyncio.Event()
    pulling.on_queues_changed(lambda queues: halved.set() if len(queues) == 2 else None)
    async with pulling:
        assert len(pulling.queues) == 4
        async with pushing:
            await halved.wait()
            assert set(pulling.queues) | set(pushing.queues) == set(await pulling.fetch_queues("T"))


async def test_iteration_ends_when_the_consumer_is_closed(address: str, producer: Producer) -> None:
    """A task that iterates ends by itself; a task that polls gets a typed error; late use is refused."""
    queue = await send_to_one_queue(producer, 1)
    consumer = PullConsumer("cg", address)
    has_begun = asyncio.Event()

    async def iterate() -> None:
        async for _ in consumer:
            has_begun.set()

    async with asyncio.TaskGroup() as group, consumer:
        await consumer.assign([queue])
        group.create_task(iterate())
        await has_begun.wait()
    with pytest.raises(ClientStateError, match="is closed"):
        await consumer.poll()
    with pytest.raises(ClientStateError, match="is closed"):
        await consumer.assign([queue])


async def test_consumer_resumes_after_the_broker_was_restarted(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """It reconnects by itself and misses nothing."""
    got: list[ReceivedMessage] = []
    async with Producer("pg", nameserver.address) as producer:
        async with running_broker(nameserver, tmp_path / "store") as broker:
            port = int(broker.address.rpartition(":")[2])
            queue = await send_to_one_queue(producer, 3)
            consumer = PullConsumer("cg", nameserver.address, settings=FIRST)
            await consumer.__aenter__()
            await consumer.assign([queue])
            got += await poll_all(consumer, 3)
        async with running_broker(nameserver, tmp_path / "store", port=port):
            await producer.send(Message("T", b"3"), queue=queue)
            got += await poll_all(consumer, 1)
            await consumer.__aexit__(None, None, None)
    assert numbers(got) == [0, 1, 2, 3]


async def test_leaving_the_block_leaves_nothing_behind(address: str, producer: Producer) -> None:
    """No task is left."""
    await send_to_one_queue(producer, 1)
    tasks = asyncio.all_tasks()
    consumer = PullConsumer("cg", address, settings=FIRST)
    consumer.subscribe("T")
    async with consumer:
        await poll_all(consumer, 1)
    assert asyncio.all_tasks() <= tasks
