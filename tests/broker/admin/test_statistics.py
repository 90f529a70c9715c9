"""What is counted, and what is made of it."""

import time
from collections.abc import Callable

import pytest

from rocketlet.broker.admin.statistics import (
    MOST_SAMPLES,
    BrokerStatistics,
    DayTotals,
    Sample,
    TrafficCounts,
    next_midnight_ms,
)
from rocketlet.broker.group.members import RegisterCounts
from rocketlet.broker.outcomes.scheduler import PutCounts
from rocketlet.broker.pull.fetch import ReadCounts
from rocketlet.broker.send.send import SendBackCounts
from rocketlet.common.message import INNER_BATCH
from rocketlet.common.properties import encode_properties
from rocketlet.store.consumequeue.appended import Appended, AppendedRun
from rocketlet.testing.manual_clock import ManualClock

NO_SAMPLE = Sample(0, 0, 0, 0, 0, 0, 0)


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock at an instant on a day without a change of the clocks."""
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def statistics(clock: ManualClock) -> BrokerStatistics:
    """Return figures that begin now."""
    return begin(clock)


def begin(clock: ManualClock) -> BrokerStatistics:
    """Return figures that begin now."""
    traffic = TrafficCounts(PutCounts(clock.now_ms), ReadCounts(clock.monotonic_ms), SendBackCounts(), RegisterCounts())
    return BrokerStatistics(clock, traffic)


@pytest.fixture
def vienna(time_zone: Callable[[str], None]) -> None:
    """Live in a time zone that changes its clocks."""
    time_zone("CET-1CEST,M3.5.0,M10.5.0/3")


def record(topic: str, stored_at_ms: int, size: int = 100, inner_batch: int | None = None) -> Appended:
    """Return a record that has become readable."""
    properties = {} if inner_batch is None else {"INNER_NUM": str(inner_batch)}
    sys_flag = 0 if inner_batch is None else INNER_BATCH
    return Appended(0, 0, size, topic, 0, sys_flag, stored_at_ms, encode_properties(properties), None)


async def sample(statistics: BrokerStatistics, clock: ManualClock, seconds: int) -> None:
    """Let seconds go by."""
    for _ in range(seconds):
        clock.advance(1_000)
        assert await statistics.run() == 1_000


def test_puts_are_counted_by_messages_and_bytes(statistics: BrokerStatistics, clock: ManualClock) -> None:
    """Each record counts, whatever its topic; an inner batch and a run count their messages."""
    now_ms = clock.now_ms()
    statistics.puts.add([record("T", now_ms), record("SCHEDULE_TOPIC_XXXX", now_ms, 200)])
    statistics.puts.add([record("T", now_ms, 50, inner_batch=5)])
    statistics.puts.add([AppendedRun(0, 0, 90, "T", 0, 0, now_ms, [b""] * 3, None, [0, 20, 50], [20, 30, 40])])
    assert (statistics.totals().puts, statistics.puts.bytes) == (10, 440)


def test_user_topics_are_counted_for_themselves(statistics: BrokerStatistics, clock: ManualClock) -> None:
    """System topics are left out of the totals of a day; retry topics are not system topics."""
    topics = ("T", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102")
    statistics.puts.add([record(topic, clock.now_ms()) for topic in topics])
    for topic, count in (("T", 3), ("RMQ_SYS_TRACE_TOPIC", 4)):
        statistics.reads.queues[topic, "g"][0][ReadCounts.MESSAGES] = count
        statistics.reads.messages += count
    assert statistics.day_totals() == DayTotals(puts=2, gets=3)
    for topic in ("T", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC"):
        statistics.drop_topic(topic)
    assert (statistics.puts.queues.keys() & {"T", "SCHEDULE_TOPIC_XXXX"}, len(statistics.reads.queues)) == (set(), 0)
    assert statistics.day_totals() == DayTotals(puts=2, gets=3)


async def test_span_needs_a_sample_more_than_seconds(statistics: BrokerStatistics, clock: ManualClock) -> None:
    """A span of ten seconds is there with the eleventh sample, and then moves on."""
    await sample(statistics, clock, 10)
    assert statistics.span(10) is None
    statistics.puts.add([record("T", clock.now_ms())] * 20)
    await sample(statistics, clock, 1)
    first, last = statistics.span(10) or (NO_SAMPLE, NO_SAMPLE)
    assert (first.puts, last.puts, last.at_ms - first.at_ms) == (0, 20, 10_000)
    await sample(statistics, clock, 10)
    first, last = statistics.span(10) or (NO_SAMPLE, NO_SAMPLE)
    assert (first.puts, last.puts) == (20, 20)


async def test_samples_of_ten_minutes_are_kept(statistics: BrokerStatistics, clock: ManualClock) -> None:
    """A span of 600 seconds is there in the end, and no longer one ever is."""
    await sample(statistics, clock, 2 * MOST_SAMPLES)
    first, last = statistics.span(600) or (NO_SAMPLE, NO_SAMPLE)
    assert last.at_ms - first.at_ms == 600_000
    assert statistics.span(601) is None


async def test_put_times_are_those_of_the_last_minute(statistics: BrokerStatistics, clock: ManualClock) -> None:
    """They are told when their minute is over, for a minute; the longest is told at once and for good."""
    statistics.puts.add([record("T", clock.now_ms() - 7)] * 3)
    statistics.puts.add([record("T", clock.now_ms() + 5)])  # the clock was set back
    assert (statistics.last_minute, statistics.longest_put_ms) == ({}, 7)
    await sample(statistics, clock, 60)
    assert (statistics.last_minute, statistics.longest_put_ms) == ({7: 3, -5: 1}, 7)
    statistics.puts.add([record("T", clock.now_ms() - 2)])
    await sample(statistics, clock, 60)
    assert (statistics.last_minute, statistics.longest_put_ms) == ({2: 1}, 7)


@pytest.mark.parametrize(
    ("times", "p50", "p99"),
    [
        ({}, 0.0, 0.0),
        ({0: 100}, 0.5, 0.99),
        ({1: 100}, 0.5, 0.99),
        ({3: 100}, 2.5, 2.99),
        ({1: 50, 30: 50}, 1.0, 29.96),
        ({12_000: 10}, 10_000.0, 10_000.0),
    ],
)
async def test_percentiles_are_interpolated_within_classes(
    times: dict[int, int], p50: float, p99: float, statistics: BrokerStatistics
) -> None:
    """Java's classes are 1 ms wide up to 20 ms, 2 ms up to 50 ms, and end at 10 s."""
    statistics.last_minute = times
    assert (statistics.percentile(0.5), round(statistics.percentile(0.99), 2)) == (p50, p99)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        *((0, 1), (19, 20), (20, 22), (48, 50), (50, 55), (95, 100), (100, 110)),
        *((190, 200), (200, 250), (450, 500), (500, 600), (900, 1000), (1000, 2000), (9000, 10_000)),
    ],
)
def test_classes_of_percentiles(lower: int, upper: int, statistics: BrokerStatistics) -> None:
    """Their ends are those of Java's buckets: what lies in one is spread over it."""
    for took_ms in (lower + 1, upper):
        statistics.last_minute = {took_ms: 4}
        assert [statistics.percentile(share) for share in (0.25, 0.5, 1)] == [
            lower + (upper - lower) * part / 4 for part in (1, 2, 4)
        ]


def test_longest_put_is_known_from_the_start(statistics: BrokerStatistics) -> None:
    """Before the first message it is 0."""
    assert (statistics.longest_put_ms, statistics.percentile(0.99)) == (0, 0)


async def test_midnight_begins_a_day(statistics: BrokerStatistics, clock: ManualClock, vienna: None) -> None:
    """The totals of a midnight are this morning's until the next one, and yesterday's then."""
    statistics = begin(clock)
    statistics.puts.add([record("T", clock.now_ms())] * 2)
    clock.advance_to(next_midnight_ms(clock.now_ms()) - 1_000)
    await sample(statistics, clock, 1)
    assert (statistics.this_morning, statistics.yesterday_morning) == (DayTotals(2, 0), DayTotals())
    statistics.puts.add([record("T", clock.now_ms())])
    await sample(statistics, clock, 1)
    assert statistics.this_morning == DayTotals(2, 0)
    clock.advance(86_400_000)
    await sample(statistics, clock, 1)
    assert (statistics.this_morning, statistics.yesterday_morning) == (DayTotals(3, 0), DayTotals(2, 0))


@pytest.mark.parametrize(
    ("now", "hours"),
    [("2024-03-30 22:00", 2), ("2024-03-31 00:00", 23), ("2024-10-27 00:00", 25), ("2024-12-31 12:00", 12)],
)
def test_days_are_local(now: str, hours: int, vienna: None) -> None:
    """A day in which the clocks change has 23 or 25 hours; the year may end."""
    now_ms = int(time.mktime(time.strptime(now, "%Y-%m-%d %H:%M"))) * 1000
    assert next_midnight_ms(now_ms) - now_ms == hours * 3_600_000
