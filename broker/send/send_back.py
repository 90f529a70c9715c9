"""CONSUMER_SEND_MSG_BACK(36): a consumer could not process a message (spec behaviour.md B.9, store.md §10.2).

Rules (``AbstractSendMessageProcessor.consumerSendMsgBack``), in this order

    1. No such group: 26. The broker may not be written to: 16. A group without retry queues: 0, and nothing is stored.
    2. ``%RETRY%<group>`` is made if need be; it may not be written to: 16.
    3. The message is found by its position in the log; none there: 1.
    4. Its attempts so far have reached the limit, or the level is below 0: a copy goes to ``%DLQ%<group>`` at once.
       Else a copy waits for its delay and goes to ``%RETRY%<group>`` then; level 0 means 3 + attempts so far.
    5. The copy has one attempt more. RETRY_TOPIC and ORIGIN_MESSAGE_ID keep where the message was first, WAIT is
       false: the answer does not wait for the disk.
    6. What the store does not take: 1, with the name of Java's status.
"""

from typing import Any, Protocol

from ...common.codes import Release, ResponseCode
from ...common.errors import MessageRefusedError, RecordError, StoreError
from ...common.ids import format_offset_id
from ...common.metadata import SubscriptionGroupConfig
from ...common.names import PERM_WRITE
from ...common.outcome import Outcome
from ...common.properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT, encode_properties
from ...common.record import NewRecord, Record, decode_record
from ..delay.delayed_messages import DelayRouting
from ..group.groups import GroupTable
from ..outcomes.scheduler import Scheduler
from ..settings.live import LiveSettings
from ..settings.refusal import FAQ, Refusal
from ..topic.topics import TopicTable
from .send import FailurePlace, SendBackCounts, dead_letters, retries

_FIRST_LEVEL = 3


class FailedMessage(Protocol):
    """What a consumer says of a message that it could not process."""

    group: str
    log_offset: int
    delay_level: int
    max_reconsume_times: int | None
    unit_mode: bool | None


class SendBackOperation:
    """Takes failed messages back."""

    def __init__(
        self,
        settings: LiveSettings,
        groups: GroupTable,
        topics: TopicTable,
        routing: DelayRouting,
        scheduler: Scheduler,
        counts: SendBackCounts,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._topics = topics
        self._routing = routing
        self._store, self._scheduler = scheduler.store, scheduler
        self._counts = counts

    def send_back(self, message: FailedMessage, version: int) -> Outcome[Refusal | None]:
        """Store the copy of a message that is to be consumed again, or of one that is given up."""
        group = self._groups.find(message.group)
        if group is None:
            remark = f"subscription group not exist, {message.group} {FAQ}"
            return self._refuse(Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark))
        if not self._settings.config.permission & PERM_WRITE:
            return self._refuse(Refusal(ResponseCode.NO_PERMISSION, self._settings.forbids("sending message")))
        if group.retry_queue_nums <= 0:
            return Outcome(None, is_settled=True)
        place = retries(self._topics, group, is_unit=bool(message.unit_mode))
        new_topics = place.new_topics
        if not place.topic.perm & PERM_WRITE:
            remark = f"the topic[{place.topic.topic_name}] sending message is forbidden"
            return self._refuse(Refusal(ResponseCode.NO_PERMISSION, remark, new_topics))
        failed = self._find(message.log_offset)
        if failed is None:
            remark = f"look message by offset failed, {message.log_offset}"
            return self._refuse(Refusal(ResponseCode.SYSTEM_ERROR, remark, new_topics))
        first_topic = failed.properties.get(RETRY_TOPIC, failed.topic)
        level, counts = message.delay_level, self._counts.queues[first_topic, group.group_name][0]
        counts[SendBackCounts.MESSAGES] += 1
        if failed.reconsume_times >= _limit(message, version, group) or level < 0:
            counts[SendBackCounts.DEAD_LETTERS] += 1
            place, level = dead_letters(self._topics, group.group_name), 0
            new_topics += place.new_topics
        else:
            level = level or _FIRST_LEVEL + failed.reconsume_times
        return self._append(_copy(failed, place, level), new_topics)

    def _append(self, copy: NewRecord, new_topics: tuple[str, ...]) -> Outcome[Refusal | None]:
        try:
            appended: Outcome[Any] = self._scheduler.append(self._routing.place(copy))
        except (StoreError, MessageRefusedError) as error:
            return self._scheduler.failed(error, new_topics)
        appended.answer, appended.waits_for_store, appended.new_topics = None, False, new_topics
        return appended

    def _refuse(self, refusal: Refusal) -> Outcome[Refusal | None]:
        return self._scheduler.when_known(refusal, refusal.new_topics)

    def _find(self, log_offset: int) -> Record | None:
        record = self._store.record_at(log_offset)
        try:
            return None if record is None else decode_record(record)
        except RecordError:
            return None


def _limit(message: FailedMessage, version: int, group: SubscriptionGroupConfig) -> int:
    """Return after how many attempts a message is given up."""
    if version >= Release.V3_4_9 and message.max_reconsume_times is not None:
        return message.max_reconsume_times
    return group.retry_max_times


def _copy(failed: Record, place: FailurePlace, level: int) -> NewRecord:
    """Return the next attempt at a message, as it is stored where it goes."""
    properties = failed.properties
    properties.setdefault(RETRY_TOPIC, failed.topic)
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = format_offset_id(failed.store_host, failed.log_offset)
    properties |= {WAIT: "false", DELAY: str(level)}
    return NewRecord(
        place.topic.topic_name,
        place.queue_id,
        bytes(failed.body),
        encode_properties(properties),
        properties,
        failed.flag,
        failed.sys_flag,
        failed.born_at_ms,
        failed.born_host,
        failed.reconsume_times + 1,
    )
