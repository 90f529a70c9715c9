"""Which topic and queue a send goes to, or why it does not (``AbstractSendMessageProcessor.msgCheck``; B.3.2 to B.3.4).

Order of the checks: the broker's permission, the name, topics that clients may not send to, existence (a topic may be
created here), the queue. A send to ``%RETRY%<group>`` that came too often, or whose group consumes in order, goes to
``%DLQ%<group>``.

A topic that was created stays, even if its message is refused after all: ``created`` tells the sender of it either way.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ...common.names import (
    NOT_SENDABLE_TOPICS,
    PERM_WRITE,
    RETRY_PREFIX,
    broker_topic_remark,
)
from ...remoting.bodies.register import TopicConfig
from ...remoting.codec.codes import Release, ResponseCode
from ...remoting.headers.send import SendHeader
from ..group.groups import GroupTable
from ..group.locks import QueueLocks
from ..settings.config import BrokerConfig
from ..topic.topics import TopicTable, format_topic
from .deadletters import dead_letters

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Refusal(NamedTuple):
    """An answer that is no success."""

    code: int
    remark: str


class OwnBroker(NamedTuple):
    """The settings of this broker, and the address by which it names itself."""

    config: BrokerConfig
    ip: str

    def forbids(self, doing: str) -> str:
        """Return the sentence for what the broker's permission does not allow."""
        return f"the broker[{self.ip}] {doing} is forbidden"


class Admission(msgspec.Struct, frozen=True, gc=False):
    """Where a message goes."""

    topic: TopicConfig
    queue_id: int
    is_dead_letter: bool = False


class SendGate:
    """Admits sends; creates topics on the way."""

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
        self.created: list[str] = []
        """Topics to be made known before the answer; whoever does that takes them out.

        A topic is told to each of its senders until it is on disk: their messages are not served without it.
        """

    def admit(self, header: SendHeader, version: int, producer: tuple[str, int]) -> Admission | Refusal:
        """Return where a message goes, or the answer to its sender."""
        name = header.topic
        topic = self._topics.get(name)
        if topic is None or name in NOT_SENDABLE_TOPICS or not self._is_writable or name.startswith(RETRY_PREFIX):
            return self._admit_with_care(header, version, producer)
        if self._unsaved and name in self._unsaved:
            self.created.append(name)
        queue_id = header.queue_id
        if 0 <= queue_id < topic.write_queue_nums:
            return Admission(topic, queue_id)
        return self._place(topic, queue_id, producer)

    def _admit_with_care(self, header: SendHeader, version: int, producer: tuple[str, int]) -> Admission | Refusal:
        admission = self.check(header, producer)
        if isinstance(admission, Refusal) or not header.topic.startswith(RETRY_PREFIX):
            return admission
        return self._redirect(header, version, admission)

    def check(self, header: SendHeader, producer: tuple[str, int]) -> Admission | Refusal:
        """Return where a message goes that nobody has tried to consume, whatever its topic, or the answer."""
        name = header.topic
        topic = self._topics.get(name)
        if not self._is_writable and topic is not None and topic.order:
            return Refusal(ResponseCode.NO_PERMISSION, self._own.forbids("sending message"))
        if (remark := broker_topic_remark(name)) is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if name in NOT_SENDABLE_TOPICS:
            return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        if topic is None:
            topic = self._create(header)
            if topic is None:
                return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}")
            self.created.append(name)
        elif name in self._unsaved:
            self.created.append(name)
        return self._place(topic, header.queue_id, producer)

    def _create(self, header: SendHeader) -> TopicConfig | None:
        topic = self._topics.create_from(header.default_topic, header.topic, header.default_topic_queue_nums)
        if topic is None and header.topic.startswith(RETRY_PREFIX):
            topic, _ = self._topics.ensure(header.topic, 1)
        return topic

    def _place(self, topic: TopicConfig, queue_id: int, producer: tuple[str, int]) -> Admission | Refusal:
        if queue_id >= max(topic.write_queue_nums, topic.read_queue_nums) or topic.write_queue_nums <= 0:
            host, port = producer
            remark = f"request queueId[{queue_id}] is illegal, {format_topic(topic)} Producer: {host}:{port}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return Admission(topic, queue_id if queue_id >= 0 else random.randrange(topic.write_queue_nums))

    def _redirect(self, header: SendHeader, version: int, admission: Admission) -> Admission | Refusal:
        """Send what has been tried too often, or belongs to an ordered group, to the dead letters (B.3.4)."""
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find(name)
        if group is None:
            remark = f"subscription group not exist, {name} {FAQ}"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        most = group.retry_max_times
        if version >= Release.V3_4_9 and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if (header.reconsume_times or 0) <= most and not self._locks.is_any_live(name, self._monotonic_ms()):
            return admission
        letters = dead_letters(self._topics, name)
        if letters.is_new:
            self.created.append(letters.topic.topic_name)
        return Admission(letters.topic, letters.queue_id, is_dead_letter=True)
