"""Disks that are full, slow or broken for a while."""

import asyncio
from collections.abc import Iterator

import pytest
from raw_calls import open_caller

from rocketlet.common.codes import ResponseCode
from rocketlet.testing import DiskFaults, RocketmqBroker

SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}


@pytest.fixture
def broker() -> Iterator[RocketmqBroker]:
    """Run a broker that answers sends when they are on disk."""
    with RocketmqBroker(SYNC_FLUSH) as started:
        yield started


@pytest.fixture
def slow_broker() -> Iterator[RocketmqBroker]:
    """Run such a broker whose time the test moves."""
    with RocketmqBroker({**SYNC_FLUSH, "syncFlushTimeout": "2000"}) as started:
        started.clock.freeze()
        yield started


def stored(broker: RocketmqBroker, topic: str) -> list[bytes]:
    """Return what is stored in a topic."""
    return [message.body for message in broker.messages(topic)]


async def test_full_disk_refuses_until_there_is_room(broker: RocketmqBroker) -> None:
    """Sends are answered SERVICE_NOT_AVAILABLE; when the block ends the next one is stored."""
    topic = await broker.create_topic(queues=1)
    async with open_caller(broker.address) as caller:
        await caller.send(topic, b"before")
        with broker.faults.disk_full() as full:
            refused = await caller.send(topic, b"refused")
            assert repr(full) == f"<DiskFault the disk is full, met {full.hits} times>"
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await caller.send(topic, b"after")).code == ResponseCode.SUCCESS
    assert stored(broker, topic) == [b"before", b"after"]


async def test_full_disk_ends_with_the_test(broker: RocketmqBroker) -> None:
    """What was not removed is over when the test ends."""
    topic = await broker.create_topic(queues=1)
    broker.faults.disk_full()
    async with open_caller(broker.address) as caller:
        assert (await caller.send(topic)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        broker.end_test()
        assert (await caller.send(topic)).code == ResponseCode.SUCCESS


async def test_slow_disk_takes_its_time(slow_broker: RocketmqBroker) -> None:
    """A send is answered when its flush has taken so long on the broker's clock, or has waited long enough for it."""
    broker = slow_broker
    topic = await broker.create_topic(queues=1)
    async with open_caller(broker.address) as caller, asyncio.TaskGroup() as tasks:
        with broker.faults.slow_disk(500) as slow:
            sending = tasks.create_task(caller.send(topic, b"slow"))
            await slow.met()
            assert not sending.done()
            broker.clock.advance(milliseconds=500)
            assert (await sending).code == ResponseCode.SUCCESS
        with broker.faults.slow_disk(5_000) as slow:
            sending = tasks.create_task(caller.send(topic, b"slower"))
            await slow.met()
            broker.clock.advance(milliseconds=2_000)
            assert (await sending).code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert (await caller.send(topic, b"fast")).code == ResponseCode.SUCCESS
    assert stored(broker, topic) == [b"slow", b"slower", b"fast"]


async def test_saves_are_not_slowed(slow_broker: RocketmqBroker) -> None:
    """Time can be moved while tables are saved, which a clock that is moved waits for."""
    with slow_broker.faults.slow_disk(5_000, optional=True):
        topic = await slow_broker.create_topic()
        slow_broker.clock.advance(minutes=1)
    assert topic in (slow_broker.store / "config" / "topics.json").read_text()


@pytest.mark.parametrize("end", ["stop", "kill", "leave"])
async def test_slow_disk_holds_up_no_end(slow_broker: RocketmqBroker, end: str) -> None:
    """A broker whose flush waits for a time that does not come stops all the same."""
    topic = await slow_broker.create_topic(queues=1)
    slow = slow_broker.faults.slow_disk(500)
    async with open_caller(slow_broker.address) as caller, asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(caller.send(topic))
        await slow.met()
        sending.cancel()
    if end != "leave":
        getattr(slow_broker, end)()


async def test_failed_flush_is_over_with_the_test(broker: RocketmqBroker) -> None:
    """The store takes nothing until it is opened anew, which the end of the test sees to."""
    topic = await broker.create_topic(queues=1)
    broker.faults.failing_flush()
    async with open_caller(broker.address) as caller:
        assert (await caller.send(topic)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    broker.end_test()
    async with open_caller(broker.address) as caller:
        assert (await caller.send(topic)).code == ResponseCode.SUCCESS


def test_unmet_disk_faults_fail_the_test(broker: RocketmqBroker) -> None:
    """Each is named; a block tells it at its end, an optional one not at all."""
    broker.faults.disk_full()
    broker.faults.slow_disk(5)
    broker.faults.failing_flush(optional=True)
    with pytest.raises(AssertionError) as told:
        broker.end_test()
    assert str(told.value).splitlines() == [
        "nothing has met the fault: the disk is full",
        "nothing has met the fault: flushes take 5 ms",
    ]
    with pytest.raises(AssertionError, match="nothing has met the fault: flushes fail"), broker.faults.failing_flush():
        pass
    with pytest.raises(ValueError, match="delay_ms is 0, the least is 1"):
        broker.faults.slow_disk(0)


class CountingDisk(DiskFaults):
    """A disk of a test's own that can have faults too."""

    writes = 0

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Count, then write."""
        self.writes += 1
        return super().pwrite(descriptor, data, position)


def test_disk_of_a_test_may_be_derived() -> None:
    """Then it is killed and restarted as the one that the broker has unless told otherwise."""
    with RocketmqBroker(files=(disk := CountingDisk())) as broker:
        topic = broker.topic()
        assert disk.writes
        broker.kill()
        assert "killed" in repr(disk)
        broker.restart()
        assert broker.messages(topic) == []
