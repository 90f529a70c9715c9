"""What our pull consumer answers administrators, beside Java's lite pull consumer in the same place."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from interop.clients import Admin
from interop.driver import Driver, DriverError
from interop.parts import mqadmin
from interop.servers import Server
from subscribed import pull_consumer

from rocketlet.client import Message, MessageQueue, Producer, PullConsumer, ReceivedMessage

NewTopic = Callable[..., str]
COUNT = 3


class Place(NamedTuple):
    """A topic of one queue with three messages, which a member of ours and one of Java's have each polled."""

    java: Driver
    server: Server
    topic: str
    ours: PullConsumer
    message_id: str

    @property
    def queue(self) -> MessageQueue:
        """Its queue."""
        return MessageQueue(self.topic, "broker-a", 0)

    def group(self, name: str) -> str:
        """Return the group of "ours" or "java"."""
        return f"{self.topic}-{name}"

    async def call(self, method: str, *arguments: object) -> Any:
        """Call a method of ``DefaultMQAdminExt``; our loop runs meanwhile, since our consumer answers on it."""

        def call() -> Any:
            with Admin(self.java, namesrv=self.server.namesrv) as admin:
                return admin.driver.call_as(object, "admin.call", name=admin.name, method=method, args=arguments)

        return await asyncio.to_thread(call)

    async def run(self, *arguments: str) -> str:
        """Run mqadmin and return what it prints."""
        return await asyncio.to_thread(mqadmin, self.java, *arguments, "-n", self.server.namesrv)

    async def client_of(self, name: str) -> str:
        """Return the client id of the member."""
        (found,) = (await self.call("examineConsumerConnectionInfo", self.group(name)))["connectionSet"]
        return found["clientId"]

    async def poll_java(self, count: int) -> list[bytes]:
        """Have Java's member poll."""
        poll = partial(self.java.call, "lite.poll", name=self.topic, count=count, timeoutMs=30_000)
        return [message["body"] for message in (await asyncio.to_thread(poll))["messages"]]


async def poll(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    """Return so many messages."""
    messages: list[ReceivedMessage] = []
    while len(messages) < count:
        messages += await consumer.poll()
    return messages


@pytest.fixture
async def place(java: Driver, server: Server, new_topic: NewTopic) -> AsyncGenerator[Place]:
    """Yield a place with both members."""
    topic = await asyncio.to_thread(new_topic, 1)
    about = {"namesrv": server.namesrv, "group": f"{topic}-java", "subscriptions": {topic: "*"}}
    async with Producer("pg", server.namesrv) as producer:
        sent = [await producer.send(Message(topic, b"%d" % number)) for number in range(COUNT)]
    from_first = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
    await asyncio.to_thread(partial(java.call, "lite.start", name=topic, settings=from_first, **about))
    consumer = pull_consumer(server.namesrv, group=f"{topic}-ours", topic=topic)
    async with consumer:
        made = Place(java, server, topic, consumer, sent[0].message_id)
        assert len(await made.poll_java(COUNT)) == len(await poll(consumer, COUNT)) == COUNT
        await asyncio.to_thread(partial(java.call, "lite.commit", name=topic))
        await consumer.commit()
        yield made
    await asyncio.to_thread(partial(java.call, "lite.stop", name=topic))


@pytest.mark.feature("D7", "B25")
async def test_running_info_is_what_java_tells(place: Place) -> None:
    """Kind, group, subscriptions, and of the queue the offset and what is buffered; the tool shows both alike."""
    infos: dict[str, Any] = {}
    for name in ("java", "ours"):
        client_id = await place.client_of(name)
        info = infos[name] = await place.call("getConsumerRunningInfo", place.group(name), client_id, False)
        assert info["properties"]["consumerGroup"] == place.group(name)
        printed = await place.run("consumerStatus", "-g", place.group(name), "-i", client_id, "-s")
        assert re.search(r"PROP_CONSUME_TYPE +: CONSUME_ACTIVELY", printed), printed
        assert re.search(rf"(?m)^{place.topic} +broker-a +0 +3 ", printed)
        assert "#Consumer jstack" in printed
        assert client_id in await place.run("consumerStatus", "-g", place.group(name))
    ours, java = infos["ours"], infos["java"]
    common = ours["properties"].keys() & java["properties"].keys()
    apart = {"consumerGroup", "PROP_CLIENT_VERSION", "PROP_CONSUMER_START_TIMESTAMP"}
    told = [{key: info["properties"][key] for key in common - apart} for info in (ours, java)]
    assert ours["properties"].keys() == common
    assert told[0] == told[1]
    assert [each["topic"] for each in ours["subscriptionSet"]] == [each["topic"] for each in java["subscriptionSet"]]
    queues = [_steady(info["mqTable"]) for info in (ours, java)]
    assert queues[0] == queues[1]


def _steady(table: list[Any]) -> list[Any]:
    """Leave out what goes by the time, which is there, and the lock, which Java says that each queue has."""
    kept: list[Any] = []
    for queue, told in table:
        assert all(told[name] > 1_600_000_000_000 for name in ("lastPullTimestamp", "lastConsumeTimestamp"))
        kept.append(
            (queue, {key: value for key, value in told.items() if key != "locked" and not key.startswith("last")})
        )
    return kept


@pytest.mark.feature("D7", "D21")
async def test_message_out_of_turn_is_refused_as_java_refuses_it(place: Place) -> None:
    """There is no listener: the broker's word of the member is an error, the same one from both."""
    failures: list[tuple[int | None, str]] = []
    for name in ("java", "ours"):
        client_id = await place.client_of(name)
        with pytest.raises(DriverError) as failed:
            await place.call("consumeMessageDirectly", place.group(name), client_id, place.topic, place.message_id)
        failure = failed.value.failure
        failures.append((failure.code, failure.message.replace(place.group(name), "GROUP")))
    assert failures[0] == failures[1]
    assert "The Consumer Group <GROUP> not exist in this consumer" in failures[0][1]


@pytest.mark.feature("D7")
async def test_offsets_are_told_where_java_has_none_to_tell(place: Place) -> None:
    """Of a lite pull consumer Java tells no offsets; of ours it is told how far it is."""
    client_id = await place.client_of("java")
    assert await place.call("getConsumeStatus", place.topic, place.group("java"), "") == {client_id: {}}
    told = await place.call("getConsumeStatus", place.topic, place.group("ours"), "")
    queue = {"topic": place.topic, "brokerName": "broker-a", "queueId": 0}
    assert told == {place.ours.client_id: [[queue, COUNT]]}


@pytest.mark.feature("D8")
async def test_members_that_pull_begin_again(place: Place) -> None:
    """After a reset by time both get everything once more, without a restart; reading by hand moves neither."""
    for name in ("java", "ours"):
        printed = await place.run("resetOffsetByTime", "-g", place.group(name), "-t", place.topic, "-s", "0")
        assert ["broker-a", "0", "0"] in [line.split() for line in printed.splitlines()]
    read = await place.run("consumeMessage", "-t", place.topic)
    assert read.count("MessageExt [") == COUNT
    again = await poll(place.ours, COUNT)
    assert [message.body for message in again] == [b"0", b"1", b"2"]
    assert len(await place.poll_java(COUNT)) == COUNT
