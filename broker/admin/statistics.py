"""What a broker has stored and handed out since its start (``StoreStatsService``, ``BrokerStats``; behaviour.md D.4).

Rules

    1. A record counts as put when it has become readable, whoever had it stored: a delayed message counts twice, where
       it waits and where it belongs. A batch counts its messages.
    2. A read counts as found or missed: a pull that waits misses first, and is counted again when it is woken.
    3. Rates come from totals that are sampled each second; 600 seconds are kept. Those of a topic, and of a group in a
       topic, come from samples each ten seconds, of which the last minute is kept (``StatsItem``; D.5).
    4. How long puts took is told for the last full minute, from a record's store time until it is readable: under
       SYNC_FLUSH with the wait for the disk. The longest ones are those since the start.
    5. Totals "of this morning" are those of the last local midnight, and leave out system topics.

The hot path adds to numbers: a call for each commit, none for a read or a message.
"""

import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import NamedTuple

from ...common.clock import Clock
from ...common.names import TIMER_TOPIC, is_system_topic
from ..outcomes.scheduler import PutCounts
from ..pull.fetch import ReadCounts

MOST_SAMPLES = 601
_MINUTE_MS = 60_000
_COUNT_PERIOD_MS = 10_000
_STEPS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BOUNDS = tuple(accumulate(step for step, count in _STEPS for _ in range(count)))
"""Upper ends of the classes that percentiles are taken from, up to 10 s (``PUT_MESSAGE_ENTIRE_TIME_BUCKETS``)."""


class Sample(NamedTuple):
    """Totals at an instant."""

    at_ms: int
    puts: int = 0
    found: int = 0
    missed: int = 0
    handed_out: int = 0
    timers_in: int = 0
    timers_out: int = 0


class _Counts(NamedTuple):
    """Totals by topic, and by topic and group, at an instant."""

    at_ms: int
    puts: dict[str, int]
    reads: dict[tuple[str, str], int]


class DayTotals(NamedTuple):
    """Messages of user topics that were put and handed out until a midnight, or until now."""

    puts: int = 0
    gets: int = 0


class BrokerStatistics:
    """Counts what goes in and out; ``count_timers_out`` tells how many timer messages have left their wheel."""

    period_ms = 1_000

    def __init__(
        self, clock: Clock, puts: PutCounts, reads: ReadCounts, count_timers_out: Callable[[], int] = int
    ) -> None:
        self._now_ms = clock.now_ms
        self.started_at_ms = clock.now_ms()
        self.puts = puts
        self.reads = reads
        self.yesterday_morning = self.this_morning = DayTotals()
        self.last_minute: Mapping[int, int] = {}
        """How many messages took how many milliseconds to be put."""
        self._count_timers_out = count_timers_out
        self._longest_put_ms = 0  # before the minute under way
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._counts: deque[_Counts] = deque(maxlen=_MINUTE_MS // _COUNT_PERIOD_MS + 1)
        self._counts_due_at_ms = self.started_at_ms
        self._minute_ends_at_ms = self.started_at_ms + _MINUTE_MS
        self._day_ends_at_ms = next_midnight_ms(self.started_at_ms)

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
            sum(self.puts.messages.values()),
            self.reads.found,
            self.reads.missed,
            sum(self.reads.messages.values()),
            self.puts.messages.get(TIMER_TOPIC, 0),
            self._count_timers_out(),
        )

    def day_totals(self) -> DayTotals:
        """Return the totals of user topics up to now."""
        read = sum(count for (topic, _), count in self.reads.messages.items() if not is_system_topic(topic))
        return DayTotals(_of_users(self.puts.messages), read)

    def puts_per_second(self, topic: str) -> float:
        """Return how many messages a second a topic got in the last minute."""
        return self._rate(lambda counts: counts.puts.get(topic, 0))

    def reads_per_second(self, topic: str, group: str) -> float:
        """Return how many messages a second of a topic a group was handed out in the last minute."""
        return self._rate(lambda counts: counts.reads.get((topic, group), 0))

    def _rate(self, count: Callable[["_Counts"], int]) -> float:
        if len(self._counts) < 2:
            return 0.0
        first, last = self._counts[0], self._counts[-1]
        return (count(last) - count(first)) * 1000 / (last.at_ms - first.at_ms)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic; the totals keep what it had, under no name."""
        for puts in (self.puts.messages, *(each.puts for each in self._counts)):
            puts[""] = puts.get("", 0) + puts.pop(topic, 0)
        self._rename_reads(lambda name, group: ("", "") if name == topic else (name, group))

    def drop_group(self, group: str) -> None:
        """Forget a group; the totals keep what it had, under no name."""
        self._rename_reads(lambda topic, name: (topic, "" if name == group else name))

    def _rename_reads(self, rename: Callable[[str, str], tuple[str, str]]) -> None:
        for reads in (self.reads.messages, *(each.reads for each in self._counts)):
            for key in list(reads):
                if (name := rename(*key)) != key:
                    reads[name] = reads.get(name, 0) + reads.pop(key)

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
        if sample.at_ms >= self._counts_due_at_ms:
            self._counts_due_at_ms = sample.at_ms + _COUNT_PERIOD_MS
            self._counts.append(_Counts(sample.at_ms, dict(self.puts.messages), dict(self.reads.messages)))
        if sample.at_ms >= self._minute_ends_at_ms:
            self._minute_ends_at_ms = sample.at_ms + _MINUTE_MS
            self._longest_put_ms = self.longest_put_ms
            self.last_minute, self.puts.times = self.puts.times, defaultdict(int)
        if sample.at_ms >= self._day_ends_at_ms:
            self._day_ends_at_ms = next_midnight_ms(sample.at_ms)
            self.yesterday_morning, self.this_morning = self.this_morning, self.day_totals()
        return self.period_ms


def next_midnight_ms(now_ms: int) -> int:
    """Return when the local day of an instant ends."""
    local = time.localtime(now_ms / 1000)
    return int(time.mktime((local.tm_year, local.tm_mon, local.tm_mday + 1, 0, 0, 0, 0, 0, -1))) * 1000


def _of_users(counts: Mapping[str, int]) -> int:
    return sum(count for topic, count in counts.items() if not is_system_topic(topic))
