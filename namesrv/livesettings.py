"""The settings of a running name server, as administrators read and change them (``Configuration``; behaviour.md A.7).

Rules
    1. What is changed is lost at the end, as it is upstream unless the server was started with a file.
    2. Keys of the black list are refused, and so are keys that are read at the start only.
    3. Unknown keys are passed over: upstream has many that we do not need.
"""

import dataclasses
import logging
from collections.abc import Mapping

from ..common.errors import ConfigError
from ..common.settings import parse_settings, setting_keys
from .config import NameServerConfig

_ALWAYS_BLACK = frozenset(["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"])
_AT_START = frozenset(["bindAddress", "listenPort", "serverChannelMaxIdleTimeSeconds"])
_log = logging.getLogger(__name__)


class LiveSettings:
    """The settings that count now."""

    def __init__(self, config: NameServerConfig) -> None:
        self.config = config

    def __repr__(self) -> str:
        return f"<LiveSettings {self.config!r}>"

    def blacklisted(self, changes: Mapping[str, str]) -> frozenset[str]:
        """Return the keys that may not be changed."""
        return (_ALWAYS_BLACK | set(self.config.black_list.split(";"))) & changes.keys()

    def change(self, changes: Mapping[str, str]) -> None:
        """Take new values, all or none.

        Raises:
            ConfigError: a value that cannot be used, or a key that is read at the start only.
        """
        for key in sorted(_AT_START & changes.keys()):
            raise ConfigError(f"{key} is read at the start only", key=key)
        self.config = dataclasses.replace(self.config, **parse_settings(NameServerConfig, changes))
        unknown = sorted(changes.keys() - setting_keys(NameServerConfig))
        if unknown:
            _log.warning("settings %.200s were changed, but this name server does not read them", ", ".join(unknown))

    def texts(self) -> dict[str, str]:
        """Return every key with its value, in the order of their names."""
        return {row.key: row.value for row in sorted(self.config.describe())}
