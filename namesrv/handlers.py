"""What a name server answers (``DefaultRequestProcessor``, ``ClientRequestProcessor``; spec remoting.md §4.2).

``name_server_handlers`` is the table of contents; the key-value table has its own in ``kvhandlers``. Routes, and the
addresses that they name, are in ``routehandlers``.
"""

from collections.abc import Callable, Mapping

from ..remoting.codec.codes import RequestCode
from ..remoting.transport.endpoint import Handler
from .brokerhandlers import BrokerHandlers
from .confighandlers import ConfigHandlers
from .livesettings import LiveSettings
from .routehandlers import RouteHandlers
from .routes import RouteTable
from .topichandlers import TopicHandlers

OrderTable = Callable[[], Mapping[str, str] | None]


def name_server_handlers(
    routes: RouteTable, settings: LiveSettings, order_table: OrderTable, monotonic_ms: Callable[[], int]
) -> dict[int, Handler]:
    """Return the handler of each request code but those of the key-value table."""
    brokers = BrokerHandlers(routes, settings, order_table, monotonic_ms)
    readers = RouteHandlers(routes, settings, order_table, monotonic_ms)
    topics = TopicHandlers(routes, settings)
    config = ConfigHandlers(settings)
    return {
        RequestCode.REGISTER_BROKER: brokers.register,
        RequestCode.UNREGISTER_BROKER: brokers.unregister,
        RequestCode.QUERY_DATA_VERSION: brokers.compare_version,
        RequestCode.BROKER_HEARTBEAT: brokers.hear,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: brokers.wipe_write,
        RequestCode.ADD_WRITE_PERM_OF_BROKER: brokers.add_write,
        RequestCode.GET_ROUTEINFO_BY_TOPIC: readers.find_route,
        RequestCode.GET_BROKER_CLUSTER_INFO: readers.list_brokers,
        RequestCode.GET_BROKER_MEMBER_GROUP: readers.list_members,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: readers.list_system_topics,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics.list_all,
        RequestCode.GET_TOPICS_BY_CLUSTER: topics.list_of_cluster,
        RequestCode.GET_UNIT_TOPIC_LIST: topics.list_of_units,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: topics.list_subscribed_by_units,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: topics.list_only_subscribed_by_units,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: topics.register,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: topics.delete,
        RequestCode.GET_NAMESRV_CONFIG: config.tell,
        RequestCode.UPDATE_NAMESRV_CONFIG: config.change,
    }
