"""What statistics tell of the last minute, hour and day, compared with what was really counted then."""

from collections.abc import Callable

import pytest

from rocketlet.broker.admin.named_statistics import NamedStatistics
from rocketlet.broker.admin.statistics import BrokerStatistics, DayTotals, TrafficCounts
from rocketlet.broker.admin.windows import HOUR, MINUTE, Growth
from rocketlet.broker.group.members import RegisterCounts
from rocketlet.broker.outcomes.scheduler import PutCounts
from rocketlet.broker.pull.fetch import ReadCounts
from rocketlet.broker.send.send import SendBackCounts
from rocketlet.testing.manual_clock import ManualClock

HOUR_S, DAY_S = 3_600, 86_400
USERS = "_WITHOUT_SYSTEM_TOPIC"


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock at an instant on a day without a change of the clocks."""
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def statistics(clock: ManualClock) -> BrokerStatistics:
    """Return figures that begin now."""
    traffic = TrafficCounts(PutCounts(clock.now_ms), ReadCounts(clock.monotonic_ms), SendBackCounts(), RegisterCounts())
    return BrokerStatistics(clock, traffic, channel_activity=lambda: {"CONNECT": 5, "CLOSE": 2, "IDLE": 0})


@pytest.fixture
def named(statistics: BrokerStatistics) -> NamedStatistics:
    """Return them by name."""
    return NamedStatistics(statistics, "DefaultCluster")


def put(statistics: BrokerStatistics, count: int, topic: str = "T", queue_id: int = 0) -> None:
    """Count messages of ten bytes that took 2 ms each."""
    row = statistics.puts.queues[topic][queue_id]
    for column, amount in enumerate((count, 10 * count, 2 * count)):
        row[column] += amount
    statistics.puts.messages += count
    statistics.puts.bytes += 10 * count


def read(statistics: BrokerStatistics, count: int, group: str = "g", queue_id: int = 0) -> None:
    """Count a fetch that found messages of ten bytes, in 3 ms."""
    row = statistics.reads.queues["T", group][queue_id]
    for column, amount in enumerate((count, 10 * count, 1, 3)):
        row[column] += amount
    statistics.reads.messages += count


async def let_pass(
    statistics: BrokerStatistics, clock: ManualClock, seconds: int, step_s: int = 1, each: Callable[[], object] = int
) -> None:
    """Let time go by; do something before each step."""
    for _ in range(seconds // step_s):
        each()
        clock.advance(step_s * 1_000)
        await statistics.run()


def windows(named: NamedStatistics, name: str, key: str) -> list[Growth]:
    """Return the windows of a statistic that is there."""
    found = named.find(name, key)
    assert found is not None
    return found


@pytest.mark.feature("D13")
async def test_rates_of_a_load_that_changes(
    statistics: BrokerStatistics, named: NamedStatistics, clock: ManualClock
) -> None:
    """The minute tells what came in sixty seconds up to its latest sample, which is ten seconds old at most."""
    sent: list[int] = []
    minute = Growth()
    others = [(f"BROKER_{kind}_NUMS{which}", "DefaultCluster") for kind in ("PUT", "GET") for which in ("", USERS)]
    others += [("GROUP_GET_NUMS", "T@g"), ("SNDBCK_PUT_NUMS", "T@g")]

    def send() -> None:
        sent.append(len(sent) * 7 % 100)
        put(statistics, sent[-1])
        read(statistics, sent[-1])
        statistics.send_backs.counts["T", "g"][0][0] += sent[-1]

    for _ in range(20):
        await let_pass(statistics, clock, 10, each=send)
        until = len(sent)
        expected = sum(sent[max(0, until - 60) : until])
        minute = windows(named, "TOPIC_PUT_NUMS", "T")[MINUTE]
        assert (minute.total, minute.each_time) == (expected, 1.0)
        assert minute.per_second == pytest.approx(expected / min(until, 60))
        assert statistics.puts_per_second("T") == minute.per_second
        for name, key in others:
            assert windows(named, name, key)[MINUTE].total == expected
    await let_pass(statistics, clock, 9, each=send)
    assert windows(named, "TOPIC_PUT_NUMS", "T")[MINUTE] == minute
    await let_pass(statistics, clock, 71)
    assert windows(named, "TOPIC_PUT_NUMS", "T")[MINUTE] == Growth(0, 0.0, 0.0)


@pytest.mark.feature("D13")
async def test_hours_and_days(statistics: BrokerStatistics, named: NamedStatistics, clock: ManualClock) -> None:
    """The hour moves every ten minutes, the day every hour; both tell what really came in them."""
    tens: list[int] = []

    def send() -> None:
        tens.append(len(tens) % 13)
        put(statistics, tens[-1])

    await let_pass(statistics, clock, 590, 10, send)
    assert windows(named, "TOPIC_PUT_NUMS", "T")[HOUR:] == [Growth(), Growth()]
    await let_pass(statistics, clock, 26 * HOUR_S - 590, 10, send)
    _, hour, day = windows(named, "TOPIC_PUT_NUMS", "T")
    assert (hour.total, hour.per_second) == (sum(tens[-360:]), pytest.approx(sum(tens[-360:]) / HOUR_S))
    assert (day.total, day.per_second) == (sum(tens[-8_640:]), pytest.approx(sum(tens[-8_640:]) / DAY_S))


async def test_row_that_comes_late_stands_behind_a_zero(
    statistics: BrokerStatistics, named: NamedStatistics, clock: ManualClock
) -> None:
    """What came before the first sample of a topic counts, over a time that begins one period before that sample."""
    await let_pass(statistics, clock, 35)
    put(statistics, 30)
    assert windows(named, "TOPIC_PUT_NUMS", "T")[MINUTE] == Growth()
    await let_pass(statistics, clock, 5)
    assert windows(named, "TOPIC_PUT_NUMS", "T")[MINUTE] == Growth(30, 3.0, 1.0)
    put(statistics, 30, queue_id=1)
    await let_pass(statistics, clock, 10)
    assert windows(named, "TOPIC_PUT_NUMS", "T")[MINUTE] == Growth(60, 3.0, 1.0)


@pytest.mark.parametrize(
    ("name", "key", "total", "each_time"),
    [
        ("TOPIC_PUT_NUMS", "T", 10, 1.0),
        ("TOPIC_PUT_SIZE", "T", 100, 10.0),
        ("TOPIC_PUT_LATENCY", "1@T", 12, 2.0),
        ("QUEUE_PUT_NUMS", "T@1", 6, 1.0),
        ("QUEUE_PUT_SIZE", "T@0", 40, 10.0),
        ("GROUP_GET_NUMS", "T@g", 5, 2.5),
        ("GROUP_GET_SIZE", "T@g", 50, 25.0),
        ("GROUP_GET_LATENCY", "0@T@g", 3, 3.0),
        ("QUEUE_GET_NUMS", "T@0@g", 2, 2.0),
        ("QUEUE_GET_SIZE", "T@1@g", 30, 30.0),
        ("SNDBCK_PUT_NUMS", "T@g", 4, 1.0),
        ("SNDBCK2DLQ_TIMES", "null@T@g@SEND_BACK_TO_DLQ", 1, 1.0),
        ("BROKER_PUT_NUMS", "DefaultCluster", 13, 0.0),
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 10, 0.0),
        ("BROKER_GET_NUMS", "DefaultCluster", 5, 0.0),
        ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 5, 0.0),
        ("CONSUMER_REGISTER_TIME", "DefaultCluster", 6, 3.0),
        ("PRODUCER_REGISTER_TIME", "DefaultCluster", 0, 0.0),
        ("CHANNEL_ACTIVITY", "CONNECT", 5, 1.0),
        ("CHANNEL_ACTIVITY", "CLOSE", 2, 1.0),
    ],
)
async def test_statistic_by_name(
    name: str,
    key: str,
    total: int,
    each_time: float,
    statistics: BrokerStatistics,
    named: NamedStatistics,
    clock: ManualClock,
) -> None:
    """Each name of D.5 with its key tells its own numbers."""
    put(statistics, 4)
    put(statistics, 6, queue_id=1)
    put(statistics, 3, topic="SCHEDULE_TOPIC_XXXX")
    read(statistics, 2)
    read(statistics, 3, queue_id=1)
    statistics.send_backs.counts["T", "g"][0][:] = [4, 1, 0]
    statistics.registers.counts["CONSUMER"][0][:] = [6, 2]
    statistics.registers.counts["PRODUCER"][0][:] = [0, 1]
    await let_pass(statistics, clock, 10)
    minute = windows(named, name, key)[MINUTE]
    assert (minute.total, minute.per_second, minute.each_time) == (total, total / 10, each_time)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("TOPIC_PUT_NUMS", key) for key in ("", "U", "T@g", "T@0", "null")),
        *(("GROUP_GET_NUMS", key) for key in ("T", "g@T", "T@h", "T@g@0", "")),
        *(("GROUP_GET_LATENCY", key) for key in ("T@g", "7@T@g", "x@T@g", "T@0@g", "0@T")),
        *(("QUEUE_PUT_NUMS", key) for key in ("0@T", "T@7", "T@", "T@-1", "T@²")),
        ("TOPIC_PUT_LATENCY", "0@T@g"),
        ("SNDBCK_PUT_NUMS", "T@g"),
        *(("SNDBCK2DLQ_TIMES", key) for key in ("T@s", "null@T@s", "null@T@s@OTHER", "me@T@s@SEND_BACK_TO_DLQ")),
        ("BROKER_PUT_NUMS", ""),
        ("BROKER_PUT_NUMS", "OtherCluster"),
        ("CONSUMER_REGISTER_TIME", "DefaultCluster"),
        ("CONSUMER_REGISTER_TIME", "CONSUMER"),
        ("CHANNEL_ACTIVITY", "IDLE"),
        ("CHANNEL_ACTIVITY", "DefaultCluster"),
        ("GROUP_GET_FALL_SIZE", "0@T@g"),
        ("UNHEARD_OF", "T"),
        ("null", "T"),
    ],
)
async def test_statistic_that_does_not_exist(
    name: str, key: str, statistics: BrokerStatistics, named: NamedStatistics, clock: ManualClock
) -> None:
    """A name or key of nothing that ever happened is no statistic, and looking makes none."""
    put(statistics, 4)
    read(statistics, 2)
    statistics.send_backs.counts["T", "s"][0][:] = [4, 1]
    await let_pass(statistics, clock, 10)
    assert named.find(name, key) is None
    assert (list(statistics.puts.queues), list(statistics.reads.queues)) == (["T"], [("T", "g")])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "T"),
        ("BROKER_PUT_NUMS", "DefaultCluster"),
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster"),
        ("CHANNEL_ACTIVITY", "CONNECT"),
    ],
)
def test_statistic_exists_once_it_has_happened(
    name: str, key: str, statistics: BrokerStatistics, named: NamedStatistics
) -> None:
    """It is told with zeros before it is sampled, as a 5.4.0 broker does."""
    put(statistics, 4)
    assert windows(named, name, key) == [Growth()] * 3


async def test_what_is_deleted_has_no_statistics(
    statistics: BrokerStatistics, named: NamedStatistics, clock: ManualClock
) -> None:
    """Those of a topic or a group go with it, the broker's totals stay; made anew, it begins with nothing."""
    put(statistics, 4)
    read(statistics, 2)
    read(statistics, 3, group="h")
    statistics.send_backs.counts["T", "g"][0][:] = [4, 1, 0]
    await let_pass(statistics, clock, 10)
    statistics.drop_group("g")
    assert (named.find("GROUP_GET_NUMS", "T@g"), named.find("SNDBCK_PUT_NUMS", "T@g")) == (None, None)
    assert windows(named, "GROUP_GET_NUMS", "T@h")[MINUTE].total == 3
    statistics.drop_topic("T")
    assert (named.find("TOPIC_PUT_NUMS", "T"), named.find("GROUP_GET_NUMS", "T@h")) == (None, None)
    put(statistics, 1)
    await let_pass(statistics, clock, 10)
    assert windows(named, "TOPIC_PUT_NUMS", "T")[MINUTE] == Growth(1, 0.1, 1.0)
    assert (statistics.day_totals(), statistics.puts.bytes) == (DayTotals(puts=5, gets=5), 50)
    assert windows(named, "BROKER_PUT_NUMS", "DefaultCluster")[MINUTE].total == 5


async def test_what_is_idle_for_a_day_is_given_up(
    statistics: BrokerStatistics, named: NamedStatistics, clock: ManualClock
) -> None:
    """Its numbers take no room any more, the totals keep what it had; what moves stays."""
    put(statistics, 4)
    read(statistics, 2)
    statistics.send_backs.counts["T", "g"][0][:] = [4, 1, 0]
    await let_pass(statistics, clock, 25 * HOUR_S - 600, 600, lambda: put(statistics, 1, queue_id=1))
    assert statistics.reads.queues.keys() == {("T", "g")}
    await let_pass(statistics, clock, 600, 600, lambda: put(statistics, 1, queue_id=1))
    assert (statistics.puts.queues["T"].keys(), statistics.reads.queues, statistics.send_backs.counts) == ({1}, {}, {})
    assert named.find("GROUP_GET_NUMS", "T@g") is None
    assert statistics.day_totals() == DayTotals(puts=4 + 150, gets=2)
    assert statistics.puts.bytes == 1_540
