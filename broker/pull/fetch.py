"""Whether a consumer may have the messages of a queue, and what it gets (``PullMessageProcessor``; behaviour.md B.4).

Rules
    1. The checks, in their order (B.4.1): the broker's permission, the group, the topic and its permission, the queue,
       and then the subscription: the one in the request if it says so, else the one of the group's last heartbeat.
    2. Whose group an administrator has moved in the queue is sent there first, and commits nothing with it (D.3).
    3. A slave may lag: unless ``offsetCheckInSlave`` is set, a fetch outside of its queue is not sent elsewhere, but to
       be tried again, at the broker of the group.
    4. A fetch that finds nothing new and may wait is held (``LongPolling``). When it is woken it is run again from the
       start and answered whatever comes: it commits no offset then and never waits twice.
"""

from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import Any, NamedTuple, Protocol, final

import msgspec

from ...common.codes import ResponseCode
from ...common.message import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from ...common.metadata import SubscriptionGroupConfig, TopicConfig
from ...common.names import PERM_READ
from ...common.outcome import Outcome
from ...store.consumequeue.appended import Appended
from ...store.consumequeue.queue_reader import AcceptsCode, AcceptsRecord, ReadLimits, ReadResult, ReadStatus
from ..group.filters import TAKES_ALL, Filtered, FilterSelection, PullFilter
from ..group.groups import GroupTable, OffsetTable
from ..group.members import Members
from ..outcomes.queue_counts import QueueCounts, count_by_queue
from ..outcomes.scheduler import HeldFetch, LongPolling
from ..settings.live import LiveSettings
from ..settings.refusal import FAQ, Refusal
from ..topic.topics import TopicTable

MASTER_ID = 0
MOST_BYTES = 128 << 20
_SHORTEST_WAIT_MS = 1
_NOTHING_NEW = (ReadStatus.OFFSET_FOUND_NULL, ReadStatus.OFFSET_OVERFLOW_ONE)
_OUTSIDE = (ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_TOO_SMALL, ReadStatus.NO_MESSAGE_IN_QUEUE)


Read = Callable[[str, int, int, ReadLimits, AcceptsCode | None, AcceptsRecord | None], ReadResult]
ReadNewest = Callable[[Appended, AcceptsCode | None], ReadResult | None]


class Reads(NamedTuple):
    """``MessageStore.read`` and ``read_newest``."""

    at: Read
    newest: ReadNewest


class FetchRequest(Filtered, Protocol):
    """What a consumer wants next of a queue."""

    queue_id: int
    queue_offset: int
    max_messages: int
    max_bytes: int | None
    commit_offset: int
    suspend_ms: int


class FetchValidator:
    """Admits fetches."""

    def __init__(
        self,
        settings: LiveSettings,
        topics: TopicTable,
        groups: GroupTable,
        members: Members[Any],
        filters: FilterSelection,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._members = members
        self._filters = filters

    def suggest_broker(self, group: str, result: ReadResult) -> int:
        """Return the id of the broker that an admitted group shall pull from next, where slaves are read (B.4.5)."""
        settings = self._groups.get(group)
        assert settings is not None, "a fetch of an unknown group is not admitted"
        return settings.which_broker_when_consume_slowly if result.is_far_behind else settings.broker_id

    def validate(self, fetch: FetchRequest, consumer: tuple[str, int]) -> PullFilter | Refusal:
        """Return what the consumer wants of the queue, or why it gets nothing."""
        if not self._settings.config.permission & PERM_READ:
            return Refusal(ResponseCode.NO_PERMISSION, self._settings.forbids("pulling message"))
        settings = self._groups.get(fetch.consumer_group) or self._groups.find(fetch.consumer_group)
        if settings is None or not settings.consume_enable:
            return _refuse_group(fetch.consumer_group, settings)
        topic = self._topics.get(fetch.topic)
        if topic is None or not topic.perm & PERM_READ or not 0 <= fetch.queue_id < topic.read_queue_nums:
            return _refuse_queue(fetch, topic, consumer)
        if fetch.sys_flag & PULL_SUBSCRIPTION:
            return self._filters.own_filter(fetch)
        group = self._members.consumer_group(fetch.consumer_group)
        if group is None:
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        if not settings.consume_broadcast_enable and group.is_broadcasting:
            remark = f"the consumer group[{group.name}] can not consume by broadcast way"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if group.name in self._groups.forbidden and self._groups.is_reading_forbidden(group.name, fetch.topic):
            remark = f"the consumer group[{group.name}] is forbidden for topic[{fetch.topic}]"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        subscription = group.subscriptions.get(fetch.topic)
        if subscription is None:
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.version < fetch.sub_version:
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return TAKES_ALL if fetch.topic in group.unfiltered else self._filters.group_filter(fetch, subscription)


def _refuse_group(name: str, settings: SubscriptionGroupConfig | None) -> Refusal:
    if settings is None:
        remark = f"subscription group [{name}] does not exist, {FAQ}"
        return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")


def _refuse_queue(fetch: FetchRequest, topic: TopicConfig | None, consumer: tuple[str, int]) -> Refusal:
    if topic is None:
        remark = f"topic[{fetch.topic}] not exist, apply first please! {FAQ}"
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
    if not topic.perm & PERM_READ:
        return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{fetch.topic}] pulling message is forbidden")
    host, port = consumer
    remark = (
        f"queueId[{fetch.queue_id}] is illegal, topic:[{fetch.topic}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{host}:{port}]"
    )
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)


@final
class Fetched(msgspec.Struct, frozen=True):
    """What was found, the id of the broker to fetch from next, and whether it is worth waiting there.

    ``may_lag`` says that the offset is outside of the queue of a slave, and may be in that of the master.
    """

    result: ReadResult
    next_broker_id: int
    has_nothing_new: bool
    may_lag: bool = False


class ReadCounts:
    """What fetches have found since the start of the broker, by its clock; a fetch that is run again counts again."""

    MESSAGES, BYTES, FETCHES, MILLISECONDS = range(4)

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self.monotonic_ms = monotonic_ms
        self.found = 0
        self.missed = 0
        self.messages = 0
        self.queues: QueueCounts[tuple[str, str]] = count_by_queue(4)
        """By topic and group: messages, their bytes, the fetches that found some, and their milliseconds."""
        self.longest_ms = 0


class FetchOperation:
    """Hands out what consumers fetch."""

    def __init__(
        self,
        reads: Reads,
        validator: FetchValidator,
        offsets: OffsetTable,
        long_polling: LongPolling,
        counts: ReadCounts,
        settings: LiveSettings,
    ) -> None:
        self._read_store, self._read_newest = reads
        self._validator = validator
        self._offsets = offsets
        self._long_polling = long_polling
        self._counts = counts
        self._settings = settings

    def fetch(self, fetch: FetchRequest, consumer: tuple[str, int]) -> Outcome[Fetched | Refusal]:
        """Return what there is, or wait for it."""
        wanted = self._validator.validate(fetch, consumer)
        if type(wanted) is Refusal:
            return Outcome(wanted, is_settled=True)
        if fetch.sys_flag & PULL_COMMIT_OFFSET and fetch.commit_offset >= 0:
            self._offsets.commit(fetch.consumer_group, fetch.topic, fetch.queue_id, fetch.commit_offset)
        fetched = self._read(fetch, wanted)
        if not fetched.has_nothing_new or not fetch.sys_flag & PULL_SUSPEND:
            return Outcome(fetched, is_settled=True)
        queues = {(fetch.topic, fetch.queue_id): fetch.queue_offset}
        again, takes_newest = partial(self._run_again, fetch, consumer), wanted.accepts_record is None
        held = HeldFetch(queues, wanted.accepts_arrival, again, consumer, takes_newest)
        config = self._settings.config
        delay_ms = fetch.suspend_ms if config.is_long_polling_enabled else config.short_polling_ms
        outcome = self._long_polling.hold(held, max(delay_ms, _SHORTEST_WAIT_MS))
        texts = (fetch.consumer_group, fetch.topic, fetch.subscription, fetch.expression_type)
        outcome.extra_bytes = wanted.kept_bytes + sum(map(getsizeof, texts))
        return outcome

    def _run_again(self, fetch: FetchRequest, consumer: tuple[str, int], arrived: Appended | None) -> Fetched | Refusal:
        wanted = self._validator.validate(fetch, consumer)
        return wanted if type(wanted) is Refusal else self._read(fetch, wanted, arrived)

    def _read(self, fetch: FetchRequest, wanted: PullFilter, arrived: Appended | None = None) -> Fetched:
        if self._offsets.resets:
            reset_to = self._offsets.take_reset(fetch.consumer_group, fetch.topic, fetch.queue_id)
            if reset_to is not None:
                return self._send_elsewhere(fetch, reset_to)
        most_bytes = MOST_BYTES if fetch.max_bytes is None else fetch.max_bytes
        limits, (accepts, accepts_record) = ReadLimits(max(fetch.max_messages, 1), most_bytes), wanted[:2]
        counts = self._counts
        began_at_ms, result = counts.monotonic_ms(), None
        if arrived is not None and arrived.queue_offset == fetch.queue_offset and accepts_record is None:
            result = self._read_newest(arrived, accepts)
        if result is None:
            result = self._read_store(fetch.topic, fetch.queue_id, fetch.queue_offset, limits, accepts, accepts_record)
        status = result.status
        took_ms = counts.monotonic_ms() - began_at_ms
        if took_ms > counts.longest_ms:
            counts.longest_ms = took_ms
        if result.message_count:
            counts.found += 1
            counts.messages += result.message_count
            topic, group = fetch.topic, fetch.consumer_group
            row = counts.queues[topic, group][fetch.queue_id]
            row[0] += result.message_count
            row[1] += result.size
            row[2] += 1
            row[3] += took_ms
            self._offsets.note_handed_out(group, topic, fetch.queue_id, result.next_offset)
        else:
            counts.missed += 1
        # In a queue without messages it depends on what was asked for (B.4.4).
        is_at_end = status in _NOTHING_NEW or (status is ReadStatus.NO_MESSAGE_IN_QUEUE and fetch.queue_offset == 0)
        may_lag = False
        if not result.message_count and not is_at_end and status in _OUTSIDE:
            may_lag = self._settings.config.replication.may_lag
            if may_lag:
                result.next_offset = fetch.queue_offset
        is_elsewhere = self._settings.config.reads_slaves
        broker_id = self._validator.suggest_broker(fetch.consumer_group, result) if is_elsewhere else MASTER_ID
        return Fetched(result, broker_id, is_at_end, may_lag)

    def _send_elsewhere(self, fetch: FetchRequest, queue_offset: int) -> Fetched:
        ends = self._read_store(fetch.topic, fetch.queue_id, queue_offset, ReadLimits(1, 0), None, None)
        result = ReadResult(ReadStatus.OFFSET_RESET, queue_offset, ends.min_offset, ends.max_offset, [])
        return Fetched(result, MASTER_ID, has_nothing_new=False)
