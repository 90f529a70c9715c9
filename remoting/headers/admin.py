"""Headers of what administrators ask about statistics, queues and many groups (``spec/remoting.md`` §4.11).

303  QUERY_CONSUME_TIME_SPAN   TimeSpanHeader
308  QUERY_CORRECTION_OFFSET   CorrectionHeader
314  CLONE_GROUP_OFFSET        CloneOffsetsHeader
315  VIEW_BROKER_STATS_DATA    StatisticHeader
321  QUERY_CONSUME_QUEUE       QueueEntriesHeader
355  EXPORT_ROCKSDB_CONFIG_TO_JSON  ExportedTablesHeader
"""

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64
from ..codec.command import NULL


class StatisticHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which statistic, of what."""

    stats_name: str = NULL
    stats_key: str = NULL


class TimeSpanHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Whose delay in which topic."""

    topic: str
    group: str = NULL


class CorrectionHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which groups do not count, ``,`` between them, and with which one the others are compared."""

    filter_groups: str | None = None
    compare_group: str = NULL
    topic: str


class CloneOffsetsHeader(msgspec.Struct, rename="camel", kw_only=True):
    """From which group to which; of one topic, or of all when none is named."""

    source_group: str = field(name="srcGroup")
    target_group: str = field(name="destGroup")
    topic: str | None = None
    is_offline: bool = field(name="offline", default=False)


class QueueEntriesHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which entries of a queue, and for which group, if for one."""

    topic: str = NULL
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


class ExportedTablesHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which tables, ``;`` between them."""

    config_type: str
