"""What brokers, and administrators about brokers, ask of a name server (behaviour.md A.3, A.4, A.7)."""

import logging

from ..common.clock import Clock
from ..common.codes import ResponseCode
from ..common.errors import DecodeError
from ..common.metadata import DataVersion, TopicConfig, TopicConfigTable
from ..common.properties import crc31
from ..remoting.bodies.body import decode_body, decode_body_if_any, encode_body
from ..remoting.bodies.route import KVTable, decode_registration
from ..remoting.codec.command import Command, decode_header
from ..remoting.codec.request_codes import RequestCode
from ..remoting.headers.namesrv import (
    AddWriteReply,
    BrokerHeader,
    BrokerHeartbeatHeader,
    BrokerNameHeader,
    DataVersionReply,
    RegisterBrokerHeader,
    RegisterBrokerReply,
    UnregisterBrokerHeader,
    WipeWriteReply,
)
from ..remoting.transport.connection import Connection
from ..remoting.transport.connections import WatchedConnections
from ..remoting.transport.server import answers
from .config import LiveSettings
from .routes import BrokerRegistration, Identity, NameServerRoutes, QueueShape

EXPIRY_MS = 120_000
_MOST_RIVALS = 1_000
V3_0_11 = 37
"""The first release whose registration is more than its topics."""
_log = logging.getLogger(__name__)


class BrokerHandlers:
    """Registrations, signs of life, and the write permission of brokers."""

    def __init__(self, routes: NameServerRoutes, settings: LiveSettings, clock: Clock) -> None:
        self._routes = routes
        self._settings = settings
        self._clock = clock
        self._links = WatchedConnections(routes.drop_link)
        self._rivals: set[frozenset[str]] = set()

    @answers(RequestCode.REGISTER_BROKER)
    def register(self, command: Command, connection: Connection) -> Command:
        """Take a broker's word about itself."""
        header = decode_header(RegisterBrokerHeader, command)
        if header.body_crc32 and crc31(command.body) != header.body_crc32:
            return Command.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        registration = _read_registration(header, command, connection)
        self._look_for_rival(registration.identity)
        deletes_absent = self._settings.config.deletes_absent_topics
        outcome = self._routes.register(
            registration, connection, self._clock.monotonic_ms(), deletes_absent=deletes_absent
        )
        if not outcome.is_accepted:
            return Command.response(ResponseCode.SYSTEM_ERROR, "register broker failed")
        self._links.add(connection)
        reply = RegisterBrokerReply(outcome.master_ha_address, outcome.master_address)
        return Command.response(ResponseCode.SUCCESS, ext=reply, body=self._order_body())

    @answers(RequestCode.UNREGISTER_BROKER)
    def unregister(self, command: Command, _connection: Connection) -> Command:
        """Forget a broker that stops."""
        header = decode_header(UnregisterBrokerHeader, command)
        self._routes.unregister(Identity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr))
        return Command.response(ResponseCode.SUCCESS)

    @answers(RequestCode.QUERY_DATA_VERSION)
    def compare_version(self, command: Command, _connection: Connection) -> Command:
        """Tell a broker whether its topics are the ones it registered last."""
        header = decode_header(BrokerHeader, command)
        known = self._routes.version_of(header.cluster_name, header.broker_addr)
        self._routes.refresh(header.cluster_name, header.broker_addr, self._clock.monotonic_ms())
        asked = decode_body_if_any(DataVersion, command.body)
        is_changed = known is None or known != asked
        body = b"" if known is None else encode_body(known)
        return Command.response(ResponseCode.SUCCESS, ext=DataVersionReply(changed=is_changed), body=body)

    @answers(RequestCode.BROKER_HEARTBEAT)
    def hear(self, command: Command, _connection: Connection) -> Command:
        """Note that a broker is alive."""
        header = decode_header(BrokerHeartbeatHeader, command)
        self._routes.refresh(header.cluster_name, header.broker_addr, self._clock.monotonic_ms())
        return Command.response(ResponseCode.SUCCESS)

    @answers(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
    def wipe_write(self, command: Command, _connection: Connection) -> Command:
        """Take a broker's topics out of what producers see."""
        count = self._routes.set_writable(decode_header(BrokerNameHeader, command).broker_name, is_writable=False)
        return Command.response(ResponseCode.SUCCESS, ext=WipeWriteReply(wipe_topic_count=count))

    @answers(RequestCode.ADD_WRITE_PERM_OF_BROKER)
    def add_write(self, command: Command, _connection: Connection) -> Command:
        """Put a broker's topics back into what producers see."""
        count = self._routes.set_writable(decode_header(BrokerNameHeader, command).broker_name, is_writable=True)
        return Command.response(ResponseCode.SUCCESS, ext=AddWriteReply(add_topic_count=count))

    def _look_for_rival(self, who: Identity) -> None:
        """Say, once for each two, that brokers that are both alive register as one."""
        rival = self._routes.rival_of(who)
        if (
            rival is None
            or len(self._rivals) >= _MOST_RIVALS
            or (both := frozenset({rival, who.address})) in self._rivals
        ):
            return
        self._rivals.add(both)
        text = "brokers at %s and %s both register as %s with id %d: clients are sent to the one that was heard of last"
        _log.warning(text, rival, who.address, who.broker_name, who.broker_id)

    def _order_body(self) -> bytes:
        """Return the order configuration; an empty one clears the flags of topics, none leaves them."""
        table = self._settings.order_for_brokers()
        return b"" if table is None else encode_body(KVTable(table=dict(table)))


def _read_topics(command: Command) -> tuple[DataVersion, dict[str, QueueShape]]:
    if not command.body:  # upstream takes it for no topics
        return DataVersion(), {}
    if command.version < V3_0_11:
        table = decode_body(TopicConfigTable, command.body)
        return table.data_version, {name: _shape(topic) for name, topic in table.topic_config_table.items()}
    try:
        return decode_registration(command.body, _shape)
    except DecodeError as error:
        raise DecodeError(f"Failed to decode RegisterBrokerBody: {error}") from error


def _read_registration(header: RegisterBrokerHeader, command: Command, connection: Connection) -> BrokerRegistration:
    version, topics = _read_topics(command)
    is_local = connection.remote_address[0] == connection.local_address[0]
    return BrokerRegistration(
        Identity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr),
        header.ha_server_addr,
        version,
        topics,
        header.heartbeat_timeout_ms or EXPIRY_MS,
        follows_clients=is_local and header.follows_clients is True and header.broker_addr.rpartition(":")[2].isdigit(),
        zone=header.zone_name,
        acts_as_master=header.enable_acting_master,
    )


def _shape(topic: TopicConfig) -> QueueShape:
    return QueueShape(topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
