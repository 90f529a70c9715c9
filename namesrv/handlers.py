"""What a name server answers (``DefaultRequestProcessor``, ``ClientRequestProcessor``; spec remoting.md §4.2).

``name_server_handlers`` is the table of contents, but for the key-value table (``kv_table``). Routes, and the addresses
that they name, are in ``route_handlers``; here are the settings, which administrators read and change as a properties
text while the server runs (behaviour.md A.7).
"""

from collections.abc import Callable, Mapping

from ..common.codes import ResponseCode
from ..common.errors import ConfigError, DecodeError
from ..common.settings import format_java_properties, parse_java_properties
from ..remoting.codec.command import Command
from ..remoting.codec.request_codes import RequestCode
from ..remoting.transport.connection import Connection, Handler
from .broker_handlers import BrokerHandlers
from .config import LiveSettings
from .route_handlers import RouteHandlers
from .routes import NameServerRoutes
from .topic_handlers import TopicHandlers

MAX_LINES = 10_000


class ConfigHandlers:
    """Tells and changes settings."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings

    def tell(self, _command: Command, _connection: Connection) -> Command:
        """Tell every setting."""
        body = format_java_properties(self._settings.texts()).encode()
        return Command.response(ResponseCode.SUCCESS, None, None, body)

    def change(self, command: Command, _connection: Connection) -> Command:
        """Change settings, all or none."""
        lines = command.body.count(b"\n") + command.body.count(b"\r")
        if lines > MAX_LINES:
            raise DecodeError(f"the settings have {lines} ends of lines, limit is {MAX_LINES}")
        try:
            changes = parse_java_properties(command.body.decode(errors="replace"))
        except DecodeError:
            return Command.response(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        if self._settings.blacklisted(changes):
            return Command.response(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            self._settings.change(changes)
        except ConfigError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
        return Command.response(ResponseCode.SUCCESS)


OrderTable = Callable[[], Mapping[str, str] | None]


def name_server_handlers(
    routes: NameServerRoutes, settings: LiveSettings, order_table: OrderTable, monotonic_ms: Callable[[], int]
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
