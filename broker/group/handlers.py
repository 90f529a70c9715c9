"""The adapter of the wire for the clients of groups: their lives, their queue locks, and how far they have come.

34, 35, 38, 46   HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, CHECK_CLIENT_CONFIG
40               NOTIFY_CONSUMER_IDS_CHANGED, to the members of a group, so that they share queues anew
41, 42           LOCK_BATCH_MQ, UNLOCK_BATCH_MQ of ordered consumers (``AdminBrokerProcessor``; behaviour.md B.8)
14, 15, 29 to 32 offsets of queues and of groups (``ConsumerManageProcessor``; B.7)

Rules (``ClientManageProcessor``, ``DefaultConsumerIdsChangeListener``; B.10)
    1. A heartbeat creates its groups and their retry topics; it is answered when new topics are known.
    2. When a group changes, all its members are told, unless the broker or the group does not want that or the group is
       broadcasting. The table of filters is told what a heartbeat subscribes to, and that a group has no members left.
    3. A connection that ends leaves its groups at once; one that sends no heartbeat for too long is closed.
    4. The answer to a heartbeat says whether the next one shall carry the subscriptions. A client that does not use
       fingerprints (version 2) is told so each time, and sends them in any case.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from ...common.codes import ResponseCode
from ...common.errors import DecodeError
from ...common.subscriptions.subscription import Subscription
from ...remoting.bodies.body import decode_body, decode_body_if_any, encode_body
from ...remoting.bodies.client import (
    CheckClientBody,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    LockedQueues,
    decode_lock_body,
)
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.frames import encode_oneway
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.client import ConsumerGroupHeader, HeartbeatReply, UnregisterClientHeader
from ...remoting.headers.offset import (
    CommitOffsetHeader,
    ConsumerOffsetHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
    StoreTimeReply,
)
from ...remoting.transport.connection import Connection, Reply
from ...remoting.transport.connections import WatchedConnections
from ...remoting.transport.server import answers
from ...store.message_store import MessageStore
from ..outcomes.scheduler import Scheduler
from ..settings.live import LiveSettings
from ..topic.topics import TopicTable
from .filters import FilterSelection, FilterTable
from .groups import MAX_QUEUES, GroupTable, OffsetTable
from .members import CLUSTERING, Client, ConsumerGroup, ConsumerSpec, Members, Presence, RegisterCounts
from .queue_locks import QueueLocks


class MemberNotifier:
    """Tells members and the table of filters what has become of a group (B.10).

    Members are told nothing if the broker or the group does not want it, or if the group is broadcasting.
    """

    def __init__(self, groups: GroupTable, filters: FilterTable, settings: LiveSettings) -> None:
        self._groups = groups
        self._filters = filters
        self._settings = settings

    def tell(self, group: ConsumerGroup[Connection]) -> None:
        """Tell that a group has changed: every member, one-way, and when none is left the table of filters."""
        if not group.members:
            self._filters.unregister(group.name)
        settings = self._groups.get(group.name)
        is_wanted = settings is None or settings.notify_consumer_ids_changed_enable
        if self._settings.config.notifies_members and is_wanted and not group.is_broadcasting:
            header = ConsumerGroupHeader(consumer_group=group.name)
            notice = encode_oneway(Command.request(Code.NOTIFY_CONSUMER_IDS_CHANGED, header))
            for connection in group.members:
                connection.push(notice)

    def subscribed(self, group: str, subscriptions: Mapping[str, Subscription]) -> None:
        """Tell what a heartbeat subscribes its group to."""
        self._filters.register(group, subscriptions.values())


MAX_HEARTBEAT_SUBSCRIPTIONS: Final = 16_384
MAX_HEARTBEAT_TAGS: Final = 65_536
"""Of all groups of one client together: they are kept as long as it is connected."""
OpenGroup = Callable[[ConsumerData], Sequence[str] | None]
"""Finds or creates a group with its retry topic; returns the topics that changed, None for a group that may not be."""


class ClientHandlers:
    """Knows who is connected."""

    def __init__(
        self,
        members: Members[Connection],
        notifier: MemberNotifier,
        open_group: OpenGroup,
        scheduler: Scheduler,
        monotonic_ms: Callable[[], int],
        registers: RegisterCounts,
    ) -> None:
        self._registers = registers
        self._members = members
        self._notifier = notifier
        self._open_group = open_group
        self._scheduler = scheduler
        self._monotonic_ms = monotonic_ms
        self._links = WatchedConnections(self._lose)

    @answers(Code.HEART_BEAT)
    def heartbeat(self, command: Command, connection: Connection) -> Reply:
        """Take in what a client says about itself."""
        data = decode_body(HeartbeatData, command.body)
        _check_counts(data)
        client = Client(data.client_id, command.language, command.version)
        self._links.add(connection)
        reply = Command.response(ResponseCode.SUCCESS, ext=self._reply_header(data))  # before it is taken in
        created: list[str] = []
        for consumer in data.consumer_data_set:
            created += self._join_consumer(consumer, data, client, connection)
        for producer in data.producer_data_set:
            now_ms = self._monotonic_ms()
            self._members.join_producer(producer.group_name, client, connection, now_ms)
            self._registers.note(RegisterCounts.PRODUCER, self._monotonic_ms() - now_ms)
        return self._scheduler.when_known(reply, created) if created else reply

    @answers(Code.UNREGISTER_CLIENT)
    def unregister(self, command: Command, connection: Connection) -> Command:
        """Let a client leave a group of consumers, of producers, or both."""
        header = decode_header(UnregisterClientHeader, command)
        if header.producer_group:
            self._members.leave_producer(header.producer_group, connection)
        if header.consumer_group:
            group = self._members.leave_consumer(header.consumer_group, connection)
            if group is not None:
                self._notifier.tell(group)
        return Command.response(ResponseCode.SUCCESS)

    @answers(Code.GET_CONSUMER_LIST_BY_GROUP)
    def list_consumers(self, command: Command, _connection: Connection) -> Command:
        """Tell the client id of every member of a group."""
        name = decode_header(ConsumerGroupHeader, command).consumer_group
        client_ids = self._members.client_ids(name)
        if not client_ids:
            return Command.response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = encode_body(ConsumerList(consumer_id_list=client_ids))
        return Command.response(ResponseCode.SUCCESS, body=body)

    def connected(self) -> Mapping[Connection, Presence]:
        """Return who is connected, with the groups of each connection."""
        return self._members.presences()

    def close_silent(self, expiry_ms: int) -> None:
        """Close the connections that have sent no heartbeat for so long."""
        for connection in self._members.silent_links(self._monotonic_ms(), expiry_ms):
            connection.close()

    def _reply_header(self, data: HeartbeatData) -> HeartbeatReply:
        is_changed = data.heartbeat_fingerprint == 0 or any(
            self._members.wants_subscriptions(
                consumer.group_name, data.heartbeat_fingerprint, is_short=data.without_sub
            )
            for consumer in data.consumer_data_set
        )
        return HeartbeatReply(supports_version_2=True, subscription_changed=is_changed)

    def _join_consumer(
        self, consumer: ConsumerData, data: HeartbeatData, client: Client, connection: Connection
    ) -> Sequence[str]:
        """Return the topics that were created or changed."""
        created = self._open_group(consumer)
        if created is None:
            return ()
        spec, now_ms = _spec(consumer, data.heartbeat_fingerprint), self._monotonic_ms()
        if data.without_sub:
            is_changed = self._members.refresh_consumer(spec, client, connection, now_ms)
        else:
            is_changed = self._members.join_consumer(spec, client, connection, now_ms)
            self._notifier.subscribed(spec.group, spec.subscriptions)
        group = self._members.consumer_group(spec.group)
        assert group is not None, "it has a member now"
        if is_changed:
            self._notifier.tell(group)
        self._registers.note(RegisterCounts.CONSUMER, self._monotonic_ms() - now_ms)
        return created

    def _lose(self, connection: Connection) -> None:
        for group in self._members.leave_all(connection):
            self._notifier.tell(group)


def _check_counts(data: HeartbeatData) -> None:
    wanted = [subscription for consumer in data.consumer_data_set for subscription in consumer.subscription_data_set]
    tags = sum(max(len(one.tags_set), len(one.code_set)) for one in wanted)
    for what, count, limit in (
        ("subscriptions", len(wanted), MAX_HEARTBEAT_SUBSCRIPTIONS),
        ("tags", tags, MAX_HEARTBEAT_TAGS),
    ):
        if count > limit:
            raise DecodeError(f"the heartbeat of {data.client_id} has {count} {what}, limit is {limit}")


def _spec(consumer: ConsumerData, fingerprint: int) -> ConsumerSpec:
    return ConsumerSpec(
        consumer.group_name,
        consumer.consume_type or "",
        consumer.message_model or CLUSTERING,
        consumer.consume_from_where or "",
        {data.topic: data.to_subscription() for data in consumer.subscription_data_set},
        fingerprint,
    )


class SubscriptionHandlers:
    """Answers from the filters."""

    def __init__(self, filters: FilterSelection) -> None:
        self._filters = filters

    @answers(Code.CHECK_CLIENT_CONFIG)
    def check_client(self, command: Command, _connection: Connection) -> Command:
        """Tell whether the subscription of a client that starts can be served."""
        asked = decode_body_if_any(CheckClientBody, command.body)
        wanted = asked.subscription_data if asked else None
        refusal = self._filters.check(wanted.expression_type, wanted.sub_string) if wanted else None
        if refusal is not None:
            return Command.response(refusal.code, refusal.remark)
        return Command.response(ResponseCode.SUCCESS)


class LockHandlers:
    """Answers from the lock table."""

    def __init__(self, locks: QueueLocks, monotonic_ms: Callable[[], int]) -> None:
        self._locks = locks
        self._monotonic_ms = monotonic_ms

    @answers(Code.LOCK_BATCH_MQ)
    def lock(self, command: Command, _connection: Connection) -> Command:
        """Give a client what is free of the queues that it wants; tell what it holds now."""
        wish = decode_lock_body(command.body)
        held = self._locks.take(wish.consumer_group, wish.client_id, wish.mq_set, self._monotonic_ms())
        return Command.response(ResponseCode.SUCCESS, body=encode_body(LockedQueues(queues=held)))

    @answers(Code.UNLOCK_BATCH_MQ)
    def unlock(self, command: Command, _connection: Connection) -> Command:
        """Take back what a client gives up."""
        wish = decode_lock_body(command.body)
        self._locks.give_back(wish.consumer_group, wish.client_id, wish.mq_set)
        return Command.response(ResponseCode.SUCCESS)


NOT_FOUND_REMARK = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"  # Java's words
NOT_ZERO_REMARK = "Not found, do not set to zero, maybe this group boot first"


class ProgressHandlers:
    """Answers from the offset table and the store's queues."""

    def __init__(
        self,
        store: MessageStore,
        offsets: OffsetTable,
        topics: TopicTable,
        groups: GroupTable,
        members: Members[Connection],
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._members = members

    @answers(Code.QUERY_CONSUMER_OFFSET)
    def find_committed(self, command: Command, _connection: Connection) -> Command:
        """Tell how far a group has come.

        A new group begins at 0 while the first message of the queue is still in memory (behaviour.md B.7, rule 2), and
        where that came, or is yet to come, after a member of the group. Java's broker answers 22 for a queue without
        messages: its consumers then ask where the queue ends, and skip a message that has come in between.
        """
        header = decode_header(ConsumerOffsetHeader, command)
        committed = self._offsets.committed(header.consumer_group, header.topic, header.queue_id)
        if committed is None:
            if header.set_zero_if_not_found is False:
                return Command.response(ResponseCode.QUERY_NOT_FOUND, NOT_ZERO_REMARK)
            if not (self._is_young(header) or self._came_before_messages(header)):
                return Command.response(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND_REMARK)
        return _offset_answer(committed or 0)

    @answers(Code.UPDATE_CONSUMER_OFFSET)
    def commit(self, command: Command, _connection: Connection) -> Command:
        """Store how far a group has come; a negative offset, which some clients send, is passed over."""
        header = decode_header(CommitOffsetHeader, command)
        if self._groups.get(header.consumer_group) is None:
            remark = f"Group {header.consumer_group} not exist!"
            return Command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if self._topics.get(header.topic) is None:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if header.queue_id is None:
            return Command.response(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {header.topic}")
        if header.commit_offset is None:
            return Command.response(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {header.topic}")
        if not self._offsets.takes(header.consumer_group, header.topic, header.queue_id):
            remark = f"{header.consumer_group} has offsets of {MAX_QUEUES} queues of {header.topic}, which is the limit"
            return Command.response(ResponseCode.INVALID_PARAMETER, remark)
        if self._offsets.is_reset(header.consumer_group, header.topic, header.queue_id):
            return Command.response(ResponseCode.SUCCESS, "Offset has been previously reset")
        if header.commit_offset >= 0:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return Command.response(ResponseCode.SUCCESS)

    @answers(Code.SEARCH_OFFSET_BY_TIMESTAMP)
    def find_by_time(self, command: Command, _connection: Connection) -> Command:
        """Tell which offset of a queue belongs to a time."""
        header = decode_header(SearchOffsetHeader, command)
        is_upper = (header.boundary_type or "").upper() == "UPPER"
        boundary: Literal["LOWER", "UPPER"] = "UPPER" if is_upper else "LOWER"
        return _offset_answer(self._store.offset_by_time(header.topic, header.queue_id, header.at_ms, boundary))

    @answers(Code.GET_MAX_OFFSET)
    def find_max(self, command: Command, _connection: Connection) -> Command:
        """Tell the offset that the next message of a queue will have."""
        header = decode_header(MaxOffsetHeader, command)
        return _offset_answer(self._store.max_offset(header.topic, header.queue_id))

    @answers(Code.GET_MIN_OFFSET)
    def find_min(self, command: Command, _connection: Connection) -> Command:
        """Tell the first offset of a queue."""
        header = decode_header(QueueHeader, command)
        return _offset_answer(self._store.min_offset(header.topic, header.queue_id))

    @answers(Code.GET_EARLIEST_MSG_STORETIME)
    def find_first_time(self, command: Command, _connection: Connection) -> Command:
        """Tell when the first message of a queue was stored."""
        header = decode_header(QueueHeader, command)
        stored_at_ms = self._store.earliest_stored_at(header.topic, header.queue_id)
        return Command.response(ResponseCode.SUCCESS, ext=StoreTimeReply(stored_at_ms=stored_at_ms))

    def _is_young(self, header: ConsumerOffsetHeader) -> bool:
        topic, queue_id = header.topic, header.queue_id
        return self._store.min_offset(topic, queue_id) <= 0 and self._store.is_in_memory(topic, queue_id, 0)

    def _came_before_messages(self, header: ConsumerOffsetHeader) -> bool:
        queue_id, group = header.queue_id, self._members.consumer_group(header.consumer_group)
        topic = self._topics.get(header.topic)
        if group is None or topic is None or not 0 <= queue_id < topic.read_queue_nums:
            return False
        return self._store.min_offset(header.topic, queue_id) <= 0 and self._is_younger(header, group.came_at)

    def _is_younger(self, header: ConsumerOffsetHeader, log_offset: int) -> bool:
        """Tell whether a queue has no message that was stored before a position of the log."""
        topic, queue_id = header.topic, header.queue_id
        if not self._store.max_offset(topic, queue_id):
            return True
        first = self._store.entries(topic, queue_id, 0, 1)
        return bool(first) and first[0][0] >= log_offset


def _offset_answer(queue_offset: int) -> Command:
    return Command.response(ResponseCode.SUCCESS, ext=OffsetReply(queue_offset=queue_offset))
