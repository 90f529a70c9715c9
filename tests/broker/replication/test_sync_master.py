"""SYNC_MASTER: a send is answered when slaves have its message, by a broker whose slaves the test plays."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import pytest
from raw_calls import Caller, open_caller, send_header, until
from replicas import PlayedSlave, play_slave
from slow_disk import SlowDisk

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.record import BatchPart, encode_batch, iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

SYNC_MASTER = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
WAIT_FALSE = "WAIT\x01false\x02"


@pytest.fixture
def given() -> dict[str, str]:
    """Return what the broker is set to beside its role; a test may say something else."""
    return {}


@pytest.fixture
def disk() -> SlowDisk:
    """Give the broker's disk."""
    return SlowDisk()


@pytest.fixture
async def broker(
    settings: dict[str, str], given: dict[str, str], clock: ManualClock, disk: SlowDisk
) -> AsyncGenerator[Broker]:
    """Run a broker that has the topic T."""
    started = Broker(BrokerConfig.from_java({**settings, **SYNC_MASTER, **given}), clock, disk)
    await started.__aenter__()
    async with open_caller(started.address) as caller:
        assert (await caller.send(properties=WAIT_FALSE, queue_id=3)).code == ResponseCode.SUCCESS
    yield started
    disk.go_on()
    await stop(started, clock)


async def stop(broker: Broker, clock: ManualClock) -> None:
    """Stop a broker while time passes."""
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(broker.__aexit__())
        await until(lambda: clock.advance(1) or stopping.done())


@pytest.fixture
async def slave(broker: Broker) -> AsyncGenerator[PlayedSlave]:
    """Play a slave that has all there is."""
    async with play_slave(broker.address) as played:
        await played.copy_until(broker.store.log_max_offset)
        yield played


async def stored_bodies(caller: Caller) -> list[bytes]:
    """Return the bodies that a consumer of queue 0 gets; whatever was asked before has been served by then."""
    return [bytes(record.body) for record in iter_records((await caller.pull()).body)]


@pytest.mark.feature("R11")
async def test_send_is_answered_when_a_slave_has_it(caller: Caller, broker: Broker, slave: PlayedSlave) -> None:
    """Its message is sent at once and can be read at once; the answer waits for the slave's report."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(caller.send(body=b"one"))
        await until(lambda: broker.store.max_offset("T", 0) == 1)
        end = broker.store.log_max_offset
        await slave.copy_until(end)
        slave.report(end - 1)
        assert (await stored_bodies(caller), sending.done()) == ([b"one"], False)
        slave.report(end)
        answer = await sending
    assert (answer.code, answer.remark, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, None, "0")


@pytest.mark.feature("R11")
async def test_without_slaves_the_answer_is_a_timeout(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """After slaveTimeout all who wait get FLUSH_SLAVE_TIMEOUT with the place of their message, which can be read."""
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(caller.send(body=b"%d" % number)) for number in range(5)]
        await until(lambda: broker.store.max_offset("T", 0) == 5)
        assert await stored_bodies(caller) == [b"0", b"1", b"2", b"3", b"4"]
        clock.advance(2_999)
        await stored_bodies(caller)
        assert not any(one.done() for one in sending)
        clock.advance(1)
        answers = [await one for one in sending]
    assert [(one.code, one.remark, one.ext["queueOffset"]) for one in answers] == [
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, None, str(number)) for number in range(5)
    ]
    assert all(one.ext.keys() >= {"msgId", "queueId", "transactionId", "MSG_REGION"} for one in answers)


@pytest.mark.feature("R11")
async def test_who_does_not_want_to_wait_does_not(caller: Caller) -> None:
    """With WAIT=false the answer comes at once, and one-way sends are stored."""
    caller.ask_oneway(RequestCode.SEND_MESSAGE_V2, send_header("T"), b"one way")
    assert (await caller.send(body=b"early", properties=WAIT_FALSE)).code == ResponseCode.SUCCESS
    assert await stored_bodies(caller) == [b"one way", b"early"]


@pytest.mark.feature("R12")
@pytest.mark.parametrize("given", [{"inSyncReplicas": "1"}, {"brokerRole": "ASYNC_MASTER"}])
async def test_nobody_waits_where_the_master_is_enough(caller: Caller) -> None:
    """That is the default of a SYNC_MASTER, and an ASYNC_MASTER waits for nobody whatever the number is."""
    assert (await caller.send(body=b"one")).code == ResponseCode.SUCCESS


@pytest.mark.feature("R13")
@pytest.mark.parametrize(
    ("delay_ms", "code"), [(1_000, ResponseCode.SUCCESS), (4_000, ResponseCode.FLUSH_SLAVE_TIMEOUT)]
)
async def test_slow_slave(
    caller: Caller, broker: Broker, slave: PlayedSlave, clock: ManualClock, delay_ms: int, code: int
) -> None:
    """A report in time is in time; after one that was too late the next send is fine."""
    async with asyncio.TaskGroup() as group:
        for expected in (code, ResponseCode.SUCCESS):
            count = broker.store.max_offset("T", 0) + 1
            sending = group.create_task(caller.send())
            await until(lambda count=count: broker.store.max_offset("T", 0) == count)
            end = broker.store.log_max_offset
            await slave.copy_until(end)
            clock.advance(delay_ms if expected == code else 0)
            slave.report(end)
            assert (await sending).code == expected


async def noted(order: list[int], number: int, asking: Coroutine[Any, Any, Command]) -> Command:
    """Note a number when the answer has come."""
    answer = await asking
    order.append(number)
    return answer


@pytest.mark.feature("S20")
async def test_one_report_serves_all_who_wait(caller: Caller, broker: Broker, slave: PlayedSlave) -> None:
    """Those whose messages end before it are answered, in order; the others wait on."""
    order: list[int] = []
    async with asyncio.TaskGroup() as group:
        early = [group.create_task(noted(order, number, caller.send())) for number in range(10)]
        await until(lambda: broker.store.max_offset("T", 0) == 10)
        end = broker.store.log_max_offset
        late = [group.create_task(noted(order, number, caller.send())) for number in range(10, 15)]
        await until(lambda: broker.store.max_offset("T", 0) == 15)
        await slave.copy_until(broker.store.log_max_offset)
        slave.report(end)
        assert {(await one).code for one in early} == {ResponseCode.SUCCESS}
        assert not any(one.done() for one in late)
        slave.report(broker.store.log_max_offset)
    assert order == list(range(15))


async def test_batch_waits_for_its_last_message(caller: Caller, broker: Broker, slave: PlayedSlave) -> None:
    """It is answered once, when the slave has all of it."""
    body = encode_batch([BatchPart(0, b"a", b""), BatchPart(0, b"b", b"")])
    async with asyncio.TaskGroup() as group:
        asking = caller.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("T", batch=True), body)
        sending = group.create_task(asking)
        await until(lambda: broker.store.max_offset("T", 0) == 2)
        end = broker.store.log_max_offset
        await slave.copy_until(end)
        slave.report(end - 1)
        assert (await stored_bodies(caller), sending.done()) == ([b"a", b"b"], False)
        slave.report(end)
        answer = await sending
    assert (answer.code, len(answer.ext["msgId"].split(","))) == (ResponseCode.SUCCESS, 2)


@pytest.mark.parametrize("given", [{"inSyncReplicas": "3"}])
async def test_two_slaves_are_waited_for(
    caller: Caller, broker: Broker, slave: PlayedSlave, clock: ManualClock
) -> None:
    """With inSyncReplicas=3 it takes the reports of two connections; one alone is not enough."""
    async with asyncio.TaskGroup() as group, play_slave(broker.address) as other:
        sending = group.create_task(caller.send())
        await until(lambda: broker.store.max_offset("T", 0) == 1)
        end = broker.store.log_max_offset
        for played in (slave, other):
            await played.copy_until(end)
        slave.report(end)
        await stored_bodies(caller)
        clock.advance(2_999)
        assert not sending.done()
        other.report(end)
        assert (await sending).code == ResponseCode.SUCCESS


@pytest.mark.feature("R21")
async def test_slave_with_records_of_its_own_acknowledges_nothing(
    caller: Caller, broker: Broker, clock: ManualClock
) -> None:
    """What it reports is no copy of this log, and nobody is answered for it."""
    async with asyncio.TaskGroup() as group, play_slave(broker.address, 1 << 20) as ahead:
        sending = group.create_task(caller.send())
        await until(lambda: broker.store.max_offset("T", 0) == 1)
        ahead.report(1 << 20)
        await until(lambda: broker.slaves[0].acknowledged == 1 << 20)
        clock.advance(3_000)
        assert (await sending).code == ResponseCode.FLUSH_SLAVE_TIMEOUT


@pytest.mark.parametrize("given", [{"flushDiskType": "SYNC_FLUSH"}])
@pytest.mark.parametrize("first", ["disk", "slave"])
async def test_disk_and_slave_are_both_waited_for(
    caller: Caller, broker: Broker, slave: PlayedSlave, disk: SlowDisk, first: str
) -> None:
    """In either order the answer comes with the later one; the slave gets the message before it is on disk."""
    disk.get_stuck()
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(caller.send(body=b"one"))
        await until(disk.waiting.is_set)
        end = broker.store.log_max_offset
        await slave.copy_until(end)
        if first == "slave":
            slave.report(end)
            assert (await stored_bodies(caller), sending.done()) == ([], False)
            disk.go_on()
        else:
            disk.go_on()
            await until(lambda: broker.store.max_offset("T", 0) == 1)
            assert (await stored_bodies(caller), sending.done()) == ([b"one"], False)
            slave.report(end)
        assert (await sending).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("given", [{"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "2000"}])
@pytest.mark.parametrize(
    ("reports", "code"), [(True, ResponseCode.FLUSH_DISK_TIMEOUT), (False, ResponseCode.FLUSH_SLAVE_TIMEOUT)]
)
async def test_failure_of_disk_and_slave(
    caller: Caller, broker: Broker, slave: PlayedSlave, disk: SlowDisk, clock: ManualClock, reports: bool, code: int
) -> None:
    """Of both the answer names the slave."""
    disk.get_stuck()
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(caller.send())
        await until(disk.waiting.is_set)
        end = broker.store.log_max_offset
        await slave.copy_until(end)
        if reports:
            slave.report(end)
            await until(lambda: broker.slaves[0].acknowledged == end)
        await clock.elapse(3_000)
        assert (await sending).code == code
        disk.go_on()


async def test_stop_answers_those_who_wait(settings: dict[str, str], clock: ManualClock) -> None:
    """A stop waits for slaves as long as the senders do."""
    broker = Broker(BrokerConfig.from_java({**settings, **SYNC_MASTER}), clock)
    async with asyncio.TaskGroup() as group:
        await broker.__aenter__()
        async with open_caller(broker.address) as caller:
            sending = group.create_task(caller.send())
            await until(lambda: broker.store.max_offset("T", 0) == 1)
            await stop(broker, clock)
            assert (await sending).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
