"""The metrics of apache/rocketmq-exporter, by its names, which most boards of RocketMQ read.

Rules (``RMQMetricsCollector``, ``MetricsCollectTask``)

    1. All are gauges, totals as well. Rates are those of the last minute, as VIEW_BROKER_STATS_DATA(315) tells them.
    2. ``rocketmq_brokeruntime_…`` are the lines of GET_BROKER_RUNTIME_INFO(28); a line that is not there has no value.
    3. The exporter looks at a cluster, a broker at itself: what the exporter adds up over brokers is added up by the
       query, which boards do. ``rocketmq_group_diff`` has no label for the broker; ``instance`` parts them.
    4. What the exporter asks clients for, ``rocketmq_client_consume…``, is left out, and so is what nobody fills there:
       ``rocketmq_group_consume_tps``, ``rocketmq_group_consume_total_offset``; slaves, which
       ``rocketmq_broker_commitlog_diff`` is about, are not built.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from ..broker.admin.figures import BrokerFigures
from ..broker.admin.topic_figures import ReadFigures, TopicFigures
from ..broker.group.members import CLUSTERING
from ..common.names import DLQ_PREFIX, RETRY_PREFIX
from .families import Column, Family, Sample

_TOPIC: Final = ("cluster", "broker", "topic")
_GROUP: Final = ("cluster", "broker", "topic", "group")
_DIFF: Final = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_MEMBERS: Final = ("cluster", "broker", "group")
_BROKER: Final = ("cluster", "brokerIP", "broker")
_CLUSTERING: Final = "1"
_RUNTIME: Final = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")

BROKER_TPS = Family("rocketmq_broker_tps", _BROKER, "messages put in a second")
BROKER_QPS = Family("rocketmq_broker_qps", _BROKER, "messages handed out in a second")
PRODUCER_OFFSET = Family("rocketmq_producer_offset", _TOPIC, "sum of the ends of a topic's queues")
RETRY_OFFSET = Family("rocketmq_topic_retry_offset", _TOPIC, "the same of a retry topic")
DLQ_OFFSET = Family("rocketmq_topic_dlq_offset", _MEMBERS, "the same of a group's dead letters")
PRODUCER_TPS = Family("rocketmq_producer_tps", _TOPIC, "messages put in a second")
PRODUCER_SIZE = Family("rocketmq_producer_message_size", _TOPIC, "bytes put in a second")
PRODUCER_COUNT = Family("rocketmq_producer_count", _MEMBERS, "members of a producer group")
GROUP_COUNT = Family("rocketmq_group_count", ("caddr", "localaddr", "group"), "members of a consumer group")
GROUP_DIFF = Family("rocketmq_group_diff", _DIFF, "messages that a group has not consumed yet")
RETRY_DIFF = Family("rocketmq_group_retrydiff", _DIFF, "the same of its retry topic")
DLQ_DIFF = Family("rocketmq_group_dlqdiff", _DIFF, "the same of its dead letters, while somebody consumes them")
CONSUMER_OFFSET = Family("rocketmq_consumer_offset", _GROUP, "sum of what a group has committed")
CONSUMER_TPS = Family("rocketmq_consumer_tps", _GROUP, "messages handed out in a second")
CONSUMER_SIZE = Family("rocketmq_consumer_message_size", _GROUP, "bytes handed out in a second")
SEND_BACKS = Family("rocketmq_send_back_nums", _GROUP, "messages sent back in the last minute")
_DIFFS: Final[Mapping[Family, Callable[[str], bool]]] = {
    GROUP_DIFF: lambda topic: not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)),
    RETRY_DIFF: lambda topic: topic.startswith(RETRY_PREFIX),
    DLQ_DIFF: lambda topic: topic.startswith(DLQ_PREFIX),
}
LATENCY = Family(
    "rocketmq_group_get_latency_by_storetime", _GROUP, "age of the first message not consumed, in milliseconds"
)


_CLASSES: Final = {
    "pmdt_0ms": "<=0ms",
    "pmdt_0to10ms": "0~10ms",
    "pmdt_10to50ms": "10~50ms",
    "pmdt_50to100ms": "50~100ms",
    "pmdt_100to200ms": "100~200ms",
    "pmdt_200to500ms": "200~500ms",
    "pmdt_500to1s": "500ms~1s",
    "pmdt_1to2s": "1~2s",
    "pmdt_2to3s": "2~3s",
    "pmdt_3to4s": "3~4s",
    "pmdt_4to5s": "4~5s",
    "pmdt_5to10s": "5~10s",
    "pmdt_10stomore": "10s~",
}
_LINES: Final = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "putmessage_times_total": "putMessageTimesTotal",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_minoffset": "commitLogMinOffset",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
}
_RATES: Final = {
    "put": "putTps",
    "getfound": "getFoundTps",
    "getmiss": "getMissTps",
    "gettotal": "getTotalTps",
    "gettransfered": "getTransferredTps",
}
_SPANS: Final = ("10", "60", "600")
_CLASS: Final = re.compile(r"\[([^]]*)]:(\d+)")


def _runtime(name: str, key: str) -> Family:
    return Family(f"rocketmq_brokeruntime_{name}", _RUNTIME, f"{key} of the broker's runtime info")


_LINE_FAMILIES: Final = {_runtime(name, key): key for name, key in _LINES.items()}
_CLASS_FAMILIES: Final = {_runtime(name, "putMessageDistributeTime"): each for name, each in _CLASSES.items()}
_RATE_FAMILIES: Final = {
    key: tuple(_runtime(f"{stem}_tps{span}", key) for span in _SPANS) for stem, key in _RATES.items()
}
CAPACITY_TOTAL = _runtime("commitlogdir_capacity_total", "commitLogDirCapacity, in bytes,")
CAPACITY_FREE = _runtime("commitlogdir_capacity_free", "commitLogDirCapacity, in bytes,")
TO_FLUSH = _runtime("remain_howmanydata_toflush", "remainHowManyDataToFlush, in bytes,")

EXPORTER: Final = (
    *(BROKER_TPS, BROKER_QPS, PRODUCER_OFFSET, RETRY_OFFSET, DLQ_OFFSET, PRODUCER_TPS, PRODUCER_SIZE, PRODUCER_COUNT),
    *(GROUP_COUNT, GROUP_DIFF, RETRY_DIFF, DLQ_DIFF, CONSUMER_OFFSET, CONSUMER_TPS, CONSUMER_SIZE, SEND_BACKS),
    *(LATENCY, *_LINE_FAMILIES, *_CLASS_FAMILIES, *chain.from_iterable(_RATE_FAMILIES.values())),
    *(CAPACITY_TOTAL, CAPACITY_FREE, TO_FLUSH),
)


def exporter_samples(figures: BrokerFigures) -> Iterator[Sample]:
    """Yield the values of the metrics in ``EXPORTER`` that are neither of topics nor of groups in them."""
    cluster, broker = exporter_labels(figures)
    yield Sample(BROKER_TPS, (cluster, figures.address, broker), figures.puts_per_second)
    yield Sample(BROKER_QPS, (cluster, figures.address, broker), figures.gets_per_second)
    yield from _runtime_samples(figures)
    for group in figures.producers:
        yield Sample(PRODUCER_COUNT, (cluster, broker, group.group), len(group.clients))
    for group in figures.consumers:
        addresses = (",".join(one.address for one in group.clients), ",".join(one.client_id for one in group.clients))
        yield Sample(GROUP_COUNT, (*addresses, group.group), len(group.clients))


def exporter_labels(figures: BrokerFigures) -> tuple[str, ...]:
    """Return the labels that most have."""
    return figures.cluster, figures.broker


def _runtime_samples(figures: BrokerFigures) -> Iterator[Sample]:
    lines = figures.lines
    started, version = lines["bootTimestamp"], lines["brokerVersion"]
    labels = (figures.cluster, figures.address, "", lines["brokerVersionDesc"], started, version)
    for family, key in _LINE_FAMILIES.items():
        yield Sample(family, labels, float(lines[key]))
    counts = dict(_CLASS.findall(lines["putMessageDistributeTime"]))
    for family, name in _CLASS_FAMILIES.items():
        if name in counts:
            yield Sample(family, labels, float(counts[name]))
    for key, families in _RATE_FAMILIES.items():
        for family, rate in zip(families, lines[key].split(" "), strict=False):
            if rate:
                yield Sample(family, labels, float(rate))
    yield Sample(CAPACITY_TOTAL, labels, figures.disk.total)
    yield Sample(CAPACITY_FREE, labels, figures.disk.free)
    yield Sample(TO_FLUSH, labels, figures.flush_behind_bytes)


def exporter_topics(where: tuple[str, ...], topics: Sequence[TopicFigures]) -> Iterator[Column]:
    """Yield the values of topics, by name."""

    def labels(name: str) -> tuple[str, ...]:
        return *where, name

    def dead_labels(name: str) -> tuple[str, ...]:
        return *where, name.removeprefix(DLQ_PREFIX)

    retries = [one for one in topics if one.name.startswith(RETRY_PREFIX)]
    dead = [one for one in topics if one.name.startswith(DLQ_PREFIX)]
    others = [one for one in topics if not one.name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    put = [one for one in others if one.messages]
    yield Column((RETRY_OFFSET,), [one.name for one in retries], labels, [one.end for one in retries])
    yield Column((DLQ_OFFSET,), [one.name for one in dead], dead_labels, [one.end for one in dead])
    yield Column((PRODUCER_OFFSET,), [one.name for one in others], labels, [one.end for one in others])
    yield Column((PRODUCER_TPS,), [one.name for one in put], labels, [one.per_second for one in put])
    yield Column((PRODUCER_SIZE,), [one.name for one in put], labels, [one.bytes_per_second for one in put])


def exporter_reads(where: tuple[str, ...], reads: Sequence[ReadFigures]) -> Iterator[Column]:
    """Yield the values of groups in topics, by topic and group."""

    def labels(key: tuple[str, str]) -> tuple[str, ...]:
        return *where, *key

    def diff_labels(key: tuple[str, str, int]) -> tuple[str, ...]:
        topic, group, members = key
        return group, topic, str(members), _CLUSTERING

    read = [one for one in reads if one.messages and not one.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    keys = [(one.topic, one.group) for one in read]
    yield Column((CONSUMER_TPS,), keys, labels, [one.per_second for one in read])
    yield Column((CONSUMER_SIZE,), keys, labels, [one.bytes_per_second for one in read])
    known = [(one, one.progress) for one in reads if one.progress is not None]
    keys = [(one.topic, one.group) for one, _ in known]
    yield Column((SEND_BACKS,), keys, labels, [one.sent_back for one, _ in known])
    yield Column((CONSUMER_OFFSET,), keys, labels, [progress.committed for _, progress in known])
    shared = [(one, progress) for one, progress in known if one.membership.message_model == CLUSTERING]
    for family, is_told in _DIFFS.items():
        told = [(one, progress) for one, progress in shared if is_told(one.topic)]
        keys = [(one.topic, one.group, one.membership.members) for one, _ in told]
        yield Column((family,), keys, diff_labels, [progress.behind for _, progress in told])
    keys = [(one.topic, one.group) for one, _ in shared]
    yield Column((LATENCY,), keys, labels, [progress.behind_since_ms for _, progress in shared], are_ages=True)
