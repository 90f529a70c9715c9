"""Which topics a broker has, how a send creates one, and what their attributes may be.

``config/topics.json`` holds them as Java does (``TopicConfigManager``; spec store.md §9.2); the file is laid over the
topics of a fresh broker (behaviour.md B.2). A topic is a value: a change puts a new one in its place, moves the data
version, and is announced to the name servers by whoever made it (``registration.py``).

Attributes are changed by a text, ``+name=value,-name`` (``AttributeParser``, ``AttributeUtil``, ``TopicAttributes``). A
new topic takes additions only; what does not exist cannot be deleted; no name twice; no other names than these.

    queue.type      BatchCQ, SimpleCQ          only when the topic is made
    cleanup.policy  DELETE, COMPACTION         only when the topic is made; compaction is not built
    message.type    UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, MIXED
    reserve.time    a number from -1 on
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from ...common.java_numbers import parse_int64
from ...common.metadata import DataVersion, TopicConfig, TopicConfigTable
from ...common.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    BROKER_MEMBER_TOPIC_PREFIX,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
    reply_topic,
)
from ...store.consumequeue.queue_table import BATCH_TYPE, QUEUE_TYPE
from ..settings.config import BrokerConfig
from ..settings.live import LiveSettings
from .config_table import next_version

CLEANUP_POLICY: Final = "cleanup.policy"
MESSAGE_TYPE: Final = "message.type"
_COMPACTION: Final = "COMPACTION"
_NO_TIME: Final = -1


_MESSAGE_TYPES: Final = ("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "NORMAL")


class _Kind(NamedTuple):
    is_changeable: bool
    values: Sequence[str] | None


_KINDS: Final = {
    QUEUE_TYPE: _Kind(False, (BATCH_TYPE, "SimpleCQ")),
    CLEANUP_POLICY: _Kind(False, ("DELETE", _COMPACTION)),
    MESSAGE_TYPE: _Kind(True, _MESSAGE_TYPES),
    "reserve.time": _Kind(True, None),
}


def is_batch_topic(attributes: Mapping[str, str]) -> bool:
    """Tell whether the queues of a topic count by messages and keep batches whole."""
    return attributes.get(QUEUE_TYPE) == BATCH_TYPE


def change_attributes(known: Mapping[str, str] | None, changes: str) -> dict[str, str]:
    """Return the attributes after changes; ``known`` is ``None`` for a topic that is being made.

    Raises:
        ValueError: A change that cannot be made.
    """
    parsed = [_parse_change(change) for change in _split(changes)]
    return _apply_changes(known, parsed)


def change_listed_attributes(known: Mapping[str, str] | None, changes: Mapping[str, str]) -> dict[str, str]:
    """Do the same with changes by ``+name`` and ``-name``, as they come with many topics at once.

    Raises:
        ValueError: A change that cannot be made.
    """
    return _apply_changes(known, [(key[:1], key[1:], value) for key, value in changes.items()])


def _apply_changes(known: Mapping[str, str] | None, changes: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    attributes = dict(known or {})
    seen: dict[str, str] = {}
    for sign, name, value in changes:
        if name in seen:
            is_same = seen[name] == sign
            raise ValueError(f"key duplication: {sign}{name}" if is_same else f"alter duplication key. key: {name}")
        seen[name] = sign
        _check_change(known, sign, name)
        if sign == "+":
            _check_value(name, value)
            attributes[name] = value
        else:
            del attributes[name]
    return attributes


def _split(changes: str) -> list[str]:
    """Return what stands between the commas, as Java's ``split`` does: nothing is left of empty texts at the end."""
    wanted = changes.rstrip(",")
    return wanted.split(",") if wanted else []


def _parse_change(change: str) -> tuple[str, str, str]:
    key, equals, value = change.partition("=")
    if ("+" if equals else "-") not in key:
        raise ValueError(f"{'add/alter' if equals else 'delete'} attribute format is wrong: {key}")
    sign, name = key[0], key[1:]
    if not name or set("+-") & set(name):
        raise ValueError("kv string format wrong.")
    return sign, name, value


def _check_change(known: Mapping[str, str] | None, sign: str, name: str) -> None:
    if known is None and sign != "+":
        raise ValueError(f"only add attribute is supported while creating topic. key: {name}")
    if sign not in ("+", "-"):
        raise ValueError(f"wrong format key: {name}")
    if known is not None and sign == "-" and name not in known:
        raise ValueError(f"attempt to delete a nonexistent key: {name}")
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"unsupported key: {name}")
    if known is not None and not kind.is_changeable:
        raise ValueError(f"attempt to update an unchangeable attribute. key: {name}")


def _check_value(name: str, value: str) -> None:
    values = _KINDS[name].values
    if values is not None and value not in values:
        raise ValueError(f"value is not in set: [{', '.join(values)}]")
    if values is None and ((hours := parse_int64(value)) is None or hours < _NO_TIME):
        raise ValueError(f"value is not in range({_NO_TIME}, {2**63 - 1})")
    if value == _COMPACTION:
        raise ValueError(f"{CLEANUP_POLICY}={value} cannot be used: compaction is not built")


READ_WRITE = PERM_READ | PERM_WRITE
_BENCHMARK_QUEUES = 1024
_CLUSTER_QUEUES = 16
_SCHEDULE_QUEUES = 18
_log = logging.getLogger(__name__)


class TopicTable:
    """All topics by name."""

    file_name = "topics.json"
    content_type = TopicConfigTable

    def __init__(self, settings: LiveSettings, now_ms: Callable[[], int]) -> None:
        self.change_count = 0
        self.version: DataVersion = DataVersion(timestamp=now_ms())
        self._now_ms = now_ms
        self._settings = settings
        self._topics = {topic.topic_name: topic for topic in boot_topics(settings.config)}
        self.saved_at_ms = 0
        """When the content that was loaded, or copied of a master, had last changed."""
        self.unsaved: set[str] = set()
        """Topics that may not be on disk yet; whoever saves them takes them out."""
        self.get = self._topics.get
        """Return a topic by its name, None when there is none; the send path looks topics up here."""

    def __repr__(self) -> str:
        return f"<TopicTable of {len(self._topics)} topics, change {self.version.counter}>"

    @property
    def may_be_mixed(self) -> bool:
        """Whether administrators may make topics that take every kind of message."""
        return self._settings.config.allows_mixed_topics

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._topics.values())

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        return self._topics.keys()

    def put(self, topic: TopicConfig) -> TopicConfig:
        """Create or replace a topic."""
        if topic.topic_name not in self._topics:
            self.unsaved.add(topic.topic_name)
        self._topics[topic.topic_name] = topic
        self._changed()
        return topic

    def delete(self, name: str) -> bool:
        """Remove a topic; tell whether there was one."""
        if self._topics.pop(name, None) is None:
            return False
        self._changed()
        # Later than every message that the topic got, so that no start takes it for one that was not saved.
        self.version = replace(self.version, timestamp=self.version.timestamp + 1)
        return True

    def ensure(self, name: str, queues: int) -> tuple[TopicConfig, bool]:
        """Return a topic, created with so many queues when it is missing, and whether it was."""
        topic = self._topics.get(name)
        return (topic, False) if topic else (self.put(make_topic(name, queues)), True)

    def begin_auto_create(self) -> None:
        """Have the template of topics that sends create, as a start that allows them has it."""
        if AUTO_CREATE_TOPIC not in self._topics:
            self._topics[AUTO_CREATE_TOPIC] = _template(self._settings.config)
            self._changed()

    def create_from(self, template_name: str, name: str, wished_queues: int) -> TopicConfig | None:
        """Create a topic after a producer's template (behaviour.md B.3.3); None when that hands nothing down."""
        template = self._topics.get(template_name)
        if template is None:
            return None
        if template_name == AUTO_CREATE_TOPIC and not self._settings.config.auto_create_topics:
            template = replace(template, perm=READ_WRITE)
        if not template.perm & PERM_INHERIT:
            return None
        queues = max(0, min(wished_queues, template.write_queue_nums))
        perm = template.perm & ~PERM_INHERIT
        return self.put(
            replace(
                make_topic(name, queues, perm),
                topic_filter_type=template.topic_filter_type,
                topic_sys_flag=template.topic_sys_flag,
            )
        )

    def adopt_batch_topics(self, queue_counts: Mapping[str, int]) -> None:
        """List the topics that have batch queues on disk, but were not saved before their broker was killed."""
        for name, queues in queue_counts.items():
            if name not in self._topics:
                self.put(replace(make_topic(name, max(1, queues)), attributes={QUEUE_TYPE: BATCH_TYPE}))

    def restore(self, queue_counts: Mapping[str, int]) -> None:
        """Make topics again which have messages from after the file was saved last: their broker was killed before.

        How many queues they had beyond the last with messages, and their other settings, nobody knows any more.
        """
        for name, queues in queue_counts.items():
            if not is_system_topic(name):
                self.put(make_topic(name, queues))
                _log.warning(
                    "topic %s has messages, but was not saved before the broker ended: made again with %d queues, "
                    "other settings are lost",
                    name,
                    queues,
                )

    def set_ordered(self, names: Iterable[str]) -> None:
        """Mark the named topics as ordered and all others as not (the order list of a name server)."""
        ordered = frozenset(names)
        for topic in list(self._topics.values()):
            if topic.order != (topic.topic_name in ordered):
                self.put(replace(topic, order=topic.topic_name in ordered))

    def content(self) -> TopicConfigTable:
        """Return what ``topics.json`` shall hold, which is also what is registered."""
        return TopicConfigTable(data_version=self.version, topic_config_table=self._topics)

    def load(self, content: TopicConfigTable) -> None:
        """Lay what ``topics.json`` held over the topics of a fresh broker."""
        self._topics.update(content.topic_config_table)
        self.version = content.data_version
        self.saved_at_ms = content.data_version.timestamp

    def take_copy(self, content: TopicConfigTable) -> frozenset[str]:
        """Become the table of a master in one step, with its version; return the topics that are gone."""
        self.saved_at_ms = content.data_version.timestamp
        if content == self.content():
            return frozenset()
        gone = frozenset(self._topics.keys() - content.topic_config_table.keys())
        for name in gone:
            del self._topics[name]
        for name, topic in content.topic_config_table.items():
            if self._topics.get(name) != topic:
                self._topics[name] = topic
        self.unsaved -= gone
        self.version = content.data_version
        self.change_count += 1
        return gone

    def take_from_log(self, queue_counts: Mapping[str, int], batch_topics: Collection[str]) -> None:
        """Make topics of a copied log with so many queues, or widen them, until the master says what they are.

        The version moves on and keeps its time, which is that of the master's last change.
        """
        for name, queues in queue_counts.items():
            topic = self._topics.get(name)
            if topic is None:
                attributes = {QUEUE_TYPE: BATCH_TYPE} if name in batch_topics else {}
                topic = replace(make_topic(name, queues), attributes=attributes)
            reads, writes = max(topic.read_queue_nums, queues), max(topic.write_queue_nums, queues)
            self._topics[name] = replace(topic, read_queue_nums=reads, write_queue_nums=writes)
        self.version = replace(self.version, counter=self.version.counter + 1)
        self.change_count += 1

    def renew_version(self) -> DataVersion:
        """Return a version that no name server has seen: it passes over topics that come with one that it knows."""
        self.version = next_version(self.version, self._now_ms())
        return self.version

    def _changed(self) -> None:
        self.change_count += 1
        self.renew_version()


def boot_topics(config: BrokerConfig) -> Iterable[TopicConfig]:
    """Yield the topics of a fresh broker (behaviour.md B.2)."""
    if config.auto_create_topics:
        yield _template(config)
    yield make_topic(SELF_TEST_TOPIC, 1)
    yield make_topic(BENCHMARK_TOPIC, _BENCHMARK_QUEUES)
    cluster_perm = PERM_INHERIT | (READ_WRITE if config.is_cluster_topic_enabled else 0)
    yield make_topic(config.cluster_name, _CLUSTER_QUEUES, cluster_perm)
    broker_perm = PERM_INHERIT | (READ_WRITE if config.is_broker_topic_enabled else 0)
    yield make_topic(config.broker_name, 1, broker_perm)
    yield make_topic(OFFSET_MOVED_TOPIC, 1)
    yield make_topic(SCHEDULE_TOPIC, _SCHEDULE_QUEUES)
    if config.is_trace_topic_enabled:
        yield make_topic(config.trace_topic_name, 1)
    yield make_topic(reply_topic(config.cluster_name), 1)
    yield make_topic(REVIVE_TOPIC_PREFIX + config.cluster_name, config.revive_queues)
    yield make_topic(BROKER_MEMBER_TOPIC_PREFIX + config.broker_name, 1, PERM_INHERIT)
    yield make_topic(HALF_TOPIC, 1)
    yield make_topic(OP_HALF_TOPIC, 1)
    if config.is_timer_wheel_enabled:
        yield make_topic(TIMER_TOPIC, 1)


def _template(config: BrokerConfig) -> TopicConfig:
    return make_topic(AUTO_CREATE_TOPIC, config.default_topic_queues, READ_WRITE | PERM_INHERIT)


def make_topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
    """Return a topic with as many queues to read as to write."""
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


def format_topic(topic: TopicConfig) -> str:
    """Return Java's text of a topic (``TopicConfig.toString``), which stands in remarks."""
    bits = (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    perm = "".join(letter if topic.perm & bit else "-" for letter, bit in bits)
    attributes = ", ".join(f"{key}={value}" for key, value in topic.attributes.items())
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={perm}, topicFilterType={topic.topic_filter_type}, "
        f"topicSysFlag={topic.topic_sys_flag}, order={str(topic.order).lower()}, attributes={{{attributes}}}]"
    )
