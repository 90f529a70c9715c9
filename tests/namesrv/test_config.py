"""The name server's settings by Java's keys."""

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.namesrv.config import NameServerConfig


def test_empty_host_is_refused() -> None:
    """An empty address would listen at every address of the machine; that has to be asked for."""
    with pytest.raises(ConfigError, match="bindAddress is empty") as refused:
        NameServerConfig.from_java({"bindAddress": ""})
    assert refused.value.key == "bindAddress"
