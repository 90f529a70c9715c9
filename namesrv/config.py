"""The name server's settings, by Java's keys where Java has one, and those that administrators change while it runs."""

import logging
from collections.abc import Mapping
from typing import Annotated, Self

from msgspec import Struct, field
from msgspec.structs import replace

from ..common.errors import ConfigError
from ..common.settings import Key, Setting, describe_settings, parse_settings, setting_keys
from ..remoting.tls.tls_settings import TLS_KEYS, TlsConfig
from .kv_table import ORDER_NAMESPACE, KvTable

DEFAULT_PORT = 9876


class NameServerConfig(Struct, frozen=True, kw_only=True):
    """What a name server is started with."""

    host: Annotated[str, Key("bindAddress", "address to listen at; 0.0.0.0 for all")] = "127.0.0.1"
    port: Annotated[int, Key("listenPort", "port to listen at; 0 takes a free one", most=65_535)] = DEFAULT_PORT
    proxies: Annotated[
        str, Key("proxyProtocolFrom", "load balancers that tell whose connection they pass on, between commas")
    ] = ""
    kv_path: Annotated[str, Key("kvConfigPath", "file that keeps the key-value table; none: in memory only")] = ""
    returns_order_table: Annotated[
        bool, Key("returnOrderTopicConfigToBroker", "tell registering brokers which topics are ordered")
    ] = True
    shows_order_table: Annotated[
        bool, Key("orderMessageEnable", "routes carry the order configuration of their topic")
    ] = False
    supports_acting_master: Annotated[
        bool,
        Key("supportActingMaster", "show the first slave of a group without master as its master, to be read from"),
    ] = False
    notifies_first: Annotated[
        bool, Key("notifyMinBrokerIdChanged", "tell brokers of a group when another one has the least brokerId")
    ] = False
    deletes_absent_topics: Annotated[
        bool, Key("deleteTopicWithBrokerRegistration", "a registration takes back the topics that it leaves out")
    ] = False
    lists_all_topics: Annotated[bool, Key("enableAllTopicList", "answer requests for the names of all topics")] = True
    lists_topics: Annotated[bool, Key("enableTopicList", "answer requests for the topics of a cluster or unit")] = True
    waits_for_service: Annotated[bool, Key("needWaitForService", "give no routes for a while after the start")] = False
    service_wait_seconds: Annotated[int, Key("waitSecondsForService", "how long, with needWaitForService")] = 45
    black_list: Annotated[
        str, Key("configBlackList", "keys that administrators may not change, between semicolons")
    ] = "configBlackList;configStorePath;kvConfigPath"
    scan_period_ms: Annotated[
        int, Key("scanNotActiveBrokerInterval", "how often to look for silent brokers", least=1)
    ] = 5000
    max_idle_seconds: Annotated[
        int, Key("serverChannelMaxIdleTimeSeconds", "a silent connection is closed", least=1)
    ] = 120
    high_water_bytes: Annotated[
        int, Key("writeBufferHighWaterMark", "unsent bytes above which a client is not read from; 0: 262144", least=0)
    ] = 0
    low_water_bytes: Annotated[int, Key("writeBufferLowWaterMark", "where that ends again; 0: 65536", least=0)] = 0

    # not read by key: TLS has rules of its own, the others are the option --advertise
    tls: TlsConfig = field(default_factory=TlsConfig)
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
        return cls(**parse_settings(cls, settings), tls=TlsConfig.from_java(settings))

    def describe(self) -> list[Setting]:
        """Return every key with its value, default and meaning."""
        return [*describe_settings(self), *describe_settings(self.tls)]


_ALWAYS_BLACK = frozenset(["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"])
_AT_START = frozenset(
    ["bindAddress", "listenPort", "proxyProtocolFrom", "serverChannelMaxIdleTimeSeconds", "notifyMinBrokerIdChanged"]
)
_log = logging.getLogger(__name__)


class LiveSettings:
    """The settings that count now, with the order configuration of topics, which is in the key-value table."""

    def __init__(self, config: NameServerConfig, kv: KvTable) -> None:
        self.config = config
        self._kv = kv

    def __repr__(self) -> str:
        return f"<LiveSettings {self.config!r}>"

    def order_for_brokers(self) -> Mapping[str, str] | None:
        """Return the order configuration that registering brokers are told, if they are."""
        return self._kv.namespace(ORDER_NAMESPACE) if self.config.returns_order_table else None

    def order_for_clients(self) -> Mapping[str, str] | None:
        """Return the order configuration that routes carry, if they do."""
        return self._kv.namespace(ORDER_NAMESPACE) if self.config.shows_order_table else None

    def black_list(self) -> frozenset[str]:
        """Return the keys that may not be changed."""
        return _ALWAYS_BLACK | set(self.config.black_list.split(";"))

    def change(self, changes: Mapping[str, str]) -> None:
        """Take new values, all or none.

        Raises:
            ConfigError: a value that cannot be used, or a key that is read at the start only.
        """
        for key in sorted((_AT_START | TLS_KEYS) & changes.keys()):
            raise ConfigError(f"{key} is read at the start only", key=key)
        self.config = replace(self.config, **parse_settings(NameServerConfig, changes))
        unknown = sorted(changes.keys() - setting_keys(NameServerConfig))
        if unknown:
            _log.warning("settings %.200s were changed, but this name server does not read them", ", ".join(unknown))

    def texts(self) -> dict[str, str]:
        """Return every key with its value, in the order of their names."""
        return {row.key: row.value for row in sorted(self.config.describe())}
