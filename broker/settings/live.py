"""The settings of a running broker: those that count now, and which of them may become others while it runs.

Rules (``Configuration``; spec behaviour.md D.1)

    1. ``LiveSettings.config`` is replaced as a whole. Whoever reads a live key reads it there, where it is used.
    2. A change is taken whole or not at all. A key of rocketlet that is not live is refused: it is read at the start
       only. A key that must not be neglected is refused as at a start, and so is a value that cannot be used.
    3. What rocketlet does not use has no effect, which is said in the log as at a start.
    4. A pause of a job that has begun ends by the period that it began with.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from ...common.errors import ConfigError
from ...common.settings import parse_settings
from ...store.files.store_config import LIVE_STORE_KEYS
from .config import BrokerConfig
from .java_keys import refuse_dangerous, warn_unused
from .pop import LIVE_POP_KEYS, PopConfig
from .replication import LIVE_REPLICATION_KEYS, ReplicationConfig

LIVE_KEYS: Final = (
    LIVE_STORE_KEYS
    | LIVE_REPLICATION_KEYS
    | LIVE_POP_KEYS
    | frozenset(
        [
            *("brokerPermission", "regionId", "traceOn", "autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
            *(
                "rejectTransactionMessage",
                "enableMixedMessageType",
                "recallMessageEnable",
                "allowRecallWhenBrokerNotWriteable",
            ),
            *("longPollingEnable", "shortPollingTimeMills", "enablePropertyFilter", "filterSupportRetry"),
            *("slaveReadEnable", "litePullMessageEnable", "defaultQueryMaxNum", "storeReplyMessageEnable"),
            "useServerSideResetOffset",
            *("notifyConsumerIdsChangedEnable", "channelExpiredTimeout", "flushConsumerOffsetInterval"),
            *("transactionTimeOut", "transactionCheckMax", "transactionCheckInterval"),
            *("waitTimeMillsInSendQueue", "sendThreadPoolQueueCapacity", "osPageCacheBusyTimeOutMills"),
            *(
                "registerNameServerPeriod",
                "enableSplitRegistration",
                "splitRegistrationSize",
                "enableSingleTopicRegister",
            ),
        ]
    )
)
_ALWAYS_BLACK = frozenset(["configBlackList", "brokerConfigPath", "rocketmqHome"])
_MOST_HINTS = 3


def change_config(config: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    """Return the settings with other values of live keys.

    Raises:
        ConfigError: a value that cannot be used, or a key that is not live or must not be neglected; ``key`` names it.
    """
    refuse_dangerous(changes)
    used = config.used_keys
    for key in sorted((used - LIVE_KEYS) & changes.keys()):
        hint = "set it in the settings file or with --set, and start the broker again"
        raise ConfigError(f"{key} is read at the start only: {hint}", key=key)
    store = config.store.changed(changes)
    replication = replace(config.replication, **parse_settings(ReplicationConfig, changes))
    pop = replace(config.pop, **parse_settings(PopConfig, changes))
    changed = replace(config, store=store, replication=replication, pop=pop, **parse_settings(BrokerConfig, changes))
    warn_unused(changes, used=used, most_hints=_MOST_HINTS)
    return changed


class LiveSettings:
    """The settings that count now, and the address by which this broker names itself."""

    def __init__(self, config: BrokerConfig, ip: str) -> None:
        self.config = config
        self.ip = ip
        self._subscribers: list[Callable[[BrokerConfig], object]] = []

    def __repr__(self) -> str:
        return f"<LiveSettings of {self.config.broker_name}>"

    def forbids(self, doing: str) -> str:
        """Return the sentence for what the broker's permission does not allow."""
        return f"the broker[{self.ip}] {doing} is forbidden"

    def subscribe(self, changed: Callable[[BrokerConfig], object]) -> None:
        """Have somebody called after each change, with the settings before it; it must not fail."""
        self._subscribers.append(changed)

    def black_list(self) -> frozenset[str]:
        """Return the keys that may not be changed."""
        return _ALWAYS_BLACK | set(self.config.black_list.split(";"))

    def change(self, changes: Mapping[str, str]) -> dict[str, str]:
        """Take new values, all or none; return those that have an effect.

        Raises:
            ConfigError: a value that cannot be used, or a key that is not live; ``key`` names it.
        """
        before, self.config = self.config, change_config(self.config, changes)
        for changed in self._subscribers:
            changed(before)
        return {key: value.strip() for key, value in changes.items() if key in LIVE_KEYS}

    def texts(self) -> dict[str, str]:
        """Return every key with its value, in the order of their names."""
        return {row.key: row.value for row in sorted(self.config.describe())}
