"""The name server's settings, by Java's keys where Java has one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ..common.errors import ConfigError
from ..common.settings import Setting, describe_settings, parse_settings, setting

DEFAULT_PORT = 9876


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """What a name server is started with."""

    host: str = setting("bindAddress", "127.0.0.1", "address to listen at; 0.0.0.0 for all")
    port: int = setting("listenPort", DEFAULT_PORT, "port to listen at; 0 takes a free one", most=65_535)
    kv_path: str = setting("kvConfigPath", "", "file that keeps the key-value table; none: in memory only")
    returns_order_table: bool = setting(
        "returnOrderTopicConfigToBroker", True, "tell registering brokers which topics are ordered"
    )
    shows_order_table: bool = setting(
        "orderMessageEnable", False, "routes carry the order configuration of their topic"
    )
    supports_acting_master: bool = setting(
        "supportActingMaster", False, "show the first slave of a group without master as its master, to be read from"
    )
    deletes_absent_topics: bool = setting(
        "deleteTopicWithBrokerRegistration", False, "a registration takes back the topics that it leaves out"
    )
    lists_all_topics: bool = setting("enableAllTopicList", True, "answer requests for the names of all topics")
    lists_topics: bool = setting("enableTopicList", True, "answer requests for the topics of a cluster or unit")
    waits_for_service: bool = setting("needWaitForService", False, "give no routes for a while after the start")
    service_wait_seconds: int = setting("waitSecondsForService", 45, "how long, with needWaitForService")
    black_list: str = setting(
        "configBlackList",
        "configBlackList;configStorePath;kvConfigPath",
        "keys that administrators may not change, between semicolons",
    )
    scan_period_ms: int = setting("scanNotActiveBrokerInterval", 5000, "how often to look for silent brokers", least=1)
    max_idle_seconds: int = setting("serverChannelMaxIdleTimeSeconds", 120, "a silent connection is closed", least=1)
    high_water_bytes: int = setting(
        "writeBufferHighWaterMark", 0, "unsent bytes above which a client is not read from; 0: 262144", least=0
    )
    low_water_bytes: int = setting("writeBufferLowWaterMark", 0, "where that ends again; 0: 65536", least=0)

    # not read by key: the option --advertise
    advertised_host: str = ""
    advertised_port: int = 0

    def __post_init__(self) -> None:
        if not self.host:
            raise ConfigError("bindAddress is empty; 0.0.0.0 means every address of this machine", key="bindAddress")

    @classmethod
    def from_java(cls, settings: Mapping[str, str]) -> Self:
        """Read settings with Java's keys; those of a broker, which may stand in the same file, are left alone.

        Raises:
            ConfigError: a value that cannot be used; ``key`` names it.
        """
        return cls(**parse_settings(cls, settings))

    def describe(self) -> list[Setting]:
        """Return every key with its value, default and meaning."""
        return describe_settings(self)
