"""One pull without a subscription, against a real broker."""

import asyncio
import pathlib

import pytest
from real_broker import running_broker

from rocketlet.client import Admin, Message, MessageQueue, Producer, PullConsumer, PullStatus, Sql
from rocketlet.common.errors import RouteNotFoundError
from rocketlet.namesrv.server import NameServer


async def send_to_one_queue(producer: Producer, *messages: Message) -> MessageQueue:
    """Send to one queue, which is returned."""
    queue: MessageQueue | None = None
    for message in messages:
        queue = (await producer.send(message, queue=queue)).queue
    assert queue is not None
    return queue


@pytest.mark.feature("B24")
async def test_each_status_is_told(address: str) -> None:
    """Found, filtered out, nothing new, and an offset that the queue does not have; each names the next offset."""
    async with Producer("pg", address) as producer, PullConsumer("cg", address) as consumer:
        queue = await send_to_one_queue(producer, *(Message("T", b"%d" % number, tags="A") for number in range(5)))
        found = await consumer.pull_once(queue, 1, max_messages=3)
        assert [message.body for message in found.messages] == [b"1", b"2", b"3"]
        assert found._replace(messages=[]) == (PullStatus.FOUND, [], 4, 0, 5)

        assert await consumer.pull_once(queue, 5) == (PullStatus.NO_NEW_MESSAGE, [], 5, 0, 5)
        assert await consumer.pull_once(queue, 0, "B") == (PullStatus.NO_MATCHED_MESSAGE, [], 5, 0, 5)
        assert (await consumer.pull_once(queue, 9))[:3] == (PullStatus.OFFSET_ILLEGAL, [], 5)
        assert not consumer.queues


@pytest.mark.feature("B24")
async def test_pull_with_a_wait_gets_what_comes_meanwhile(address: str) -> None:
    """The broker answers when the message is there, long before the time is over."""
    async with Producer("pg", address) as producer, PullConsumer("cg", address) as consumer:
        queue = await send_to_one_queue(producer, Message("T", b"0"))
        async with asyncio.TaskGroup() as group:
            pulling = group.create_task(consumer.pull_once(queue, 1, wait_ms=20_000))
            await producer.send(Message("T", b"1"), queue=queue)
        assert [message.body for message in pulling.result().messages] == [b"1"]


@pytest.mark.feature("B24")
@pytest.mark.timeout(30)
async def test_pull_with_a_wait_ends_without_a_message(address: str) -> None:
    """When the time is over the answer says that there is nothing new."""
    async with Producer("pg", address) as producer, PullConsumer("cg", address) as consumer:
        queue = await send_to_one_queue(producer, Message("T", b"0"))
        assert await consumer.pull_once(queue, 1, wait_ms=10) == (PullStatus.NO_NEW_MESSAGE, [], 1, 0, 1)


async def test_impossible_pulls_are_refused(address: str) -> None:
    """Numbers out of range, an expression without a tag, an unknown topic: each has its typed error."""
    async with Producer("pg", address) as producer, PullConsumer("cg", address) as consumer:
        queue = await send_to_one_queue(producer, Message("T", b"0"))
        with pytest.raises(ValueError, match="offset is -1"):
            await consumer.pull_once(queue, -1)
        with pytest.raises(ValueError, match="max_messages is 0"):
            await consumer.pull_once(queue, 0, max_messages=0)
        with pytest.raises(ValueError, match="wait_ms is -1"):
            await consumer.pull_once(queue, 0, wait_ms=-1)
        with pytest.raises(ValueError, match="holds no tag"):
            await consumer.pull_once(queue, 0, "||")
        with pytest.raises(RouteNotFoundError):
            await consumer.pull_once(queue._replace(topic="missing"), 0)


@pytest.mark.feature("P23")
async def test_pull_takes_a_condition(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """A broker that filters by properties gives only what the condition wants; so do assigned queues and an Admin."""
    settings = {"enablePropertyFilter": "true"}
    async with (
        running_broker(nameserver, tmp_path / "store", settings=settings),
        Producer("pg", nameserver.address) as producer,
        PullConsumer("cg", nameserver.address) as consumer,
        Admin(nameserver.address) as admin,
    ):
        messages = [Message("T", b"%d" % number, properties={"a": str(number)}) for number in range(5)]
        queue = await send_to_one_queue(producer, *messages)
        wanted = Sql("a > 2")
        assert [each.body for each in (await consumer.pull_once(queue, 0, wanted)).messages] == [b"3", b"4"]
        assert [each.body async for each in admin.messages("T", expression=wanted)] == [b"3", b"4"]
        await consumer.assign([queue], wanted)
        await consumer.seek_to_begin(queue)
        assert [each.body for each in await consumer.poll()] == [b"3", b"4"]
