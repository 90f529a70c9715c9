"""The metrics of a 5.x broker, by its names (``BrokerMetricsConstant``, ``DefaultStoreMetricsConstant``).

Rules (``BrokerMetricsManager``, ``ConsumerLagCalculator``, ``DefaultStoreMetricsManager``)

    1. ``cluster``, ``node_type`` and ``node_id``, the broker's name, stand in each; where the store keeps things, in
       those of the store and of timers.
    2. A gauge with a unit is there by two names: with the unit behind it, as a 5.4.0 broker writes it, and without, as
       the pages of RocketMQ list it. A unit that the name ends in already is not written again.
    3. ``message_type`` is that of the topic: nobody looks at each message for it. Counters count what has become
       readable in a topic, so a delayed message counts in its topic when it is delivered.
    4. A retry topic is told as itself with ``is_retry``; what was given up is told by the topic that it was sent to.
    5. Two of our own begin with ``rocketlet_``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ..broker.admin.figures import BrokerFigures, MemberFigures
from ..broker.admin.topic_figures import ReadFigures, TopicFigures
from ..common.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_system_group,
    is_system_topic,
)
from .families import Column, Family, Sample

_NODE: Final = ("cluster", "node_type", "node_id")
_STORED: Final = ("storage_type", "storage_medium")
_WHERE_STORED: Final = ("local", "disk")
_REMOTING: Final = "remoting"
_PROCESSORS: Final = (
    *("send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull"),
    *("transaction", "consumer_manager", "admin", "reply"),
)
_MODES: Final = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
_TYPES: Final = {SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay", HALF_TOPIC: "transaction"}
_FIRST_REGULAR, _FIRST_NUMBER = 212, 400


def _gauge(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, (*_NODE, *labels), meaning)


def _counter(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, (*_NODE, *labels), meaning, is_counter=True)


def _with_unit(name: str, unit: str, meaning: str, *labels: str) -> tuple[Family, Family]:
    return _gauge(f"{name}_{unit}", meaning, *labels), _gauge(name, meaning, *labels)


_IN = ("topic", "message_type", "is_system")
_OUT = ("topic", "consumer_group", "is_retry", "is_system")
_LAG = ("consumer_group", "topic", "is_retry", "is_system")

WATERMARK = _gauge("rocketmq_processor_watermark", "requests that wait for a processor", "processor")
PERMISSION = _gauge("rocketmq_broker_permission", "permission of the broker: 4 read + 2 write")
TOPICS = _gauge("rocketmq_topic_number", "topics")
GROUPS = _gauge("rocketmq_consumer_group_number", "consumer groups")
MESSAGES_IN = _counter("rocketmq_messages_in_total", "messages put", *_IN)
BYTES_IN = _counter("rocketmq_throughput_in_total", "bytes of the messages put", *_IN)
MESSAGES_OUT = _counter("rocketmq_messages_out_total", "messages handed out", *_OUT)
BYTES_OUT = _counter("rocketmq_throughput_out_total", "bytes of the messages handed out", *_OUT)
DEAD_LETTERS = _counter(
    "rocketmq_send_to_dlq_messages_total", "messages given up", "consumer_group", "topic", "is_system"
)
PRODUCERS = _gauge("rocketmq_producer_connections", "connections of producers", "language", "version", "protocol_type")
CONSUMERS = _gauge(
    "rocketmq_consumer_connections",
    "connections of a group's members",
    *("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
)
LAG = _gauge("rocketmq_consumer_lag_messages", "messages that are not consumed yet", *_LAG)
IN_FLIGHT = _gauge("rocketmq_consumer_inflight_messages", "messages handed out and not consumed yet", *_LAG)
READY = _gauge("rocketmq_consumer_ready_messages", "messages not handed out yet", *_LAG)
LAG_AGE = _with_unit("rocketmq_consumer_lag_latency", "milliseconds", "age of the first not consumed", *_LAG)
QUEUEING_AGE = _with_unit(
    "rocketmq_consumer_queueing_latency", "milliseconds", "age of the first not handed out", *_LAG
)
STORAGE = _with_unit("rocketmq_storage_size", "bytes", "bytes in use on the disk behind the store", *_STORED)
FLUSH_BEHIND = _gauge("rocketmq_storage_flush_behind_bytes", "bytes of the log that are not on disk yet", *_STORED)
DISPATCH_BEHIND = _gauge(
    "rocketmq_storage_dispatch_behind_bytes", "bytes of the log that are in no queue yet", *_STORED
)
RESERVE_TIME = _with_unit(
    "rocketmq_storage_message_reserve_time", "milliseconds", "age of the first message kept", *_STORED
)
TIMER_IN_LAG = _gauge("rocketmq_timer_enqueue_lag", "timer messages that are not in the wheel yet", *_STORED)
TIMER_OUT_AGE = _with_unit(
    "rocketmq_timer_dequeue_latency", "milliseconds", "how late the first timer message is", *_STORED
)
HELD_PULLS = _gauge("rocketlet_held_pulls", "pulls that wait for a message")
TIMER_WAITING = _gauge("rocketlet_timer_messages", "messages in the timer wheel")

NATIVE: Final = (
    *(WATERMARK, PERMISSION, TOPICS, GROUPS, MESSAGES_IN, BYTES_IN, MESSAGES_OUT, BYTES_OUT, DEAD_LETTERS),
    *(PRODUCERS, CONSUMERS, LAG, IN_FLIGHT, READY, *LAG_AGE, *QUEUEING_AGE),
    *(*STORAGE, FLUSH_BEHIND, DISPATCH_BEHIND, *RESERVE_TIME, TIMER_IN_LAG, *TIMER_OUT_AGE),
    *(HELD_PULLS, TIMER_WAITING),
)


def native_samples(figures: BrokerFigures) -> Iterator[Sample]:
    """Yield the values of the metrics in ``NATIVE`` that are neither of topics nor of groups in them."""
    node = native_labels(figures)
    for sample in (*_broker(figures), *_store(figures), *_clients(figures)):
        yield sample._replace(labels=(*node, *sample.labels))


def native_labels(figures: BrokerFigures) -> tuple[str, ...]:
    """Return the labels that all have."""
    return figures.cluster, "broker", figures.broker


def native_topics(node: tuple[str, ...], topics: Sequence[TopicFigures]) -> Iterator[Column]:
    """Yield the values of topics."""

    def labels(key: tuple[str, str]) -> tuple[str, ...]:
        name, message_type = key
        return *node, name, _message_type(name, message_type), _flag(is_system_topic(name))

    put = [one for one in topics if one.messages]
    keys = [(one.name, one.message_type) for one in put]
    yield Column((MESSAGES_IN,), keys, labels, [one.messages for one in put])
    yield Column((BYTES_IN,), keys, labels, [one.size for one in put])


def native_reads(node: tuple[str, ...], reads: Sequence[ReadFigures]) -> Iterator[Column]:
    """Yield the values of groups in topics."""

    def labels(key: tuple[str, str]) -> tuple[str, ...]:
        group, topic = key
        return *node, topic, group, _is_retry(topic), _is_system(group, topic)

    def lag_labels(key: tuple[str, str]) -> tuple[str, ...]:
        group, topic = key
        return *node, group, topic, _is_retry(topic), _is_system(group, topic)

    def dead_labels(key: tuple[str, str]) -> tuple[str, ...]:
        return *node, *key, _is_system(*key)

    read = [one for one in reads if one.messages]
    keys = [(one.group, one.topic) for one in read]
    yield Column((MESSAGES_OUT,), keys, labels, [one.messages for one in read])
    yield Column((BYTES_OUT,), keys, labels, [one.size for one in read])
    gave_up = [one for one in reads if one.dead_letters]
    keys = [(one.group, one.topic) for one in gave_up]
    yield Column((DEAD_LETTERS,), keys, dead_labels, [one.dead_letters for one in gave_up])
    keys = [(one.group, one.topic) for one in reads if one.progress is not None]
    found = [one.progress for one in reads if one.progress is not None]
    yield Column((LAG,), keys, lag_labels, [one.lag for one in found])
    yield Column((IN_FLIGHT,), keys, lag_labels, [one.in_flight for one in found])
    yield Column((READY,), keys, lag_labels, [one.ready for one in found])
    yield Column(LAG_AGE, keys, lag_labels, [one.behind_since_ms for one in found], are_ages=True)
    yield Column(QUEUEING_AGE, keys, lag_labels, [one.unread_since_ms for one in found], are_ages=True)


def _message_type(topic: str, told: str) -> str:
    """Return what a topic holds: all of a retry topic has waited."""
    return "delay" if topic.startswith(RETRY_PREFIX) else _TYPES.get(topic, told.lower())


def _is_retry(topic: str) -> str:
    return _flag(topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))


def _is_system(group: str, topic: str) -> str:
    return _flag(is_system_topic(topic) or is_system_group(group))


def _each(families: tuple[Family, ...], labels: tuple[str, ...], value: float) -> Iterator[Sample]:
    for family in families:
        yield Sample(family, labels, value)


def _broker(figures: BrokerFigures) -> Iterator[Sample]:
    for processor in _PROCESSORS:
        yield Sample(WATERMARK, (processor,), figures.parked_sends if processor == "send" else 0)
    yield Sample(PERMISSION, (), figures.permission)
    yield Sample(TOPICS, (), figures.topic_count)
    yield Sample(GROUPS, (), figures.group_count)
    yield Sample(HELD_PULLS, (), figures.held_pulls)


def _store(figures: BrokerFigures) -> Iterator[Sample]:
    lines = figures.lines
    if figures.disk.total:
        yield from _each(STORAGE, _WHERE_STORED, figures.disk.total - figures.disk.free)
    yield Sample(FLUSH_BEHIND, _WHERE_STORED, figures.flush_behind_bytes)
    yield Sample(DISPATCH_BEHIND, _WHERE_STORED, int(lines["dispatchBehindBytes"]))
    earliest_ms = int(lines["earliestMessageTimeStamp"])
    if earliest_ms > 0:
        yield from _each(RESERVE_TIME, _WHERE_STORED, max(0, figures.at_ms - earliest_ms))
    yield Sample(TIMER_IN_LAG, _WHERE_STORED, int(lines["timerOffsetBehind"]))
    yield from _each(TIMER_OUT_AGE, _WHERE_STORED, int(lines["timerReadBehind"]) * 1000)
    yield Sample(TIMER_WAITING, (), int(lines["timerCongestNum"]))


def _clients(figures: BrokerFigures) -> Iterator[Sample]:
    for labels, count in _count(figures.producers):
        yield Sample(PRODUCERS, (*labels, _REMOTING), count)
    for group in figures.consumers:
        mode = _MODES.get(group.consume_type, group.consume_type.lower())
        for labels, count in _count((group,)):
            flag = _flag(is_system_group(group.group))
            yield Sample(CONSUMERS, (group.group, *labels, mode, _REMOTING, flag), count)


def _count(groups: tuple[MemberFigures, ...]) -> Iterator[tuple[tuple[str, str], int]]:
    clients = (client for group in groups for client in group.clients)
    yield from Counter((one.language.lower(), format_release(one.version)) for one in clients).items()


def format_release(version: int) -> str:
    """Return the name of a client's release as 5.x brokers label it (``MQVersion``, regular from 4.0.0 on)."""
    if version < _FIRST_REGULAR:
        return str(version)
    number = _FIRST_NUMBER + (version - _FIRST_REGULAR) // 2
    name = f"v{number // 100}_{number // 10 % 10}_{number % 10}"
    return name if version % 2 else f"{name}_snapshot"


def _flag(value: bool) -> str:  # noqa: FBT001 # the value that is written
    return "true" if value else "false"
