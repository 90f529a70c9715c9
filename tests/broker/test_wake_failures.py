"""A read that fails for a consumer, while a producer's messages wake it: the producer and the store never notice.

There are two messages: a single one is answered without a read.
"""

import asyncio
import errno
import logging
import os
from collections.abc import AsyncGenerator

import pytest
from faulty_reads import FAULTS, FaultyReads
from raw_calls import Caller, open_caller, send_header, until

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.record import BatchPart, encode_batch, iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.store.files.files import Files
from rocketlet.store.files.store_config import ENTRY_BYTES
from rocketlet.testing.manual_clock import ManualClock

HOLD = PULL_SUBSCRIPTION | PULL_SUSPEND


@pytest.fixture
def disk() -> FaultyReads:
    """Give the broker's disk."""
    return FaultyReads()


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
async def broker(
    request: pytest.FixtureRequest, settings: dict[str, str], clock: ManualClock, disk: FaultyReads
) -> AsyncGenerator[Broker]:
    """Run a broker with either flush type that has the topic T."""
    config = BrokerConfig.from_java({**settings, "flushDiskType": request.param})
    async with Broker(config, clock, disk) as started:
        async with open_caller(started.address) as caller:
            assert (await caller.send(queue_id=3)).code == ResponseCode.SUCCESS
        yield started
        disk.fault = ""


async def park(group: asyncio.TaskGroup, caller: Caller, subscription: str = "*") -> asyncio.Task[Command]:
    """Pull from the empty queue 0, and return when that is held."""
    pull = group.create_task(caller.pull(sys_flag=HOLD, subscription=subscription))
    await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    assert not pull.done()
    return pull


async def send_two(producer: Caller) -> None:
    """Send a batch of two messages to the queue 0."""
    body = encode_batch([BatchPart(0, text, b"") for text in (b"one", b"two")])
    sent = await producer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("T", batch=True), body)
    assert sent.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("fault", FAULTS)
async def test_failed_read_of_a_woken_pull_is_its_own_failure(
    fault: str, caller: Caller, broker: Broker, disk: FaultyReads, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer gets SEND_OK on a connection that stays, the pull SYSTEM_ERROR, and the store goes on writing."""
    async with open_caller(broker.address) as producer, asyncio.TaskGroup() as group:
        pull = await park(group, caller)
        disk.fault = fault
        with caplog.at_level(logging.ERROR):
            await send_two(producer)
            assert (await pull).code == ResponseCode.SYSTEM_ERROR
        assert disk.failed_reads == 1
        told = "PULL_MESSAGE (11) from 127.0.0.1:"
        assert any(told in line and "topic T, queueId 0 failed" in line for line in caplog.messages)
        assert (await producer.send(body=b"three")).code == ResponseCode.SUCCESS
        disk.fault = ""
        again = await caller.pull(queue_offset=0)
        assert [bytes(record.body) for record in iter_records(again.body)] == [b"one", b"two", b"three"]
        assert broker.store.refusal is None


async def test_failed_read_of_one_pull_leaves_the_others_alone(
    caller: Caller, broker: Broker, disk: FaultyReads
) -> None:
    """Of two pulls that the same messages wake, one fails: the other gets them."""
    async with open_caller(broker.address) as other, open_caller(broker.address) as producer:
        async with asyncio.TaskGroup() as group:
            first, second = await park(group, caller), await park(group, other)
            disk.fault, disk.most_faults = "RuntimeError", 1
            await send_two(producer)
        assert (first.result().code, second.result().code) == (ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS)


@pytest.mark.parametrize("subscription", ["*", "wanted"])
async def test_single_message_wakes_without_a_read(
    subscription: str, caller: Caller, broker: Broker, disk: FaultyReads
) -> None:
    """A pull that waits for the very message that arrives is answered, and a fresh one later just so."""
    async with open_caller(broker.address) as producer, asyncio.TaskGroup() as group:
        pull = await park(group, caller, subscription)
        disk.fault = "EIO"
        await producer.send(properties="TAGS\x01wanted\x02")
        woken = await pull
    disk.fault = ""
    fresh = await caller.pull(subscription=subscription)
    assert (woken.code, woken.ext, woken.body) == (fresh.code, fresh.ext, fresh.body)
    assert (woken.code, disk.failed_reads) == (ResponseCode.SUCCESS, 0)


class FullQueues(Files):
    """A disk that has no room for queue entries while ``is_full``."""

    is_full = False

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Refuse what is as long as an entry."""
        if self.is_full and len(data) == ENTRY_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(descriptor, data, position)


async def test_message_whose_entry_finds_no_room_comes_twice(settings: dict[str, str], clock: ManualClock) -> None:
    """Who waits has it before its entry is written; asking on it is sent back, and gets it again when there is room."""
    disk = FullQueues()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        await caller.send(queue_id=3)
        async with asyncio.TaskGroup() as group:
            pull = await park(group, caller)
            disk.is_full = True
            assert (await caller.send(body=b"one")).code == ResponseCode.SUCCESS
        moved = await caller.pull(queue_offset=1)
        assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
        async with asyncio.TaskGroup() as group:
            again = await park(group, caller)
            disk.is_full = False
            clock.advance(1_000)
            await until(lambda: broker.store.max_offset("T", 0) == 1)
        answers = [pull.result(), again.result()]
        assert [(answer.code, answer.ext["nextBeginOffset"]) for answer in answers] == [(ResponseCode.SUCCESS, "1")] * 2
        assert answers[0].body == answers[1].body


@pytest.mark.parametrize("fault", FAULTS)
async def test_failed_read_at_the_time_limit_is_answered(
    fault: str, caller: Caller, disk: FaultyReads, clock: ManualClock
) -> None:
    """A pull that looks again after a message it does not want, and cannot read, is answered."""
    async with asyncio.TaskGroup() as group:
        pull = await park(group, caller, subscription="wanted")
        await caller.send(properties="TAGS\x01other\x02")
        disk.fault = fault
        clock.advance(5_000)
        assert (await pull).code == ResponseCode.SYSTEM_ERROR


async def test_delayed_message_is_taken_while_nothing_can_be_read(
    caller: Caller, broker: Broker, disk: FaultyReads, clock: ManualClock
) -> None:
    """A delayed message is accepted while reads fail, and delivered when they work again."""
    disk.fault = "EIO"
    assert (await caller.send(body=b"late", properties="DELAY\x011\x02")).code == ResponseCode.SUCCESS
    assert broker.store.refusal is None
    clock.advance(1_000)
    await until(lambda: disk.failed_reads > 0)
    disk.fault = ""
    clock.advance(1_000)
    await until(lambda: broker.store.max_offset("T", 0) == 1)
