"""The broker's settings, by Java's keys: which are read, what they may be, and how ``--print-config`` lists them.

Rules (DESIGN "settings")
    1. A key that rocketlet uses is checked: a value that does not parse or is out of range stops the start. (Java
       ignores such a value silently.)
    2. A key whose neglect would lose data, split a role or open access stops the start unless its value asks for
       nothing (``java_keys.py``).
    3. Another key that Java knows is accepted and warned about by name; a key that nobody knows is warned about with
       the nearest known one.

The store's keys stand in ``store/files/config.py``; both are read from one mapping.
"""

import logging
import re
import socket
from collections.abc import Mapping
from typing import Annotated, Self

from msgspec import Struct, field
from msgspec.structs import force_setattr

from ...common.errors import ConfigError
from ...common.ids import is_address
from ...common.settings import (
    FOUND,
    Key,
    Setting,
    describe_settings,
    format_setting,
    parse_settings,
    secret_keys,
    setting_keys,
)
from ...remoting.tls.tls_settings import TLS_KEYS, TlsConfig
from ...store.files.store_config import StoreConfig
from .grpc import GrpcConfig
from .java_keys import refuse_dangerous, warn_unused
from .pop import PopConfig
from .replication import ReplicationConfig
from .security import SecurityConfig

_ROWS = (
    ("storePathRootDir", "root", "directory of the store"),
    (
        "storePathCommitLog",
        "log_path_list",
        "directories of the commit log, between commas; commitlog in the store unless given",
    ),
    ("readOnlyCommitLogStorePaths", "read_only_path_list", "directories of the commit log that get no new files"),
    ("mappedFileSizeCommitLog", "segment_bytes", "length of a commit log file"),
    ("mappedFileSizeConsumeQueue", "queue_file_bytes", "length of a consume queue file"),
    ("mapperFileSizeBatchConsumeQueue", "batch_file_bytes", "length of a batch consume queue file"),
    ("maxHashSlotNum", "index_slots", "hash slots of an index file"),
    ("maxIndexNum", "index_entries", "entries of an index file"),
    ("messageIndexEnable", "has_index", "index messages by key"),
    ("maxMessageSize", "max_message_bytes", "longest body"),
    ("flushDiskType", "flush_disk_type", "ASYNC_FLUSH, or SYNC_FLUSH: a send is answered when it is on disk"),
    ("syncFlushTimeout", "sync_flush_timeout_ms", "how long a send waits for the disk under SYNC_FLUSH"),
    ("flushIntervalCommitLog", "flush_log_interval_ms", "how often to look whether the log is to be flushed"),
    ("flushCommitLogTimed", "is_log_flush_timed", "accepted; the log is flushed at its interval either way"),
    ("flushCommitLogLeastPages", "flush_log_least_pages", "pages of 4 KiB that are worth a flush of the log"),
    ("flushCommitLogThoroughInterval", "flush_log_thorough_ms", "how often the log is flushed whatever was written"),
    ("flushIntervalConsumeQueue", "flush_queue_interval_ms", "how often to look which queues are to be flushed"),
    ("flushConsumeQueueLeastPages", "flush_queue_least_pages", "pages of 4 KiB that are worth a flush of a queue"),
    ("flushConsumeQueueThoroughInterval", "flush_queue_thorough_ms", "how often all queues are flushed"),
    ("checkCRCOnRecover", "checks_crc", "check bodies when a store is recovered"),
    ("enabledAppendPropCRC", "seals_records", "end each record with a checksum of all its bytes"),
    ("forceVerifyPropCRC", "demands_seals", "take records without that checksum for damage"),
    ("maxFilterMessageSize", "max_scan_bytes", "bytes of queue entries that one pull looks at"),
    ("accessMessageInMemoryMaxRatio", "in_memory_percent", "share of memory that counts as the hot end of the log"),
    ("maxTransferBytesOnMessageInMemory", "max_memory_bytes", "bytes of a pull near the end of the log"),
    ("maxTransferCountOnMessageInMemory", "max_memory_messages", "messages of a pull near the end of the log"),
    ("maxTransferBytesOnMessageInDisk", "max_disk_bytes", "bytes of a pull further behind"),
    ("maxTransferCountOnMessageInDisk", "max_disk_messages", "messages of a pull further behind"),
    ("messageDelayLevel", "delay_levels", "delays of the levels 1, 2, … in s, m, h or d"),
    ("maxMsgsNumBatch", "max_query_messages", "messages of a query by key"),
)


def describe_store(config: StoreConfig) -> list[Setting]:
    """Return every store setting with its value, default and meaning."""
    default = StoreConfig("~/store")
    rows = [
        Setting(key, format_setting(getattr(config, name)), format_setting(getattr(default, name)), meaning)
        for key, name, meaning in _ROWS
    ]
    return rows + describe_settings(config.cleaning) + describe_settings(config.timers)


DEFAULT_PORT = 10911
DEFAULT_METRICS_PORT = 5557
_LONGEST_REGION = 255  # it is in each message
_LEAST_PERIOD_MS, _MOST_PERIOD_MS = 10_000, 60_000
_OTHER_EXPORTERS = ("OTLP_GRPC", "LOG")
_EXPORTERS = ("DISABLE", "PROM", *_OTHER_EXPORTERS)
_METRICS_LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*):([^:,]*)")
_log = logging.getLogger(__name__)


def parse_metrics_labels(text: str) -> dict[str, str]:
    """Return the labels that ``metricsLabel`` names.

    Raises:
        ConfigError: a part is no ``name:value``, or a name that Prometheus keeps for itself.
    """
    labels: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = _METRICS_LABEL.fullmatch(part)
        if match is None or part.startswith("__"):
            raise ConfigError(f"metricsLabel has {part!r}, which is no name:value", key="metricsLabel")
        labels[match[1]] = match[2]
    return labels


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


class BrokerConfig(Struct, frozen=True, kw_only=True):
    """What a broker is started with; fields in the order of ``--print-config``."""

    cluster_name: Annotated[str, Key("brokerClusterName", "cluster that the broker belongs to")] = "DefaultCluster"
    broker_name: Annotated[str, Key("brokerName", "name of the broker group; the host name unless given")] = field(
        default_factory=_host_name
    )
    broker_id: Annotated[
        int,
        Key(
            "brokerId",
            "of a slave: above 0, and another one than those of the others; a master has 0",
            least=-(1 << 63),
        ),
    ] = 0
    host: Annotated[str, Key("bindAddress", "address to listen at; 0.0.0.0 for all")] = "127.0.0.1"
    port: Annotated[int, Key("listenPort", "port to listen at; 0 takes a free one", most=65_535)] = DEFAULT_PORT
    proxies: Annotated[
        str, Key("proxyProtocolFrom", "load balancers that tell whose connection they pass on, between commas")
    ] = ""
    advertised_host: Annotated[
        str, Key("brokerIP1", "address that clients shall use; unless given, the one each client reached the server by")
    ] = ""
    nameservers: Annotated[str, Key("namesrvAddr", "name servers to register at: host:port;host:port")] = ""
    permission: Annotated[
        int, Key("brokerPermission", "4 read + 2 write: taken from each topic's permission", most=7)
    ] = 6
    region_id: Annotated[str, Key("regionId", "written into each message as MSG_REGION")] = "DefaultRegion"
    is_trace_on: Annotated[bool, Key("traceOn", "written into each message as TRACE_ON")] = True

    auto_create_topics: Annotated[bool, Key("autoCreateTopicEnable", "a send may create its topic")] = True
    default_topic_queues: Annotated[int, Key("defaultTopicQueueNums", "queues of the template TBW102", least=1)] = 8
    auto_create_groups: Annotated[bool, Key("autoCreateSubscriptionGroup", "a consumer may create its group")] = True
    is_cluster_topic_enabled: Annotated[bool, Key("clusterTopicEnable", "a topic named like the cluster is usable")] = (
        True
    )
    is_broker_topic_enabled: Annotated[bool, Key("brokerTopicEnable", "a topic named like the broker is usable")] = True
    is_trace_topic_enabled: Annotated[bool, Key("traceTopicEnable", "create the topic for message traces")] = False
    trace_topic_name: Annotated[str, Key("msgTraceTopicName", "name of the topic for message traces")] = (
        "RMQ_SYS_TRACE_TOPIC"
    )
    revive_queues: Annotated[int, Key("reviveQueueNum", "queues of the revive topic", least=1)] = 8
    is_timer_wheel_enabled: Annotated[bool, Key("timerWheelEnable", "take and deliver timer messages")] = True
    allows_mixed_topics: Annotated[bool, Key("enableMixedMessageType", "let topics be made of type MIXED")] = False
    is_recall_enabled: Annotated[bool, Key("recallMessageEnable", "let producers recall timer messages")] = False
    recalls_when_not_writable: Annotated[
        bool, Key("allowRecallWhenBrokerNotWriteable", "also while brokerPermission forbids to write")
    ] = True

    is_long_polling_enabled: Annotated[bool, Key("longPollingEnable", "hold a pull that finds nothing")] = True
    short_polling_ms: Annotated[int, Key("shortPollingTimeMills", "how long to hold without long polling")] = 1000
    takes_property_filters: Annotated[
        bool, Key("enablePropertyFilter", "let consumers filter by SQL92 expressions")
    ] = False
    filters_retries: Annotated[bool, Key("filterSupportRetry", "filter retried messages by properties, too")] = False
    filter_keep_ms: Annotated[
        int, Key("filterDataCleanTimeSpan", "how long the filter of a group without members is kept")
    ] = 86_400_000
    filter_consumers: Annotated[
        int,
        Key(
            "expectConsumerNumUseFilter",
            "consumers with filters that a Java broker reckons with",
            least=1,
            most=1 << 20,
        ),
    ] = 32
    filter_error_percent: Annotated[
        int, Key("maxErrorRateOfBloomFilter", "error rate that a Java broker lets their bits have", least=1, most=99)
    ] = 20
    reads_slaves: Annotated[bool, Key("slaveReadEnable", "send consumers that are far behind to a slave")] = False
    is_lite_pull_enabled: Annotated[bool, Key("litePullMessageEnable", "answer lite pulls")] = True
    default_query_count: Annotated[int, Key("defaultQueryMaxNum", "messages of a query by unique key", least=1)] = 32

    flush_offsets_ms: Annotated[int, Key("flushConsumerOffsetInterval", "how often offsets are saved", least=1)] = 5000
    offset_version_step: Annotated[
        int, Key("consumerOffsetUpdateVersionStep", "commits after which the offsets count as changed", least=1)
    ] = 500
    flush_delays_ms: Annotated[
        int, Key("flushDelayOffsetInterval", "how often the progress of delayed messages is saved", least=1)
    ] = 10_000
    delay_version_step: Annotated[
        int, Key("delayOffsetUpdateVersionStep", "deliveries after which that progress has a new version", least=1)
    ] = 200
    refuses_transactions: Annotated[bool, Key("rejectTransactionMessage", "refuse messages of transactions")] = False
    check_period_ms: Annotated[
        int, Key("transactionCheckInterval", "how often open transactions are checked", least=1)
    ] = 30_000
    transaction_timeout_ms: Annotated[int, Key("transactionTimeOut", "age at which producers are asked about one")] = (
        6_000
    )
    most_checks: Annotated[int, Key("transactionCheckMax", "how often they are asked before it is given up")] = 15
    most_op_bytes: Annotated[
        int, Key("transactionOpMsgMaxSize", "about the longest body of a record of settled transactions", least=1)
    ] = 4096
    resets_on_server: Annotated[
        bool,
        Key("useServerSideResetOffset", "move groups in the broker; false: have their members do it, as before 5.0"),
    ] = True
    stores_replies: Annotated[
        bool, Key("storeReplyMessageEnable", "store replies to requests in their topic as well")
    ] = True
    channel_expiry_ms: Annotated[int, Key("channelExpiredTimeout", "silence after which a client is dropped")] = 120_000
    notifies_members: Annotated[bool, Key("notifyConsumerIdsChangedEnable", "tell a group when its members change")] = (
        True
    )
    register_period_ms: Annotated[int, Key("registerNameServerPeriod", "how often to register; 10 s to 60 s count")] = (
        30_000
    )
    splits_registration: Annotated[
        bool, Key("enableSplitRegistration", "register topics in parts, also those that fit one")
    ] = False
    split_topics: Annotated[int, Key("splitRegistrationSize", "topics of such a part", least=2)] = 800
    announces_single_topics: Annotated[
        bool,
        Key(
            "enableSingleTopicRegister",
            "tell name servers of a new topic alone; false: by a registration, for which some forget other topics",
        ),
    ] = True
    register_timeout_ms: Annotated[int, Key("registerBrokerTimeoutMills", "time limit of a registration", least=1)] = (
        24_000
    )
    max_idle_seconds: Annotated[
        int, Key("serverChannelMaxIdleTimeSeconds", "a silent connection is closed", least=1)
    ] = 120
    high_water_bytes: Annotated[
        int, Key("writeBufferHighWaterMark", "unsent bytes above which a client is not read from; 0: 262144", least=0)
    ] = 0
    low_water_bytes: Annotated[int, Key("writeBufferLowWaterMark", "where that ends again; 0: 65536", least=0)] = 0
    busy_poll_us: Annotated[
        int,
        Key(
            "busyPollMicros",
            "instead of sleeping, look for the next request of who asks as often, one by one; 0: never; not Java's",
            most=10_000,
        ),
    ] = 300

    fails_fast: Annotated[bool, Key("brokerFastFailureEnable", "answer busy to sends that a stalled disk delays")] = (
        True
    )
    send_wait_ms: Annotated[int, Key("waitTimeMillsInSendQueue", "how long such a send waits")] = 200
    most_waiting_sends: Annotated[int, Key("sendThreadPoolQueueCapacity", "how many of them may wait", least=1)] = (
        10_000
    )
    disk_stall_ms: Annotated[
        int, Key("osPageCacheBusyTimeOutMills", "how long no flush has ended when the disk counts as stalled", least=1)
    ] = 1000

    metrics_exporter: Annotated[str, Key("metricsExporterType", "PROM serves metrics over HTTP")] = "DISABLE"
    metrics_port: Annotated[
        int, Key("metricsPromExporterPort", "port of the metrics; 0 takes a free one", most=65_535)
    ] = DEFAULT_METRICS_PORT
    metrics_host: Annotated[str, Key("metricsPromExporterHost", "address of the metrics; bindAddress unless given")] = (
        ""
    )
    metrics_label: Annotated[str, Key("metricsLabel", "labels of all metrics: name:value,name:value")] = ""

    black_list: Annotated[
        str, Key("configBlackList", "keys that administrators may not change, between semicolons")
    ] = "configBlackList;brokerConfigPath"

    # not read by key: the store reads its own, the port is part of the option --advertise, repairs is --repair; the
    # file of settings is that of --config; given are the keys that the start names
    store: StoreConfig = field(default_factory=lambda: StoreConfig("~/store"))
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    pop: PopConfig = field(default_factory=PopConfig)
    grpc: GrpcConfig = field(default_factory=GrpcConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    advertised_port: int = 0
    repairs: bool = False
    settings_file: str = ""
    given: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for key, name in (("brokerClusterName", self.cluster_name), ("brokerName", self.broker_name)):
            if not name or "/" in name or not name.isprintable():
                raise ConfigError(f"{key} is {name!r}, it must be printable and hold no slash", key=key)
        if not self.region_id.isprintable() or len(self.region_id) > _LONGEST_REGION:
            limit = f"it must be printable and have {_LONGEST_REGION} characters at most"
            raise ConfigError(f"regionId is {self.region_id[:_LONGEST_REGION]!r}, {limit}", key="regionId")
        if self.replication.is_slave and self.broker_id <= 0:
            raise ConfigError(f"brokerId is {self.broker_id}, a slave's must be above 0", key="brokerId")
        if not self.replication.is_slave:
            force_setattr(self, "broker_id", 0)  # whatever the settings say, as in Java
        if not self.host:
            raise ConfigError("bindAddress is empty; 0.0.0.0 means every address of this machine", key="bindAddress")
        if self.metrics_exporter not in _EXPORTERS:
            limit = f"it must be one of {', '.join(_EXPORTERS)}"
            raise ConfigError(f"metricsExporterType is {self.metrics_exporter!r}, {limit}", key="metricsExporterType")
        if self.metrics_exporter in _OTHER_EXPORTERS:
            _log.warning("metricsExporterType=%s has no effect: only PROM is built", self.metrics_exporter)
        parse_metrics_labels(self.metrics_label)
        for address in self.nameserver_list:
            if not is_address(address):
                raise ConfigError(f"namesrvAddr names {address!r}, which is no host:port", key="namesrvAddr")

    @property
    def nameserver_list(self) -> tuple[str, ...]:
        """The addresses in ``nameservers``."""
        return tuple(address for part in self.nameservers.split(";") if (address := part.strip()))

    @property
    def register_every_ms(self) -> int:
        """The period of registration, within Java's bounds."""
        return min(max(self.register_period_ms, _LEAST_PERIOD_MS), _MOST_PERIOD_MS)

    @classmethod
    def from_java(cls, settings: Mapping[str, str]) -> Self:
        """Read settings with Java's keys.

        Raises:
            ConfigError: a value that cannot be used, or a key that must not be neglected; ``key`` names it.
        """
        refuse_dangerous(settings)
        store = StoreConfig.from_java(settings)
        replication = ReplicationConfig(**parse_settings(ReplicationConfig, settings))
        pop = PopConfig(**parse_settings(PopConfig, settings))
        grpc = GrpcConfig(**parse_settings(GrpcConfig, settings))
        security = SecurityConfig(**parse_settings(SecurityConfig, settings))
        fields = parse_settings(cls, settings)
        tls = TlsConfig.from_java(settings)
        parts = {"store": store, "replication": replication, "pop": pop, "grpc": grpc, "security": security}
        config = cls(**parts, tls=tls, given=frozenset(settings), **fields)
        warn_unused(settings, used=config.used_keys)
        return config

    @property
    def used_keys(self) -> frozenset[str]:
        """The keys that have a meaning here."""
        parts = (BrokerConfig, ReplicationConfig, PopConfig, GrpcConfig, SecurityConfig)
        own = frozenset(key for part in parts for key in setting_keys(part))
        return own | TLS_KEYS | {row.key for row in describe_store(self.store)}

    @property
    def given_keys(self) -> frozenset[str]:
        """The keys that the start names, or a program has set to something else than their default."""
        rows = self.describe()
        return self.given | {row.key for row in rows if row.value != row.default and row.default != FOUND}

    def describe(self) -> list[Setting]:
        """Return every key that rocketlet uses, with its value, default and meaning."""
        return [
            *describe_settings(self),
            *describe_settings(self.replication),
            *describe_settings(self.pop),
            *describe_settings(self.grpc),
            *describe_settings(self.security),
            *describe_settings(self.tls),
            *describe_store(self.store),
        ]


SECRET_KEYS = secret_keys(SecurityConfig) | secret_keys(TlsConfig)
"""The keys whose values nobody is shown."""
