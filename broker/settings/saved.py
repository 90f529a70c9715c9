"""Where the settings stay that administrators have changed.

Rules

    1. A broker that was started with a file of settings has the changed ones rewritten there: comments and the order
       of the lines stay, what is new comes last. (Java writes all settings anew.) Any other broker keeps them in
       ``config/broker.properties`` of its store.
    2. A start lays those of its store under all that it was given, by a file, by options or by a program.
    3. The new file takes the place of the old one as a whole, after it is on the disk.
"""

import logging
import os
from collections.abc import Mapping

from ...common.errors import ConfigError, DecodeError
from ...common.settings import change_java_properties, decode_java_properties, parse_java_properties
from ...store.files.config_files import replace_file
from ...store.files.files import OS_FILES, Files
from .config import BrokerConfig
from .live import change_config

_log = logging.getLogger(__name__)


class SettingsFile:
    """The file that keeps the changed settings of a broker; its calls wait for the disk."""

    def __init__(self, config: BrokerConfig, files: Files = OS_FILES) -> None:
        self.path = config.settings_file or _store_file(config)
        self._files = files

    def __repr__(self) -> str:
        return f"<SettingsFile {self.path}>"

    def save(self, changes: Mapping[str, str]) -> None:
        """Write other values (raises ``OSError``, ``DecodeError``)."""
        path = os.path.realpath(self.path)
        text, encoding = decode_java_properties(_read(path, self._files))
        replace_file(path, change_java_properties(text, changes).encode(encoding), self._files)


def lay_under(config: BrokerConfig, files: Files = OS_FILES) -> BrokerConfig:
    """Return the settings with those that were saved in the store, as far as others are not given; waits for the disk.

    Raises:
        ConfigError: the file cannot be read, or holds what cannot be used.
    """
    path = _store_file(config)
    try:
        saved = parse_java_properties(decode_java_properties(_read(path, files))[0])
        keys = config.given_keys
        given = {row.key: row.value for row in config.describe() if row.key in keys}
        found = change_config(config, {key: value for key, value in saved.items() if key not in given})
    except (OSError, DecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", key=error.key) from error
    losing = sorted(key for key, value in given.items() if saved.get(key, value) != value)
    if losing:
        _log.warning("saved settings %s in %s do not count: the start was given other values", ", ".join(losing), path)
    return found


def _store_file(config: BrokerConfig) -> str:
    return os.path.join(config.store.root, "config", "broker.properties")


def _read(path: str, files: Files) -> bytes:
    try:
        descriptor = files.open(path)
    except FileNotFoundError:
        return b""
    try:
        return files.pread(descriptor, files.size(path), 0)
    finally:
        files.close(descriptor)
