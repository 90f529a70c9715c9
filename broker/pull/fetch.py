"""Fetching messages of one queue (``PullMessageProcessor``; spec behaviour.md B.4).

A fetch that finds nothing new and may wait is held (``LongPolling``). When it is woken it is run again from the start
and answered whatever comes: it commits no offset then and never waits twice.

Order of the checks (B.4.1): the broker's permission, the group, the topic and its permission, the queue, and then the
subscription: the one in the request if it says so, else the one of the group's last heartbeat.
"""

from collections.abc import Callable
from sys import getsizeof
from typing import Any, Protocol, final

import msgspec

from ...common.names import PERM_READ
from ...common.outcome import Outcome
from ...common.subscription import Subscription
from ...remoting.bodies.route import TopicConfig
from ...remoting.codec.codes import ResponseCode
from ...store.consumequeue.queue_reader import AcceptsCode, AcceptsRecord, ReadLimits, ReadResult, ReadStatus
from ..group.filters import Filtered, FilterSelection, PullFilter
from ..group.groups import GroupTable
from ..group.members import Members
from ..group.offsets import OffsetTable
from ..settings.refusal import FAQ, OwnBroker, Refusal
from ..topic.topics import TopicTable
from .long_polling import HeldFetch, LongPolling

MOST_BYTES = 128 << 20
_SHORTEST_WAIT_MS = 1
_NOTHING_NEW = (ReadStatus.OFFSET_FOUND_NULL, ReadStatus.OFFSET_OVERFLOW_ONE)

Read = Callable[[str, int, int, ReadLimits, AcceptsCode | None, AcceptsRecord | None], ReadResult]
"""``MessageStore.read``, counted."""


class FetchRequest(Filtered, Protocol):
    """What a consumer wants next of a queue."""

    queue_id: int
    queue_offset: int
    max_messages: int
    max_bytes: int | None
    commit_offset: int
    suspend_ms: int

    @property
    def commits_offset(self) -> bool:
        """Whether ``commit_offset`` is to be committed."""
        ...

    @property
    def may_wait(self) -> bool:
        """Whether to wait, for ``suspend_ms``, when there is nothing new."""
        ...

    @property
    def brings_subscription(self) -> bool:
        """Whether its own subscription counts, and not that of the group's last heartbeat."""
        ...


class FetchValidator:
    """Admits fetches."""

    def __init__(
        self,
        own: OwnBroker,
        topics: TopicTable,
        groups: GroupTable,
        members: Members[Any],
        filters: FilterSelection,
    ) -> None:
        self._own = own
        self._is_readable = bool(own.config.permission & PERM_READ)
        self._topics = topics
        self._groups = groups
        self._members = members
        self._filters = filters
        self._sends_to_slaves = own.config.reads_slaves

    def validate(self, fetch: FetchRequest, consumer: tuple[str, int]) -> PullFilter | Refusal:
        """Return what the consumer wants of the queue, or why it gets nothing."""
        if not self._is_readable:
            return Refusal(ResponseCode.NO_PERMISSION, self._own.forbids("pulling message"))
        if (refusal := self._check_group(fetch.consumer_group)) is not None:
            return refusal
        if (refusal := self._check_queue(fetch, consumer)) is not None:
            return refusal
        if fetch.brings_subscription:
            return self._filters.own_filter(fetch)
        wanted = self._find_subscription(fetch)
        return wanted if isinstance(wanted, Refusal) else self._filters.group_filter(fetch, wanted)

    def suggest_broker(self, group: str, *, is_far_behind: bool) -> int:
        """Return the id of the broker that a group shall pull from next (B.4.5)."""
        settings = self._groups.get(group) if self._sends_to_slaves else None
        if settings is None:
            return MASTER_ID
        return settings.which_broker_when_consume_slowly if is_far_behind else settings.broker_id

    def _check_group(self, name: str) -> Refusal | None:
        group = self._groups.find(name)
        if group is None:
            remark = f"subscription group [{name}] does not exist, {FAQ}"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        return None

    def _check_queue(self, fetch: FetchRequest, consumer: tuple[str, int]) -> Refusal | None:
        topic = self._topics.get(fetch.topic)
        if topic is None:
            remark = f"topic[{fetch.topic}] not exist, apply first please! {FAQ}"
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{fetch.topic}] pulling message is forbidden")
        if not 0 <= fetch.queue_id < topic.read_queue_nums:
            return Refusal(ResponseCode.INVALID_PARAMETER, _queue_remark(fetch, topic, consumer))
        return None

    def _find_subscription(self, fetch: FetchRequest) -> Subscription | Refusal:
        group = self._members.consumer_group(fetch.consumer_group)
        if group is None:
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        settings = self._groups.get(fetch.consumer_group)
        if group.is_broadcasting and settings is not None and not settings.consume_broadcast_enable:
            remark = f"the consumer group[{group.name}] can not consume by broadcast way"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if self._groups.is_reading_forbidden(fetch.consumer_group, fetch.topic):
            remark = f"the consumer group[{group.name}] is forbidden for topic[{fetch.topic}]"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        subscription = group.subscriptions.get(fetch.topic)
        if subscription is None:
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.version < fetch.sub_version:
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription


def _queue_remark(fetch: FetchRequest, topic: TopicConfig, consumer: tuple[str, int]) -> str:
    host, port = consumer
    return (
        f"queueId[{fetch.queue_id}] is illegal, topic:[{fetch.topic}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{host}:{port}]"
    )


@final
class Fetched(msgspec.Struct, frozen=True):
    """What was found from an offset on, and the id of the broker to fetch from next."""

    result: ReadResult
    next_broker_id: int
    queue_offset: int

    @property
    def has_nothing_new(self) -> bool:
        """Whether it is worth waiting there; in a queue without messages it depends on what was asked for (B.4.4)."""
        status = self.result.status
        return status in _NOTHING_NEW or (status is ReadStatus.NO_MESSAGE_IN_QUEUE and self.queue_offset == 0)


class FetchOperation:
    """Hands out what consumers fetch."""

    def __init__(
        self,
        read: Read,
        validator: FetchValidator,
        offsets: OffsetTable,
        long_polling: LongPolling,
        *,
        short_polling_ms: int | None = None,
    ) -> None:
        self._read_store = read
        self._validator = validator
        self._offsets = offsets
        self._long_polling = long_polling
        self._short_polling_ms = short_polling_ms

    def fetch(self, fetch: FetchRequest, consumer: tuple[str, int]) -> Outcome[Fetched | Refusal]:
        """Return what there is, or wait for it."""
        wanted = self._validator.validate(fetch, consumer)
        if type(wanted) is Refusal:
            return Outcome(wanted, is_settled=True)
        if fetch.commits_offset and fetch.commit_offset >= 0:
            self._offsets.commit(fetch.consumer_group, fetch.topic, fetch.queue_id, fetch.commit_offset)
        fetched = self._read(fetch, wanted)
        if fetched.result.status is not ReadStatus.FOUND and fetch.may_wait and fetched.has_nothing_new:
            return self._hold(fetch, wanted, consumer)
        return Outcome(fetched, is_settled=True)

    def _hold(self, fetch: FetchRequest, wanted: PullFilter, consumer: tuple[str, int]) -> Outcome[Fetched | Refusal]:
        queues = {(fetch.topic, fetch.queue_id): fetch.queue_offset}
        held = HeldFetch(queues, wanted.accepts_arrival, lambda: self._run_again(fetch, consumer), consumer)
        delay_ms = fetch.suspend_ms if self._short_polling_ms is None else self._short_polling_ms
        outcome = self._long_polling.hold(held, max(delay_ms, _SHORTEST_WAIT_MS))
        outcome.extra_bytes = wanted.kept_bytes + _kept_bytes(fetch)
        return outcome

    def _run_again(self, fetch: FetchRequest, consumer: tuple[str, int]) -> Fetched | Refusal:
        wanted = self._validator.validate(fetch, consumer)
        return wanted if type(wanted) is Refusal else self._read(fetch, wanted)

    def _read(self, fetch: FetchRequest, wanted: PullFilter) -> Fetched:
        most_bytes = MOST_BYTES if fetch.max_bytes is None else fetch.max_bytes
        limits = ReadLimits(fetch.max_messages if fetch.max_messages > 0 else 1, most_bytes)
        accepts, accepts_record = wanted[:2]
        result = self._read_store(fetch.topic, fetch.queue_id, fetch.queue_offset, limits, accepts, accepts_record)
        broker_id = self._validator.suggest_broker(fetch.consumer_group, is_far_behind=result.is_far_behind)
        return Fetched(result, broker_id, fetch.queue_offset)


def _kept_bytes(fetch: FetchRequest) -> int:
    texts = (fetch.consumer_group, fetch.topic, fetch.subscription, fetch.expression_type)
    return sum(map(getsizeof, texts))


MASTER_ID = 0
