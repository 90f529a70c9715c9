"""What a name server tells about routes and brokers (behaviour.md A.5, A.6, A.8).

JSON has the flavour that the requester's version reads.

Addresses: a broker of ours that is not told what clients shall use registers as one that *follows its clients*. If it
does so from this very machine, then whoever asks is given the host under which it reached the name server, with the
broker's port. So a client on another host, or outside a container, never reads 127.0.0.1.

A view of a route is a new route, the table stays as it is: an acting master is shown as master, or only the brokers of
the requester's zone.
"""

from ..common.clock import Clock
from ..common.codes import ResponseCode
from ..common.ids import format_address
from ..common.names import PERM_WRITE
from ..remoting.bodies.body import encode_body, encode_body_for
from ..remoting.bodies.route import (
    MASTER_ID,
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRouteData,
)
from ..remoting.codec.command import Command, decode_header
from ..remoting.codec.request_codes import RequestCode
from ..remoting.headers.namesrv import BrokerGroupHeader, RouteHeader
from ..remoting.transport.connection import Connection
from ..remoting.transport.server import answers
from .config import LiveSettings
from .routes import BrokerGroup, FoundRoute, NameServerRoutes

MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"  # the topics by which a group's members find each other


def with_acting_masters(route: FoundRoute) -> FoundRoute:
    """Show the first slave of a group without a master as its master, if the group agreed and cannot be written to."""
    return route._replace(groups=[_with_acting_master(group, route) for group in route.groups])


def within_zone(route: FoundRoute, zone: str) -> FoundRoute:
    """Leave out the groups of other zones, unless they lack a master: their slaves may be read from anywhere."""
    groups = [group for group in route.groups if MASTER_ID not in group.addresses or _is_in(group, zone)]
    names = {group.broker_name for group in route.groups} - {group.broker_name for group in groups}
    return FoundRoute({name: shape for name, shape in route.queues.items() if name not in names}, groups)


def _with_acting_master(group: BrokerGroup, route: FoundRoute) -> BrokerGroup:
    if not group.acts_as_master or MASTER_ID in group.addresses:
        return group
    if route.queues[group.broker_name].perm & PERM_WRITE:
        return group
    first, *others = sorted(group.addresses)
    addresses = {MASTER_ID: group.addresses[first], **{broker_id: group.addresses[broker_id] for broker_id in others}}
    return BrokerGroup(group.cluster, group.broker_name, addresses, group.zone, group.acts_as_master)


def _is_in(group: BrokerGroup, zone: str) -> bool:
    return group.zone is not None and group.zone.lower() == zone.lower()


FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class RouteHandlers:
    """Routes, and who is there."""

    def __init__(self, routes: NameServerRoutes, settings: LiveSettings, clock: Clock) -> None:
        self._routes = routes
        self._settings = settings
        self._clock = clock
        self._started_at_ms = clock.monotonic_ms()

    @answers(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    def find_route(self, command: Command, connection: Connection) -> Command:
        """Tell where a topic lives."""
        header = decode_header(RouteHeader, command)
        if self._is_warming_up():
            return Command.response(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._view(header)
        if route is None:
            return _refuse_topic(header.topic)
        data = TopicRouteData(
            broker_datas=[self._broker_data(group, connection) for group in route.groups],
            queue_datas=[
                QueueData(broker_name=broker_name, **shape._asdict()) for broker_name, shape in route.queues.items()
            ],
            order_topic_conf=self._order_of(header.topic),
        )
        body = encode_body_for(command, data, accepts_strict=header.accept_standard_json_only)
        return Command.response(ResponseCode.SUCCESS, body=body)

    @answers(RequestCode.GET_BROKER_CLUSTER_INFO)
    def list_brokers(self, command: Command, connection: Connection) -> Command:
        """Tell every broker group and cluster."""
        groups = {group.broker_name: self._broker_data(group, connection) for group in self._routes.groups()}
        info = ClusterInfo(broker_addr_table=groups, cluster_addr_table=self._routes.clusters())
        return Command.response(ResponseCode.SUCCESS, body=encode_body_for(command, info, accepts_strict=None))

    @answers(RequestCode.GET_BROKER_MEMBER_GROUP)
    def list_members(self, command: Command, connection: Connection) -> Command:
        """Tell the addresses of one broker group, none when it is unknown."""
        header = decode_header(BrokerGroupHeader, command)
        group = self._routes.group(header.broker_name)
        addresses = self._broker_data(group, connection).broker_addrs if group else {}
        members = BrokerMemberGroup(broker_addrs=addresses, broker_name=header.broker_name, cluster=header.cluster_name)
        body = encode_body_for(command, BrokerMemberGroupBody(broker_member_group=members), accepts_strict=None)
        return Command.response(ResponseCode.SUCCESS, body=body)

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def list_system_topics(self, _command: Command, connection: Connection) -> Command:
        """Tell the topics named after clusters and brokers, and one broker that knows the others."""
        groups = self._routes.groups()
        names = [name for cluster, brokers in self._routes.clusters().items() for name in (cluster, *brokers)]
        addresses = [
            address for group in groups for address in self._broker_data(group, connection).broker_addrs.values()
        ]
        body = encode_body(TopicList(broker_addr=addresses[0] if addresses else None, topic_list=names))
        return Command.response(ResponseCode.SUCCESS, body=body)

    def _is_warming_up(self) -> bool:
        config = self._settings.config
        age_ms = self._clock.monotonic_ms() - self._started_at_ms
        return config.waits_for_service and age_ms < 1000 * config.service_wait_seconds

    def _view(self, header: RouteHeader) -> FoundRoute | None:
        route = self._routes.route(header.topic)
        if route is None:
            return None
        if self._settings.config.supports_acting_master and not header.topic.startswith(MEMBER_GROUP_PREFIX):
            route = with_acting_masters(route)
        zone = header.zone_name or ""
        if (header.zone_mode or "").lower() == "true" and zone.strip():
            route = within_zone(route, zone)
        return route

    def _order_of(self, topic: str) -> str | None:
        table = self._settings.order_for_clients()
        return table.get(topic) if table else None

    def _broker_data(self, group: BrokerGroup, connection: Connection) -> BrokerData:
        addresses = {
            broker_id: _follow_client(address, connection)
            if self._routes.follows_clients(group.cluster, address)
            else address
            for broker_id, address in sorted(group.addresses.items())
        }
        return BrokerData(
            broker_addrs=addresses,
            broker_name=group.broker_name,
            cluster=group.cluster,
            enable_acting_master=group.acts_as_master or None,
            zone_name=group.zone,
        )


def _refuse_topic(topic: str) -> Command:
    remark = f"No topic route info in name server for the topic: {topic}\n{FAQ}"
    return Command.response(ResponseCode.TOPIC_NOT_EXIST, remark)


def _follow_client(address: str, connection: Connection) -> str:
    host = connection.local_address[0].removeprefix("::ffff:")  # IPv4 on a socket that is bound to "::"
    return format_address(host, int(address.rpartition(":")[2]))
