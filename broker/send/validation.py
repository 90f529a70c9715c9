"""Which topic and queue a message goes to, or why it is refused (``AbstractSendMessageProcessor``; B.3.2 to B.3.4).

Order of the checks: the broker's permission, the name, topics that clients may not send to, existence (a topic may be
created here), the queue. A send to ``%RETRY%<group>`` that came too often, or whose group consumes in order, goes to
``%DLQ%<group>``.

A topic that was created stays, even if its message is refused after all, and its sender is told either way: the answer
waits until the topic is known. So does that of everybody who sends to it until it is on disk: their messages are not
served without it.

The topics that failed messages go to: ``%RETRY%<group>`` and ``%DLQ%<group>`` (spec behaviour.md B.3.4, B.9).

A topic that is missing is made, with permission 6. Dead letters have one queue; an administrator may give them more,
and each of those is taken.
"""

import random
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from ...common.names import NOT_SENDABLE_TOPICS, PERM_WRITE, RETRY_PREFIX, broker_topic_remark, dlq_topic, retry_topic
from ...remoting.bodies.group import SubscriptionGroupConfig
from ...remoting.bodies.route import TopicConfig
from ...remoting.codec.codes import Release, ResponseCode
from ..group.groups import GroupTable
from ..group.queue_locks import QueueLocks
from ..settings.refusal import FAQ, OwnBroker, Refusal
from ..topic.topics import TopicTable, format_topic, make_topic

UNIT_SUBSCRIPTION = 2  # TopicSysFlag.FLAG_UNIT_SUB


class FailurePlace(NamedTuple):
    """Where a failed message goes; ``new_topics`` holds the topic while the name servers do not know it."""

    topic: TopicConfig
    queue_id: int
    new_topics: tuple[str, ...]


def dead_letters(topics: TopicTable, group_name: str) -> FailurePlace:
    """Return where a message goes that its group has given up."""
    topic, is_new = topics.ensure(dlq_topic(group_name), 1)
    return FailurePlace(topic, random.randrange(max(1, topic.write_queue_nums)), (topic.topic_name,) if is_new else ())


def retries(topics: TopicTable, group: SubscriptionGroupConfig, *, is_unit: bool = False) -> FailurePlace:
    """Return where a message goes that its group is to consume again; the group has retry queues."""
    name = retry_topic(group.group_name)
    topic = topics.get(name)
    is_new = topic is None
    if topic is None:
        made = make_topic(name, group.retry_queue_nums)
        topic = topics.put(replace(made, topic_sys_flag=UNIT_SUBSCRIPTION if is_unit else 0))
    return FailurePlace(topic, random.randrange(group.retry_queue_nums), (name,) if is_new else ())


class Destination(Protocol):
    """Where a message shall go, as its sender says."""

    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    reconsume_times: int | None
    max_reconsume_times: int | None


class Admission(msgspec.Struct, frozen=True, gc=False):
    """Where a message goes, and which topics have to be known before its sender is answered."""

    topic: TopicConfig
    queue_id: int
    new_topics: tuple[str, ...] = ()
    is_dead_letter: bool = False


class SendValidator:
    """Admits messages; creates topics on the way."""

    def __init__(
        self, own: OwnBroker, topics: TopicTable, groups: GroupTable, locks: QueueLocks, monotonic_ms: Callable[[], int]
    ) -> None:
        self._own = own
        self._is_writable = bool(own.config.permission & PERM_WRITE)
        self._topics = topics
        self._unsaved = topics.unsaved
        self._groups = groups
        self._locks = locks
        self._monotonic_ms = monotonic_ms

    def validate(self, message: Destination, version: int, producer: tuple[str, int]) -> Admission | Refusal:
        """Return where a message goes, or why it is refused; ``version`` is its sender's release."""
        name = message.topic
        topic = self._topics.get(name)
        if topic is None or name in NOT_SENDABLE_TOPICS or not self._is_writable or name.startswith(RETRY_PREFIX):
            return self._validate_with_care(message, version, producer)
        queue_id = message.queue_id
        if 0 <= queue_id < topic.write_queue_nums and not self._unsaved:
            return Admission(topic, queue_id)
        return self._place(topic, queue_id, producer, (name,) if name in self._unsaved else ())

    def _validate_with_care(self, message: Destination, version: int, producer: tuple[str, int]) -> Admission | Refusal:
        admission = self.validate_reply(message, producer)
        if isinstance(admission, Refusal) or not message.topic.startswith(RETRY_PREFIX):
            return admission
        return self._redirect(message, version, admission)

    def validate_reply(self, message: Destination, producer: tuple[str, int]) -> Admission | Refusal:
        """Return where a message goes that nobody has tried to consume, whatever its topic, or why it is refused."""
        name = message.topic
        topic = self._topics.get(name)
        if not self._is_writable and topic is not None and topic.order:
            return Refusal(ResponseCode.NO_PERMISSION, self._own.forbids("sending message"))
        if (remark := broker_topic_remark(name)) is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if name in NOT_SENDABLE_TOPICS:
            return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        is_new = topic is None or name in self._unsaved
        if topic is None:
            topic = self._create(message)
        if topic is None:
            remark = f"topic[{name}] not exist, apply first please!{FAQ}"
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        return self._place(topic, message.queue_id, producer, (name,) if is_new else ())

    def _create(self, message: Destination) -> TopicConfig | None:
        topic = self._topics.create_from(message.default_topic, message.topic, message.default_topic_queue_nums)
        if topic is None and message.topic.startswith(RETRY_PREFIX):
            topic, _ = self._topics.ensure(message.topic, 1)
        return topic

    def _place(
        self, topic: TopicConfig, queue_id: int, producer: tuple[str, int], new_topics: tuple[str, ...]
    ) -> Admission | Refusal:
        if queue_id >= max(topic.write_queue_nums, topic.read_queue_nums) or topic.write_queue_nums <= 0:
            host, port = producer
            remark = f"request queueId[{queue_id}] is illegal, {format_topic(topic)} Producer: {host}:{port}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark, new_topics)
        return Admission(topic, queue_id if queue_id >= 0 else random.randrange(topic.write_queue_nums), new_topics)

    def _redirect(self, message: Destination, version: int, admission: Admission) -> Admission | Refusal:
        """Send what has been tried too often, or belongs to an ordered group, to the dead letters (B.3.4)."""
        name, new_topics = message.topic.removeprefix(RETRY_PREFIX), admission.new_topics
        group = self._groups.find(name)
        if group is None:
            remark = f"subscription group not exist, {name} {FAQ}"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark, new_topics)
        most = group.retry_max_times
        if version >= Release.V3_4_9 and message.max_reconsume_times is not None:
            most = message.max_reconsume_times
        if (message.reconsume_times or 0) <= most and not self._locks.is_any_live(name, self._monotonic_ms()):
            return admission
        letters = dead_letters(self._topics, name)
        return Admission(letters.topic, letters.queue_id, new_topics + letters.new_topics, is_dead_letter=True)
