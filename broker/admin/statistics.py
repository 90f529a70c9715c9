"""What a broker has stored and handed out since its start (``StoreStatsService``, ``BrokerStats``; behaviour.md D.4).

Rules

    1. A record counts as put when it has become readable, whoever had it stored: a delayed message counts twice, where
       it waits and where it belongs. A batch counts its messages.
    2. A read counts as found or missed: a pull that waits misses first, and is counted again when it is woken.
    3. Rates come from totals that are sampled each second; 600 seconds are kept. Those of a topic, and of a group in a
       topic, come from windows (``windows.py``), as all statistics that have a name (``named_statistics.py``).
    4. How long puts took is told for the last full minute, from a record's store time until it is readable: under
       SYNC_FLUSH with the wait for the disk. The longest ones are those since the start.
    5. Totals "of this morning" are those of the last local midnight, and leave out system topics.

The hot path adds to numbers: a call for each commit, none for a read or a message.
"""

import asyncio
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct

from ...common.clock import Clock
from ...common.names import TIMER_TOPIC, is_system_topic
from ..group.members import RegisterCounts
from ..outcomes.queue_counts import count_by_queue, total_of
from ..outcomes.scheduler import PutCounts
from ..pull.fetch import ReadCounts
from ..send.send import SendBackCounts
from .windows import DAY, MINUTE, SampledCounts, Timeline

MOST_SAMPLES = 601
_MINUTE_MS = 60_000
_STEPS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BOUNDS = tuple(accumulate(step for step, count in _STEPS for _ in range(count)))
"""Upper ends of the classes that percentiles are taken from, up to 10 s (``PUT_MESSAGE_ENTIRE_TIME_BUCKETS``)."""


class Sample(NamedTuple):
    """Totals at an instant."""

    at_ms: int
    puts: int
    found: int
    missed: int
    handed_out: int
    timers_in: int
    timers_out: int


class DayTotals(NamedTuple):
    """Messages of user topics that were put and handed out until a midnight, or until now."""

    puts: int = 0
    gets: int = 0


class TrafficCounts(Struct, frozen=True):
    """All that is counted while messages pass."""

    puts: PutCounts
    reads: ReadCounts
    send_backs: SendBackCounts
    registers: RegisterCounts

    @classmethod
    def begin(cls, clock: Clock) -> "TrafficCounts":
        """Begin to count."""
        return cls(PutCounts(clock.now_ms), ReadCounts(clock.monotonic_ms), SendBackCounts(), RegisterCounts())


BROKER_COLUMNS = 4
"""Messages put, those in user topics, messages handed out, those of user topics."""


class BrokerStatistics:
    """Counts what goes in and out.

    ``count_timers_out`` tells how many timer messages have left their wheel, ``channel_activity`` how often something
    has happened to connections.
    """

    period_ms = 1_000

    def __init__(
        self,
        clock: Clock,
        traffic: TrafficCounts,
        count_timers_out: Callable[[], int] = int,
        channel_activity: Callable[[], Mapping[str, int]] = dict[str, int],
    ) -> None:
        self._now_ms = clock.now_ms
        self.started_at_ms = clock.now_ms()
        self.puts, self.reads = traffic.puts, traffic.reads
        self._timeline = Timeline(self.started_at_ms)
        self.topic_puts = SampledCounts(traffic.puts.queues, 3, self._timeline)
        self.group_reads = SampledCounts(traffic.reads.queues, 4, self._timeline)
        self.send_backs = SampledCounts(traffic.send_backs.queues, 3, self._timeline)
        self.registers = SampledCounts(traffic.registers.queues, 2, self._timeline)
        self.channels = SampledCounts[str](count_by_queue(1), 1, self._timeline)
        self.whole_broker = SampledCounts[str](count_by_queue(BROKER_COLUMNS), BROKER_COLUMNS, self._timeline)
        self.yesterday_morning = self.this_morning = DayTotals()
        self.last_minute: Mapping[int, int] = {}
        """How many messages took how many milliseconds to be put."""
        self._count_timers_out = count_timers_out
        self._channel_activity = channel_activity
        self._longest_put_ms = 0  # before the minute under way
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._minute_ends_at_ms = self.started_at_ms + _MINUTE_MS
        self._day_ends_at_ms = next_midnight_ms(self.started_at_ms)
        self._dropped = [0, 0]  # messages put and handed out of system topics that have no rows any more

    def __repr__(self) -> str:
        return f"<BrokerStatistics {self.totals()}>"

    @property
    def longest_put_ms(self) -> int:
        """The longest time that a put has taken."""
        return max(max(self.puts.times, default=0), self._longest_put_ms)

    def totals(self) -> Sample:
        """Return the totals of all topics up to now."""
        return Sample(
            self._now_ms(),
            self.puts.messages,
            self.reads.found,
            self.reads.missed,
            self.reads.messages,
            total_of(self.puts.queues, TIMER_TOPIC, PutCounts.MESSAGES),
            self._count_timers_out(),
        )

    def day_totals(self) -> DayTotals:
        """Return the totals of user topics up to now."""
        puts, reads = self.puts.queues, self.reads.queues
        put = sum(total_of(puts, one, PutCounts.MESSAGES) for one in puts if is_system_topic(one))
        read = sum(total_of(reads, one, ReadCounts.MESSAGES) for one in reads if is_system_topic(one[0]))
        return DayTotals(self.puts.messages - self._dropped[0] - put, self.reads.messages - self._dropped[1] - read)

    def puts_per_second(self, topic: str) -> float:
        """Return how many messages a second a topic got in the last minute."""
        return self.topic_puts.growth(topic, MINUTE, PutCounts.MESSAGES, None).per_second

    def reads_per_second(self, topic: str, group: str) -> float:
        """Return how many messages a second of a topic a group was handed out in the last minute."""
        return self.group_reads.growth((topic, group), MINUTE, ReadCounts.MESSAGES, None).per_second

    def drop_topic(self, topic: str) -> None:
        """Forget a topic; the totals keep what it had."""
        self._keep_puts(topic, self.topic_puts.drop(topic).values())
        self._drop_groups(lambda name, _: name == topic)

    def drop_group(self, group: str) -> None:
        """Forget a group; the totals keep what it had."""
        self._drop_groups(lambda _, name: name == group)

    def _drop_groups(self, is_gone: Callable[[str, str], bool]) -> None:
        for key in [key for key in self.reads.queues if is_gone(*key)]:
            self._keep_reads(key[0], self.group_reads.drop(key).values())
        for key in [key for key in self.send_backs.counts if is_gone(*key)]:
            self.send_backs.drop(key)

    def _keep_puts(self, topic: str, rows: Iterable[list[int]]) -> None:
        if is_system_topic(topic):
            self._dropped[0] += sum(row[PutCounts.MESSAGES] for row in rows)

    def _keep_reads(self, topic: str, rows: Iterable[list[int]]) -> None:
        if is_system_topic(topic):
            self._dropped[1] += sum(row[ReadCounts.MESSAGES] for row in rows)

    def span(self, seconds: int) -> tuple[Sample, Sample] | None:
        """Return the sample of so many seconds ago and the latest, None while there are too few."""
        if len(self._samples) <= seconds:
            return None
        return self._samples[-(seconds + 1)], self._samples[-1]

    def percentile(self, share: float) -> float:
        """Return the milliseconds that so many puts of the last minute took at most, as Java estimates it."""
        counts = [0] * (len(_BOUNDS) + 1)
        for took_ms, count in self.last_minute.items():
            counts[bisect_left(_BOUNDS, took_ms)] += count
        wanted, passed, lower = int(sum(counts) * share), 0, 0
        for upper, count in zip(_BOUNDS, counts, strict=False):
            if wanted <= passed + count:
                return lower + ((upper - lower) * (wanted - passed) / count if count else 0)
            passed, lower = passed + count, upper
        return float(lower)

    async def run(self) -> int:
        """Take a sample; return the pause."""
        sample = self.totals()
        self._samples.append(sample)
        if sample.at_ms >= self._minute_ends_at_ms:
            self._minute_ends_at_ms = sample.at_ms + _MINUTE_MS
            self._longest_put_ms = self.longest_put_ms
            self.last_minute, self.puts.times = self.puts.times, defaultdict(int)
        if sample.at_ms >= self._day_ends_at_ms:
            self._day_ends_at_ms = next_midnight_ms(sample.at_ms)
            self.yesterday_morning, self.this_morning = self.this_morning, self.day_totals()
        for window in self._timeline.due(sample.at_ms):
            await self._sample_window(window, sample.at_ms)
        return self.period_ms

    def take_totals(self) -> None:
        """Bring the rows up to date that nobody adds to: those of the whole broker, and of connections."""
        day = self.day_totals()
        self.whole_broker.counts[""][0][:] = [self.puts.messages, day.puts, self.reads.messages, day.gets]
        for event, count in self._channel_activity().items():
            self.channels.counts[event][0][0] = count

    async def _sample_window(self, window: int, at_ms: int) -> None:
        """Sample all rows; in between others have their turn."""
        self.take_totals()
        small = (self.whole_broker, self.registers, self.channels)
        for table in (*small, self.topic_puts, self.group_reads, self.send_backs):
            for _ in table.sample(window):
                await asyncio.sleep(0)
        self._timeline.done(window, at_ms)
        if window == DAY:
            for topic, row in self.topic_puts.drop_idle():
                self._keep_puts(topic, [row])
            for (topic, _), row in self.group_reads.drop_idle():
                self._keep_reads(topic, [row])
            self.send_backs.drop_idle()


def next_midnight_ms(now_ms: int) -> int:
    """Return when the local day of an instant ends."""
    local = time.localtime(now_ms / 1000)
    return int(time.mktime((local.tm_year, local.tm_mon, local.tm_mday + 1, 0, 0, 0, 0, 0, -1))) * 1000
