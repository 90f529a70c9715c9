"""Bodies of statistics and of queues looked at entry by entry (``spec/remoting.md`` §4.11).

303  ConsumeTimeSpans    308  CorrectedOffsets    315  BrokerStats    321  QueueEntries    354  RocksdbCheck
2003 ColdDataLimits
"""

import msgspec
from msgspec import field

from ...common.java_json import Int64
from ...common.message import MessageQueue
from .client import SubscriptionData


class StatsWindow(msgspec.Struct, rename="camel", kw_only=True):
    """How much came in a window, per second, and each time (``BrokerStatsItem``)."""

    avgpt: float = 0.0
    sum: Int64 = 0
    tps: float = 0.0


class BrokerStats(msgspec.Struct, rename="camel", kw_only=True):
    """The windows of a statistic (``BrokerStatsData``)."""

    stats_day: StatsWindow
    stats_hour: StatsWindow
    stats_minute: StatsWindow


class ConsumeTimeSpan(msgspec.Struct, rename="camel", kw_only=True):
    """When the first, the last and the last consumed message of a queue were stored, and how late the next one is."""

    consume_time_stamp: Int64
    consume_time_stamp_str: str
    delay_time: Int64
    max_time_stamp: Int64
    max_time_stamp_str: str
    message_queue: MessageQueue
    min_time_stamp: Int64
    min_time_stamp_str: str


class ConsumeTimeSpans(msgspec.Struct, rename="camel", kw_only=True):
    """The queues of a topic (``QueryConsumeTimeSpanBody``)."""

    consume_time_span_set: list[ConsumeTimeSpan]


class CorrectedOffsets(msgspec.Struct, rename="camel", kw_only=True):
    """Where the last of several groups is, by queue (``QueryCorrectionOffsetBody``)."""

    correction_offsets: dict[int, int]


class QueueEntry(msgspec.Struct, rename="camel", kw_only=True):
    """What stands at one place of a queue (``ConsumeQueueData``); ``eval`` is for queues with bit maps alone."""

    eval: bool = False
    physic_offset: Int64
    physic_size: int
    tags_code: Int64


class QueueEntries(msgspec.Struct, rename="camel", kw_only=True):
    """A piece of a queue, and what a group wants of it (``QueryConsumeQueueResponseBody``)."""

    filter_data: str | None = None
    max_queue_index: Int64
    min_queue_index: Int64
    queue_data: list[QueueEntry]
    subscription_data: SubscriptionData | None = None


class RocksdbCheck(msgspec.Struct, rename="camel", kw_only=True):
    """How a comparison with queues in RocksDB went (``CheckRocksdbCqWriteResult``)."""

    check_status: int


class ColdDataLimits(msgspec.Struct, rename="camel", kw_only=True):
    """How much of cold data each group may read, and what it has read."""

    runtime_table: dict[str, int] = field(default_factory=dict[str, int])
    config_table: dict[str, int]
    cg_cold_read_threshold: int = 3_145_728
    global_cold_read_threshold: int = 104_857_600
    global_acc: int = 0
