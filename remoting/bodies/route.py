"""Bodies of routes and of a name server's lists (``spec/remoting.md`` §5.3 to §5.5).

    105  TopicRouteData      106  ClusterInfo      206, 224, 304  TopicList      901  BrokerMemberGroupBody

Rules that the strictest readers give (Go splits text, pyrocketmq reads Python): ``queue_datas`` and ``broker_datas``
are always there, ``enable_acting_master`` only when true, hence ``None`` instead of ``False``.
"""

import msgspec
from msgspec import field

from ..codec.fields import Int32

MASTER_ID = 0


class BrokerData(msgspec.Struct, rename="camel", kw_only=True):
    """The addresses of one broker name, by broker id."""

    broker_addrs: dict[int, str] = field(default_factory=dict[int, str])
    broker_name: str = ""
    cluster: str | None = None
    enable_acting_master: bool | None = None
    zone_name: str | None = None


class QueueData(msgspec.Struct, rename="camel", kw_only=True):
    """How many queues of a topic one broker name has."""

    broker_name: str = ""
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0
    old_topic_sys_flag: Int32 | None = field(name="topicSynFlag", default=None)

    def __post_init__(self) -> None:
        if self.old_topic_sys_flag is not None:  # 4.x wrote it so; never written by us
            self.topic_sys_flag, self.old_topic_sys_flag = self.old_topic_sys_flag, None


class TopicRouteData(msgspec.Struct, rename="camel", kw_only=True):
    """Where a topic is."""

    broker_datas: list[BrokerData] = field(default_factory=list[BrokerData])
    filter_server_table: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list[QueueData])


class ClusterInfo(msgspec.Struct, rename="camel", kw_only=True):
    """All brokers, and which cluster has which."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict[str, BrokerData])
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


class TopicList(msgspec.Struct, rename="camel", kw_only=True):
    """Names of topics; the address only with the system topics of a name server."""

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list[str])


class BrokerMemberGroup(msgspec.Struct, rename="camel", kw_only=True):
    """A master and its slaves."""

    broker_addrs: dict[int, str] = field(default_factory=dict[int, str])
    broker_name: str
    cluster: str


class BrokerMemberGroupBody(msgspec.Struct, rename="camel", kw_only=True):
    """The answer to 901."""

    broker_member_group: BrokerMemberGroup
