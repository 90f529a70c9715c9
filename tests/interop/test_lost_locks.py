"""Ordered consumers whose lock of a queue goes to another member: they pause there until they have it again.

The official client and ours, each on our broker and on the official one. Who takes the lock away is a caller that gives
it back in the consumer's name and takes it in its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from inbox import Inbox
from interop import clients
from interop.driver import Driver
from interop.servers import Server
from interop.tap import Passed, Tap
from raw_calls import Caller, lock_body, open_caller
from subscribed import push_consumer

from rocketlet.client import (
    Admin,
    Message,
    MessageQueue,
    Producer,
    ProducerSettings,
    TopicSettings,
)
from rocketlet.client.consumer import orderly_consume
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.client import LockBatchBody, LockedQueues
from rocketlet.remoting.codec.request_codes import RequestCode

THIEF = "another member"


class Thief:
    """Who takes the lock of a queue, and gives it back."""

    def __init__(self, caller: Caller, group: str, queue: MessageQueue) -> None:
        self._caller = caller
        self._group = group
        self._queue = queue

    async def take_from(self, client_id: str) -> None:
        """Have the lock instead of the consumer, which may renew it in between."""
        granted: list[object] = []
        while not granted:
            await self._ask(RequestCode.UNLOCK_BATCH_MQ, client_id)
            granted += decode_body(LockedQueues, await self._ask(RequestCode.LOCK_BATCH_MQ, THIEF)).queues

    async def give_back(self) -> None:
        """Have it no more."""
        await self._ask(RequestCode.UNLOCK_BATCH_MQ, THIEF)

    async def _ask(self, code: int, client_id: str) -> bytes:
        return bytes((await self._caller.ask(code, None, lock_body(self._group, client_id, [self._queue]))).body)


@asynccontextmanager
async def thief_at(server: Server, group: str, queue: MessageQueue) -> AsyncGenerator[Thief]:
    """Yield a thief of a lock."""
    async with open_caller(server.broker) as caller:
        yield Thief(caller, group, queue)


@pytest.fixture
async def queues(either: Server, new_name: Callable[[], str]) -> list[MessageQueue]:
    """Return the two queues of a new topic."""
    topic = new_name()
    async with Admin(either.namesrv) as admin:
        await admin.create_topic(topic, TopicSettings(read_queues=2, write_queues=2))
        return list(await admin.queues(topic))


@pytest.fixture
async def producer(either: Server) -> AsyncGenerator[Producer]:
    """Yield our producer; a JVM that is still warming up may take long."""
    async with Producer("pg", either.namesrv, settings=ProducerSettings(send_timeout_ms=10_000)) as running:
        yield running


async def send(producer: Producer, body: bytes, *queues: MessageQueue) -> None:
    """Send a message to each of the queues."""
    for queue in queues:
        await producer.send(Message(queue.topic, b"%s %d" % (body, queue.queue_id)), queue=queue)


def asks_for(queue: MessageQueue) -> Callable[[Passed], bool]:
    """Return what tells whether a client was answered about the lock of a queue."""

    def fits(passed: Passed) -> bool:
        if passed.request.code != RequestCode.LOCK_BATCH_MQ or passed.answered is None:
            return False
        return queue in decode_body(LockBatchBody, passed.request.body).mq_set

    return fits


async def renewed(tap: Tap, queue: MessageQueue) -> None:
    """Wait until a client has asked for the lock of a queue, and was answered, after this call."""
    seen = tap.count
    for _ in range(2):  # the first may have been under way
        seen = await asyncio.to_thread(tap.wait, asks_for(queue), seen)


@pytest.mark.feature("B22")
async def test_our_consumer_pauses(
    either: Server, producer: Producer, queues: list[MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns of the loss when it renews its locks, goes on with the other queue, and asks for the lock again."""
    for pause in ("LOCK_INTERVAL_MS", "LOCK_REFUSED_PAUSE_MS"):
        monkeypatch.setattr(orderly_consume, pause, 50)
    lost, kept = queues
    group, inbox = f"{lost.topic}-group", Inbox()
    with Tap(either) as tap:
        consumer = push_consumer(tap.namesrv, inbox, group=group, topic=lost.topic, is_orderly=True)
        async with thief_at(either, group, lost) as thief, consumer:
            await send(producer, b"before", *queues)
            await inbox.wait_for(2)
            await thief.take_from(consumer.client_id)
            await renewed(tap, lost)
            await send(producer, b"after", lost, kept, kept)
            await inbox.wait_for(4)
            await renewed(tap, lost)
            assert sorted(inbox.bodies.elements()) == [b"after 1", b"after 1", b"before 0", b"before 1"]
            await thief.give_back()
            await inbox.wait_body(b"after 0")


@pytest.mark.feature("B22")
async def test_java_consumer_pauses(
    either: Server, java: Driver, producer: Producer, queues: list[MessageQueue]
) -> None:
    """The same with Java's client; its locks are renewed every 20 s."""
    lost, kept = queues
    group = f"{lost.topic}-group"
    about = {"group": group, "subscriptions": {lost.topic: "*"}, "orderly": True}

    async def received(count: int) -> list[bytes]:
        return sorted(message.body for message in await asyncio.to_thread(consumer.received, count))

    with Tap(either) as tap:
        consumer = await asyncio.to_thread(lambda: clients.PushConsumer(java, namesrv=tap.namesrv, **about))
        async with thief_at(either, group, lost) as thief:
            await send(producer, b"before", *queues)
            assert await received(2) == [b"before 0", b"before 1"]
            await thief.take_from(str(consumer.client_id))
            await asyncio.to_thread(tap.wait, asks_for(lost), tap.count)
            await send(producer, b"after", lost, kept, kept)
            assert await received(4) == [b"after 1", b"after 1", b"before 0", b"before 1"]
            await renewed(tap, lost)
            assert len(await received(0)) == 4
            await thief.give_back()
            assert b"after 0" in await received(5)
        await asyncio.to_thread(consumer.stop)
