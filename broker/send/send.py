"""Where a sent message goes, what is stored of it, and why it is refused (``SendMessageProcessor``; behaviour.md B.3).

A send is three plain steps: its place is found (``SendValidator``), its properties get what the broker adds
(``PropertyEnricher``), and its record is appended. What comes of it depends on the commit of this turn, under
SYNC_FLUSH on the disk, and on the topics being known that were created for it.

Rules
    1. The checks, in their order: the broker's permission, the name, topics that clients may not send to, existence
       (a topic may be created here), the queue (B.3.2 to B.3.4).
    2. A send to ``%RETRY%<group>`` that came too often, or whose group consumes in order, goes to ``%DLQ%<group>``
       (B.3.4, B.9). Both topics are made with permission 6 when they are missing. Dead letters have one queue; an
       administrator may give them more, and each of those is taken.
    3. A topic that was created stays, even if its message is refused after all. Whoever sends to it is answered when it
       is on disk and known: its messages are not served without it.
    4. The broker sets ``MSG_REGION``, ``TRACE_ON`` and ``CLUSTER``, gives a message without ``UNIQ_KEY`` one, and drops
       ``POP_CK``. A text that names none of these is stored as it came, with the additions behind it (B.3.5).
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from ...common.codes import Release, ResponseCode
from ...common.errors import MessageIllegalError, MessageRefusedError, StoreError
from ...common.ids import encode_host
from ...common.java_numbers import parse_int64
from ...common.message import INNER_BATCH, MULTI_TAGS, TRANSACTION_MASK
from ...common.metadata import SubscriptionGroupConfig, TopicConfig
from ...common.names import (
    NOT_SENDABLE_TOPICS,
    PERM_WRITE,
    RETRY_PREFIX,
    TIMER_TOPIC,
    broker_topic_remark,
    dlq_topic,
    retry_topic,
)
from ...common.outcome import Outcome
from ...common.properties import (
    DELAY,
    INNER_NUM,
    POP_CK,
    PRIORITY,
    RETRY_TOPIC,
    SHARDING_KEY,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    encode_properties,
    parse_properties,
)
from ...common.record import NewRecord, PlainPart, split_batch
from ...store.consumequeue.appended import Appended, AppendedRun
from ...store.consumequeue.batch_queue import INNER_BATCH_FLAGS
from ..delay.delayed_messages import TIMER_NAMES, DelayRouting
from ..delay.timer_messages import recall_handle_of
from ..group.groups import GroupTable
from ..outcomes.group_commit import wants_to_wait
from ..outcomes.queue_counts import QueueCounts, count_by_queue
from ..outcomes.scheduler import Scheduler
from ..settings.live import LiveSettings
from ..settings.refusal import FAQ, Refusal
from ..topic.topics import TopicTable, format_topic, is_batch_topic, make_topic
from ..transaction.half_messages import half_of, is_transactional

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


def retries(topics: TopicTable, group: SubscriptionGroupConfig, *, is_unit: bool) -> FailurePlace:
    """Return where a message goes that its group is to consume again; the group has retry queues."""
    name = retry_topic(group.group_name)
    topic = topics.get(name)
    is_new = topic is None
    if topic is None:
        made = make_topic(name, group.retry_queue_nums)
        topic = topics.put(replace(made, topic_sys_flag=UNIT_SUBSCRIPTION if is_unit else 0))
    return FailurePlace(topic, random.randrange(group.retry_queue_nums), (name,) if is_new else ())


class SendBackCounts:
    """What consumers have sent back since the start of the broker, and what of it was given up.

    ``ORDERED`` are the dead letters of ordered consumers, which send them as messages to the retry topic.
    """

    MESSAGES, DEAD_LETTERS, ORDERED = range(3)

    def __init__(self) -> None:
        self.queues: QueueCounts[tuple[str, str]] = count_by_queue(3)
        """By the topic that a message was first sent to and the group, all queues under number 0."""


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
    given_up_by: str = ""
    """The group whose dead letter it is."""


class SendValidator:
    """Admits messages; creates topics on the way. What a group consumes in order at the moment is never tried again.

    Nobody sends to ``own_topics``, which this broker alone writes to.
    """

    def __init__(
        self,
        settings: LiveSettings,
        topics: TopicTable,
        groups: GroupTable,
        consumes_in_order: Callable[[str], bool],
        own_topics: frozenset[str] = frozenset(),
    ) -> None:
        self._not_sendable = NOT_SENDABLE_TOPICS | own_topics
        self._settings = settings
        self._topics = topics
        self._unsaved = topics.unsaved
        self._groups = groups
        self._consumes_in_order = consumes_in_order

    def validate(self, message: Destination, version: int, producer: tuple[str, int]) -> Admission | Refusal:
        """Return where a message goes, or why it is refused; ``version`` is its sender's release."""
        name = message.topic
        topic, is_writable = self._topics.get(name), self._settings.config.permission & PERM_WRITE
        if topic is None or name in self._not_sendable or not is_writable or name.startswith(RETRY_PREFIX):
            return self._validate_with_care(message, version, producer)
        queue_id = message.queue_id
        if 0 <= queue_id < topic.write_queue_nums and not self._unsaved:
            return Admission(topic, queue_id)
        return self._place(topic, queue_id, producer, (name,) if name in self._unsaved else ())

    def is_plain_place(self, name: str, queue_id: int) -> bool:
        """Tell whether a message may simply be stored in the queue that it names: nothing is to be decided or added."""
        topic = self._topics.get(name)
        return not (
            topic is None
            or name in self._not_sendable
            or not self._settings.config.permission & PERM_WRITE
            or name.startswith(RETRY_PREFIX)
            or queue_id >= topic.write_queue_nums
            or self._unsaved
            or topic.topic_filter_type == _MULTI_TAG
        )

    def _validate_with_care(self, message: Destination, version: int, producer: tuple[str, int]) -> Admission | Refusal:
        admission = self.validate_reply(message, producer)
        if isinstance(admission, Refusal) or not message.topic.startswith(RETRY_PREFIX):
            return admission
        return self._redirect(message, version, admission)

    def validate_reply(self, message: Destination, producer: tuple[str, int]) -> Admission | Refusal:
        """Return where a message goes that nobody has tried to consume, whatever its topic, or why it is refused."""
        name = message.topic
        topic = self._topics.get(name)
        if not self._settings.config.permission & PERM_WRITE and topic is not None and topic.order:
            return Refusal(ResponseCode.NO_PERMISSION, self._settings.forbids("sending message"))
        if (remark := broker_topic_remark(name)) is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if name in self._not_sendable:
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
        if (message.reconsume_times or 0) <= most and not self._consumes_in_order(name):
            return admission
        letters = dead_letters(self._topics, name)
        return Admission(letters.topic, letters.queue_id, new_topics + letters.new_topics, name)


class StoredProperties(msgspec.Struct, gc=False):
    """Properties in both forms; ``is_plain`` when none of them needs care."""

    text: bytes
    properties: dict[str, str]
    is_plain: bool = False


_OTHER_TYPES: Final = TIMER_NAMES | {TRANSACTION_PREPARED, DELAY}


class PropertyEnricher:
    """Adds what this broker adds: ``own`` properties, and a unique key."""

    def __init__(self, own: Mapping[str, str], new_key: Callable[[], str]) -> None:
        self._replaced = frozenset({*own, POP_CK})
        self._needs_care = self._replaced | _OTHER_TYPES | {INNER_NUM, PRIORITY}
        self.careful_names = frozenset(name.encode() for name in self._needs_care)
        """Of properties: a message with one of them is not plain."""
        self._new_key = new_key
        self._own, self.own_text = dict(own), encode_properties(own)
        """What stands behind the properties of a message."""

    def set_own(self, own: Mapping[str, str]) -> None:
        """Add other values of the same properties from now on."""
        self._own, self.own_text = dict(own), encode_properties(own)

    def enrich(self, text: str, properties: dict[str, str] | None = None) -> StoredProperties:
        """Return what shall be stored of the properties that a request carries, parsed or not."""
        if properties is None:
            properties = parse_properties(text)
        is_plain = self._needs_care.isdisjoint(properties)
        if not is_plain and not self._replaced.isdisjoint(properties):
            return self.enrich_parsed(properties)
        if text and text[-1] != "\x02":
            text = f"{text}\x02" if properties else ""  # what holds no property is not kept
        if UNIQ_KEY not in properties:
            properties[UNIQ_KEY] = key = self._new_key()
            text = f"{text}{UNIQ_KEY}\x01{key}\x02"
        properties.update(self._own)
        return StoredProperties(text.encode() + self.own_text, properties, is_plain)

    def enrich_parsed(self, properties: dict[str, str]) -> StoredProperties:
        """Return what shall be stored of properties that are parsed already."""
        enriched = {**properties, **self._own}
        enriched.pop(POP_CK, None)
        if UNIQ_KEY not in enriched:
            enriched[UNIQ_KEY] = self._new_key()
        return StoredProperties(encode_properties(enriched), enriched)


_MULTI_TAG = "MULTI_TAG"
MAX_BATCH_MESSAGES: Final = 65_536
"""Of one request: they are stored in one turn of the loop."""
_INNER_NUM = INNER_NUM.encode()
_NO_BODY = Refusal(ResponseCode.MESSAGE_ILLEGAL, "the message has no body")
_TOO_FEW_REPLICAS = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
_NO_BATCH = Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the message has the property {INNER_NUM} but is no inner batch")


class SendRequest(Destination, Protocol):
    """A message without its body, as its sender describes it."""

    sys_flag: int
    born_at_ms: int
    flag: int
    properties: str | None


class Sender(msgspec.Struct, frozen=True, gc=False):
    """Who sends: the address, the release of its client, and whether it waits for an answer."""

    address: tuple[str, int]
    version: int
    waits: bool


class SendReceipt(NamedTuple):
    """Where the sender of something else than a plain message is told that it lies.

    ``log_offsets`` are those of the messages of a batch, otherwise one. ``batch_key`` is there when a batch is one
    record, ``recall_handle`` when the message waits for a time.
    """

    log_offsets: Sequence[int]
    queue_id: int
    queue_offset: int
    unique_key: str | None
    batch_key: str | None = None
    recall_handle: str | None = None


Sent = Appended | SendReceipt | Refusal
"""A message as it was stored, where something else was stored, or why nothing was."""


class SendOperations:
    """Stores what producers send."""

    def __init__(
        self,
        scheduler: Scheduler,
        validator: SendValidator,
        enricher: PropertyEnricher,
        routing: DelayRouting,
        settings: LiveSettings,
        send_backs: SendBackCounts,
    ) -> None:
        self._scheduler = scheduler
        self._send_backs = send_backs
        self._may_wait = scheduler.may_wait
        self._stall = scheduler.stall
        replicas = scheduler.replicas
        self._replicas = replicas if replicas is not None and replicas.may_lack else None
        self._validator = validator
        self.enricher = enricher
        self._routing = routing
        self._settings = settings
        self.store = scheduler.store

    def send(
        self, message: SendRequest, body: bytes, sender: Sender, properties: dict[str, str] | None = None
    ) -> Outcome[Sent]:
        """Store a message; ``properties`` are its own by their names, where its caller has them so, and are kept."""
        if not body:
            return Outcome(_NO_BODY, is_settled=True)
        waits = not self._may_wait or _waits_for_store(message, sender)
        if waits and self._stall is not None and self._stall.is_stalled:
            return self._stall.park(partial(self.send, message, body, sender, properties))
        stored = self.enricher.enrich(message.properties or "", properties)
        if not stored.is_plain and INNER_NUM in stored.properties and not message.sys_flag & INNER_BATCH:
            return Outcome(_NO_BATCH, is_settled=True)
        admission = self._validator.validate(message, sender.version, sender.address)
        if type(admission) is Refusal:
            return self._refuse(admission)
        if waits and self._replicas is not None and self._replicas.lacks_slaves:
            return self._refuse(_TOO_FEW_REPLICAS._replace(new_topics=admission.new_topics))
        if admission.given_up_by:
            stored = self._give_up(stored, message.topic, admission.given_up_by)
        elif not stored.is_plain and PRIORITY in stored.properties:
            admission = _by_priority(admission, stored.properties)
        record = _new_record(body, stored, message, admission, sender)
        try:
            placed = record if stored.is_plain else self._place(record)
            outcome: Outcome[Any] = self._scheduler.append(placed)
        except (StoreError, MessageRefusedError) as error:
            return self._fail(error, admission.new_topics)
        outcome.new_topics, outcome.waits_for_store = admission.new_topics, waits
        if placed is not record:
            outcome.answer = self._receipt(outcome.answer, record, placed)
        return outcome

    def send_plain(self, record: NewRecord, *, waits: bool) -> Outcome[Any] | None:
        """Store a message whose properties need no care and are complete; ``None`` if ``send`` is to see to it.

        ``waits`` says that its sender wants to, unless the message says otherwise.
        """
        if self._may_wait and waits:
            waits = wants_to_wait(record.property_text.decode())
            if waits and self._stall is not None and self._stall.is_stalled:
                return None
            if waits and self._replicas is not None and self._replicas.lacks_slaves:
                return None
        if not self._validator.is_plain_place(record.topic, record.queue_id):
            return None
        try:
            outcome = self._scheduler.append(record)
        except StoreError:
            return None
        outcome.waits_for_store = waits
        return outcome

    def send_batch(self, batch: SendRequest, body: bytes, sender: Sender) -> Outcome[Sent]:
        """Store the messages of a batch, in one record if its topic keeps batches whole."""
        if not body:
            return Outcome(_NO_BODY, is_settled=True)
        waits = not self._may_wait or _waits_for_store(batch, sender)
        if waits and self._stall is not None and self._stall.is_stalled:
            return self._stall.park(partial(self.send_batch, batch, body, sender))
        outcome = self._store_batch(batch, body, sender, waits=waits)
        outcome.waits_for_store = waits
        return outcome

    def _give_up(self, message: StoredProperties, topic: str, group: str) -> StoredProperties:
        """Count a dead letter; it is not delayed any more (store.md §10.2)."""
        first_topic = message.properties.get(RETRY_TOPIC, topic)
        self._send_backs.queues[first_topic, group][0][SendBackCounts.ORDERED] += 1
        return self.enricher.enrich_parsed({**message.properties, DELAY: "-1"})

    def _place(self, new: NewRecord) -> NewRecord:
        """Return what is stored for a message whose properties ask for care: a half message, a delay, a timer.

        Raises:
            MessageRefusedError: It may not be stored.
            DecodeError: Its delay level is no number.
        """
        is_delayed_retry = new.reconsume_times > 0 and self._routing.is_delayed(new.properties)
        if not is_transactional(new.properties, is_delayed_retry=is_delayed_retry):
            return self._routing.place(new)
        if self._settings.config.refuses_transactions:
            raise MessageRefusedError(ResponseCode.NO_PERMISSION, self._settings.forbids("sending transaction message"))
        return half_of(new)

    def _receipt(self, stored: Appended, sent: NewRecord, placed: NewRecord) -> SendReceipt:
        """Return what the sender of a message learns that is stored elsewhere; a timer message can be recalled."""
        handle = recall_handle_of(placed, self._settings.config.broker_name) if placed.topic == TIMER_TOPIC else None
        key = placed.properties.get(UNIQ_KEY)
        return SendReceipt((stored.log_offset,), sent.queue_id, stored.queue_offset, key, recall_handle=handle)

    def _store_batch(self, batch: SendRequest, body: bytes, sender: Sender, *, waits: bool) -> Outcome[Sent]:
        if batch.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {batch.topic}"
            return Outcome(Refusal(ResponseCode.MESSAGE_ILLEGAL, remark), is_settled=True)
        most_bytes = self.store.config.max_message_bytes
        if len(body) > most_bytes:
            remark = f"message body size is {len(body)} bytes, limit is {most_bytes}"
            return Outcome(Refusal(ResponseCode.SYSTEM_ERROR, remark), is_settled=True)
        parts = split_batch(body, MAX_BATCH_MESSAGES)
        properties = parse_properties(batch.properties or "")
        admission = self._validator.validate(batch, sender.version, sender.address)
        if isinstance(admission, Refusal):
            return self._refuse(admission)
        if self._routing.is_to_wait(batch.topic, properties) or batch.sys_flag & TRANSACTION_MASK:
            return self._refuse(self._illegal(admission.new_topics))
        is_whole = is_batch_topic(admission.topic.attributes) and UNIQ_KEY in properties
        if not is_whole and (INNER_NUM in properties or _hold_inner_batch(body, parts)):
            return self._refuse(_NO_BATCH._replace(new_topics=admission.new_topics))
        if waits and self._replicas is not None and self._replicas.lacks_slaves:
            return self._refuse(_TOO_FEW_REPLICAS._replace(new_topics=admission.new_topics))
        outcome: Outcome[Any]
        try:
            if is_whole:
                outcome = self._append_whole(batch, body, admission, sender)
            else:
                head = _new_record(b"", StoredProperties(b"", {}), batch, admission, sender)
                outcome = self._scheduler.append_batch(head, parts)
                stored: AppendedRun = outcome.answer
                key = properties.get(UNIQ_KEY)
                outcome.answer = SendReceipt(stored.log_offsets, admission.queue_id, stored.queue_offset, key)
        except StoreError as error:
            return self._fail(error, admission.new_topics)
        outcome.new_topics = admission.new_topics
        return outcome

    def _append_whole(self, batch: SendRequest, body: bytes, admission: Admission, sender: Sender) -> Outcome[Any]:
        """Append a batch as one record, for a topic whose queues count by messages."""
        enriched = self.enricher.enrich(batch.properties or "")
        record = _new_record(body, enriched, batch, admission, sender)
        record.sys_flag |= INNER_BATCH_FLAGS
        outcome: Outcome[Any] = self._scheduler.append(record)
        stored: Appended = outcome.answer
        key = enriched.properties[UNIQ_KEY]
        outcome.answer = SendReceipt((stored.log_offset,), record.queue_id, stored.queue_offset, key, batch_key=key)
        return outcome

    def _refuse(self, refusal: Refusal) -> Outcome[Sent]:
        return self._scheduler.when_known(refusal, refusal.new_topics)

    def _fail(self, error: StoreError | MessageRefusedError, new_topics: tuple[str, ...]) -> Outcome[Sent]:
        """Return what comes of a message that the store does not take, or that cannot be kept until its time."""
        if isinstance(error, MessageIllegalError):
            return self._refuse(self._illegal(new_topics))
        if isinstance(error, MessageRefusedError):
            return self._refuse(Refusal(error.code, error.remark, new_topics))
        return self._scheduler.failed(error, new_topics)

    def _illegal(self, new_topics: tuple[str, ...]) -> Refusal:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, illegal_remark(self.store.config.max_message_bytes), new_topics)


def _by_priority(admission: Admission, properties: Mapping[str, str]) -> Admission:
    """Return the queue of a message with a priority and of no other type: consumers that pop read the highest first."""
    priority = parse_int64(properties[PRIORITY])
    if priority is None or priority < 0 or SHARDING_KEY in properties or not _OTHER_TYPES.isdisjoint(properties):
        return admission
    return replace(admission, queue_id=min(priority, admission.topic.write_queue_nums - 1))


def _waits_for_store(message: SendRequest, sender: Sender) -> bool:
    return sender.waits and wants_to_wait(message.properties or "")


def _new_record(
    body: bytes, stored: StoredProperties, message: SendRequest, admission: Admission, sender: Sender
) -> NewRecord:
    topic = admission.topic
    return NewRecord(
        topic.topic_name,
        admission.queue_id,
        body,
        stored.text,
        stored.properties,
        message.flag,
        message.sys_flag | MULTI_TAGS if topic.topic_filter_type == _MULTI_TAG else message.sys_flag,
        message.born_at_ms,
        encode_host(*sender.address),
        message.reconsume_times or 0,
    )


def _hold_inner_batch(body: bytes, parts: list[PlainPart]) -> bool:
    return _INNER_NUM in body and any(INNER_NUM in parse_properties(text) for _, _, text in parts)


def illegal_remark(most_bytes: int) -> str:
    """Return what the sender of a message is told that no store can hold."""
    return (
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {most_bytes}B, msg properties length limit 32KB."
    )
