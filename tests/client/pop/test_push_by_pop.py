"""A push consumer to which brokers hand messages out, against a real broker, ours and the official one."""

import asyncio

import pytest
from inbox import Inbox
from raw_calls import until
from subscribed import push_consumer

from rocketlet.client import ConfigError, Message, Producer, PushConsumerSettings, ReceivedMessage, Retry
from rocketlet.common.names import dlq_topic
from rocketlet.common.pop_texts import parse_handle


@pytest.mark.feature("O1")
async def test_members_get_each_message_once(address: str, producer: Producer) -> None:
    """There are more members than queues, and each message comes to one of them, once."""
    inboxes = [Inbox() for _ in range(6)]
    async with asyncio.TaskGroup() as starts:
        members = [push_consumer(address, inbox, by_pop=True, batch_messages=4) for inbox in inboxes]
        for member in members:
            starts.create_task(member.__aenter__())
    try:
        for number in range(100):
            await producer.send(Message("T", b"%02d" % number))
        await until(lambda: sum(len(inbox.messages) for inbox in inboxes) >= 100)
        assert all(member.queues == () for member in members)
    finally:
        for member in members:
            await member.__aexit__(None, None, None)
    bodies = sorted(message.body for inbox in inboxes for message in inbox.messages)
    assert bodies == [b"%02d" % number for number in range(100)]
    rest = Inbox()
    async with push_consumer(address, rest, by_pop=True):
        await producer.send(Message("T", b"last"))
        await rest.wait_for(1)
    assert rest.bodies == {b"last": 1}


@pytest.mark.feature("O3")
async def test_failed_messages_come_again(address: str, producer: Producer) -> None:
    """After the delay of the first level, as a second attempt; what was finished before does not."""
    inbox = Inbox()
    queue = (await producer.send(Message("T", b"0"))).queue
    for number in (1, 2):
        await producer.send(Message("T", b"%d" % number), queue=queue)

    async def fail_once(messages: list[ReceivedMessage]) -> Retry | None:
        await inbox(messages)
        return Retry(from_index=len(messages) - 1) if messages[-1].reconsume_times == 0 else None

    async with push_consumer(address, fail_once, by_pop=True, batch_messages=3):
        await until(lambda: any(message.reconsume_times for message in inbox.messages))
    again = [message for message in inbox.messages if message.reconsume_times]
    assert [(message.topic, message.body, message.reconsume_times) for message in again] == [("T", b"2", 1)]


@pytest.mark.feature("B16")
async def test_given_up_messages_are_dead_letters(address: str, producer: Producer) -> None:
    """By a level below 0, or after the last attempt; they do not come again."""
    await producer.send(Message("T", b"x", tags="tag", keys=["k"]))
    inbox, letters = Inbox(), Inbox()

    async def give_up(messages: list[ReceivedMessage]) -> Retry:
        await inbox(messages)
        return Retry(delay_level=-1)

    async with push_consumer(address, give_up, by_pop=True):
        await inbox.wait_for(1)
    async with push_consumer(address, letters, group="undertaker", topic=dlq_topic("cg")):
        [letter] = await letters.wait_for(1)
    assert (letter.body, letter.tags, letter.keys) == (b"x", "tag", ("k",))


async def test_what_has_not_begun_is_given_back(own_address: str) -> None:
    """A member that closes keeps nothing until its time is over."""
    begun, let_go = asyncio.Event(), asyncio.Event()
    done, rest = Inbox(), Inbox()

    async def wait(messages: list[ReceivedMessage]) -> None:
        begun.set()
        await let_go.wait()
        await done(messages)

    async with Producer("pg", own_address) as producer:
        queue = (await producer.send(Message("T", b"0"))).queue
        for number in range(1, 5):
            await producer.send(Message("T", b"%d" % number), queue=queue)
        async with push_consumer(own_address, wait, by_pop=True, concurrency=1):
            async with asyncio.timeout(10):
                await begun.wait()
            let_go.set()
        async with push_consumer(own_address, rest, by_pop=True):
            await rest.wait_for(5 - len(done.messages))
    assert sorted([*done.bodies, *rest.bodies]) == [b"0", b"1", b"2", b"3", b"4"]
    handles = [parse_handle(message.properties["POP_CK"]) for message in rest.messages]
    assert {handle.retry for handle in handles} == {"1"}


async def test_suspended_consumer_asks_for_nothing(own_address: str) -> None:
    """Until it is resumed."""
    inbox, other = Inbox(), Inbox()
    async with Producer("pg", own_address) as producer:
        consumer = push_consumer(own_address, inbox, by_pop=True)
        async with consumer:
            consumer.suspend()
            await producer.send(Message("T", b"a"))
            async with push_consumer(own_address, other, by_pop=True, group="other"):
                await other.wait_for(1)
            assert inbox.messages == [] or consumer.is_suspended
            consumer.resume()
            await inbox.wait_for(1)
            consumer.unsubscribe("T")


def test_settings_that_contradict_each_other() -> None:
    """Neither order nor broadcast goes with POP."""
    text = "by POP messages come neither in order nor to all members"
    with pytest.raises(ConfigError, match=text):
        PushConsumerSettings(by_pop=True, is_orderly=True)
    with pytest.raises(ConfigError, match=text):
        PushConsumerSettings(by_pop=True, is_broadcast=True)
