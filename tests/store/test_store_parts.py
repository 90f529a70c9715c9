"""What stops the opening of a directory before anything is written to it."""

import pathlib

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore


def test_log_directory_that_cannot_be_made_stops_the_start(tmp_path: pathlib.Path) -> None:
    """It is named at the opening and not by the first message; the directory stays free and clean."""
    (tmp_path / "file").touch()
    config = StoreConfig(str(tmp_path / "store"), log_directories=(str(tmp_path / "file" / "log"),))
    with pytest.raises(ConfigError, match="file/log"):
        MessageStore.open(config, now_ms=lambda: 0, store_host=bytes(8))
    assert not (tmp_path / "store" / "abort").exists()
    MessageStore.open(StoreConfig(config.root), now_ms=lambda: 0, store_host=bytes(8)).close()
