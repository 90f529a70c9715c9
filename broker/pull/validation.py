"""Whether a fetch is answered from its queue, and with which filter (``PullMessageProcessor``; behaviour.md B.4.1).

Order of the checks: the broker's permission, the group, the topic and its permission, the queue, and then
the subscription: the one in the request if it says so, else the one of the group's last heartbeat. What the filter of
a subscription is, ``filter_table.py`` knows.
"""

from typing import Any, Protocol

from ...common.names import PERM_READ
from ...common.subscription import Subscription
from ...remoting.bodies.route import TopicConfig
from ...remoting.codec.codes import ResponseCode
from ..group.filter_table import Filtered, FilterSelection
from ..group.filters import PullFilter
from ..group.groups import GroupTable
from ..group.members import Members
from ..settings.refusal import FAQ, OwnBroker, Refusal
from ..topic.topics import TopicTable

MASTER_ID = 0


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
