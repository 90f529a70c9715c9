"""Headers of client life, topics and groups (``spec/remoting.md`` §4.7, §4.9, §4.12).

    34   HEART_BEAT                       -                         HeartbeatReply (may be left out)
    35   UNREGISTER_CLIENT                UnregisterClientHeader    -
    38   GET_CONSUMER_LIST_BY_GROUP       ConsumerGroupHeader       -
    40   NOTIFY_CONSUMER_IDS_CHANGED      ConsumerGroupHeader       - (broker to client, one-way)
    17   UPDATE_AND_CREATE_TOPIC          CreateTopicHeader         -
    351  GET_TOPIC_CONFIG                 TopicHeader               -
    352  GET_SUBSCRIPTIONGROUP_CONFIG     GroupHeader               -
    207  DELETE_SUBSCRIPTIONGROUP         DeleteGroupHeader         -
    215  DELETE_TOPIC_IN_BROKER           DeletedTopicHeader        -

and of what brokers ask consumers for an administrator:

    220  RESET_CONSUMER_CLIENT_OFFSET     GroupTopicHeader          - (one-way)
    221  GET_CONSUMER_STATUS_FROM_CLIENT  GroupTopicHeader          -
    307  GET_CONSUMER_RUNNING_INFO        RunningInfoHeader         -
    309  CONSUME_MESSAGE_DIRECTLY         ConsumeDirectlyHeader     -

What administrators ask brokers for of that:

    223  INVOKE_BROKER_TO_GET_CONSUMER_STATUS   ClientOffsetsHeader        (PushedResetHeader is the broker's 220)
    307  GET_CONSUMER_RUNNING_INFO              AskedMemberHeader
    309  CONSUME_MESSAGE_DIRECTLY               AskedConsumptionHeader
    345  QUERY_SUBSCRIPTION_BY_CONSUMER         GroupSubscriptionHeader    (343 has GroupHeader, 328 none)
    353  UPDATE_AND_GET_GROUP_FORBIDDEN         GroupForbiddenHeader

41, 42 and 46 have no header of their own.
"""

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64
from ..codec.command import NULL


class HeartbeatReply(msgspec.Struct, kw_only=True):
    """Whether heartbeats without subscriptions are understood, and whether the next one shall be full."""

    supports_version_2: bool | None = field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    subscription_changed: bool | None = field(name="IS_SUB_CHANGE", default=None)


class UnregisterClientHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which client leaves which groups."""

    client_id: str = field(name="clientID", default="")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which consumer group."""

    consumer_group: str


class CreateTopicHeader(msgspec.Struct, rename="camel", kw_only=True):
    """A topic as it shall be; ``attributes`` reads ``+name=value,-name``."""

    topic: str
    default_topic: str = ""
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = NULL
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class TopicHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which topic."""

    topic: str


class DeletedTopicHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which topic goes."""

    topic: str = ""


class ProducerGroupHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which group of producers."""

    producer_group: str


class GroupProgressHeader(msgspec.Struct, rename="camel", kw_only=True):
    """How far which group is: in one topic, in several with ``;`` between them (5.3), or in all it has offsets of."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class BrokerProgressHeader(msgspec.Struct, rename="camel", kw_only=True):
    """How far all groups are, in ordered topics alone or in all."""

    is_order: bool = False


class GroupHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which group."""

    group: str


class DeleteGroupHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which group goes, and whether its offsets go as well; 4.9 has another name for that."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool = False


class GroupTopicHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Whose offsets of which topic."""

    topic: str
    group: str


class ClientOffsetsHeader(GroupTopicHeader, rename="camel", kw_only=True):
    """Whose offsets of which topic: of all members of a group, or of the one with a client id."""

    client_id: str | None = field(name="clientAddr", default=None)


class PushedResetHeader(GroupTopicHeader, rename="camel", kw_only=True):
    """Which group begins again in which topic: the body says where."""

    at_ms: Int64 = field(name="timestamp")
    is_forced: bool = field(name="isForce")


class GroupSubscriptionHeader(msgspec.Struct, rename="camel", kw_only=True):
    """What a group subscribes to of which topic."""

    group: str
    topic: str


class GroupForbiddenHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Whether a group may read a topic; ``None`` asks."""

    group: str
    topic: str
    readable: bool | None = None


class AskedMemberHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which member of a group is asked."""

    consumer_group: str
    client_id: str = NULL


class AskedConsumptionHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which member of a group gets a stored message out of turn."""

    consumer_group: str
    client_id: str = NULL
    message_id: str = field(name="msgId", default=NULL)
    topic: str | None = None


class RunningInfoHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which consumer describes itself, with its stacks or without."""

    consumer_group: str
    client_id: str | None = None
    with_stacks: bool = field(name="jstackEnable", default=False)


class ConsumeDirectlyHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which consumer gets a message out of turn; the message is the body, as it is stored."""

    consumer_group: str
    client_id: str | None = None
    broker_name: str | None = None
