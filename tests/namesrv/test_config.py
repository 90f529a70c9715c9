"""The name server's settings by Java's keys."""

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.namesrv.config import NameServerConfig


def test_empty_host_is_refused() -> None:
    """An empty address would listen at every address of the machine; that has to be asked for."""
    with pytest.raises(ConfigError, match="bindAddress is empty") as refused:
        NameServerConfig.from_java({"bindAddress": ""})
    assert refused.value.key == "bindAddress"


def test_defaults_are_those_of_java() -> None:
    """Whoever starts without a file gets what Java's name server does, but listens at this machine only."""
    values = {row.key: row.value for row in NameServerConfig().describe()}
    assert {key: value for key, value in values.items() if not key.lower().startswith("tls")} == {
        "bindAddress": "127.0.0.1",
        "listenPort": "9876",
        "proxyProtocolFrom": "",
        "kvConfigPath": "",
        "returnOrderTopicConfigToBroker": "true",
        "orderMessageEnable": "false",
        "supportActingMaster": "false",
        "notifyMinBrokerIdChanged": "false",
        "deleteTopicWithBrokerRegistration": "false",
        "enableAllTopicList": "true",
        "enableTopicList": "true",
        "needWaitForService": "false",
        "waitSecondsForService": "45",
        "configBlackList": "configBlackList;configStorePath;kvConfigPath",
        "scanNotActiveBrokerInterval": "5000",
        "serverChannelMaxIdleTimeSeconds": "120",
        "writeBufferHighWaterMark": "0",
        "writeBufferLowWaterMark": "0",
    }


@pytest.mark.parametrize(
    ("key", "taken", "refused"),
    [
        ("listenPort", "65535", "65536"),
        ("waitSecondsForService", "0", "-1"),
        ("scanNotActiveBrokerInterval", "1", "0"),
        ("serverChannelMaxIdleTimeSeconds", "1", "0"),
        ("writeBufferHighWaterMark", "0", "-1"),
        ("writeBufferLowWaterMark", "0", "-1"),
    ],
)
def test_numbers_have_bounds(key: str, taken: str, refused: str) -> None:
    """The last value that can be used is taken, the next is refused by the name of its key."""
    assert taken in {row.value for row in NameServerConfig.from_java({key: taken}).describe() if row.key == key}
    with pytest.raises(ConfigError, match=key):
        NameServerConfig.from_java({key: refused})
