"""The push consumer against a real broker."""

import asyncio
import contextlib
import pathlib
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

import pytest
from inbox import Inbox, Shares
from real_broker import restartable_broker, running_broker
from scripted_cluster import ScriptedCluster, silent
from subscribed import PUSH_FROM_FIRST, consume, push_consumer

from rocketlet.client import (
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from rocketlet.common.errors import ClientStateError
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode


async def send_all(producer: Producer, topic: str, bodies: Sequence[bytes], tags: str | None = None) -> None:
    """Send messages, at least one to each queue if there are as many."""
    for body in bodies:
        await producer.send(Message(topic, body, tags=tags))


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    """Return bodies."""
    return [f"{prefix}{number}".encode() for number in range(count)]


async def test_messages_come_as_they_were_sent(address: str, producer: Producer) -> None:
    """Body, tag, keys, properties and ids arrive; a compressed body arrives inflated."""
    inbox = Inbox()
    message = Message("T", b"z" * 9000, tags="TagA", keys=["k1", "k2"], properties={"color": "grün"}, flag=5)
    result = await producer.send(message)
    async with push_consumer(address, inbox):
        [got] = await inbox.wait_for(1)

    assert (got.topic, got.body, got.tags, got.keys, got.flag) == ("T", message.body, "TagA", ("k1", "k2"), 5)
    assert got.properties["color"] == "grün"
    assert (got.message_id, got.offset_message_id) == (result.message_id, result.offset_message_id)
    assert (got.queue, got.queue_offset) == (result.queue, result.queue_offset)


async def test_share_is_known_inside_the_block(address: str, producer: Producer) -> None:
    """The queues are owned and their offsets fixed when the block begins, so nothing that is sent now is missed."""
    await send_all(producer, "T", numbered(4, "old"))
    inbox = Inbox()
    consumer = PushConsumer("cg", address)
    consumer.subscribe("T", "*", inbox)
    async with consumer:
        assert [queue.queue_id for queue in consumer.queues] == [0, 1, 2, 3]
        await send_all(producer, "T", numbered(4, "new"))
        await inbox.wait_for(8)  # a new group of a young topic gets the old messages too, also with LAST
    assert inbox.bodies == Counter(numbered(4, "old") + numbered(4, "new"))


@pytest.mark.feature("B1", "B2")
async def test_two_members_share_a_third_joins_one_leaves(address: str, producer: Producer) -> None:
    """Eight queues of two topics go 4 and 4, then 4, 2 and 2, then 4 and 4; each message has come to someone."""
    for topic in "TU":
        await producer.send(Message(topic, b"makes the topic"))
    inbox, shares = Inbox(), Shares()

    @contextlib.asynccontextmanager
    async def member() -> AsyncGenerator[PushConsumer]:
        consumer = push_consumer(address, inbox)
        shares.watch(consumer)
        consumer.subscribe("U", "*", inbox)
        async with consumer:
            yield consumer
        shares.forget(consumer)

    async with member(), contextlib.AsyncExitStack() as second:
        await shares.wait_until(8)
        await second.enter_async_context(member())
        await shares.wait_until(4, 4)
        async with member():
            await shares.wait_until(4, 2, 2)
            await send_all(producer, "T", numbered(40))
            await second.aclose()
            await shares.wait_until(4, 4)
            while not set(numbered(40)) <= set(inbox.bodies):
                await inbox.wait_for(len(inbox.messages) + 1)
        await shares.wait_until(8)


@pytest.mark.feature("B12")
async def test_member_without_a_queue_is_idle(address: str, producer: Producer) -> None:
    """Of five members of a topic with four queues one owns nothing."""
    await producer.send(Message("T", b"makes the topic"))
    shares = Shares()
    async with contextlib.AsyncExitStack() as members:
        for _ in range(5):
            consumer = PushConsumer("cg", address)
            consumer.subscribe("T", "*", Inbox())
            shares.watch(consumer)
            await members.enter_async_context(consumer)
        await shares.wait_until(1, 1, 1, 1)


@pytest.mark.feature("B17")
async def test_offsets_survive_a_restart_of_the_consumer(address: str, producer: Producer) -> None:
    """What was finished does not come again, what came meanwhile does."""
    await send_all(producer, "T", numbered(10, "a"))
    for prefix in "ab":
        inbox = await consume(address, 10)
        assert inbox.bodies == Counter(numbered(10, prefix))
        await send_all(producer, "T", numbered(10, "b"))


@pytest.mark.feature("B17")
async def test_offsets_survive_a_restart_of_the_broker(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """A consumer finds the broker at its new port and goes on where it was."""
    inbox = Inbox()
    consumer = push_consumer(nameserver.address, inbox)
    async with Producer("pg", nameserver.address) as producer, running_broker(nameserver, tmp_path / "store"):
        await send_all(producer, "T", numbered(8, "a"))
        async with consumer:
            await inbox.wait_for(8)
    again = push_consumer(nameserver.address, inbox)
    async with running_broker(nameserver, tmp_path / "store"), Producer("pg", nameserver.address) as producer, again:
        await send_all(producer, "T", numbered(8, "b"))
        await inbox.wait_for(16)
    assert inbox.bodies == Counter(numbered(8, "a") + numbered(8, "b"))


async def test_consumer_goes_on_after_a_restart_of_the_broker(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """A running consumer connects again by itself; the broker is told who it is."""
    inbox = Inbox()
    consumer = push_consumer(nameserver.address, inbox)
    async with (
        restartable_broker(nameserver, tmp_path / "store") as restart,
        Producer("pg", nameserver.address) as producer,
    ):
        await send_all(producer, "T", numbered(8, "a"))
        async with consumer:
            await inbox.wait_for(8)
            await restart()
            await send_all(producer, "T", numbered(8, "b"))
            await inbox.wait_for(16)
    assert set(inbox.bodies) == {*numbered(8, "a"), *numbered(8, "b")}


async def test_cancelled_start_leaves_nothing_behind(cluster: ScriptedCluster) -> None:
    """Who gives up while the first share is awaited gets away clean."""
    cluster.nameserver.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = silent
    tasks = asyncio.all_tasks()
    consumer = PushConsumer("cg", cluster.nameserver.address)
    consumer.subscribe("T", "*", Inbox())
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(consumer.__aenter__())
        await cluster.nameserver.wait_asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        starting.cancel()
    assert asyncio.all_tasks() <= tasks


@pytest.mark.feature("B17")
async def test_unfinished_message_comes_again(address: str, producer: Producer) -> None:
    """A member that ends while a listener runs leaves that message, and all behind it, to the next."""
    queue = (await producer.send(Message("T", b"first"))).queue
    await producer.send(Message("T", b"second"), queue=queue)
    begun = asyncio.Event()

    async def stuck_on_first(messages: list[ReceivedMessage]) -> None:
        if messages[0].body == b"first":
            begun.set()
            await asyncio.Event().wait()

    consumer = push_consumer(address, stuck_on_first, close_timeout_ms=0)
    async with consumer:
        await begun.wait()

    inbox = await consume(address, 2)
    assert inbox.bodies == Counter([b"first", b"second"])


async def test_leaving_waits_for_running_listeners(address: str, producer: Producer) -> None:
    """A listener that is at work ends, and its message is finished."""
    await producer.send(Message("T", b"x"))
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(_: list[ReceivedMessage]) -> None:
        begun.set()
        for _turn in range(100):
            await asyncio.sleep(0)
        ended.set()

    async with push_consumer(address, slow):
        await begun.wait()
    assert ended.is_set()


async def test_tags_are_filtered(address: str, producer: Producer) -> None:
    """Only what the expression names comes, also for tags whose hashes are equal."""
    for tags in ("Aa", "BB", "C", None, "D"):
        await producer.send(Message("T", f"{tags}".encode(), tags=tags))
    inbox = await consume(address, 2, expression="Aa || D")
    assert inbox.bodies == Counter([b"Aa", b"D"])


async def test_subscription_may_change_inside_the_block(address: str, producer: Producer) -> None:
    """Another topic, another expression and the end of a subscription take effect while the consumer runs."""
    await send_all(producer, "T", [b"t"])
    await send_all(producer, "U", [b"u"])
    inbox, shares = Inbox(), Shares()
    async with PushConsumer("cg", address, settings=PUSH_FROM_FIRST) as consumer:
        shares.watch(consumer)
        consumer.subscribe("T", "*", inbox)
        await inbox.wait_for(1)
        consumer.subscribe("U", "*", inbox)
        await inbox.wait_for(2)
        consumer.unsubscribe("T")
        await shares.wait_until(4)
        assert {queue.topic for queue in consumer.queues} == {"U"}


async def test_topic_that_does_not_exist_yet_is_found_later(address: str, producer: Producer) -> None:
    """A consumer that starts first gets the first message of the topic."""
    inbox = Inbox()
    async with push_consumer(address, inbox, topic="New"):
        await producer.send(Message("New", b"x"))
        await inbox.wait_for(1)


async def test_batches_are_as_large_as_asked(address: str, producer: Producer) -> None:
    """A listener gets up to ``batch_messages`` of one queue in one call."""
    queue = (await producer.send(Message("T", b"0"))).queue
    for number in range(1, 10):
        await producer.send(Message("T", str(number).encode()), queue=queue)
    sizes: list[int] = []
    done = asyncio.Event()

    async def count(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))
        if sum(sizes) == 10:
            done.set()

    async with push_consumer(address, count, batch_messages=4):
        await done.wait()
    assert sorted(sizes) == [2, 4, 4]


async def test_use_in_the_wrong_order_is_refused(address: str) -> None:
    """A consumer starts once; a listener that cannot be called and a bad expression are mistakes."""
    consumer = PushConsumer("cg", address)
    with pytest.raises(TypeError, match="callable"):
        consumer.subscribe("T", "*", None)  # pyright: ignore[reportArgumentType] # the mistake
    with pytest.raises(ValueError, match="no tag"):
        consumer.subscribe("T", "||", Inbox())
    async with consumer:
        pass
    with pytest.raises(ClientStateError, match="is closed"):
        await consumer.__aenter__()


async def test_leaving_the_block_leaves_nothing_behind(address: str, producer: Producer) -> None:
    """No task is left, and the error of the block passes as it is."""
    await producer.send(Message("T", b"x"))
    tasks = asyncio.all_tasks()

    async def fail_inside() -> None:
        inbox = Inbox()
        async with push_consumer(address, inbox):
            await inbox.wait_for(1)
            raise KeyError

    with pytest.raises(KeyError):
        await fail_inside()
    assert asyncio.all_tasks() - tasks <= set()
