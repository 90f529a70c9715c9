"""Headers of what a name server answers (``spec/remoting.md`` §4.2).

    103  REGISTER_BROKER              RegisterBrokerHeader    RegisterBrokerReply
    104  UNREGISTER_BROKER            UnregisterBrokerHeader  -
    105  GET_ROUTEINFO_BY_TOPIC       RouteHeader             -
    216  DELETE_TOPIC_IN_NAMESRV      DeleteTopicHeader       -
    217  REGISTER_TOPIC_IN_NAMESRV    RegisterTopicHeader     -
    322  QUERY_DATA_VERSION           BrokerHeader            DataVersionReply
    901  GET_BROKER_MEMBER_GROUP      BrokerGroupHeader       -
    904  BROKER_HEARTBEAT             BrokerHeartbeatHeader   -

what it tells brokers:

    905  NOTIFY_MIN_BROKER_ID_CHANGE  FirstBrokerHeader       -

and to administrators:

    100  PUT_KV_CONFIG                PutKvHeader             -
    101  GET_KV_CONFIG                KvHeader                KvReply
    102  DELETE_KV_CONFIG             KvHeader                -
    219  GET_KVLIST_BY_NAMESPACE      NamespaceHeader         -
    224  GET_TOPICS_BY_CLUSTER        ClusterHeader           -
    205  WIPE_WRITE_PERM_OF_BROKER    BrokerNameHeader        WipeWriteReply
    327  ADD_WRITE_PERM_OF_BROKER     BrokerNameHeader        AddWriteReply

Wire names are Java's, attributes ours.
"""

import msgspec

from ...common.java_json import Int32, Int64
from ..codec.command import NULL


class RegisterBrokerHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Who registers, and how to read the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_ms: Int64 | None = msgspec.field(name="heartbeatTimeoutMillis", default=None)
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)
    follows_clients: bool | None = msgspec.field(name="rocketletFollowsClients", default=None)
    """Ours only: a client on any host may reach the broker at the host under which it reached the name server."""


class RegisterBrokerReply(msgspec.Struct, rename="camel"):
    """What a slave is told about its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which broker ends; its id is that of its address."""

    broker_name: str = NULL
    broker_addr: str = NULL
    cluster_name: str = NULL
    broker_id: Int64 = 0


class BrokerHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which broker asks about its data version."""

    broker_name: str = NULL
    broker_addr: str
    cluster_name: str
    broker_id: Int64 = 0


class DataVersionReply(msgspec.Struct, rename="camel"):
    """Whether the broker shall register anew."""

    changed: bool


class BrokerHeartbeatHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which broker is alive."""

    cluster_name: str
    broker_addr: str
    broker_name: str = NULL
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_ms: Int64 | None = msgspec.field(name="heartbeatTimeoutMills", default=None)  # Java's spelling
    election_priority: Int32 | None = None


class FirstBrokerHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which broker of a group has the least number by now, who has gone, and where a new one gives its log."""

    first_id: Int64 | None = msgspec.field(name="minBrokerId", default=None)
    first_address: str | None = msgspec.field(name="minBrokerAddr", default=None)
    offline_address: str | None = msgspec.field(name="offlineBrokerAddr", default=None)
    ha_address: str | None = msgspec.field(name="haBrokerAddr", default=None)


class RouteHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which topic, and in which dialect."""

    topic: str = NULL
    accept_standard_json_only: bool | None = None
    zone_mode: str | None = msgspec.field(name="__ZONE_MODE", default=None)
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


class BrokerGroupHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which group of a master and its slaves."""

    cluster_name: str = NULL
    broker_name: str = NULL


class RegisterTopicHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which topic; its queues are in the body."""

    topic: str


class DeleteTopicHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which topic, and of which cluster if not of all."""

    topic: str = NULL
    cluster_name: str | None = None


class NamespaceHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which namespace of the key-value table."""

    namespace: str = NULL


class KvHeader(NamespaceHeader, rename="camel", kw_only=True):
    """Which value."""

    key: str = NULL


class PutKvHeader(msgspec.Struct, rename="camel", kw_only=True):
    """A value to store."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


class KvReply(msgspec.Struct, rename="camel", kw_only=True):
    """A stored value."""

    value: str


class ClusterHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which cluster."""

    cluster: str = NULL


class BrokerNameHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which broker group."""

    broker_name: str = NULL


class WipeWriteReply(msgspec.Struct, rename="camel", kw_only=True):
    """How many topics lost their write permission."""

    wipe_topic_count: Int32


class AddWriteReply(msgspec.Struct, rename="camel", kw_only=True):
    """How many topics got their write permission."""

    add_topic_count: Int32
