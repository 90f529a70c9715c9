"""Sends while the disk stalls under SYNC_FLUSH: not begun, and answered busy in time; by a disk that the test holds."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from raw_calls import Caller, open_caller, send_header, until
from slow_disk import SlowDisk

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConnectionClosedError
from rocketlet.common.record import BatchPart, encode_batch, iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

STALL_MS = 1000
WAIT_MS = 200
BUSY = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {}ms, size of queue: {}"
PLAIN = "UNIQ_KEY\x01K"  # what goes the short way
NO_WAIT = "WAIT\x01false\x02"


@pytest.fixture
def disk() -> SlowDisk:
    """Give the broker's disk."""
    return SlowDisk()


@pytest.fixture
async def broker(settings: dict[str, str], clock: ManualClock, disk: SlowDisk) -> AsyncGenerator[Broker]:
    """Run a broker with SYNC_FLUSH and the topic T, whose queue 0 is empty."""
    async with run(sync_flush(settings), clock, disk) as (started, _):
        yield started


@asynccontextmanager
async def run(config: BrokerConfig, clock: ManualClock, disk: SlowDisk) -> AsyncGenerator[tuple[Broker, Caller]]:
    """Run a broker whose topic T has queue 0 empty, and connect to it; at the end its disk moves."""
    async with Broker(config, clock, disk) as started:
        async with open_caller(started.address) as caller:
            assert (await caller.send(queue_id=3)).code == ResponseCode.SUCCESS
            yield started, caller
        disk.go_on(failing=disk.fails)


def sync_flush(settings: dict[str, str], **more: str) -> BrokerConfig:
    """Return the settings of a broker whose sends wait for the disk."""
    return BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH", **more})


async def max_offset(caller: Caller) -> int:
    """Return the end of queue 0; when it is known, everything that was sent before has been served."""
    answer = await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    return int(answer.ext["offset"])


async def end_of(asking: Coroutine[Any, Any, Command]) -> str:
    """Return why there is no answer."""
    with pytest.raises(ConnectionClosedError) as caught:
        await asking
    return str(caught.value)


async def stored_bodies(caller: Caller) -> list[bytes]:
    """Return the bodies that a consumer of queue 0 gets."""
    return [bytes(record.body) for record in iter_records((await caller.pull()).body)]


async def stall(group: asyncio.TaskGroup, caller: Caller, disk: SlowDisk, clock: ManualClock) -> asyncio.Task[Command]:
    """Have a send held back amid its flush until the disk counts as stalled; return what will be its answer."""
    disk.get_stuck()
    sending = group.create_task(caller.send(body=b"early"))
    await until(disk.waiting.is_set)
    await max_offset(caller)
    clock.advance(STALL_MS)
    return sending


async def send(
    group: asyncio.TaskGroup, caller: Caller, *bodies: bytes, properties: str = ""
) -> list[asyncio.Task[Command]]:
    """Send, and return when the broker has served it; the answers are owed."""
    sending = [group.create_task(caller.send(body=body, properties=properties)) for body in bodies]
    await max_offset(caller)
    return sending


@pytest.mark.feature("S22")
@pytest.mark.parametrize("properties", ["", PLAIN], ids=["any", "plain"])
async def test_send_to_a_stalled_disk_is_answered_busy(
    caller: Caller, disk: SlowDisk, clock: ManualClock, properties: str
) -> None:
    """After waitTimeMillsInSendQueue it is answered 2 in Java's words, each in its turn, and is not stored."""
    async with asyncio.TaskGroup() as group:
        early = await stall(group, caller, disk, clock)
        (first,) = await send(group, caller, b"first", properties=properties)
        clock.advance(WAIT_MS - 50)
        (second,) = await send(group, caller, b"second", properties=properties)
        assert not first.done()
        clock.advance(50)
        answer = await first
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, BUSY.format(WAIT_MS, 1))
        assert not second.done()
        clock.advance(WAIT_MS - 50)
        assert (await second).remark == BUSY.format(WAIT_MS, 0)
        disk.go_on()
        assert (await early).code == ResponseCode.SUCCESS
        assert (await caller.send(body=b"later")).code == ResponseCode.SUCCESS
        assert await stored_bodies(caller) == [b"early", b"later"]


@pytest.mark.feature("S22")
async def test_message_in_the_log_is_never_answered_busy(caller: Caller, disk: SlowDisk, clock: ManualClock) -> None:
    """What was begun before the stall was seen is answered FLUSH_DISK_TIMEOUT, with its place, and stored once."""
    async with asyncio.TaskGroup() as group:
        disk.get_stuck()
        begun = await send(group, caller, b"one", b"two")
        await until(disk.waiting.is_set)
        await clock.elapse(4_999)
        assert not any(one.done() for one in begun)
        clock.advance(1)
        answers = [await one for one in begun]
        assert [(one.code, one.ext["queueOffset"]) for one in answers] == [(10, "0"), (10, "1")]
        disk.go_on()
        assert (await caller.send(body=b"three")).code == ResponseCode.SUCCESS
        assert await stored_bodies(caller) == [b"one", b"two", b"three"]


async def test_disk_that_comes_back_in_time(caller: Caller, disk: SlowDisk, clock: ManualClock) -> None:
    """Sends that have waited less are begun in the order in which they came, and nobody is refused any more."""
    async with asyncio.TaskGroup() as group:
        early = await stall(group, caller, disk, clock)
        parked = await send(group, caller, *(b"%d" % number for number in range(5)))
        body = encode_batch([BatchPart(0, b"a", b""), BatchPart(0, b"b", b"")])
        header = send_header("T", batch=True)
        batch = group.create_task(caller.ask(RequestCode.SEND_BATCH_MESSAGE, header, body))
        fresh = group.create_task(caller.send("Fresh"))
        clock.advance(WAIT_MS - 1)
        assert await max_offset(caller) == 0
        disk.go_on()
        answers = [await one for one in (early, *parked, batch)]
        assert [(one.code, one.ext["queueOffset"]) for one in answers] == [(0, str(number)) for number in range(7)]
        assert (await fresh).code == ResponseCode.SUCCESS
        clock.advance(WAIT_MS)
        assert (await caller.send(body=b"c")).code == ResponseCode.SUCCESS
        assert await stored_bodies(caller) == [b"early", b"0", b"1", b"2", b"3", b"4", b"a", b"b", b"c"]


async def test_slow_disk_that_moves_is_not_stalled(caller: Caller, disk: SlowDisk, clock: ManualClock) -> None:
    """While a flush ends now and then, sends are begun, however long each takes."""
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            disk.get_stuck()
            (sending,) = await send(group, caller, b"%d" % number)
            await until(disk.waiting.is_set)
            clock.advance(STALL_MS - 1)
            disk.go_on()
            assert (await sending).code == ResponseCode.SUCCESS
    assert len(await stored_bodies(caller)) == 4


async def test_stall_is_counted_from_the_last_flush_on(caller: Caller, disk: SlowDisk, clock: ManualClock) -> None:
    """A disk that has done something since it was looked at last is given its time again, and no more."""
    async with asyncio.TaskGroup() as group:
        disk.get_stuck()
        (first,) = await send(group, caller, b"first")
        await until(disk.waiting.is_set)
        clock.advance(STALL_MS // 2)
        disk.go_on()
        assert (await first).code == ResponseCode.SUCCESS
        disk.get_stuck()
        await send(group, caller, b"second")
        await until(disk.waiting.is_set)
        clock.advance(STALL_MS - 1)
        await send(group, caller, b"begun")
        clock.advance(1)
        (late,) = await send(group, caller, b"late")
        clock.advance(WAIT_MS)
        assert (await late).code == ResponseCode.SYSTEM_BUSY
        disk.go_on()
    assert await stored_bodies(caller) == [b"first", b"second", b"begun"]


async def test_disk_may_stall_again(caller: Caller, disk: SlowDisk, clock: ManualClock) -> None:
    """The second stall is seen like the first."""
    for number in range(2):
        async with asyncio.TaskGroup() as group:
            await stall(group, caller, disk, clock)
            (late,) = await send(group, caller, b"late")
            clock.advance(WAIT_MS)
            assert (await late).code == ResponseCode.SYSTEM_BUSY
            disk.go_on()
        assert await max_offset(caller) == number + 1


async def test_who_does_not_wait_for_the_disk_is_served(caller: Caller, disk: SlowDisk, clock: ManualClock) -> None:
    """One-way sends, sends with WAIT=false, pulls and offsets go on while the disk stalls."""
    async with asyncio.TaskGroup() as group:
        await stall(group, caller, disk, clock)
        assert (await caller.send(body=b"unawaited", properties=NO_WAIT)).ext["queueOffset"] == "1"
        caller.ask_oneway(RequestCode.SEND_MESSAGE_V2, send_header("T"), b"one way")
        assert (await caller.send(body=b"last", properties=NO_WAIT)).ext["queueOffset"] == "3"
        assert (await caller.pull(queue_id=3)).code == ResponseCode.SUCCESS
        disk.go_on()
    assert (await caller.send(body=b"end")).code == ResponseCode.SUCCESS
    assert await stored_bodies(caller) == [b"early", b"unawaited", b"one way", b"last", b"end"]


async def test_no_more_wait_than_may(settings: dict[str, str], clock: ManualClock, disk: SlowDisk) -> None:
    """Above sendThreadPoolQueueCapacity a send is refused at once; the figures of the queue are told."""

    async def figures() -> list[str]:
        told = json.loads((await caller.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        return [told[f"sendThreadPoolQueue{figure}"] for figure in ("Size", "Capacity", "HeadWaitTimeMills")]

    config = sync_flush(settings, sendThreadPoolQueueCapacity="2")
    async with run(config, clock, disk) as (_, caller), asyncio.TaskGroup() as group:
        assert await figures() == ["0", "2", "0"]
        await stall(group, caller, disk, clock)
        await send(group, caller, b"one", b"two")
        clock.advance(30)
        refused = await caller.send(body=b"three")
        assert (refused.code, refused.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")
        assert await figures() == ["2", "2", "30"]
        disk.go_on()


async def test_sender_that_has_gone_stores_nothing(
    broker: Broker, caller: Caller, disk: SlowDisk, clock: ManualClock
) -> None:
    """The connection of a parked send ends: it is not begun, others are."""
    async with open_caller(broker.address) as leaving, asyncio.TaskGroup() as group:
        await leaving.heartbeat("leaving", "g", {"T": "*"})  # its group is saved while the disk moves
        await stall(group, caller, disk, clock)
        gone = group.create_task(end_of(leaving.send(body=b"gone")))
        await max_offset(leaving)
        (stays,) = await send(group, caller, b"stays")
        leaving.connection.abort()
        assert "ended before the answer" in await gone
        await until(lambda: not broker.clients)
        disk.go_on()
        assert (await stays).code == ResponseCode.SUCCESS
    assert await stored_bodies(caller) == [b"early", b"stays"]


async def test_failed_flush_refuses_who_is_parked(caller: Caller, disk: SlowDisk, clock: ManualClock) -> None:
    """They are begun, and the store says that it takes nothing any more; so do later sends, at once."""
    async with asyncio.TaskGroup() as group:
        early = await stall(group, caller, disk, clock)
        (parked,) = await send(group, caller, b"parked")
        disk.go_on(failing=True)
        answers = [await early, await parked]
        await clock.elapse(2 * STALL_MS)
        answers.append(await caller.send(body=b"late"))
    assert {one.code for one in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}


async def test_stop_answers_who_is_parked(settings: dict[str, str], clock: ManualClock, disk: SlowDisk) -> None:
    """They are told to go elsewhere at once, as is who sends during the stop; what was begun is stored and told so."""
    async with asyncio.TaskGroup() as group:
        broker = await Broker(sync_flush(settings), clock, disk).__aenter__()
        async with open_caller(broker.address) as caller:
            assert (await caller.send(queue_id=3)).code == ResponseCode.SUCCESS
            early = await stall(group, caller, disk, clock)
            (parked,) = await send(group, caller, b"parked")
            stopping = group.create_task(broker.__aexit__(None, None, None))
            assert (await parked).remark == BUSY.format(0, 0)
            assert (await caller.send(body=b"late")).code == ResponseCode.SYSTEM_BUSY
            disk.go_on()
            await stopping
            assert (await early).code == ResponseCode.SUCCESS
    async with Broker(sync_flush(settings), clock) as broker, open_caller(broker.address) as caller:
        assert broker.store.was_closed_cleanly
        assert await stored_bodies(caller) == [b"early"]


async def test_fast_failure_can_be_turned_off(settings: dict[str, str], clock: ManualClock, disk: SlowDisk) -> None:
    """With brokerFastFailureEnable=false a send to a stalled disk is begun, and waits for syncFlushTimeout."""
    config = sync_flush(settings, brokerFastFailureEnable="false")
    async with run(config, clock, disk) as (_, caller), asyncio.TaskGroup() as group:
        await stall(group, caller, disk, clock)
        (late,) = await send(group, caller, b"late")
        clock.advance(5_000)
        assert (await late).code == ResponseCode.FLUSH_DISK_TIMEOUT
        disk.go_on()


async def test_limits_are_javas_keys(settings: dict[str, str], clock: ManualClock, disk: SlowDisk) -> None:
    """When the disk stalls says osPageCacheBusyTimeOutMills, how long a send waits then waitTimeMillsInSendQueue."""
    config = sync_flush(settings, osPageCacheBusyTimeOutMills="300", waitTimeMillsInSendQueue="40")
    async with run(config, clock, disk) as (_, caller), asyncio.TaskGroup() as group:
        disk.get_stuck()
        (early,) = await send(group, caller, b"early")
        await until(disk.waiting.is_set)
        clock.advance(300)
        (late,) = await send(group, caller, b"late")
        clock.advance(40)
        assert (await late).remark == BUSY.format(40, 0)
        assert not early.done()
        disk.go_on()


async def test_without_sync_flush_nobody_waits(settings: dict[str, str], clock: ManualClock, disk: SlowDisk) -> None:
    """Under ASYNC_FLUSH a stuck disk keeps no send from being answered at once."""
    async with run(BrokerConfig.from_java(settings), clock, disk) as (_, caller):
        disk.get_stuck()
        assert (await caller.send()).code == ResponseCode.SUCCESS
        await clock.elapse(20_000)
        await until(disk.waiting.is_set)
        assert (await caller.send()).code == ResponseCode.SUCCESS
        disk.go_on()


@pytest.mark.feature("S22")
async def test_stall_is_logged_once(
    caller: Caller, disk: SlowDisk, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it begins and one when it is over, with how many were refused."""
    with caplog.at_level(logging.WARNING, "rocketlet.broker.outcomes.disk_stall"):
        async with asyncio.TaskGroup() as group:
            await stall(group, caller, disk, clock)
            await send(group, caller, b"one", b"two")
            clock.advance(WAIT_MS)
            disk.go_on()
    assert [record.getMessage() for record in caplog.records] == [
        "flush stalled for 1000 ms: sends wait, and are answered busy after waitTimeMillsInSendQueue",
        "flush no longer stalled; 2 sends were answered busy meanwhile",
    ]
