"""Our client at a master and its slave: while both run, at the slave alone, and when the master is back.

The brokers live on real time. The clock of the client is moved by the test, so that what it waits for takes no time.
"""

import asyncio
import pathlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from broker_pairs import Member
from inbox import Inbox
from replica_pair import READABLE, replica_pair
from subscribed import PUSH_FROM_FIRST, pull_consumer, push_consumer

from rocketlet.client import (
    Admin,
    FlowLimits,
    Message,
    MessageQueue,
    Position,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
)
from rocketlet.client.consumer.orderly_consume import LOCK_LIFE_MS
from rocketlet.common.errors import RouteNotFoundError
from rocketlet.common.message import PULL_COMMIT_OFFSET
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import ManualClock

STEP_MS = 100
BODIES = [b"%d" % number for number in range(10)]
QUEUE = MessageQueue("T", "ha-broker", 0)


class Asked:
    """A hook that keeps what the client asks, by address."""

    def __init__(self) -> None:
        self._requests: list[tuple[str, int, dict[str, str]]] = []

    def before_request(self, address: str, command: Command) -> None:
        """Keep a request."""
        self._requests.append((address, command.code, dict(command.ext)))

    def after_response(self, address: str, request: Command, response: Command) -> None:
        """Do nothing."""

    def fields(self, member: Member, code: int) -> list[dict[str, str]]:
        """Return the fields of the requests about T that a broker was asked with a code."""
        at = member.broker.address
        return [ext for address, asked, ext in self._requests if (address, asked) == (at, code) and ext["topic"] == "T"]


class ClosingInbox(Inbox):
    """A listener that takes one message, and others when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        """Take messages."""
        await super().__call__(messages)
        await self.is_open.wait()


async def send(nameserver: NameServer, bodies: list[bytes]) -> list[SendResult]:
    """Send to T, with the body as the key."""
    async with Producer("pg", nameserver.address) as producer:
        return [await producer.send(Message("T", body, keys=[body.decode()])) for body in bodies]


async def elapse(clock: ManualClock, member: Member, time_ms: int = STEP_MS) -> None:
    """Move the clock on; a broker answers between two steps, and so do others."""
    for _ in range(0, time_ms, STEP_MS):
        await clock.elapse(STEP_MS)
        for _ in range(3):
            await member.caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})


async def elapse_until(clock: ManualClock, member: Member, is_so: Callable[[], Awaitable[bool]]) -> None:
    """Move the clock on until something is so."""
    while not await is_so():
        await elapse(clock, member)


@pytest.mark.feature("P15")
async def test_consumer_far_behind_reads_at_the_slave(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """The master sends it there; no offset is stored at the slave, but those of all messages at the master."""
    far_behind = {**READABLE, "accessMessageInMemoryMaxRatio": "0"}
    asked, inbox = Asked(), Inbox()
    async with replica_pair(nameserver, tmp_path, far_behind) as pair:
        await send(nameserver, BODIES)
        await pair.start_slave()
        settings = replace(PUSH_FROM_FIRST, hooks=(asked,), pull_messages=1)
        consumer = PushConsumer("cg", nameserver.address, settings=settings)
        consumer.subscribe("T", "*", inbox)
        async with consumer:
            await inbox.wait_for(len(BODIES))
        assert await pair.committed(pair.master, "cg") == len(BODIES)
        at_slave = asked.fields(pair.slave, RequestCode.PULL_MESSAGE)
        assert [ext["queueOffset"] for ext in at_slave][: len(BODIES) - 1] == [str(n) for n in range(1, len(BODIES))]
        assert not any(int(ext["sysFlag"]) & PULL_COMMIT_OFFSET for ext in at_slave)
        assert not asked.fields(pair.slave, RequestCode.UPDATE_CONSUMER_OFFSET)
    assert sorted(inbox.bodies) == BODIES


@pytest.mark.feature("H3", "N10", "R16", "R17")
async def test_consumer_goes_on_at_the_slave_and_back(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """Without the master it reads the rest at the slave, and stores offsets there; with it all is as before."""
    asked, inbox, clock = Asked(), ClosingInbox(), ManualClock()
    limits = FlowLimits(max_messages=2)
    settings = replace(PUSH_FROM_FIRST, hooks=(asked,), pull_messages=1, limits=limits, concurrency=1)
    consumer = PushConsumer("cg", nameserver.address, settings=settings, clock=clock)
    consumer.subscribe("T", "*", inbox)
    async with replica_pair(nameserver, tmp_path) as pair:
        await send(nameserver, BODIES)
        await pair.start_slave()
        async with consumer:
            await inbox.wait_for(1)
            assert not asked.fields(pair.slave, RequestCode.PULL_MESSAGE)
            await pair.stop_master()
            with pytest.raises(RouteNotFoundError):
                await send(nameserver, [b"nowhere"])
            inbox.is_open.set()

            async def is_done_at(member: Member, count: int) -> bool:
                return len(inbox.messages) == count and await pair.committed(member, "cg") == count

            await elapse_until(clock, pair.slave, lambda: is_done_at(pair.slave, 10))
            await pair.start_master()
            await send(nameserver, [b"10", b"11"])
            await elapse_until(clock, pair.slave, lambda: is_done_at(pair.master, 12))
        assert not any(
            int(ext["sysFlag"]) & PULL_COMMIT_OFFSET for ext in asked.fields(pair.slave, RequestCode.PULL_MESSAGE)
        )
    assert inbox.bodies == dict.fromkeys([*BODIES, b"10", b"11"], 1)


@pytest.mark.feature("H3", "R16")
@pytest.mark.parametrize("settings", [READABLE, {}], ids=["readable", "by default, without a master"])
async def test_consumers_begin_at_the_slave(
    nameserver: NameServer, tmp_path: pathlib.Path, settings: dict[str, str]
) -> None:
    """Where the group was when the master went; a new group at the beginning, as it wants it, and one that polls."""
    first, rest, new = Inbox(), Inbox(), Inbox()
    async with replica_pair(nameserver, tmp_path, settings) as pair:
        await send(nameserver, BODIES[:4])
        async with push_consumer(nameserver.address, first, commit_interval_ms=1):
            await first.wait_for(4)
        await send(nameserver, BODIES[4:])
        await pair.start_slave()
        await pair.leave_alone(is_restarted=not settings)
        async with (
            push_consumer(nameserver.address, rest),
            push_consumer(nameserver.address, new, group="new"),
            pull_consumer(nameserver.address, group="polling") as polling,
        ):
            await rest.wait_for(6)
            await new.wait_for(10)
            assert [message.body for message in [await anext(polling) for _ in BODIES]] == BODIES
        offsets = [await pair.committed(pair.slave, group) for group in ("cg", "new", "polling")]
    assert sorted(rest.bodies) == BODIES[4:]
    assert offsets == [10, 10, 9]  # what was handed out last is not finished


@pytest.mark.feature("B22", "R17")
async def test_ordered_consumer_waits_for_the_master(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """Slaves are not asked for locks: without the master nothing is consumed, and with it all in its order."""
    inbox, clock = ClosingInbox(), ManualClock()
    limits = FlowLimits(max_messages=2)
    settings = replace(PUSH_FROM_FIRST, is_orderly=True, pull_messages=1, limits=limits)
    consumer = PushConsumer("cg", nameserver.address, settings=settings, clock=clock)
    consumer.subscribe("T", "*", inbox)
    async with replica_pair(nameserver, tmp_path) as pair:
        await send(nameserver, BODIES)
        await pair.start_slave()
        async with consumer:
            await inbox.wait_for(1)
            await pair.stop_master()
            await elapse(clock, pair.slave, LOCK_LIFE_MS + STEP_MS)
            inbox.is_open.set()
            await elapse(clock, pair.slave, 2 * LOCK_LIFE_MS)
            assert [message.body for message in inbox.messages] == BODIES[:1]
            await pair.start_master()

            async def has_all() -> bool:
                return len(inbox.messages) == len(BODIES)

            await elapse_until(clock, pair.slave, has_all)
    assert [message.body for message in inbox.messages] == BODIES


@pytest.mark.feature("H3")
async def test_administrator_reads_at_the_slave(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """Messages by id, place, key, offset and time, a topic that is followed, and how far groups are."""
    inbox = Inbox()
    async with replica_pair(nameserver, tmp_path) as pair:
        sent = await send(nameserver, BODIES)
        async with push_consumer(nameserver.address, inbox):
            await inbox.wait_for(10)
        await pair.start_slave()
        await pair.stop_master()
        async with Admin(nameserver.address) as admin:
            found = [
                await admin.message("T", sent[3].message_id),
                await admin.message("T", sent[3].offset_message_id),
                *await admin.messages_by_key("T", "3"),
                await admin.message_at(QUEUE, 3),
            ]
            assert [message and message.body for message in found] == [b"3"] * 4
            assert await admin.message("T", sent[3].offset_message_id[:-2] + "FF") is None
            assert [message.body async for message in admin.messages("T")] == BODIES
            async with admin.follow("T", start=Position.begin(), until=Position.end()) as tail:
                assert [message.body async for message in tail] == BODIES
            assert dict((await admin.extents("T")).items())[QUEUE][:2] == (0, 10)
            assert await admin.groups_of("T") == ["cg"]
            assert (await admin.progress("cg", "T")).lag == 0
