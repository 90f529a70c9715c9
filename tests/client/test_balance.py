"""The load follows the members of a group."""

import contextlib

import pytest
from inbox import Inbox, Shares
from subscribed import push_consumer

from rocketlet.client import (
    Admin,
    Message,
    Producer,
    TopicSettings,
)

QUEUES = 8
MESSAGES = 240


@pytest.mark.feature("B14")
async def test_shares_are_equal_before_and_after_members_leave(address: str) -> None:
    """Four members get 60 of 240 messages each; when two have left, the others get 120 of the next 240 each."""
    async with Admin(address) as admin, Producer("pg", address) as producer, contextlib.AsyncExitStack() as stayers:
        await admin.create_topic("T", TopicSettings(read_queues=QUEUES, write_queues=QUEUES))
        shares, inboxes = Shares(), [Inbox() for _ in range(4)]
        members = [push_consumer(address, inbox) for inbox in inboxes]
        for member in members:
            shares.watch(member)
        await stayers.enter_async_context(members[0])
        await stayers.enter_async_context(members[1])
        async with members[2], members[3]:
            await shares.wait_until(2, 2, 2, 2)
            await send_evenly(producer, admin, "first")
            assert [await wait_for(inbox, "first", 60) for inbox in inboxes] == [60] * 4
        shares.forget(members[2])
        shares.forget(members[3])
        await shares.wait_until(4, 4)
        await send_evenly(producer, admin, "second")
        assert [await wait_for(inbox, "second", 120) for inbox in inboxes[:2]] == [120] * 2


async def send_evenly(producer: Producer, admin: Admin, name: str) -> None:
    """Send messages to the queues in turn."""
    queues = await admin.queues("T")
    for number in range(MESSAGES):
        await producer.send(Message("T", f"{name} {number}".encode()), queue=queues[number % QUEUES])


async def wait_for(inbox: Inbox, name: str, count: int) -> int:
    """Return how many messages of a round are there once there are as many; who takes a queue over may get old ones."""
    while (found := sum(body.startswith(name.encode()) for body in inbox.bodies)) < count:
        await inbox.wait_for(len(inbox.messages) + 1)
    return found
