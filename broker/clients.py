"""Client life: HEART_BEAT(34), UNREGISTER_CLIENT(35), GET_CONSUMER_LIST_BY_GROUP(38), CHECK_CLIENT_CONFIG(46).

Rules (``ClientManageProcessor``, ``ConsumerManageProcessor``; spec behaviour.md B.10)
    1. A heartbeat creates its groups and their retry topics; it is answered when new topics are known.
    2. When a group changes, all its members are told (40), unless the broker or the group does not want that or the
       group is broadcasting.
    3. A connection that ends leaves its groups at once; one that sends no heartbeat for too long is closed.

The answer to a heartbeat leaves out what would allow heartbeats without subscriptions, which is legal: clients then
send full ones.
"""

from collections.abc import Callable, Mapping, Sequence

from ..common.subscription import TAG_TYPE
from ..remoting.bodies import decode_body, encode_body
from ..remoting.bodies_client import CheckClientBody, ConsumerData, ConsumerList, HeartbeatData
from ..remoting.codes import ResponseCode
from ..remoting.command import Command, decode_header
from ..remoting.connection import Connection
from ..remoting.headers_client import ConsumerGroupHeader, UnregisterClientHeader
from ..remoting.later import Later
from ..remoting.service import Reply
from .announcing import Announce
from .membernews import MemberNews
from .members import CLUSTERING, Client, ConsumerSpec, Members, Presence
from .pullgate import unsupported_filter

OpenGroup = Callable[[str], Sequence[str] | None]
"""Finds or creates a group with its retry topic; returns the topics that are new, None for a group that may not be."""


class ClientHandlers:
    """Knows who is connected."""

    def __init__(
        self,
        members: Members[Connection],
        news: MemberNews,
        open_group: OpenGroup,
        announce: Announce,
        now_ms: Callable[[], int],
    ) -> None:
        self._members = members
        self._news = news
        self._open_group = open_group
        self._announce = announce
        self._now_ms = now_ms
        self._watched: set[Connection] = set()

    def heartbeat(self, command: Command, connection: Connection) -> Reply:
        """Take in what a client says about itself."""
        data = decode_body(HeartbeatData, command.body)
        client = Client(data.client_id, command.language, command.version)
        self._watch(connection)
        created: list[str] = []
        for consumer in data.consumer_data_set:
            created += self._join_consumer(consumer, client, connection, is_short=data.without_sub)
        for producer in data.producer_data_set:
            self._members.join_producer(producer.group_name, client, connection, self._now_ms())
        reply = Command.response(ResponseCode.SUCCESS)
        if not created:
            return reply
        later = Later(command)
        self._announce(created, later, reply)
        return later

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

    def check_client(self, command: Command, _connection: Connection) -> Command:
        """Tell a client that starts whether its subscription can be served."""
        subscription = decode_body(CheckClientBody, command.body).subscription_data
        if subscription.expression_type in ("", TAG_TYPE):
            return Command.response(ResponseCode.SUCCESS)
        return Command.response(*unsupported_filter(subscription.expression_type))

    def connected(self) -> Mapping[Connection, Presence]:
        """Return who is connected, with the groups of each connection."""
        return self._members.presences()

    def close_silent(self, expiry_ms: int) -> None:
        """Close the connections that have sent no heartbeat for so long."""
        for connection in self._members.silent_links(self._now_ms(), expiry_ms):
            connection.close()

    def _join_consumer(
        self, consumer: ConsumerData, client: Client, connection: Connection, *, is_short: bool
    ) -> Sequence[str]:
        """Return the topics that were created."""
        name = consumer.group_name
        created = self._open_group(name)
        if created is None:
            return ()
        if is_short:
            is_changed = self._members.refresh_consumer(name, client, connection, self._now_ms())
        else:
            is_changed = self._members.join_consumer(_spec(consumer), client, connection, self._now_ms())
        group = self._members.consumer_group(name)
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


def _spec(consumer: ConsumerData) -> ConsumerSpec:
    return ConsumerSpec(
        consumer.group_name,
        consumer.consume_type or "",
        consumer.message_model or CLUSTERING,
        consumer.consume_from_where or "",
        {data.topic: data.to_subscription() for data in consumer.subscription_data_set},
    )
