"""The locks of queues that run in order, asked of scripted brokers."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
from scripted_cluster import ScriptedCluster, ScriptedServer, refused, silent

from rocketlet.client import MessageQueue, Session
from rocketlet.client.consumer.orderly_consume import HeldQueueLocks
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.bodies.body import decode_body, encode_body
from rocketlet.remoting.bodies.client import LockBatchBody, LockedQueues
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import ManualClock

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
FIRST, SECOND = (MessageQueue("T", "broker-a", queue_id) for queue_id in (0, 1))
OTHER = MessageQueue("T", "broker-b", 0)


def granting(*queues: MessageQueue) -> Command:
    """Return the answer that grants these queues."""
    return Command.response(ResponseCode.SUCCESS, body=encode_body(LockedQueues(queues=list(queues))))


def named_in(requests: list[Command]) -> list[list[MessageQueue]]:
    """Return which queues each request names."""
    return [decode_body(LockBatchBody, each.body).mq_set for each in requests]


@pytest.fixture
async def brokers(cluster: ScriptedCluster) -> list[ScriptedServer]:
    """Return two brokers that grant all their queues."""
    cluster.routes["T"] = {"broker-a": 2, "broker-b": 1}
    answers = [granting(FIRST, SECOND), granting(OTHER)]
    return [
        await cluster.add_broker(name, {LOCK: lambda _, granted=granted: granted})
        for name, granted in zip(("broker-a", "broker-b"), answers, strict=True)
    ]


@contextlib.asynccontextmanager
async def locking(cluster: ScriptedCluster) -> AsyncGenerator[tuple[HeldQueueLocks, ManualClock]]:
    """Give the locks of a member that holds none."""
    clock = ManualClock()
    async with Session(cluster.nameserver.address, clock) as session:
        await session.route("T")
        yield HeldQueueLocks("g", session), clock


async def test_lock_is_held_for_30_s(cluster: ScriptedCluster, brokers: list[ScriptedServer]) -> None:
    """From its last confirmation on, of which it is known when it was by the clock of the day."""
    async with locking(cluster) as (locks, clock):
        assert (locks.holds(FIRST), locks.confirmed_at_ms(FIRST)) == (False, None)
        assert await locks.lock([FIRST, OTHER]) == {FIRST, OTHER}
        begun_at_ms = clock.now_ms()
        clock.advance(30_000)
        assert (locks.holds(FIRST), locks.confirmed_at_ms(FIRST)) == (True, begun_at_ms)
        clock.advance(1)
        assert (locks.holds(FIRST), locks.confirmed_at_ms(FIRST)) == (False, begun_at_ms)
        assert await locks.renew(lambda: [FIRST]) == 20_000
        assert (locks.holds(FIRST), locks.confirmed_at_ms(FIRST)) == (True, begun_at_ms + 30_001)
        assert not locks.holds(OTHER)
    assert named_in(brokers[0].asked(LOCK)) == [[FIRST], [FIRST]]
    assert named_in(brokers[1].asked(LOCK)) == [[OTHER]]


async def test_lock_that_is_not_granted_is_not_held(
    cluster: ScriptedCluster, brokers: list[ScriptedServer], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither one that another member has got meanwhile nor one that was not asked for; a loss is logged once."""
    async with locking(cluster) as (locks, _):
        assert await locks.lock([SECOND]) == {SECOND}
        assert await locks.lock([FIRST, SECOND]) == {FIRST, SECOND}
        brokers[0].answers[LOCK] = lambda _: granting(FIRST)
        for _ in range(2):
            assert await locks.lock([SECOND]) == frozenset()
        assert caplog.text.count("lost the lock of") == 1
        assert (locks.queues, locks.holds(FIRST), locks.holds(SECOND)) == ((FIRST,), True, False)
        await locks.unlock_all()
        await brokers[0].wait_asked(UNLOCK)
    assert named_in(brokers[0].asked(UNLOCK)) == [[FIRST]]
    assert brokers[1].asked(UNLOCK) == []


async def test_broker_that_fails_neither_gives_nor_takes_locks(
    cluster: ScriptedCluster, brokers: list[ScriptedServer]
) -> None:
    """After a second without an answer the next one is asked; an error is said at once."""
    async with locking(cluster) as (locks, clock):
        await locks.lock([FIRST, OTHER])
        brokers[0].answers[LOCK] = silent
        async with asyncio.TaskGroup() as group:
            locked = group.create_task(locks.lock([FIRST, OTHER]))
            await brokers[0].wait_asked(LOCK, 2)
            await clock.elapse(999)
            assert len(brokers[1].asked(LOCK)) == 1
            await clock.elapse(1)
        assert locked.result() == {OTHER}
        brokers[0].answers[LOCK] = refused(ResponseCode.SYSTEM_ERROR)
        assert await locks.lock([FIRST, OTHER]) == {OTHER}
        assert locks.holds(FIRST)


async def test_lock_that_was_given_back_is_not_held(cluster: ScriptedCluster, brokers: list[ScriptedServer]) -> None:
    """Each broker is told of its queues, without an answer; one whose address is not known delays nobody."""
    gone = MessageQueue("T", "broker-x", 0)
    async with locking(cluster) as (locks, _):
        await locks.lock([FIRST, SECOND, OTHER])
        await locks.unlock([gone, FIRST, OTHER])
        assert locks.queues == (SECOND,)
        await brokers[1].wait_asked(UNLOCK)
        await locks.unlock_all()
        await brokers[0].wait_asked(UNLOCK, 2)
        assert locks.queues == ()
        assert await locks.lock([FIRST]) == frozenset()
    assert named_in(brokers[0].asked(UNLOCK)) == [[FIRST], [SECOND]]
    assert named_in(brokers[1].asked(UNLOCK)) == [[OTHER]]
    assert all(each.is_oneway for each in brokers[0].asked(UNLOCK))
    assert len(brokers[0].asked(LOCK)) == 1


async def test_wait_for_a_lock_ends_with_its_confirmation(
    cluster: ScriptedCluster, brokers: list[ScriptedServer]
) -> None:
    """At once where it is held."""
    async with locking(cluster) as (locks, clock), asyncio.TaskGroup() as group:
        waiting = group.create_task(locks.wait_held(FIRST))
        await clock.settle()
        await locks.lock([OTHER])
        await clock.settle()
        assert not waiting.done()
        await locks.lock([FIRST])
        await waiting
        await locks.wait_held(FIRST)
    assert len(brokers[0].asked(LOCK)) == 1
