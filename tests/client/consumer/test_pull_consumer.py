"""The pull consumer against a real broker."""

import asyncio
import pathlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from real_broker import restartable_broker
from subscribed import PULL_FROM_FIRST, pull_consumer, push_consumer

from rocketlet.client import (
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullConsumerSettings,
    ReceivedMessage,
)
from rocketlet.client.session.callbacks import QueueCallbacks
from rocketlet.common.errors import ClientStateError, ConfigError, RouteNotFoundError
from rocketlet.namesrv.server import NameServer


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
    consumer = pull_consumer(address)
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
    consumer = pull_consumer(address)
    async with consumer:
        async for message in consumer:
            if message.body == b"6":
                break
    again = pull_consumer(address)
    async with again:
        assert numbers(await poll_all(again, 4)) == [6, 7, 8, 9]


@pytest.mark.feature("B23")
async def test_commit_stores_what_was_handed_out(address: str, producer: Producer) -> None:
    """With committing left to the caller, only ``commit`` moves what is stored."""
    queue = await send_to_one_queue(producer, 10)
    consumer = pull_consumer(address, commits_itself=False, pull_messages=4)
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
    async with PullConsumer("cg", address, settings=PULL_FROM_FIRST) as consumer:
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
    async with PullConsumer("cg", address, settings=PULL_FROM_FIRST) as consumer:
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
    async with PullConsumer("cg", address, settings=PULL_FROM_FIRST) as consumer:
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
    consumer = PullConsumer("cg", address, settings=PULL_FROM_FIRST)
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
    pushing = push_consumer(address, lambda _: None)
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
    async with (
        restartable_broker(nameserver, tmp_path / "store") as restart,
        Producer("pg", nameserver.address) as producer,
        PullConsumer("cg", nameserver.address, settings=PULL_FROM_FIRST) as consumer,
    ):
        queue = await send_to_one_queue(producer, 3)
        await consumer.assign([queue])
        got += await poll_all(consumer, 3)
        await restart()
        await producer.send(Message("T", b"3"), queue=queue)
        got += await poll_all(consumer, 1)
    assert numbers(got) == [0, 1, 2, 3]


async def test_leaving_the_block_leaves_nothing_behind(address: str, producer: Producer) -> None:
    """No task is left."""
    await send_to_one_queue(producer, 1)
    tasks = asyncio.all_tasks()
    consumer = pull_consumer(address)
    async with consumer:
        await poll_all(consumer, 1)
    assert asyncio.all_tasks() <= tasks


class Diary:
    """What happened to the queues of one member, and a wait for it."""

    def __init__(self, consumer: PullConsumer) -> None:
        self.lines: list[tuple[str, int]] = []
        self._happened = asyncio.Event()
        consumer.on_queues_assigned(lambda queues: self._note("assigned", queues))
        consumer.on_queues_revoked(lambda queues: self._note("revoked", queues))

    async def wait_for(self, *lines: tuple[str, int]) -> None:
        """Return when just this has happened."""
        while len(self.lines) < len(lines):
            self._happened.clear()
            await self._happened.wait()
        assert self.lines == list(lines)

    def _note(self, what: str, queues: tuple[MessageQueue, ...]) -> None:
        self.lines.append((what, len(queues)))
        self._happened.set()


async def fill(producer: Producer, per_queue: int) -> None:
    """Send as many messages to each of four queues."""
    await producer.send(Message("T", b"0"))
    for number in range(1, 4 * per_queue):
        await producer.send(Message("T", b"%d" % number))


@pytest.mark.feature("B26")
async def test_callbacks_follow_the_members(address: str) -> None:
    """Queues come at the start, go when a member joins, come back when it leaves, and go at the end."""
    async with Producer("pg", address) as producer:
        await producer.send(Message("T", b"makes the topic"))
        first, second = pull_consumer(address), pull_consumer(address)
        diary, other = Diary(first), Diary(second)
        async with first:
            await diary.wait_for(("assigned", 4))
            async with second:
                await other.wait_for(("assigned", 2))
                await diary.wait_for(("assigned", 4), ("revoked", 2))
            await other.wait_for(("assigned", 2), ("revoked", 2))
            await diary.wait_for(("assigned", 4), ("revoked", 2), ("assigned", 2))
        await diary.wait_for(("assigned", 4), ("revoked", 2), ("assigned", 2), ("revoked", 4))


@pytest.mark.feature("B26")
async def test_application_commits_before_queues_go(own_address: str) -> None:
    """What was handled when a member joins does not come again to the member that gets the queues.

    As long as it asks later; the official broker serves two members at once, and may tell the second first.
    """
    async with Producer("pg", own_address) as producer:
        await fill(producer, 2)
        first = pull_consumer(own_address, commits_itself=False)
        first.on_queues_revoked(lambda _: first.commit())
        async with first:
            got = 0
            while got < 8:
                got += len(await first.poll())
            async with pull_consumer(own_address, commits_itself=False) as second:
                while len(second.queues) < 2:
                    assert await second.poll(timeout_ms=100) == []
                committed = [await second.committed(queue) for queue in second.queues]
                assert committed == [2, 2]


@pytest.mark.feature("B26")
async def test_application_seeks_before_queues_are_read(address: str) -> None:
    """A seek in the callback decides where reading begins: nothing before it is handed out."""
    async with Producer("pg", address) as producer:
        await fill(producer, 3)
        consumer = pull_consumer(address)

        async def begin_at_two(queues: tuple[MessageQueue, ...]) -> None:
            for queue in queues:
                await consumer.seek(queue, 2)

        consumer.on_queues_assigned(begin_at_two)
        async with consumer:
            offsets: list[int] = []
            while len(offsets) < 4:
                offsets += [message.queue_offset for message in await consumer.poll()]
        assert offsets == [2, 2, 2, 2]


@pytest.mark.feature("B26")
async def test_callback_that_raises_changes_nothing(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """The queues are read all the same, and the log has what was raised."""
    async with Producer("pg", address) as producer:
        await fill(producer, 1)
        consumer = pull_consumer(address)
        consumer.on_queues_assigned(_fail)
        async with consumer:
            got = 0
            while got < 4:
                got += len(await consumer.poll())
    assert "no such luck" in caplog.text


def _fail(_queues: tuple[MessageQueue, ...]) -> None:
    raise LookupError("no such luck")


def test_callback_must_be_a_function() -> None:
    """Anything else is refused where it is given."""
    not_callable: Callable[[tuple[MessageQueue, ...]], object] = "T"  # pyright: ignore[reportAssignmentType] # on purpose
    with pytest.raises(TypeError, match="callback is str"):
        QueueCallbacks().on_revoked(not_callable)


NOWHERE = "127.0.0.1:1"
QUEUE = MessageQueue("T", "broker-a", 0)


async def test_use_before_the_start_is_refused() -> None:
    """Whatever needs a broker says that the consumer is not started; iteration does not just end."""
    consumer = PullConsumer("cg", NOWHERE)
    consumer.subscribe("T")
    calls: list[Callable[[], Any]] = [
        consumer.poll,
        consumer.__anext__,
        consumer.commit,
        lambda: consumer.assign([QUEUE]),
        lambda: consumer.seek(QUEUE, 0),
        lambda: consumer.committed(QUEUE),
        lambda: consumer.pull_once(QUEUE, 0),
    ]
    for call in calls:
        with pytest.raises(ClientStateError, match="pull consumer cg is not started yet"):
            await call()


async def test_consumer_without_anything_to_consume_says_so(address: str) -> None:
    """Polling would wait for ever; so would iterating."""
    async with PullConsumer("cg", address) as consumer:
        with pytest.raises(ClientStateError, match="nothing to consume: subscribe or assign first"):
            await consumer.poll()
        with pytest.raises(ClientStateError, match="nothing to consume: subscribe or assign first"):
            await anext(consumer)


async def test_wrong_values_are_refused(address: str) -> None:
    """Types and ranges are checked where the value comes in."""
    async with Producer("pg", address) as producer, PullConsumer("cg", address, settings=PULL_FROM_FIRST) as consumer:
        queue = (await producer.send(Message("T", b"0"))).queue
        with pytest.raises(TypeError, match="'T' is str, it must be a MessageQueue"):
            await consumer.assign("T")  # pyright: ignore[reportArgumentType] # on purpose
        with pytest.raises(TypeError, match="topic is int"):
            consumer.subscribe(7)  # pyright: ignore[reportArgumentType] # on purpose
        await consumer.assign([queue])
        with pytest.raises(ValueError, match="max_messages is 0"):
            await consumer.poll(max_messages=0)
        with pytest.raises(ValueError, match="timeout_ms is -1"):
            await consumer.poll(-1)
        with pytest.raises(TypeError, match="offset is str"):
            await consumer.seek(queue, "0")  # pyright: ignore[reportArgumentType] # on purpose
        with pytest.raises(ValueError, match="offset is -1"):
            await consumer.commit({queue: -1})
        with pytest.raises(ValueError, match="not owned"):
            await consumer.commit({queue._replace(queue_id=9): 0})
        assert [message.body for message in await consumer.poll()] == [b"0"]


async def test_second_start_is_refused(address: str) -> None:
    """An object lives once; a second one is cheap."""
    consumer = PullConsumer("cg", address)
    async with consumer:
        with pytest.raises(ClientStateError, match="cannot be started again: it is open"):
            await consumer.__aenter__()
    with pytest.raises(ClientStateError, match="cannot be started again: it is closed"):
        await consumer.__aenter__()


def test_wrong_settings_are_refused() -> None:
    """The error names the setting, the value and the range."""
    with pytest.raises(ConfigError, match="pull_messages is 0, allowed are 1 to 1024") as caught:
        PullConsumerSettings(pull_messages=0)
    assert caught.value.key == "pull_messages"
    with pytest.raises(ConfigError, match="reserved"):
        PullConsumer("DEFAULT_CONSUMER", NOWHERE)
