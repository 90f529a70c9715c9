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
from dataclasses import dataclass, field
from typing import Self

from ...common.errors import ConfigError
from ...common.ids import is_address
from ...common.settings import FOUND, Setting, describe_settings, format_setting, parse_settings, setting, setting_keys
from ...store.files.store_config import StoreConfig
from .java_keys import refuse_dangerous, warn_unused

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What a broker is started with; fields in the order of ``--print-config``."""

    cluster_name: str = setting("brokerClusterName", "DefaultCluster", "cluster that the broker belongs to")
    broker_name: str = setting("brokerName", _host_name, "name of the broker group; the host name unless given")
    broker_id: int = setting("brokerId", 0, "0: a master; slaves are not built")
    host: str = setting("bindAddress", "127.0.0.1", "address to listen at; 0.0.0.0 for all")
    port: int = setting("listenPort", DEFAULT_PORT, "port to listen at; 0 takes a free one", most=65_535)
    advertised_host: str = setting(
        "brokerIP1", "", "address that clients shall use; unless given, the one each client reached the server by"
    )
    nameservers: str = setting("namesrvAddr", "", "name servers to register at: host:port;host:port")
    ha_port: int = setting("haListenPort", 0, "port that slaves are told; 0 means listenPort + 1", most=65_535)
    permission: int = setting("brokerPermission", 6, "4 read + 2 write: taken from each topic's permission", most=7)
    region_id: str = setting("regionId", "DefaultRegion", "written into each message as MSG_REGION")
    is_trace_on: bool = setting("traceOn", True, "written into each message as TRACE_ON")

    auto_create_topics: bool = setting("autoCreateTopicEnable", True, "a send may create its topic")
    default_topic_queues: int = setting("defaultTopicQueueNums", 8, "queues of the template TBW102", least=1)
    auto_create_groups: bool = setting("autoCreateSubscriptionGroup", True, "a consumer may create its group")
    is_cluster_topic_enabled: bool = setting("clusterTopicEnable", True, "a topic named like the cluster is usable")
    is_broker_topic_enabled: bool = setting("brokerTopicEnable", True, "a topic named like the broker is usable")
    is_trace_topic_enabled: bool = setting("traceTopicEnable", False, "create the topic for message traces")
    trace_topic_name: str = setting("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "name of the topic for message traces")
    revive_queues: int = setting("reviveQueueNum", 8, "queues of the revive topic", least=1)
    is_timer_wheel_enabled: bool = setting("timerWheelEnable", True, "take and deliver timer messages")
    is_recall_enabled: bool = setting("recallMessageEnable", False, "let producers recall timer messages")
    recalls_when_not_writable: bool = setting(
        "allowRecallWhenBrokerNotWriteable", True, "also while brokerPermission forbids to write"
    )

    is_long_polling_enabled: bool = setting("longPollingEnable", True, "hold a pull that finds nothing")
    short_polling_ms: int = setting("shortPollingTimeMills", 1000, "how long to hold without long polling")
    takes_property_filters: bool = setting("enablePropertyFilter", False, "let consumers filter by SQL92 expressions")
    filters_retries: bool = setting("filterSupportRetry", False, "filter retried messages by properties, too")
    filter_keep_ms: int = setting(
        "filterDataCleanTimeSpan", 86_400_000, "how long the filter of a group without members is kept"
    )
    filter_consumers: int = setting(
        "expectConsumerNumUseFilter",
        32,
        "consumers with filters that a Java broker reckons with",
        least=1,
        most=1 << 20,
    )
    filter_error_percent: int = setting(
        "maxErrorRateOfBloomFilter", 20, "error rate that a Java broker lets their bits have", least=1, most=99
    )
    reads_slaves: bool = setting("slaveReadEnable", False, "send consumers that are far behind to a slave")
    is_lite_pull_enabled: bool = setting("litePullMessageEnable", True, "answer lite pulls")
    default_query_count: int = setting("defaultQueryMaxNum", 32, "messages of a query by unique key", least=1)

    flush_offsets_ms: int = setting("flushConsumerOffsetInterval", 5000, "how often offsets are saved", least=1)
    offset_version_step: int = setting(
        "consumerOffsetUpdateVersionStep", 500, "commits after which the offsets count as changed", least=1
    )
    flush_delays_ms: int = setting(
        "flushDelayOffsetInterval", 10_000, "how often the progress of delayed messages is saved", least=1
    )
    delay_version_step: int = setting(
        "delayOffsetUpdateVersionStep", 200, "deliveries after which that progress has a new version", least=1
    )
    refuses_transactions: bool = setting("rejectTransactionMessage", False, "refuse messages of transactions")
    check_period_ms: int = setting(
        "transactionCheckInterval", 30_000, "how often open transactions are checked", least=1
    )
    transaction_timeout_ms: int = setting("transactionTimeOut", 6_000, "age at which producers are asked about one")
    most_checks: int = setting("transactionCheckMax", 15, "how often they are asked before it is given up")
    most_op_bytes: int = setting(
        "transactionOpMsgMaxSize", 4096, "about the longest body of a record of settled transactions", least=1
    )
    resets_on_server: bool = setting(
        "useServerSideResetOffset", True, "move groups in the broker; false: have their members do it, as before 5.0"
    )
    stores_replies: bool = setting("storeReplyMessageEnable", True, "store replies to requests in their topic as well")
    channel_expiry_ms: int = setting("channelExpiredTimeout", 120_000, "silence after which a client is dropped")
    notifies_members: bool = setting("notifyConsumerIdsChangedEnable", True, "tell a group when its members change")
    register_period_ms: int = setting("registerNameServerPeriod", 30_000, "how often to register; 10 s to 60 s count")
    splits_registration: bool = setting(
        "enableSplitRegistration", False, "register topics in parts, also those that fit one"
    )
    split_topics: int = setting("splitRegistrationSize", 800, "topics of such a part", least=2)
    announces_single_topics: bool = setting(
        "enableSingleTopicRegister",
        True,
        "tell name servers of a new topic alone; false: by a registration, for which some forget other topics",
    )
    register_timeout_ms: int = setting("registerBrokerTimeoutMills", 24_000, "time limit of a registration", least=1)
    max_idle_seconds: int = setting("serverChannelMaxIdleTimeSeconds", 120, "a silent connection is closed", least=1)
    high_water_bytes: int = setting(
        "writeBufferHighWaterMark", 0, "unsent bytes above which a client is not read from; 0: 262144", least=0
    )
    low_water_bytes: int = setting("writeBufferLowWaterMark", 0, "where that ends again; 0: 65536", least=0)

    fails_fast: bool = setting("brokerFastFailureEnable", True, "answer busy to sends that a stalled disk delays")
    send_wait_ms: int = setting("waitTimeMillsInSendQueue", 200, "how long such a send waits")
    most_waiting_sends: int = setting("sendThreadPoolQueueCapacity", 10_000, "how many of them may wait", least=1)
    disk_stall_ms: int = setting(
        "osPageCacheBusyTimeOutMills", 1000, "how long no flush has ended when the disk counts as stalled", least=1
    )

    metrics_exporter: str = setting("metricsExporterType", "DISABLE", "PROM serves metrics over HTTP")
    metrics_port: int = setting(
        "metricsPromExporterPort", DEFAULT_METRICS_PORT, "port of the metrics; 0 takes a free one", most=65_535
    )
    metrics_host: str = setting("metricsPromExporterHost", "", "address of the metrics; bindAddress unless given")
    metrics_label: str = setting("metricsLabel", "", "labels of all metrics: name:value,name:value")

    black_list: str = setting(
        "configBlackList",
        "configBlackList;brokerConfigPath",
        "keys that administrators may not change, between semicolons",
    )

    # not read by key: the store reads its own, the port is part of the option --advertise, repairs is --repair; the
    # file of settings is that of --config; given are the keys that the start names
    store: StoreConfig = field(default_factory=lambda: StoreConfig("~/store"))
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
        config = cls(store=store, given=frozenset(settings), **parse_settings(cls, settings))
        warn_unused(settings, used=setting_keys(cls) | {row.key for row in describe_store(store)})
        return config

    @property
    def given_keys(self) -> frozenset[str]:
        """The keys that the start names, or a program has set to something else than their default."""
        rows = self.describe()
        return self.given | {row.key for row in rows if row.value != row.default and row.default != FOUND}

    def describe(self) -> list[Setting]:
        """Return every key that rocketlet uses, with its value, default and meaning."""
        return describe_settings(self) + describe_store(self.store)
