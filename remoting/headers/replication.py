"""Headers of what members of a broker group ask each other (``spec/replication.md`` §7, §8).

21   GET_ALL_TOPIC_CONFIG              TopicPageHeader          TopicPageReply
201  GET_ALL_SUBSCRIPTIONGROUP_CONFIG  GroupPageHeader          GroupPageReply
906  EXCHANGE_BROKER_HA_INFO           HaAddressesHeader        HaAddressesHeader
908  RESET_MASTER_FLUSH_OFFSET         FlushedOffsetHeader      -

Whoever asks 21 or 201 without any field gets the whole table at once.
"""

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64


class TopicPageHeader(msgspec.Struct, rename="camel", kw_only=True):
    """From which topic on, how many, and the version that the pages before were of."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class TopicPageReply(msgspec.Struct, rename="camel", kw_only=True):
    """How many topics there are."""

    total_topic_num: Int32 | None = None


class GroupPageHeader(msgspec.Struct, rename="camel", kw_only=True):
    """From which group on, how many, and the version that the pages before were of."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GroupPageReply(msgspec.Struct, rename="camel", kw_only=True):
    """How many groups there are."""

    total_group_num: Int32 | None = None


class HaAddressesHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Where the master is, and where its log ended when it was started; asked without, a master tells its own."""

    ha_address: str | None = field(name="masterHaAddress", default=None)
    flushed_offset: Int64 | None = field(name="masterFlushOffset", default=None)
    address: str | None = field(name="masterAddress", default=None)


class FlushedOffsetHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Up to where the log of the master is taken for flushed."""

    master_flush_offset: Int64
