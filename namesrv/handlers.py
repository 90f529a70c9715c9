"""What a name server answers (``DefaultRequestProcessor``, ``ClientRequestProcessor``; spec remoting.md §4.2).

Routes, and the addresses that they name, are in ``route_handlers``; here are the settings, which administrators read
and change as a properties text while the server runs (behaviour.md A.7).
"""

from ..common.clock import Clock
from ..common.codes import ResponseCode
from ..common.errors import ConfigError
from ..common.settings import format_java_properties
from ..remoting.codec.command import Command
from ..remoting.codec.request_codes import RequestCode
from ..remoting.transport.connection import Connection, Handler
from ..remoting.transport.server import answers, handlers_of
from .broker_handlers import BrokerHandlers
from .config import LiveSettings
from .kv_table import KvHandlers, KvTable, Save
from .route_handlers import RouteHandlers
from .routes import NameServerRoutes
from .topic_handlers import TopicHandlers


class ConfigHandlers:
    """Tells and changes settings."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings

    @answers(RequestCode.GET_NAMESRV_CONFIG)
    def tell(self, _command: Command, _connection: Connection) -> Command:
        """Tell every setting."""
        body = format_java_properties(self._settings.texts()).encode()
        return Command.response(ResponseCode.SUCCESS, body=body)

    @answers(RequestCode.UPDATE_NAMESRV_CONFIG)
    def change(self, command: Command, _connection: Connection) -> Command:
        """Change settings, all or none."""
        from ..remoting.codec.setting_changes import read_changes  # few name servers are ever asked

        changes = read_changes(command.body, self._settings.black_list())
        if isinstance(changes, Command):
            return changes
        try:
            self._settings.change(changes)
        except ConfigError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
        return Command.response(ResponseCode.SUCCESS)


def name_server_handlers(
    routes: NameServerRoutes, settings: LiveSettings, kv: KvTable, save: Save | None, clock: Clock
) -> dict[int, Handler]:
    """Return the handler of each request code; ``save`` writes the key-value table."""
    return handlers_of(
        BrokerHandlers(routes, settings, clock),
        RouteHandlers(routes, settings, clock),
        TopicHandlers(routes, settings),
        ConfigHandlers(settings),
        KvHandlers(kv, save),
    )
