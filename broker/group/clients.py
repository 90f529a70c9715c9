"""Client life: HEART_BEAT(34), UNREGISTER_CLIENT(35), GET_CONSUMER_LIST_BY_GROUP(38).

Rules (``ClientManageProcessor``, ``ConsumerManageProcessor``; spec behaviour.md B.10)
    1. A heartbeat creates its groups and their retry topics; it is answered when new topics are known.
    2. When a group changes, all its members are told (40), unless the broker or the group does not want that or the
       group is broadcasting.
    3. A connection that ends leaves its groups at once; one that sends no heartbeat for too long is closed.
    4. The answer to a heartbeat says whether the next one shall carry the subscriptions. A client that does not use
       fingerprints (version 2) is told so each time, and sends them in any case.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...common.errors import DecodeError
from ...common.outcome import Outcome
from ...remoting.bodies.body import decode_body, encode_body
from ...remoting.bodies.client import ConsumerData, ConsumerList, HeartbeatData
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.headers.client import ConsumerGroupHeader, HeartbeatReply, UnregisterClientHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.endpoint import Reply
from ..outcomes.scheduler import MakeKnown
from .membernews import MemberNews
from .members import CLUSTERING, Client, ConsumerSpec, Members, Presence

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
        news: MemberNews,
        open_group: OpenGroup,
        make_known: MakeKnown,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._members = members
        self._news = news
        self._open_group = open_group
        self._make_known = make_known
        self._monotonic_ms = monotonic_ms
        self._watched: set[Connection] = set()

    def heartbeat(self, command: Command, connection: Connection) -> Reply:
        """Take in what a client says about itself."""
        data = decode_body(HeartbeatData, command.body)
        _check_counts(data)
        client = Client(data.client_id, command.language, command.version)
        self._watch(connection)
        reply = Command.response(ResponseCode.SUCCESS, None, self._reply_header(data))  # before it is taken in
        created: list[str] = []
        for consumer in data.consumer_data_set:
            created += self._join_consumer(consumer, data, client, connection)
        for producer in data.producer_data_set:
            self._members.join_producer(producer.group_name, client, connection, self._monotonic_ms())
        if not created:
            return reply
        joined = Outcome(reply)
        self._make_known(created, joined.settle)
        return joined

    def unregister(self, command: Command, connection: Connection) -> Command:
        """Let a client leave a group of consumers, of producers, or both."""
        header = decode_header(UnregisterClientHeader, command)
        if header.producer_group:
            self._members.leave_producer(header.producer_group, connection)
        if header.consumer_group:
            group = self._members.leave_consumer(header.consumer_group, connection)
            if group is not None:
                self._news.tell(group)
        return Command.response(ResponseCode.SUCCESS)

    def list_consumers(self, command: Command, _connection: Connection) -> Command:
        """Tell the client id of every member of a group."""
        name = decode_header(ConsumerGroupHeader, command).consumer_group
        client_ids = self._members.client_ids(name)
        if not client_ids:
            return Command.response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = encode_body(ConsumerList(consumer_id_list=client_ids))
        return Command.response(ResponseCode.SUCCESS, None, None, body)

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
        spec = _spec(consumer, data.heartbeat_fingerprint)
        if data.without_sub:
            is_changed = self._members.refresh_consumer(spec, client, connection, self._monotonic_ms())
        else:
            is_changed = self._members.join_consumer(spec, client, connection, self._monotonic_ms())
            self._news.subscribed(spec.group, spec.subscriptions)
        group = self._members.consumer_group(spec.group)
        if is_changed and group is not None:
            self._news.tell(group)
        return created

    def _watch(self, connection: Connection) -> None:
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(self._lose)

    def _lose(self, connection: Connection) -> None:
        self._watched.discard(connection)
        for group in self._members.leave_all(connection):
            self._news.tell(group)


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
