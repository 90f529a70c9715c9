"""Delayed messages, by raw requests to a broker whose clock the test moves."""

import asyncio
import json
import pathlib
import shutil
from collections import Counter

import pytest
from raw_calls import Caller, open_caller, until
from slow_disk import SlowDisk
from stores import read_queue

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import parse_offset_id
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.record import Record, decode_record, iter_records
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
MINUTE_S, HOUR_S = 60, 3_600
LEVELS_S = (1, 5, 10, 30, *(MINUTE_S * count for count in (*range(1, 11), 20, 30)), HOUR_S, 2 * HOUR_S)


async def send(caller: Caller, level: int | str, body: bytes = b"late", queue_id: int = 0, more: str = "") -> int:
    """Send a message to T with a delay level and return its place in the log."""
    answer = await caller.send("T", body, queue_id=queue_id, properties=f"DELAY\x01{level}\x02{more}")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return parse_offset_id(answer.ext["msgId"])[1]


def saved_offsets(settings: dict[str, str]) -> dict[str, int] | None:
    """Return the offsets in delayOffset.json, None when it is not there."""
    path = pathlib.Path(settings["storePathRootDir"], "config", "delayOffset.json")
    return json.loads(path.read_text())["offsetTable"] if path.exists() else None


async def records(caller: Caller, queue_id: int = 0, topic: str = "T") -> list[Record]:
    """Return what a queue holds."""
    answer = await caller.pull(topic, queue_id=queue_id)
    return list(iter_records(answer.body)) if answer.code == ResponseCode.SUCCESS else []


async def bodies(caller: Caller) -> list[bytes]:
    """Return the bodies in queue 0 of T."""
    return [bytes(record.body) for record in await records(caller)]


@pytest.mark.feature("L1")
async def test_messages_of_all_levels_come_when_they_are_due(
    caller: Caller, clock: ManualClock, broker: Broker
) -> None:
    """Of 1 s to 2 h, each level delivers nothing a millisecond before its time, and its message then."""
    assert len(LEVELS_S) == 18
    for level in range(18, 0, -1):
        await send(caller, level, b"level %d" % level)
    elapsed_ms = 0
    for level, delay_s in enumerate(LEVELS_S, 1):
        await clock.elapse(1000 * delay_s - 1 - elapsed_ms)
        assert broker.store.max_offset("T", 0) == level - 1
        await clock.elapse(1)
        assert broker.store.max_offset("T", 0) == level
        elapsed_ms = 1000 * delay_s
    delivered = [bytes(record.body) for record in read_queue(broker.store, "T", 0)]
    assert delivered == [b"level %d" % level for level in range(1, 19)]


@pytest.mark.feature("L2")
async def test_levels_outside_the_table(caller: Caller, clock: ManualClock, broker: Broker) -> None:
    """Levels 0 and -1 are delivered at once; 19 and the largest number go to the queue of level 18."""
    for level in ("0", "-1"):
        await send(caller, level, f"level {level}".encode())
    assert await bodies(caller) == [b"level 0", b"level -1"]
    await send(caller, 19)
    await send(caller, 2**31 - 1)
    assert broker.store.max_offset(SCHEDULE_TOPIC, 17) == 2


@pytest.mark.feature("L2")
async def test_level_that_is_no_number(caller: Caller) -> None:
    """Such a message is answered 1, as is what Java cannot parse, and is not stored."""
    answer = await caller.send("T", properties="DELAY\x01soon\x02")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "property DELAY is 'soon', which is no number")


@pytest.mark.feature("L4")
async def test_stored_shape(caller: Caller, clock: ManualClock) -> None:
    """The parked record has queue level - 1, REAL_TOPIC, REAL_QID and DELAY; what is delivered has the same text."""
    place = await send(caller, 99, queue_id=3, more="TAGS\x01a\x02TIMER_DELAY_SEC\x015\x02")
    answer = await caller.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place)})
    parked = decode_record(answer.body)
    assert (parked.topic, parked.queue_id, parked.queue_offset) == (SCHEDULE_TOPIC, 17, 0)
    told = {name: parked.properties.get(name) for name in ("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_DELAY_SEC")}
    assert told == {"DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "3", "TIMER_DELAY_SEC": None}
    place = await send(caller, 1, queue_id=2, more="TAGS\x01a\x02")
    parked = decode_record((await caller.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place)})).body)
    await clock.elapse(1_000)
    (record,) = await records(caller, 2)
    same = "property_text", "body", "flag", "sys_flag", "born_at_ms", "born_host", "store_host", "reconsume_times"
    assert [getattr(record, name) for name in same] == [getattr(parked, name) for name in same]
    assert (record.topic, record.queue_id, record.queue_offset) == ("T", 2, 0)


async def test_answer_names_the_queue_that_was_asked_for(caller: Caller) -> None:
    """The answer holds the message's own queue, and its offset among the parked ones, as Java's does."""
    answers = [await caller.send("T", queue_id=queue_id, properties="DELAY\x011\x02") for queue_id in (3, 2)]
    assert [(answer.ext["queueId"], answer.ext["queueOffset"]) for answer in answers] == [("3", "0"), ("2", "1")]


async def test_delivery_wakes_a_held_pull(caller: Caller, clock: ManualClock, broker: Broker) -> None:
    """A consumer that waits gets the message when it is delivered."""
    await send(caller, 2)
    async with open_caller(broker.address) as consumer, asyncio.TaskGroup() as group:
        held = group.create_task(consumer.pull("T", sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND))
        await clock.elapse(4_999)
        await records(caller)
        assert not held.done()
        await clock.elapse(1)
        assert bytes(decode_record((await held).body).body) == b"late"


async def test_tags_select_delivered_messages(caller: Caller, clock: ManualClock) -> None:
    """A delivered message is found by its tag."""
    await send(caller, 1, b"a", more="TAGS\x01a\x02")
    await send(caller, 1, b"b", more="TAGS\x01b\x02")
    await clock.elapse(1_000)
    answer = await caller.pull("T", subscription="b")
    assert [bytes(record.body) for record in iter_records(answer.body)] == [b"b"]


@pytest.mark.feature("L3")
async def test_restart_keeps_what_waits(settings: dict[str, str], clock: ManualClock) -> None:
    """After a clean stop delivered messages do not come again, and those that wait come in time or at once."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        for level, body in ((1, b"delivered"), (2, b"overdue"), (3, b"later")):
            await send(caller, level, body)
        await clock.elapse(1_000)
    assert saved_offsets(settings) == {"1": 1, "2": 0, "3": 0}
    clock.advance(5_000)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await clock.settle()
        assert await bodies(caller) == [b"delivered", b"overdue"]
        await clock.elapse(4_000)
        assert await bodies(caller) == [b"delivered", b"overdue", b"later"]


@pytest.mark.feature("L3")
async def test_progress_is_saved_every_ten_seconds(
    settings: dict[str, str], broker: Broker, caller: Caller, clock: ManualClock
) -> None:
    """What was delivered before the last save does not come again, even if the broker is killed."""
    await send(caller, 1)
    await clock.elapse(9_999)
    assert saved_offsets(settings) is None
    await clock.elapse(1)
    await until(lambda: saved_offsets(settings) is not None)
    assert saved_offsets(settings) == {"1": 1}
    assert broker.store.flushed_offset == broker.store.log_max_offset


@pytest.mark.feature("L3")
async def test_kill_repeats_nothing_that_was_delivered(settings: dict[str, str], clock: ManualClock) -> None:
    """After a kill no message is missing, and none comes twice: the log shows what was delivered."""
    root = settings["storePathRootDir"]
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        for _ in range(40):
            await send(caller, 1, b"saved")
        await clock.elapse(10_000)
        await until(lambda: saved_offsets(settings) == {"1": 40})
        for _ in range(50):
            await send(caller, 1, b"delivered")
        await clock.elapse(1_000)
        for _ in range(10):
            await send(caller, 1, b"waiting")
        await asyncio.to_thread(shutil.copytree, root, f"{root}-killed")
    killed = BrokerConfig.from_java({**settings, "storePathRootDir": f"{root}-killed"})
    async with Broker(killed, clock) as broker:
        await clock.elapse(1_000)
        counts = Counter(bytes(record.body) for record in read_queue(broker.store, "T", 0))
    assert counts == {b"saved": 40, b"delivered": 50, b"waiting": 10}


@pytest.mark.feature("L3")
@pytest.mark.parametrize(
    ("levels", "wait_ms"),
    [("60s 60s 60s", 9_000), ("1s 1s", 9_000), ("1s 1s 1s", 0)],
    ids=["longer", "fewer", "shorter"],
)
async def test_other_levels_after_a_restart(
    levels: str, wait_ms: int, settings: dict[str, str], clock: ManualClock
) -> None:
    """A message keeps its time with longer levels, and with fewer; one that its level now finds too far off is due."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send(caller, 3)
        await clock.elapse(1_000)
    settings["messageDelayLevel"] = levels
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        if wait_ms:
            await clock.elapse(wait_ms - 1)
            assert await bodies(caller) == []
            await clock.elapse(1)
        await clock.settle()
        assert await bodies(caller) == [b"late"]


async def test_sync_flush_delivers_what_is_on_disk(settings: dict[str, str], clock: ManualClock) -> None:
    """A delayed message is not delivered before it is on disk; the delivered one is readable when it is, too."""
    disk = SlowDisk()
    settings["flushDiskType"] = "SYNC_FLUSH"
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        await caller.send("T", b"first")
        disk.get_stuck()
        await send(caller, 1, more="WAIT\x01false\x02")
        await clock.elapse(4_000)
        assert broker.store.max_offset(SCHEDULE_TOPIC, 0) == 0
        disk.go_on()
        await until(lambda: broker.store.max_offset(SCHEDULE_TOPIC, 0) == 1)
        await clock.settle()
        await until(lambda: broker.store.max_offset("T", 0) == 2)
        assert await bodies(caller) == [b"first", b"late"]
        refused = await caller.send("T", queue_id=99)
        assert refused.code == ResponseCode.INVALID_PARAMETER  # at once: nobody waits for a flush that was over
