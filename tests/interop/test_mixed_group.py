"""Our client and the official ones work together, on our broker and on the official one."""

import asyncio
import pathlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache

import pytest
from interop import clients
from interop.clients import Outgoing, Queue
from interop.driver import Driver
from interop.mixed_group import MixedGroup
from interop.servers import BROKER_NAME, Server
from interop.toolchain import JAVA_VERSION, OLD_JAVA_VERSION
from subscribed import push_consumer

from rocketlet.client import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
    Message,
    Producer,
    ReceivedMessage,
)

NewTopic = Callable[..., str]
Row = tuple[AllocateMessageQueueStrategy, dict[str, object], dict[str, object]]


@pytest.fixture(scope="module")
def server_of(
    server: Server, java_broker: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Server]:
    """Return a call that gives the shared server, or an official one for this module, by its kind."""
    official = cache(lambda: java_broker(tmp_path_factory.mktemp("official") / "store"))
    return lambda kind: server if kind == "rocketlet" else official()


class Member:
    """Our consumer in a test: what it owns and got, and waits for both."""

    def __init__(self, group: str, topic: str, namesrv: str) -> None:
        self.bodies: list[bytes] = []
        self.consumer = push_consumer(namesrv, self._receive, group=group, topic=topic)
        self.consumer.on_queues_changed(lambda _: self._changed.set())
        self._changed = asyncio.Event()

    async def wait_queues(self, count: int) -> set[int]:
        """Return the ids of the owned queues once there are as many."""
        await self._wait_until(lambda: len(self.consumer.queues) == count)
        return {queue.queue_id for queue in self.consumer.queues}

    async def wait_bodies(self, count: int) -> list[bytes]:
        """Return the bodies once there are as many."""
        await self._wait_until(lambda: len(self.bodies) >= count)
        return self.bodies

    async def _receive(self, messages: list[ReceivedMessage]) -> None:
        self.bodies += [message.body for message in messages]
        self._changed.set()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def official_member(java: Driver, group: str, topic: str, namesrv: str) -> AsyncGenerator[clients.PushConsumer]:
    """Run an official consumer, without blocking the loop on which ours runs."""
    about = {"namesrv": namesrv, "group": group, "subscriptions": {topic: "*"}}
    consumer = await asyncio.to_thread(lambda: clients.PushConsumer(java, **about))
    try:
        yield consumer
    finally:
        await asyncio.to_thread(consumer.stop)


@pytest.mark.feature("B27", "B28", "B1")
async def test_mixed_group_shares_queues(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A Java and one of our consumers own 4 of 8 queues each and get each message once; the last member owns all."""
    topic = new_topic(8)
    group = f"{topic}-group"
    ours = Member(group, topic, server.namesrv)
    async with ours.consumer:
        await ours.wait_queues(8)
        async with official_member(java, group, topic, server.namesrv) as official:
            theirs = {queue.queue_id for queue in await asyncio.to_thread(official.queues, topic, 4)}
            assert (await ours.wait_queues(4)) | theirs == set(range(8))
            async with Producer("senders", server.namesrv) as producer:
                for number in range(80):
                    await producer.send(Message(topic, b"%d" % number))
            got = await ours.wait_bodies(40)
            got += [message.body for message in await asyncio.to_thread(official.received, 40)]
            assert Counter(got) == {b"%d" % number: 1 for number in range(80)}
        await ours.wait_queues(8)


@pytest.mark.feature("B28")
async def test_our_client_reads_what_java_sent(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Bodies (compressed too), tags, keys and properties of a Java producer reach our consumer as they were."""
    topic, large = new_topic(1), b"large " * 2000
    sent = Outgoing(large, tags="tag", keys=["a", "b"], properties={"größe": "公斤 😀"})
    with clients.Producer(java, namesrv=server.namesrv) as producer:
        (result,) = await asyncio.to_thread(producer.send_all, topic, sent)
    received: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    async def receive(messages: list[ReceivedMessage]) -> None:
        await received.put(messages[0])

    consumer = push_consumer(server.namesrv, receive, group=f"{topic}-group", topic=topic, expression="tag")
    async with consumer, asyncio.timeout(30):
        message = await received.get()
    assert (message.body, message.tags, message.keys) == (large, "tag", ("a", "b"))
    assert message.properties["größe"] == "公斤 😀"
    assert (message.message_id, message.offset_message_id) == (result.msg_id, result.offset_msg_id)


@pytest.mark.feature("B28")
async def test_our_client_works_on_the_official_broker(java: Driver, server_of: Callable[[str], Server]) -> None:
    """Our producer and consumer work on the official broker, together with the official client."""
    server = await asyncio.to_thread(server_of, "java")
    ours = Member("group", "topic", server.namesrv)
    async with Producer("senders", server.namesrv) as producer:
        await producer.send(Message("topic", b"0"))
        async with ours.consumer:
            await ours.wait_queues(4)
            for number in range(1, 10):
                await producer.send(Message("topic", b"%d" % number, tags="tag", keys=("key",)))
            assert sorted(await ours.wait_bodies(10)) == [b"%d" % number for number in range(10)]
            async with official_member(java, "group", "topic", server.namesrv) as official:
                await ours.wait_queues(2)
                assert len(await asyncio.to_thread(official.queues, "topic", 2)) == 2


def queues_of(topic: str, broker_name: str = BROKER_NAME) -> list[Queue]:
    """Return the queues of a topic that has twelve."""
    return [Queue(topic, broker_name, number) for number in range(12)]


@pytest.mark.old_java
@pytest.mark.feature("B27", "B1", "B2", "B3")
@pytest.mark.parametrize("kind", ["rocketlet", "java"])
@pytest.mark.parametrize(
    "strategy", [AllocateMessageQueueAveragely(), AllocateMessageQueueAveragelyByCircle()], ids=lambda each: each.name
)
def test_group_of_four_clients_shares_while_members_join_and_die(
    java_of: Callable[[str], Driver],
    another_go: Callable[[], Driver],
    another_python: Callable[[], Driver],
    server_of: Callable[[str], Server],
    new_name: Callable[[], str],
    kind: str,
    strategy: AllocateMessageQueueStrategy,
) -> None:
    """Java 5.4, Java 4.9.8, Go and ours get each queue's messages once, by the strategy, whoever comes and goes."""
    java, old_java, go, ours = java_of(JAVA_VERSION), java_of(OLD_JAVA_VERSION), another_go(), another_python()
    server, topic = server_of(kind), new_name()
    with clients.Admin(java, namesrv=server.namesrv) as admin, clients.Producer(java, namesrv=server.namesrv) as sender:
        admin.create_topic(server.broker, topic, 12)
        group = MixedGroup(sender, server, queues_of(topic), strategy)
        group.join("ours", ours)
        group.join("java", java)
        group.settle()
        group.join("go", go)
        group.join("old java", old_java)
        group.settle()
        group.leave("ours")
        ours.kill()
        group.join("ours again", another_python())
        group.settle()
        group.leave("go")
        go.kill()
        group.leave("java").drop()
        group.settle()
        group.leave("old java").stop()
        group.settle()


HASHED: Row = (AllocateMessageQueueConsistentHash(), {}, {})
IN_ROOMS: Row = (
    AllocateMessageQueueByMachineRoom(frozenset({"room"})),
    {"strategySettings": {"consumeridcs": ["room"]}},
    {"strategyOptions": {"rooms": ["room"]}},
)


@pytest.mark.old_java
@pytest.mark.feature("B27", "B5", "B7")
@pytest.mark.parametrize(("strategy", "for_java", "for_ours"), [HASHED, IN_ROOMS], ids=["CONSISTENT_HASH", "ROOM"])
def test_group_of_java_and_ours_shares_by_the_strategies_that_go_lacks(
    java_of: Callable[[str], Driver],
    another_python: Callable[[], Driver],
    rocketlet_up: Callable[..., Server],
    tmp_path: pathlib.Path,
    strategy: AllocateMessageQueueStrategy,
    for_java: dict[str, object],
    for_ours: dict[str, object],
) -> None:
    """Java 5.4, Java 4.9.8 and ours compute the same shares, whoever comes and goes."""
    java, old_java, ours = java_of(JAVA_VERSION), java_of(OLD_JAVA_VERSION), another_python()
    server, name = rocketlet_up(tmp_path / "store", brokerName="room@broker"), "room@broker"
    with clients.Admin(java, namesrv=server.namesrv) as admin, clients.Producer(java, namesrv=server.namesrv) as sender:
        admin.create_topic(server.broker, "topic", 12)
        group = MixedGroup(sender, server, queues_of("topic", name), strategy)
        group.join("ours", ours, **for_ours)
        group.join("java", java, **for_java)
        group.settle()
        group.join("old java", old_java, **for_java)
        group.settle()
        group.leave("java").drop()
        group.join("ours too", another_python(), **for_ours)
        group.settle()
        group.leave("ours")
        ours.kill()
        group.settle()
