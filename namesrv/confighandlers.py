"""The settings of a name server as a properties text, read and changed while it runs (behaviour.md A.7)."""

from ..common.errors import ConfigError, DecodeError
from ..common.javaproperties import format_java_properties, parse_java_properties
from ..remoting.codec.codes import ResponseCode
from ..remoting.codec.command import Command
from ..remoting.transport.connection import Connection
from .livesettings import LiveSettings

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
