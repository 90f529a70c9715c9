"""How a broker is doing, line by line, as GET_BROKER_RUNTIME_INFO(28) tells it (behaviour.md D.4).

Rules (``AdminBrokerProcessor.prepareRuntimeInfo``)
    1. All keys of D.4 are there and every value is text, since dashboards and exporters parse them strictly.
    2. What this broker counts or measures is told as it is (``statistics.py``); disks are measured in a thread.
    3. What it does not have gets the value that it has in an idle Java broker: threads' queues are empty and of Java's
       sizes, no lock is held, no buffers are lent out. The queue of sends is real: those that a stalled disk keeps from
       being begun (``disk_stall.py``).
    4. Times of puts before the first full minute are told as none; Java says "null".

timerReadBehind    seconds that the first waiting timer message is late
timerOffsetBehind  messages of the timer topic that are not in the wheel yet
timerCongestNum    messages in the wheel
timer…Tps          messages into the timer topic, and out of the wheel, in a second; of the last ten
"""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import log
from typing import NamedTuple

from msgspec import Struct

from ...common.codes import VERSION, Release
from ...common.names import SCHEDULE_TOPIC, TIMER_TOPIC
from ...store.cleaner import DiskReport
from ...store.message_store import MessageStore
from ..delay.delay_delivery import DelayedDelivery
from ..delay.timer_delivery import TimerDelivery
from ..outcomes.disk_stall import DiskStall
from ..outcomes.scheduler import Scheduler
from .cleaning import CleaningJob
from .statistics import BrokerStatistics, Sample

Lines = Mapping[str, str]

_IDLE: Lines = {
    "brokerActive": "true",
    "brokerVersion": str(VERSION),
    "brokerVersionDesc": Release(VERSION).name,
    "startAcceptSendRequestTimeStamp": "0",
    "dispatchMaxBuffer": "0",
    "pageCacheLockTimeMills": "0",
    "remainTransientStoreBufferNumbs": "2147483647",
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "100000",
}
_POOLS = {"pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
_RATES: Mapping[str, Callable[[Sample], int]] = {
    "putTps": lambda sample: sample.puts,
    "getFoundTps": lambda sample: sample.found,
    "getMissTps": lambda sample: sample.missed,
    "getTransferredTps": lambda sample: sample.handed_out,
}
_SPANS_S = (10, 60, 600)


class _Class(NamedTuple):
    """Puts that took less than ``end_ms``, but not less than those of the class before."""

    name: str
    end_ms: float


_CLASSES = (
    _Class("<=0ms", 1),
    _Class("0~10ms", 10),
    _Class("10~50ms", 50),
    _Class("50~100ms", 100),
    _Class("100~200ms", 200),
    _Class("200~500ms", 500),
    _Class("500ms~1s", 1_000),
    _Class("1~2s", 2_000),
    _Class("2~3s", 3_000),
    _Class("3~4s", 4_000),
    _Class("4~5s", 5_000),
    _Class("5~10s", 10_000),
    _Class("10s~", float("inf")),
)


class FileFigures(NamedTuple):
    """How full the disks are, and how many messages wait in the timer wheel."""

    disks: DiskReport
    timers_waiting: int


class RuntimeInfo(Struct, frozen=True):
    """The figures of a running broker."""

    statistics: BrokerStatistics
    cleaning: CleaningJob
    scheduler: Scheduler
    delays: DelayedDelivery
    timers: TimerDelivery | None

    async def measure(self) -> dict[str, str]:
        """Return all lines (raises ``OSError``)."""
        return self.lines(await self.measure_files())

    async def measure_files(self) -> FileFigures:
        """Return what waits for the disk, measured in a thread (raises ``OSError``)."""
        return await self.cleaning.in_thread(self._look_at_files)

    def _look_at_files(self) -> FileFigures:
        waiting = 0 if self.timers is None else self.timers.timers.count_waiting()
        return FileFigures(self.cleaning.cleaner.report(), waiting)

    def lines(self, files: FileFigures) -> dict[str, str]:
        """Return all lines, those of files as they have been measured."""
        table = {**_IDLE, **_pool_lines(self.scheduler.stall), **_statistics_lines(self.statistics)}
        table["putMessageFailedTimes"] = str(self.scheduler.failed_puts)
        table |= {**_rate_lines(self.statistics), **_store_lines(self.scheduler.store), **_disk_lines(files.disks)}
        table |= _delay_lines(self.scheduler.store, self.delays)
        if self.timers is not None:
            table |= _timer_lines(self.timers, self.statistics)
            table["timerCongestNum"] = str(files.timers_waiting)
        return table


def _delay_lines(store: MessageStore, delays: DelayedDelivery) -> Lines:
    """Return how far each delay level in use has come, and where its queue ends."""
    return {
        f"scheduleMessageOffset_{level}": f"{next_offset},{store.max_offset(SCHEDULE_TOPIC, level - 1)}"
        for level, next_offset in delays.progress.items()
    }


def _timer_lines(delivery: TimerDelivery, statistics: BrokerStatistics) -> Lines:
    due_at_ms, span = delivery.due_at_ms, statistics.span(10)
    behind_ms = 0 if due_at_ms is None else max(0, delivery.timers.now_ms() - due_at_ms)
    waiting = delivery.store.max_offset(TIMER_TOPIC, 0) - delivery.timers.queue_offset
    return {
        "timerReadBehind": str(behind_ms // 1000),
        "timerOffsetBehind": str(max(0, waiting)),
        "timerEnqueueTps": format_double(rate(span, lambda sample: sample.timers_in)),
        "timerDequeueTps": format_double(rate(span, lambda sample: sample.timers_out)),
    }


def rate(span: tuple[Sample, Sample] | None, count: Callable[[Sample], int]) -> float:
    """Return how much a total has grown in a second between two samples, 0 without them."""
    if span is None:
        return 0.0
    first, last = span
    return (count(last) - count(first)) / max(1, last.at_ms - first.at_ms) * 1000


def _pool_lines(stall: DiskStall | None) -> Lines:
    lines: dict[str, str] = {}
    for pool, capacity in _POOLS.items():
        lines[f"{pool}ThreadPoolQueueSize"] = lines[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        lines[f"{pool}ThreadPoolQueueCapacity"] = str(capacity)
    lines["sendThreadPoolQueueSize"] = str(0 if stall is None else len(stall))
    lines["sendThreadPoolQueueCapacity"] = str(10_000 if stall is None else stall.most_parked)
    lines["sendThreadPoolQueueHeadWaitTimeMills"] = str(0 if stall is None else stall.head_wait_ms)
    return lines


def _statistics_lines(statistics: BrokerStatistics) -> Lines:
    totals, now = statistics.totals(), statistics.day_totals()
    puts, size = max(1, totals.puts), statistics.puts.bytes  # at least one put, as Java tells it
    lines: dict[str, object] = {
        "bootTimestamp": statistics.started_at_ms,
        "runtime": _format_span(totals.at_ms - statistics.started_at_ms),
        "putMessageTimesTotal": puts,
        "putMessageSizeTotal": size,
        "putMessageAverageSize": format_double(size / puts),
        "putMessageEntireTimeMax": statistics.longest_put_ms,
        "getMessageEntireTimeMax": statistics.reads.longest_ms,
        "putMessageDistributeTime": _format_classes(statistics.last_minute),
        "putLatency99": f"{statistics.percentile(0.99):.2f}",
        "putLatency999": f"{statistics.percentile(0.999):.2f}",
    }
    days = {
        "YesterdayMorning": statistics.yesterday_morning,
        "TodayMorning": statistics.this_morning,
        "TodayNow": now,
    }
    for day, day_totals in days.items():
        lines[f"msgPutTotal{day}"], lines[f"msgGetTotal{day}"] = day_totals
    return {key: str(value) for key, value in lines.items()}


def _rate_lines(statistics: BrokerStatistics) -> Lines:
    """Return the rates of 10, 60 and 600 seconds; one is missing while there are too few samples."""
    spans = [statistics.span(seconds) for seconds in _SPANS_S]
    lines = {key: " ".join(_format_rate(span, count) for span in spans) for key, count in _RATES.items()}
    reads = (format_double(rate(span, lambda sample: sample.found + sample.missed)) for span in spans)
    return {**lines, "getTotalTps": " ".join(reads), "getTransferedTps": lines["getTransferredTps"]}


def _store_lines(store: MessageStore) -> Lines:
    return {
        "earliestMessageTimeStamp": str(store.first_stored_at()),
        "dispatchBehindBytes": str(store.dispatch_behind_bytes),
        "commitLogMinOffset": str(store.log_min_offset),
        "commitLogMaxOffset": str(store.log_max_offset),
        "remainHowManyDataToFlush": format_bytes(store.log_max_offset - store.flushed_offset),
    }


def _disk_lines(disks: DiskReport) -> Lines:
    lines = {f"commitLogDiskRatio_{path}": _format_percent(percent) for path, percent in disks.use.log.items()}
    return {
        **lines,
        "commitLogDiskRatio": _format_percent(disks.use.least_log),
        "consumeQueueDiskRatio": _format_percent(disks.use.queues),
        "commitLogDirCapacity": f"Total : {format_bytes(disks.total)}, Free : {format_bytes(disks.free)}.",
    }


def _format_percent(percent: int) -> str:
    return "-1.0" if percent < 0 else format_double(percent / 100)


def _format_rate(span: tuple[Sample, Sample] | None, count: Callable[[Sample], int]) -> str:
    return "" if span is None else format_double(rate(span, count))


def _format_span(duration_ms: int) -> str:
    minutes, seconds = divmod(duration_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _format_classes(times: Mapping[int, int]) -> str:
    return "".join(f"[{each.name}]:{count} " for each, count in zip(_CLASSES, _count_classes(times), strict=True))


def _count_classes(times: Mapping[int, int]) -> Iterable[int]:
    begin_ms = float("-inf")
    for _, end_ms in _CLASSES:
        yield sum(count for took_ms, count in times.items() if begin_ms <= took_ms < end_ms)
        begin_ms = end_ms


def format_double(value: float) -> str:
    """Return a number as Java's ``Double.toString`` writes it."""
    text = repr(float(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{len(digits) + exponent - 1}"


def format_bytes(count: int) -> str:
    """Return a size as Java's tools parse it (``MixAll.humanReadableByteCount``)."""
    if count < 1024:
        return f"{count} B"
    power = int(log(count) / log(1024))
    return f"{count / 1024**power:.1f} {'KMGTPE'[power - 1]}iB"
