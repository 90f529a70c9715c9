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
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ..broker.admin.figures import BrokerFigures, ReadFigures, TopicFigures
from ..common.names import DLQ_PREFIX, RETRY_PREFIX
from .families import Family, Sample

_TOPIC: Final = ("cluster", "broker", "topic")
_GROUP: Final = ("cluster", "broker", "topic", "group")
_DIFF: Final = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_MEMBERS: Final = ("cluster", "broker", "group")
_BROKER: Final = ("cluster", "brokerIP", "broker")
_RUNTIME: Final = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
_MODELS: Final = {"BROADCASTING": "0", "CLUSTERING": "1"}

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
LATENCY = Family(
    "rocketmq_group_get_latency_by_storetime", _GROUP, "age of the first message not consumed, in milliseconds"
)


def _numbers(line: str) -> list[str]:
    return line.split(" ") if line else []


def _rates(key: str, stem: str) -> Iterator[tuple[str, str, Callable[[str], str | None]]]:
    for place, seconds in enumerate((10, 60, 600)):

        def pick(line: str, place: int = place) -> str | None:
            return (dict(enumerate(_numbers(line))).get(place)) or None

        yield f"{stem}_tps{seconds}", key, pick


def _class_of(name: str) -> Callable[[str], str | None]:
    pattern = re.compile(rf"\[{re.escape(name)}\]:(\d+)")

    def pick(line: str) -> str | None:
        match = pattern.search(line)
        return match[1] if match else None

    return pick


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
_PICKS: Final = (
    *((name, key, str) for name, key in _LINES.items()),
    *((name, "putMessageDistributeTime", _class_of(each)) for name, each in _CLASSES.items()),
    *_rates("putTps", "put"),
    *_rates("getFoundTps", "getfound"),
    *_rates("getMissTps", "getmiss"),
    *_rates("getTotalTps", "gettotal"),
    *_rates("getTransferredTps", "gettransfered"),
)


def _runtime(name: str, key: str) -> Family:
    return Family(f"rocketmq_brokeruntime_{name}", _RUNTIME, f"{key} of the broker's runtime info")


_RUNTIME_PICKS: Final = tuple((_runtime(name, key), key, pick) for name, key, pick in _PICKS)
CAPACITY_TOTAL = _runtime("commitlogdir_capacity_total", "commitLogDirCapacity, in bytes,")
CAPACITY_FREE = _runtime("commitlogdir_capacity_free", "commitLogDirCapacity, in bytes,")
TO_FLUSH = _runtime("remain_howmanydata_toflush", "remainHowManyDataToFlush, in bytes,")

EXPORTER: Final = (
    *(BROKER_TPS, BROKER_QPS, PRODUCER_OFFSET, RETRY_OFFSET, DLQ_OFFSET, PRODUCER_TPS, PRODUCER_SIZE, PRODUCER_COUNT),
    *(GROUP_COUNT, GROUP_DIFF, RETRY_DIFF, DLQ_DIFF, CONSUMER_OFFSET, CONSUMER_TPS, CONSUMER_SIZE, SEND_BACKS),
    *(LATENCY, *(family for family, _, _ in _RUNTIME_PICKS), CAPACITY_TOTAL, CAPACITY_FREE, TO_FLUSH),
)


def exporter_samples(figures: BrokerFigures) -> Iterator[Sample]:
    """Yield the values of all metrics in ``EXPORTER``."""
    cluster, broker = figures.cluster, figures.broker
    yield Sample(BROKER_TPS, (cluster, figures.address, broker), figures.puts_per_second)
    yield Sample(BROKER_QPS, (cluster, figures.address, broker), figures.gets_per_second)
    yield from _runtime_samples(figures)
    for topic in figures.topics:
        yield from _topic_samples(cluster, broker, topic)
    for group in figures.producers:
        yield Sample(PRODUCER_COUNT, (cluster, broker, group.group), len(group.clients))
    online = {group.group: group for group in figures.consumers}
    for group in figures.consumers:
        addresses = (",".join(one.address for one in group.clients), ",".join(one.client_id for one in group.clients))
        yield Sample(GROUP_COUNT, (*addresses, group.group), len(group.clients))
    for reads in figures.reads:
        member = online.get(reads.group)
        model = member.message_model if member is not None else "CLUSTERING"
        yield from _read_samples(cluster, broker, reads, (str(len(member.clients) if member else 0), model))


def _runtime_samples(figures: BrokerFigures) -> Iterator[Sample]:
    lines: Mapping[str, str] = figures.lines
    started, version = lines["bootTimestamp"], lines["brokerVersion"]
    labels = (figures.cluster, figures.address, "", lines["brokerVersionDesc"], started, version)
    for family, key, pick in _RUNTIME_PICKS:
        picked = pick(lines[key])
        if picked is not None:
            yield Sample(family, labels, float(picked))
    yield Sample(CAPACITY_TOTAL, labels, figures.disk.total)
    yield Sample(CAPACITY_FREE, labels, figures.disk.free)
    yield Sample(TO_FLUSH, labels, figures.flush_behind_bytes)


def _topic_samples(cluster: str, broker: str, topic: TopicFigures) -> Iterator[Sample]:
    labels = (cluster, broker, topic.name)
    if topic.name.startswith(RETRY_PREFIX):
        yield Sample(RETRY_OFFSET, labels, topic.end)
    elif topic.name.startswith(DLQ_PREFIX):
        yield Sample(DLQ_OFFSET, (cluster, broker, topic.name.removeprefix(DLQ_PREFIX)), topic.end)
    else:
        yield Sample(PRODUCER_OFFSET, labels, topic.end)
        if topic.messages:
            yield Sample(PRODUCER_TPS, labels, topic.per_second)
            yield Sample(PRODUCER_SIZE, labels, topic.bytes_per_second)


def _read_samples(cluster: str, broker: str, reads: ReadFigures, online: tuple[str, str]) -> Iterator[Sample]:
    labels = (cluster, broker, reads.topic, reads.group)
    is_retry, is_dead = reads.topic.startswith(RETRY_PREFIX), reads.topic.startswith(DLQ_PREFIX)
    if reads.messages and not (is_retry or is_dead):
        yield Sample(CONSUMER_TPS, labels, reads.per_second)
        yield Sample(CONSUMER_SIZE, labels, reads.bytes_per_second)
    if reads.progress is None:
        return
    yield Sample(SEND_BACKS, labels, reads.sent_back)
    yield Sample(CONSUMER_OFFSET, labels, reads.progress.committed)
    count, model = online
    if model == "CLUSTERING":
        family = RETRY_DIFF if is_retry else DLQ_DIFF if is_dead else GROUP_DIFF
        yield Sample(family, (reads.group, reads.topic, count, _MODELS[model]), reads.progress.behind)
        yield Sample(LATENCY, labels, reads.progress.lag_ms)
