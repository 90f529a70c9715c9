"""What a name server answers (``DefaultRequestProcessor``, ``ClientRequestProcessor``; spec remoting.md §4.2).

``name_server_handlers`` is the table of contents. JSON has the flavour that the requester's version reads.

Addresses: a broker of ours that is not told what clients shall use registers as one that *follows its clients*. If it
does so from this very machine, then whoever asks is given the host under which it reached the name server, with the
broker's port. So a client on another host, or outside a container, never reads 127.0.0.1.
"""

from collections.abc import Callable, Mapping

from ..common.checksum import crc31
from ..remoting.addresses import format_address
from ..remoting.bodies import decode_body, encode_body, encode_body_for
from ..remoting.bodies_register import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    decode_register_body,
)
from ..remoting.bodies_route import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRouteData,
)
from ..remoting.codes import RequestCode, ResponseCode
from ..remoting.command import Command, decode_header
from ..remoting.connection import Connection
from ..remoting.headers_namesrv import (
    BrokerGroupHeader,
    BrokerHeader,
    BrokerHeartbeatHeader,
    DataVersionReply,
    RegisterBrokerHeader,
    RegisterBrokerReply,
    RouteHeader,
)
from ..remoting.headers_namesrv_admin import AddWriteReply, BrokerNameHeader, ClusterHeader, WipeWriteReply
from ..remoting.service import Handler
from .routes import BrokerGroup, Identity, QueueShape, Registration, RouteTable

EXPIRY_MS = 120_000
FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
OrderTable = Callable[[], Mapping[str, str] | None]


def name_server_handlers(routes: RouteTable, order_table: OrderTable, now_ms: Callable[[], int]) -> dict[int, Handler]:
    """Return the handler of each request code that the route table answers."""
    brokers, clients = BrokerHandlers(routes, order_table, now_ms), ClientHandlers(routes)
    return {
        RequestCode.REGISTER_BROKER: brokers.register,
        RequestCode.UNREGISTER_BROKER: brokers.unregister,
        RequestCode.QUERY_DATA_VERSION: brokers.compare_version,
        RequestCode.BROKER_HEARTBEAT: brokers.hear,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: brokers.wipe_write,
        RequestCode.ADD_WRITE_PERM_OF_BROKER: brokers.add_write,
        RequestCode.GET_ROUTEINFO_BY_TOPIC: clients.find_route,
        RequestCode.GET_BROKER_CLUSTER_INFO: clients.list_brokers,
        RequestCode.GET_BROKER_MEMBER_GROUP: clients.list_members,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: clients.list_topics,
        RequestCode.GET_TOPICS_BY_CLUSTER: clients.list_topics_of_cluster,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: clients.list_system_topics,
    }


class BrokerHandlers:
    """What brokers, and administrators about brokers, ask."""

    def __init__(self, routes: RouteTable, order_table: OrderTable, now_ms: Callable[[], int]) -> None:
        self._routes = routes
        self._order_table = order_table
        self._now_ms = now_ms
        self._links: set[Connection] = set()

    def register(self, command: Command, connection: Connection) -> Command:
        """Take a broker's word about itself."""
        header = decode_header(RegisterBrokerHeader, command)
        if header.body_crc32 and crc31(command.body) != header.body_crc32:
            return Command.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        registration = _read_registration(header, decode_register_body(command.body), connection)
        outcome = self._routes.register(registration, connection, self._now_ms())
        if not outcome.is_accepted:
            return Command.response(ResponseCode.SYSTEM_ERROR, "register broker failed")
        self._watch(connection)
        table = self._order_table()
        body = encode_body(KVTable(table=dict(table))) if table else b""
        reply = RegisterBrokerReply(outcome.master_ha_address, outcome.master_address)
        return Command.response(ResponseCode.SUCCESS, None, reply, body)

    def unregister(self, command: Command, _connection: Connection) -> Command:
        """Forget a broker that stops."""
        header = decode_header(BrokerHeader, command)
        self._routes.unregister(Identity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr))
        return Command.response(ResponseCode.SUCCESS)

    def compare_version(self, command: Command, _connection: Connection) -> Command:
        """Tell a broker whether its topics are the ones it registered last."""
        header = decode_header(BrokerHeader, command)
        known = self._routes.version_of(header.cluster_name, header.broker_addr)
        self._routes.refresh(header.cluster_name, header.broker_addr, self._now_ms())
        is_changed = known is None or known != decode_body(DataVersion, command.body)
        body = b"" if known is None else encode_body(known)
        return Command.response(ResponseCode.SUCCESS, None, DataVersionReply(changed=is_changed), body)

    def hear(self, command: Command, _connection: Connection) -> Command:
        """Note that a broker is alive."""
        header = decode_header(BrokerHeartbeatHeader, command)
        self._routes.refresh(header.cluster_name, header.broker_addr, self._now_ms())
        return Command.response(ResponseCode.SUCCESS)

    def wipe_write(self, command: Command, _connection: Connection) -> Command:
        """Take a broker's topics out of what producers see."""
        count = self._routes.set_writable(decode_header(BrokerNameHeader, command).broker_name, is_writable=False)
        return Command.response(ResponseCode.SUCCESS, None, WipeWriteReply(wipe_topic_count=count))

    def add_write(self, command: Command, _connection: Connection) -> Command:
        """Put a broker's topics back into what producers see."""
        count = self._routes.set_writable(decode_header(BrokerNameHeader, command).broker_name, is_writable=True)
        return Command.response(ResponseCode.SUCCESS, None, AddWriteReply(add_topic_count=count))

    def _watch(self, connection: Connection) -> None:
        if connection not in self._links:
            self._links.add(connection)
            connection.on_close(self._lose)

    def _lose(self, connection: Connection) -> None:
        self._links.discard(connection)
        self._routes.drop_link(connection)


class ClientHandlers:
    """What clients and tools ask."""

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes

    def find_route(self, command: Command, connection: Connection) -> Command:
        """Tell where a topic lives."""
        header = decode_header(RouteHeader, command)
        route = self._routes.route(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}\n{FAQ}"
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        data = TopicRouteData(
            broker_datas=[self._broker_data(group, connection) for group in route.groups],
            queue_datas=[_queue_data(broker_name, shape) for broker_name, shape in route.queues.items()],
        )
        body = encode_body_for(command, data, accepts_strict=header.accept_standard_json_only)
        return Command.response(ResponseCode.SUCCESS, None, None, body)

    def list_brokers(self, command: Command, connection: Connection) -> Command:
        """Tell every broker group and cluster."""
        groups = {group.broker_name: self._broker_data(group, connection) for group in self._routes.groups()}
        info = ClusterInfo(broker_addr_table=groups, cluster_addr_table=self._routes.clusters())
        return Command.response(ResponseCode.SUCCESS, None, None, encode_body_for(command, info, accepts_strict=None))

    def list_members(self, command: Command, connection: Connection) -> Command:
        """Tell the addresses of one broker group, none when it is unknown."""
        header = decode_header(BrokerGroupHeader, command)
        group = self._routes.group(header.broker_name)
        addresses = self._broker_data(group, connection).broker_addrs if group else {}
        members = BrokerMemberGroup(broker_addrs=addresses, broker_name=header.broker_name, cluster=header.cluster_name)
        body = encode_body_for(command, BrokerMemberGroupBody(broker_member_group=members), accepts_strict=None)
        return Command.response(ResponseCode.SUCCESS, None, None, body)

    def list_topics(self, _command: Command, _connection: Connection) -> Command:
        """Tell the names of all topics."""
        return _topic_list(TopicList(topic_list=self._routes.topics()))

    def list_topics_of_cluster(self, command: Command, _connection: Connection) -> Command:
        """Tell the topics of one cluster."""
        return _topic_list(TopicList(topic_list=self._routes.topics_of(decode_header(ClusterHeader, command).cluster)))

    def list_system_topics(self, _command: Command, connection: Connection) -> Command:
        """Tell the topics named after clusters and brokers, and one broker that knows the others."""
        groups = self._routes.groups()
        names = [name for cluster, brokers in self._routes.clusters().items() for name in (cluster, *brokers)]
        addresses = [
            address for group in groups for address in self._broker_data(group, connection).broker_addrs.values()
        ]
        return _topic_list(TopicList(broker_addr=addresses[0] if addresses else None, topic_list=names))

    def _broker_data(self, group: BrokerGroup, connection: Connection) -> BrokerData:
        addresses = {
            broker_id: _follow_client(address, connection)
            if self._routes.follows_clients(group.cluster, address)
            else address
            for broker_id, address in sorted(group.addresses.items())
        }
        return BrokerData(broker_addrs=addresses, broker_name=group.broker_name, cluster=group.cluster)


def _follow_client(address: str, connection: Connection) -> str:
    host = connection.local_address[0].removeprefix("::ffff:")  # IPv4 on a socket that is bound to "::"
    return format_address(host, int(address.rpartition(":")[2]))


def _queue_data(broker_name: str, shape: QueueShape) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=shape.read_queues,
        write_queue_nums=shape.write_queues,
        perm=shape.perm,
        topic_sys_flag=shape.sys_flag,
    )


def _topic_list(names: TopicList) -> Command:
    return Command.response(ResponseCode.SUCCESS, None, None, encode_body(names))


def _read_registration(header: RegisterBrokerHeader, body: RegisterBrokerBody, connection: Connection) -> Registration:
    topics = body.topic_config_serialize_wrapper
    is_local = connection.remote_address[0] == connection.local_address[0]
    return Registration(
        Identity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr),
        header.ha_server_addr,
        topics.data_version,
        {name: _shape(topic) for name, topic in topics.topic_config_table.items()},
        header.heartbeat_timeout_ms or EXPIRY_MS,
        follows_clients=is_local and header.follows_clients is True and header.broker_addr.rpartition(":")[2].isdigit(),
    )


def _shape(topic: TopicConfig) -> QueueShape:
    return QueueShape(topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
