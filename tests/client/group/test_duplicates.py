"""Two members with one client id: what it does, how it is told, and the cure."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Sequence

import pytest
from inbox import Inbox
from official_broker import OfficialBroker

from rocketlet.client import (
    ClientSettings,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    PushConsumerSettings,
    Session,
)
from rocketlet.client.group.rebalance import ClientIdConflicts
from rocketlet.common.errors import ResponseError

SAME_NAME = ClientSettings(instance_name="worker")
SETTINGS = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)


class Source:
    """A broker that knows where clients are, or does not."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: Sequence[str] | None = addresses

    async def addresses_of(self, _group: str, _topic: str, _client_id: str) -> Sequence[str]:
        """Return the addresses."""
        if self.addresses is None:
            raise ResponseError(3, "request type 203 not supported")
        return self.addresses


@pytest.mark.feature("B13")
async def test_duplicate_is_told_once_until_it_moves(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each pair of addresses, one when it is over, and a new one when it comes back."""
    caplog.set_level(logging.INFO)
    source = Source("10.0.0.2:7", "10.0.0.1:7 (this one)")
    watch = ClientIdConflicts("cg", "x", source)
    await watch.look("T", ["x", "y"])
    assert not caplog.messages
    await watch.look("T", ["x", "x", "y"])
    await watch.look("T", ["x", "x", "y"])
    assert len(caplog.messages) == 1
    assert "group cg: 2 members have the client id x" in caplog.text
    assert "They are at 10.0.0.1:7 (this one), 10.0.0.2:7" in caplog.text
    source.addresses = ("10.0.0.3:7", "10.0.0.1:7 (this one)")
    await watch.look("T", ["x", "x"])
    await watch.look("T", ["x"])
    await watch.look("T", ["x"])
    await watch.look("T", ["x", "x"])
    assert [message.split(";")[0][:30] for message in caplog.messages[2:]] == [
        "group cg: client id x is uniqu",
        "group cg: 2 members have the c",
    ]


@pytest.mark.feature("B13")
async def test_duplicate_is_told_without_a_place(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that does not say where clients are leaves that part out."""
    source = Source()
    source.addresses = None
    await ClientIdConflicts("cg", "x", source).look("T", ["x", "x"])
    assert caplog.messages[0].endswith("give each member its own instance name")


class Member:
    """A consumer, and a wait for how many queues it owns."""

    def __init__(self, session: Session, inbox: Inbox) -> None:
        self.consumer = PushConsumer("cg", session=session, settings=SETTINGS)
        self.consumer.subscribe("T", "*", inbox)
        self.consumer.on_queues_changed(lambda _: self._changed.set())
        self._changed = asyncio.Event()

    async def wait_owned(self, count: int) -> None:
        """Return when it owns so many queues."""
        while len(self.consumer.queues) != count:
            self._changed.clear()
            await self._changed.wait()


@pytest.mark.feature("B13")
async def test_duplicate_id_leaves_queues_unread(
    address: str, official: OfficialBroker | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Both members own the first two of four queues: their messages come twice, those of the others not at all.

    When one of them has come back with an id of its own, the others are read as well.
    """
    inbox = Inbox()
    async with contextlib.AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("pg", address))
        await producer.send(Message("T", b"makes the topic"))
        session = await stack.enter_async_context(Session(address, settings=SAME_NAME))
        first = Member(session, inbox)
        await stack.enter_async_context(first.consumer)
        await first.wait_owned(4)
        queues = first.consumer.queues
        async with Session(address, settings=SAME_NAME) as copy:
            assert copy.client_id == session.client_id
            second = Member(copy, inbox)
            async with second.consumer:
                await first.wait_owned(2)
                await second.wait_owned(2)
                assert first.consumer.queues == second.consumer.queues == queues[:2]
                assert f"2 members have the client id {session.client_id}" in caplog.text
                if official is not None:  # ours does not say yet where clients are
                    assert re.search(r"They are at .*\(this one\)", caplog.text)
                for queue in queues:
                    await producer.send(Message("T", str(queue.queue_id).encode()), queue=queue)
                while not inbox.bodies[b"0"] == inbox.bodies[b"1"] == 2:
                    await inbox.wait_for(len(inbox.messages) + 1)
                assert not inbox.bodies.keys() & {b"2", b"3"}
        async with Session(address) as own:
            third = Member(own, inbox)
            async with third.consumer:
                await first.wait_owned(2)
                await third.wait_owned(2)
                assert set(first.consumer.queues) | set(third.consumer.queues) == set(queues)
                while not inbox.bodies.keys() >= {b"2", b"3"}:
                    await inbox.wait_for(len(inbox.messages) + 1)
