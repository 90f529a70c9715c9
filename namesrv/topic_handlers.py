"""Lists of topics, and single topics that administrators add or remove (behaviour.md A.7).

A topic that is deleted here comes back with the next registration that names it; brokers delete it first.
"""

from collections.abc import Callable

from ..common.codes import ResponseCode
from ..common.errors import DecodeError
from ..remoting.bodies.body import decode_body_if_any, encode_body
from ..remoting.bodies.route import QueueData, TopicList, TopicRouteData
from ..remoting.codec.command import Command, decode_header
from ..remoting.codec.request_codes import RequestCode
from ..remoting.headers.namesrv import ClusterHeader, DeleteTopicHeader, RegisterTopicHeader
from ..remoting.transport.connection import Connection
from ..remoting.transport.server import answers
from .config import LiveSettings
from .routes import NameServerRoutes, QueueShape

MAX_BROKERS = 16_384
UNIT, SUBSCRIBED_BY_UNITS = 1, 2  # bits of a topic's system flag (``TopicSysFlag``)


class TopicHandlers:
    """The names of topics, and single topics."""

    def __init__(self, routes: NameServerRoutes, settings: LiveSettings) -> None:
        self._routes = routes
        self._settings = settings

    @answers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def list_all(self, _command: Command, _connection: Connection) -> Command:
        """Tell the names of all topics."""
        return _list(self._routes.topics()) if self._settings.config.lists_all_topics else _refuse()

    @answers(RequestCode.GET_TOPICS_BY_CLUSTER)
    def list_of_cluster(self, command: Command, _connection: Connection) -> Command:
        """Tell the topics of one cluster."""
        if not self._settings.config.lists_topics:
            return _refuse()
        return _list(self._routes.topics_of(decode_header(ClusterHeader, command).cluster))

    @answers(RequestCode.GET_UNIT_TOPIC_LIST)
    def list_of_units(self, _command: Command, _connection: Connection) -> Command:
        """Tell the topics that belong to a unit."""
        return self._list_flagged(lambda flag: flag & UNIT != 0)

    @answers(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    def list_subscribed_by_units(self, _command: Command, _connection: Connection) -> Command:
        """Tell the topics that some unit subscribes to."""
        return self._list_flagged(lambda flag: flag & SUBSCRIBED_BY_UNITS != 0)

    @answers(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    def list_only_subscribed_by_units(self, _command: Command, _connection: Connection) -> Command:
        """Tell the topics that some unit subscribes to and none owns."""
        return self._list_flagged(lambda flag: flag & (UNIT | SUBSCRIBED_BY_UNITS) == SUBSCRIBED_BY_UNITS)

    @answers(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
    def register(self, command: Command, _connection: Connection) -> Command:
        """Set the queues of a topic at brokers that are known."""
        topic = decode_header(RegisterTopicHeader, command).topic
        route = decode_body_if_any(TopicRouteData, command.body)
        if route is not None and len(route.queue_datas) > MAX_BROKERS:
            raise DecodeError(f"the route of {topic} names {len(route.queue_datas)} brokers, limit is {MAX_BROKERS}")
        if route is not None:
            self._routes.register_topic(topic, {data.broker_name: _shape(data) for data in route.queue_datas})
        return Command.response(ResponseCode.SUCCESS)

    @answers(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    def delete(self, command: Command, _connection: Connection) -> Command:
        """Forget a topic, everywhere or in one cluster."""
        header = decode_header(DeleteTopicHeader, command)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return Command.response(ResponseCode.SUCCESS)

    def _list_flagged(self, accepts: Callable[[int], bool]) -> Command:
        return _list(self._routes.topics_flagged(accepts)) if self._settings.config.lists_topics else _refuse()


def _list(names: list[str]) -> Command:
    return Command.response(ResponseCode.SUCCESS, body=encode_body(TopicList(topic_list=names)))


def _refuse() -> Command:
    return Command.response(ResponseCode.SYSTEM_ERROR, "disable")


def _shape(data: QueueData) -> QueueShape:
    return QueueShape(data.read_queue_nums, data.write_queue_nums, data.perm, data.topic_sys_flag)
