"""The adapter of the wire for settings that administrators read and change while the broker runs: requests 25 and 26.

Upstream: ``AdminBrokerProcessor``, ``Configuration`` (spec remoting.md §4.10, behaviour.md D.1). A change is answered
when it is saved and, if it changes what name servers know, told to them. What could not be saved counts all the same,
until a restart, and is saved with the next change.
"""

import asyncio
import logging
from functools import partial

import msgspec

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import ConfigError, DecodeError
from ...common.ids import format_address
from ...common.metadata import DataVersion
from ...common.outcome import Outcome
from ...common.settings import format_java_properties
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.codec.setting_changes import read_changes
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ..settings.live import LiveSettings
from ..settings.saved import SettingsFile
from ..topic.config_table import next_version
from ..topic.registration import Registration
from ..topic.topics import TopicTable
from .cleaning import CleaningJob
from .handlers import answer_when_done

_MOST_REMARK = 1_000
_log = logging.getLogger(__name__)


class SettingHandlers:
    """Tells and changes settings; ``cleaning`` has the thread for files."""

    def __init__(
        self,
        settings: LiveSettings,
        file: SettingsFile,
        topics: TopicTable,
        registration: Registration,
        cleaning: CleaningJob,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._file = file
        self._topics = topics
        self._registration = registration
        self._cleaning = cleaning
        self._clock = clock
        self._version = DataVersion(timestamp=clock.now_ms())
        self._unsaved: dict[str, str] = {}
        self._turn = asyncio.Lock()

    @answers(Code.GET_BROKER_CONFIG)
    def tell(self, _command: Command, _connection: Connection) -> Command:
        """Tell every setting, and how often some were changed."""
        version = msgspec.json.encode(self._version).decode()
        body = format_java_properties(self._settings.texts()).encode()
        return Command.response(ResponseCode.SUCCESS, ext={"version": version}, body=body)

    @answers(Code.UPDATE_BROKER_CONFIG)
    def change(self, command: Command, connection: Connection) -> Command | Outcome[Command]:
        """Change settings, all or none."""
        if not command.body:
            return Command.response(ResponseCode.SUCCESS)
        changes = read_changes(command.body, self._settings.black_list())
        if isinstance(changes, Command):
            return changes
        before = self._topics.version
        try:
            kept = self._settings.change(changes)
        except ConfigError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, str(error)[:_MOST_REMARK])
        self._version = next_version(self._version, self._clock.now_ms())
        if not kept:
            return Command.response(ResponseCode.SUCCESS)
        _log.info("settings changed by %s: %.1000s", format_address(*connection.remote_address), kept)
        self._unsaved |= kept
        finish = partial(self._finish, tells=before != self._topics.version)
        return answer_when_done(self._cleaning, finish, "change settings")

    async def _finish(self, *, tells: bool) -> Command:
        answer = Command.response(ResponseCode.SUCCESS)
        try:
            await self._save()
        except (OSError, DecodeError) as error:
            remark = f"the settings are changed, but could not be saved in {self._file.path}: {error}"
            _log.warning("%s", remark)
            answer = Command.response(ResponseCode.SYSTEM_ERROR, remark)
        if tells:
            await self._registration.tell_everybody()
        return answer

    async def _save(self) -> None:
        async with self._turn:
            unsaved = dict(self._unsaved)
            if unsaved:
                await self._cleaning.in_thread(partial(self._file.save, unsaved))
            self._unsaved = {key: value for key, value in self._unsaved.items() if unsaved.get(key) != value}
