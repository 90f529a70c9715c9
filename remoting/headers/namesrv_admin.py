"""Headers of what administrators ask a name server (``spec/remoting.md`` §4.2).

100  PUT_KV_CONFIG                PutKvHeader         -
101  GET_KV_CONFIG                KvHeader            KvReply
102  DELETE_KV_CONFIG             KvHeader            -
219  GET_KVLIST_BY_NAMESPACE      NamespaceHeader     -
224  GET_TOPICS_BY_CLUSTER        ClusterHeader       -
205  WIPE_WRITE_PERM_OF_BROKER    BrokerNameHeader    WipeWriteReply
327  ADD_WRITE_PERM_OF_BROKER     BrokerNameHeader    AddWriteReply
"""

import msgspec

from ..codec.fields import NULL, Int32


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
