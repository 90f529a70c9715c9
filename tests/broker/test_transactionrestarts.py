"""Open transactions over restarts, and with disks that are slow or full, by raw requests to a broker."""

import json
import pathlib

import pytest
from halfcalls import (
    CHECK_TIMES,
    COMMIT,
    DISCARD_TOPIC,
    OP_TOPIC,
    PATIENT,
    ROLLBACK,
    ROUND_MS,
    TRANSACTION_GROUP,
    Half,
    asked_bodies,
    asked_half,
    bodies,
    end,
    next_round,
    open_producer,
    pulled,
    questions,
    send_half,
)
from raw_calls import open_caller, until
from slow_disk import SlowDisk

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.names import HALF_TOPIC
from rocketlet.common.record import decode_record
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Let clients be silent for hours."""
    return settings | PATIENT


def saved_cursors(settings: dict[str, str]) -> list[int | None]:
    """Return half and op cursor in consumerOffset.json."""
    path = pathlib.Path(settings["storePathRootDir"], "config", "consumerOffset.json")
    table: dict[str, dict[str, int]] = json.loads(path.read_text())["offsetTable"]
    return [table.get(f"{topic}@{TRANSACTION_GROUP}", {}).get("0") for topic in (HALF_TOPIC, OP_TOPIC)]


def lose_cursors(settings: dict[str, str]) -> None:
    """Remove consumerOffset.json."""
    pathlib.Path(settings["storePathRootDir"], "config", "consumerOffset.json").unlink()


def leave_unclean(settings: dict[str, str]) -> None:
    """Let the store look as if its broker had not stopped cleanly."""
    pathlib.Path(settings["storePathRootDir"], "abort").touch()


@pytest.mark.feature("T10")
@pytest.mark.parametrize("is_clean", [True, False])
async def test_open_message_is_checked_after_a_restart(
    is_clean: bool, settings: dict[str, str], clock: ManualClock
) -> None:
    """After a clean stop, and if the store has to be recovered: the open one is asked about, and only that."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        halves = [await send_half(caller, b"%d" % number) for number in range(4)]
        assert (await end(caller, halves[0], COMMIT)).code == ResponseCode.SUCCESS
        assert (await end(caller, halves[2], ROLLBACK)).code == ResponseCode.SUCCESS
        await next_round(clock)
        await end(caller, Half(5, (await pulled(caller, HALF_TOPIC))[5].log_offset, ""), COMMIT)
        assert await bodies(caller) == [b"0", b"3"]
    assert saved_cursors(settings) == [4, 2]
    if not is_clean:
        leave_unclean(settings)
    async with Broker(config, clock) as broker, open_producer(broker) as producer:
        await next_round(clock)
        (question,) = await questions(producer)
        assert (bytes(decode_record(question.body).body), asked_half(question).half_offset) == (b"1", 6)
        assert decode_record(question.body).properties[CHECK_TIMES] == "2"
        assert (await end(producer, asked_half(question), COMMIT)).code == ResponseCode.SUCCESS
        assert await bodies(producer) == [b"0", b"3", b"1"]


@pytest.mark.feature("T10")
async def test_crash_before_the_cursor_is_saved_asks_nobody_twice(settings: dict[str, str], clock: ManualClock) -> None:
    """The log is read back further then, but what was copied or settled is named by op messages."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        for number in range(3):
            await send_half(caller, b"%d" % number)
        await next_round(clock, 2)
        await end(caller, Half(6, (await pulled(caller, HALF_TOPIC))[6].log_offset, ""), ROLLBACK)
    lose_cursors(settings)
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_producer(broker) as producer:
        await next_round(clock)
        assert sorted(await asked_bodies(producer)) == [b"1", b"2"]


async def test_cursors_follow(settings: dict[str, str], clock: ManualClock) -> None:
    """They are saved at the end; the op cursor is where op messages ended when a round began that passed all."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        for number in range(4):
            half = await send_half(caller, b"%d" % number)
            if number < 3:
                await end(caller, half, ROLLBACK)
        await next_round(clock)
    assert saved_cursors(settings) == [4, 3]
    async with Broker(config, clock) as broker:
        await next_round(clock)
        assert broker.store.max_offset(OP_TOPIC, 0) == 5
    assert saved_cursors(settings) == [5, 4]


async def test_cursors_are_saved_now_and_then(settings: dict[str, str], clock: ManualClock) -> None:
    """They are saved while the broker runs, as often as consumer offsets, and not before the log is on disk."""
    disk = SlowDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        await send_half(caller)
        disk.get_stuck()
        await next_round(clock)
        await clock.elapse(10_000)
        header = {"consumerGroup": TRANSACTION_GROUP, "topic": HALF_TOPIC, "queueId": "0"}
        answer = await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        assert answer.ext.get("offset", "0") == "0"
        disk.go_on()
        await until(lambda: broker.store.flushed_offset == broker.store.log_max_offset)
        while answer.ext.get("offset", "0") == "0":
            await clock.settle()
            answer = await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        assert answer.ext["offset"] == "1"


async def test_question_comes_when_the_copy_is_on_disk(settings: dict[str, str], clock: ManualClock) -> None:
    """Under SYNC_FLUSH a producer is asked when its answer can be taken."""
    disk = SlowDisk()
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"})
    async with Broker(config, clock, disk) as broker, open_producer(broker) as producer:
        await send_half(producer)
        disk.get_stuck()
        await next_round(clock)
        await until(disk.waiting.is_set)
        assert await questions(producer) == []
        disk.go_on()
        half = asked_half(await producer.next_request())
        assert (await end(producer, half, COMMIT, is_from_check=True)).code == ResponseCode.SUCCESS


async def test_commit_while_the_copy_is_on_its_way(settings: dict[str, str], clock: ManualClock) -> None:
    """Under SYNC_FLUSH a commit by an older offset counts for a copy that cannot be read yet; it is delivered once."""
    disk = SlowDisk()
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH", "brokerFastFailureEnable": "false"})
    async with Broker(config, clock, disk) as broker, open_producer(broker) as producer:
        first = await send_half(producer)
        await clock.elapse(ROUND_MS)
        await producer.next_request()
        disk.get_stuck()  # while a copy of the copy is written
        await clock.elapse(2 * ROUND_MS)
        await until(disk.waiting.is_set)
        for _ in range(2):
            producer.ask_oneway(RequestCode.END_TRANSACTION, first.end(COMMIT))
        await bodies(producer)
        disk.go_on()
        half = asked_half(await producer.next_request())
        assert half.half_offset == 2
        assert (await end(producer, half, COMMIT, is_from_check=True)).code == ResponseCode.SUCCESS
        await producer.send()
        assert await bodies(producer) == [b"half", b"body"]


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_late_commits_while_the_disk_is_busy(
    is_given_up: bool, settings: dict[str, str], clock: ManualClock
) -> None:
    """Under SYNC_FLUSH commits by an offset that was passed long ago deliver once, also before that can be read."""
    disk = SlowDisk()
    settings |= {"flushDiskType": "SYNC_FLUSH", "brokerFastFailureEnable": "false"}
    settings |= {"transactionCheckMax": "0" if is_given_up else "15"}
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_producer(broker) as producer:
        half = await send_half(producer)
        await clock.elapse(ROUND_MS)
        await until(lambda: broker.store.max_offset(DISCARD_TOPIC if is_given_up else HALF_TOPIC, 0) == 2 - is_given_up)
        disk.get_stuck()
        for _ in range(3):
            producer.ask_oneway(RequestCode.END_TRANSACTION, half.end(COMMIT))
        await until(disk.waiting.is_set)
        disk.go_on()
        assert (await end(producer, half, COMMIT)).code == ResponseCode.SUCCESS
        await producer.send()
        assert await bodies(producer) == [b"half", b"body"]


async def test_full_disk_puts_checks_off(
    settings: dict[str, str], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """While nothing can be stored nobody is asked, which is said once; then the round is made up for."""
    disk = SlowDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_producer(broker) as producer:
        await send_half(producer)
        disk.has_room = False
        await next_round(clock, 3)
        assert await questions(producer) == []
        assert sum("transaction checks are paused" in record.message for record in caplog.records) == 1
        disk.has_room = True
        await next_round(clock, 2)
        asked = [decode_record(question.body).properties[CHECK_TIMES] for question in await questions(producer)]
        assert asked in (["1"], ["1", "2"])
