"""Failed messages of concurrent consumers against a real broker."""

import pytest
from inbox import Inbox
from subscribed import push_consumer

from rocketlet.client import Message, Producer, ReceivedMessage, Retry
from rocketlet.common.names import dlq_topic


async def read_dead_letters(address: str, count: int) -> list[ReceivedMessage]:
    """Return the dead letters of the group, in order of their bodies."""
    inbox = Inbox()
    async with push_consumer(address, inbox, group="undertaker", topic=dlq_topic("cg")):
        return sorted(await inbox.wait_for(count), key=lambda letter: letter.body)


@pytest.mark.feature("B16")
async def test_rest_of_a_batch_goes_to_the_dead_letters(address: str, producer: Producer) -> None:
    """The first of three is finished and does not come again; the others are where the listener sent them."""
    queue = (await producer.send(Message("T", b"0"))).queue
    for number in (1, 2):
        await producer.send(Message("T", str(number).encode(), tags="tag"), queue=queue)
    inbox = Inbox()

    async def give_up(messages: list[ReceivedMessage]) -> Retry:
        await inbox(messages)
        return Retry(from_index=1, delay_level=-1)

    consumer = push_consumer(address, give_up, batch_messages=3)
    async with consumer:
        await inbox.wait_for(3)
    letters = await read_dead_letters(address, 2)
    assert [(letter.body, letter.tags) for letter in letters] == [(b"1", "tag"), (b"2", "tag")]

    again = Inbox()
    await producer.send(Message("T", b"next"), queue=queue)
    async with push_consumer(address, again):
        await again.wait_for(1)
    assert again.bodies == {b"next": 1}


async def test_chosen_level_is_the_delay(address: str, producer: Producer) -> None:
    """Level 1 brings the message again after a second, with its topic, its key and a count."""
    sent = await producer.send(Message("T", b"x", keys=["k"]))
    inbox = Inbox()

    async def fail_once(messages: list[ReceivedMessage]) -> Retry | None:
        await inbox(messages)
        return Retry(delay_level=1) if messages[0].reconsume_times == 0 else None

    async with push_consumer(address, fail_once):
        first, second = await inbox.wait_for(2)
    assert (second.topic, second.body, second.keys, second.reconsume_times) == ("T", b"x", ("k",), 1)
    assert second.message_id == first.message_id == sent.message_id
    assert second.stored_at_ms - first.stored_at_ms >= 900
