"""GET_BROKER_RUNTIME_INFO: what a broker tells about itself."""

import errno
import json
import os
import pathlib
import re
from collections.abc import Mapping

import pytest
from raw_calls import Caller, open_caller, send_header, until
from runtime_keys import FORMATS, misfits
from slow_disk import SlowDisk

from rocketlet.broker.admin.runtime_info import format_bytes, format_double, rate
from rocketlet.broker.admin.statistics import Sample
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.store.files.files import Files
from rocketlet.testing.manual_clock import ManualClock

DELAYED = encode_properties({"DELAY": "1"}).decode()
CREATE = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


async def told(caller: Caller) -> dict[str, str]:
    """Return what the broker tells."""
    answer = await caller.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert (answer.code, answer.remark, answer.ext) == (ResponseCode.SUCCESS, None, {})
    return json.loads(answer.body)["table"]


def figures(table: Mapping[str, str], *keys: str) -> list[int]:
    """Return some numbers."""
    return [int(table[key]) for key in keys]


async def test_all_keys_are_told_in_their_forms(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """Right after the start and after a while: every key of D.4, as text that dashboards and exporters can parse."""
    start = await told(caller)
    assert start.keys() >= FORMATS.keys()
    assert misfits(start) == {}
    assert (start["putTps"], start["getTotalTps"], start["earliestMessageTimeStamp"]) == ("  ", "0.0 0.0 0.0", "-1")
    assert (start["putMessageTimesTotal"], start["putMessageSizeTotal"]) == ("1", "0")
    await caller.send(properties=DELAYED)
    await clock.elapse(61_000)
    later = await told(caller)
    assert misfits(later) == {}
    assert later["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"
    assert later["bootTimestamp"] == start["bootTimestamp"] == str(clock.now_ms() - 61_000)
    assert later["putMessageDistributeTime"].startswith("[<=0ms]:2 [0~10ms]:0 ")


async def test_what_this_broker_does_not_have_is_idle(caller: Caller, clock: ManualClock) -> None:
    """Threads' queues are empty and of Java's sizes, no lock is held, no buffers are lent out."""
    table = await told(caller)
    capacities = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
    for pool, capacity in capacities.items():
        keys = [f"{pool}ThreadPoolQueue{what}" for what in ("Size", "Capacity", "HeadWaitTimeMills")]
        assert figures(table, *keys) == [0, capacity, 0]
    assert figures(table, "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity") == [0, 100_000]
    assert figures(table, "remainTransientStoreBufferNumbs", "pageCacheLockTimeMills") == [2**31 - 1, 0]


async def test_span_of_days(broker: Broker, clock: ManualClock) -> None:
    """It is told in days, hours, minutes and seconds since the start."""
    clock.advance(2 * 86_400_000 + 3 * 3_600_000 + 4 * 60_000 + 5_999)
    async with open_caller(broker.address) as caller:
        assert (await told(caller))["runtime"] == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"


async def test_put_times_are_told_in_classes(settings: dict[str, str], clock: ManualClock) -> None:
    """Each begins with its lower end; what took 10 s and longer is in the last."""
    disk = SlowDisk()
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH", "brokerFastFailureEnable": "false"})
    ends_ms = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
    async with Broker(config, clock, disk) as broker, open_caller(broker.address) as caller:
        assert (await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)).code == ResponseCode.SUCCESS
        for took_ms in [each for end_ms in ends_ms for each in (end_ms - 1, end_ms)]:
            disk.get_stuck()
            await caller.send(properties="WAIT\x01false\x02")
            await until(disk.waiting.is_set)
            clock.advance(took_ms)
            disk.go_on()
            await until(lambda: broker.store.dispatch_behind_bytes == 0)
        await clock.elapse(60_000)
        classes = (await told(caller))["putMessageDistributeTime"]
    assert [int(count) for count in re.findall(r"\]:(\d+) ", classes)] == [1, *[2] * 11, 1]


async def test_messages_are_counted(caller: Caller, clock: ManualClock) -> None:
    """Single messages and those of a batch go in, and come out once for each pull that finds them."""
    await caller.send(body=b"one")
    body = encode_batch([BatchPart(0, b"a", b""), BatchPart(0, b"b", b"")])
    await caller.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("T", batch=True), body)
    size = len((await caller.pull()).body)
    await caller.pull()
    assert (await caller.pull(queue_offset=3)).code == ResponseCode.PULL_NOT_FOUND
    table = await told(caller)
    assert figures(table, "putMessageTimesTotal", "msgPutTotalTodayNow", "msgGetTotalTodayNow") == [3, 3, 6]
    assert figures(table, "putMessageSizeTotal", "commitLogMaxOffset", "commitLogMinOffset") == [size, size, 0]
    assert table["putMessageAverageSize"] == format_double(size / 3)
    assert table["earliestMessageTimeStamp"] == str(clock.now_ms())


@pytest.mark.feature("L5")
async def test_delayed_message_counts_twice(caller: Caller, clock: ManualClock) -> None:
    """It is put where it waits and where it belongs; only the second one is of a user's topic."""
    await caller.send(body=b"now")
    before = figures(await told(caller), "putMessageTimesTotal", "msgPutTotalTodayNow")
    await caller.send(body=b"late", properties=DELAYED)
    parked = await told(caller)
    await clock.elapse(1_000)
    after = await told(caller)
    assert before == [1, 1]
    assert figures(parked, "putMessageTimesTotal", "msgPutTotalTodayNow") == [2, 1]
    assert figures(after, "putMessageTimesTotal", "msgPutTotalTodayNow") == [3, 2]
    assert (parked["scheduleMessageOffset_1"], after["scheduleMessageOffset_1"]) == ("0,1", "1,1")


async def test_rates_are_those_of_10_60_and_600_seconds(caller: Caller, clock: ManualClock) -> None:
    """A rate is missing until there are samples enough; that of all reads is 0.0 then."""
    await clock.elapse(2_000)
    for _ in range(30):
        await caller.send()
    await caller.pull()
    await caller.pull(queue_offset=30)
    await clock.elapse(9_000)
    short = await told(caller)
    assert [short[key] for key in ("putTps", "getFoundTps", "getMissTps")] == ["3.0  ", "0.1  ", "0.1  "]
    assert (short["getTransferredTps"], short["getTransferedTps"]) == ("3.0  ", "3.0  ")
    assert short["getTotalTps"] == "0.2 0.0 0.0"
    await clock.elapse(50_000)
    assert (await told(caller))["putTps"] == "0.0 0.5 "


async def test_timers_are_told(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """How many are on their way into the wheel and in it, how far the wheel is behind, and rates of ten seconds."""
    await clock.elapse(1_000)
    for delay_s in (5, 5, 8):
        await caller.send(properties=encode_properties({"TIMER_DELAY_SEC": str(delay_s)}).decode())
    while (await told(caller))["timerOffsetBehind"] != "0":  # the wheel is opened in a thread
        await clock.settle()
    waiting = await told(caller)
    assert figures(waiting, "timerCongestNum", "timerReadBehind", "putMessageTimesTotal") == [3, 0, 3]
    await clock.elapse(7_000)
    await until(lambda: broker.store.max_offset("T", 0) == 2)
    await clock.elapse(2_000)
    await until(lambda: broker.store.max_offset("T", 0) == 3)
    await clock.elapse(1_000)
    done = await told(caller)
    assert figures(done, "timerCongestNum", "timerOffsetBehind", "putMessageTimesTotal") == [0, 0, 6]
    assert (done["timerEnqueueTps"], done["timerDequeueTps"]) == ("0.3", "0.3")
    assert misfits(done) == {}


async def test_what_waits_for_the_disk_is_told(settings: dict[str, str], clock: ManualClock) -> None:
    """Bytes that are not flushed, and under SYNC_FLUSH not readable; puts take as long as their flush."""
    disk = SlowDisk()
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"})
    async with Broker(config, clock, disk) as broker, open_caller(broker.address) as caller:
        assert (await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)).code == ResponseCode.SUCCESS
        disk.get_stuck()
        await caller.send(body=bytes(2048), properties="WAIT\x01false\x02")
        await until(disk.waiting.is_set)
        size = broker.store.log_max_offset
        stuck = await told(caller)
        assert stuck["remainHowManyDataToFlush"] == f"{size / 1024:.1f} KiB"
        assert figures(stuck, "dispatchBehindBytes", "putMessageTimesTotal", "putMessageSizeTotal") == [size, 1, 0]
        clock.advance(30)
        disk.go_on()
        assert (await caller.send(queue_id=1)).code == ResponseCode.SUCCESS
        moving = await told(caller)
        assert moving["remainHowManyDataToFlush"] == "0 B"
        assert figures(moving, "dispatchBehindBytes", "putMessageTimesTotal", "putMessageEntireTimeMax") == [0, 2, 30]


async def test_refused_writes_are_counted(settings: dict[str, str], clock: ManualClock) -> None:
    """Messages that could not be written count as failed, not as put."""
    disk = SlowDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        await caller.send()
        disk.has_room = False
        assert (await caller.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert figures(await told(caller), "putMessageFailedTimes", "putMessageTimesTotal") == [1, 1]
        disk.has_room = True


class MeasuredDisk(Files):
    """Says how full it is; says nothing when it is gone."""

    is_gone = False

    def disk_usage(self, path: str) -> tuple[int, int]:
        """Tell that a path that ends in "two" is less full than others."""
        self._demand(path)
        return (30, 70) if path.endswith("two") else (50, 50)

    def disk_capacity(self, path: str) -> tuple[int, int]:
        """Tell the bytes in all and those that are free."""
        self._demand(path)
        return 105_000_000_000, 13_000_000_000

    def _demand(self, path: str) -> None:
        if self.is_gone:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


async def test_disks_are_told(settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path) -> None:
    """Each path of the log has its share in use, the least full one counts; the capacity is of the store's disk."""
    logs = f"{tmp_path}/one,{tmp_path}/two"
    config, disk = BrokerConfig.from_java({**settings, "storePathCommitLog": logs}), MeasuredDisk()
    async with Broker(config, clock, disk) as broker, open_caller(broker.address) as caller:
        table = await told(caller)
    ratios = {key: text for key, text in table.items() if key.startswith("commitLogDiskRatio")}
    assert ratios == {
        "commitLogDiskRatio": "0.3",
        f"commitLogDiskRatio_{tmp_path}/one": "0.5",
        f"commitLogDiskRatio_{tmp_path}/two": "0.3",
    }
    assert table["consumeQueueDiskRatio"] == "0.5"
    assert table["commitLogDirCapacity"] == "Total : 97.8 GiB, Free : 12.1 GiB."


async def test_disk_that_cannot_be_measured(settings: dict[str, str], clock: ManualClock) -> None:
    """Its share is -1, and the broker answers."""
    disk = MeasuredDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        disk.is_gone = True
        table = await told(caller)
    assert (table["commitLogDiskRatio"], table["consumeQueueDiskRatio"]) == ("-1.0", "-1.0")
    assert table["commitLogDirCapacity"] == "Total : 0 B, Free : 0 B."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"),
        (1, "1.0"),
        (0.1, "0.1"),
        (1234567.25, "1234567.25"),
        (0.001, "0.001"),
        (0.000999, "9.99E-4"),
        (5e-05, "5.0E-5"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-2.5, "-2.5"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    """From a thousandth up to ten million without an exponent, and never without a fraction."""
    assert format_double(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (3 << 50, "3.0 PiB")],
)
def test_sizes_have_a_number_and_a_unit(count: int, text: str) -> None:
    """Two words, which dashboards take apart at the blank."""
    assert re.fullmatch(r"\S+ \S+", format_bytes(count))
    assert format_bytes(count) == text


@pytest.mark.parametrize(("last_at_ms", "per_second"), [(1_005, 7.0), (6, 7_000.0), (5, 7_000.0), (4, 7_000.0)])
def test_rate_over_less_than_a_millisecond(last_at_ms: int, per_second: float) -> None:
    """A clock that was set back gives no time at all, or less: it counts as one."""
    first = Sample(5, 1, 0, 0, 0, 0, 0)
    assert rate((first, first._replace(at_ms=last_at_ms, puts=8)), lambda sample: sample.puts) == per_second
