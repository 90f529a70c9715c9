"""What can be set at producers and consumers, with Java's defaults.

Names are ours; the Java property is named beside each. A value outside Java's range is a ``ConfigError`` with the name
of the setting as its key.

Under TLS (Java's ``useTLS`` and ``tls.client.*``) brokers and name servers, official ones and ours, take plain and TLS
connections on one port (mode permissive), with a certificate that they make up unless they are given one. Unlike Java,
we check the server's certificate unless told otherwise, and its host name as well when ``checks_host_name`` is set:
addresses come from routes, as numbers, and certificates seldom hold those.
"""

import enum
import os
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from ...common.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from ...common.compression import CompressionKind, check_available
from ...common.errors import ConfigError
from ...common.names import (
    AUTO_CREATE_TOPIC,
    DEFAULT_CONSUMER_GROUP,
    DEFAULT_PRODUCER_GROUP,
    client_group_remark,
    client_topic_remark,
)
from ...remoting.transport.addresses import is_ip_address
from .hooks import Hook, HookSource, RpcHook, check_hooks, hooks_of


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and secret key of a user (Java's ``SessionCredentials``); temporary ones have a token as well."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse empty keys."""
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise ConfigError(f"credentials have an empty {name}", key=f"credentials.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to use TLS: whom to trust, and the certificate to show where the server asks for one.

    ``Tls(verifies=False)`` encrypts but takes any server for the right one.
    """

    trust_file: str | Path | None = None  # tls.client.trustCertPath; without it those that the system trusts
    certificate_file: str | Path | None = None  # tls.client.certPath
    key_file: str | Path | None = None  # tls.client.keyPath
    key_password: str | None = field(default=None, repr=False)  # tls.client.keyPassword
    verifies: bool = True  # tls.client.authServer, which is false by default
    checks_host_name: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.key_file is not None and self.certificate_file is None:
            raise ConfigError("tls has a key_file and no certificate_file", key="tls.certificate_file")
        if self.checks_host_name and not self.verifies:
            raise ConfigError("tls checks the host name only of servers that it verifies", key="tls.verifies")


def ssl_context_of(tls: Tls | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the context for connections, or None for plain ones.

    Raises:
        ConfigError: a file is missing or is not what it should be.
    """
    if not isinstance(tls, Tls):
        return tls
    used = str(tls.trust_file or "certificates of the system")
    try:
        context = ssl.create_default_context(cafile=tls.trust_file)
        context.check_hostname = tls.checks_host_name
        context.verify_mode = ssl.CERT_REQUIRED if tls.verifies else ssl.CERT_NONE
        if tls.certificate_file is not None:
            used = " or ".join(str(path) for path in (tls.certificate_file, tls.key_file) if path is not None)
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    except OSError as error:  # SSLError is one
        raise ConfigError(f"tls cannot be used: {used}: {error.strerror or error}", key="tls") from error
    return context


class ConsumeFrom(enum.Enum):
    """Where a group begins in a queue that it has no offset for (Java's ``ConsumeFromWhere``)."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class FlowLimits(NamedTuple):
    """How much of one queue may be buffered before pulling pauses (Java's ``pullThresholdForQueue`` and others)."""

    max_messages: int = 1000
    max_bytes: int = 100 * 1024 * 1024
    max_span: int = 2000


MIB = 1024 * 1024
DEFAULT_LIMITS = FlowLimits()
Chosen = TypeVar("Chosen")
NAMESERVER_VARIABLE = "NAMESRV_ADDR"
RESERVED_GROUPS = frozenset({DEFAULT_PRODUCER_GROUP, DEFAULT_CONSUMER_GROUP})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of a session, which producers and consumers have as well (Java's ``ClientConfig``)."""

    credentials: Credentials | None = None  # the RPCHook that DefaultMQProducer and others are built with
    tls: Tls | ssl.SSLContext | None = None  # useTLS
    namespace: str = ""
    client_host: str | None = None  # clientIP; that from which this machine reaches others, unless it is set
    instance_name: str | None = None  # instanceName; "process id#nanoseconds" unless it is set
    unit_name: str = ""  # unitName
    is_unit_mode: bool = False  # unitMode
    hooks: Sequence[Hook | HookSource] = ()
    heartbeat_interval_ms: int = 30_000  # heartbeatBrokerInterval

    def __post_init__(self) -> None:
        """Check names and hooks."""
        if self.client_host is not None and not is_ip_address(self.client_host):
            raise ConfigError(f"client_host {self.client_host!r} is no IP address", key="client_host")
        if self.namespace:
            _check_namespace(self.namespace)
        check_hooks(self.hooks)
        _check_range(self, "heartbeat_interval_ms", 1, 1 << 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """Settings of a ``Producer`` (Java's ``DefaultMQProducer``)."""

    send_timeout_ms: int = 3000  # sendMsgTimeout, for the whole call with its retries
    attempt_timeout_ms: int | None = None  # sendMsgMaxTimeoutPerRequest, so that a silent broker leaves time for others
    retries: int = 2  # retryTimesWhenSendFailed
    retries_nowait: int = 2  # retryTimesWhenSendAsyncFailed
    tries_another_broker_when_not_stored_ok: bool = False  # retryAnotherBrokerWhenNotStoreOK
    avoids_slow_brokers: bool = False  # sendLatencyFaultEnable
    compress_from_bytes: int = 4096  # compressMsgBodyOverHowmuch
    compression: CompressionKind = CompressionKind.ZLIB  # compressType
    compression_level: int = 5  # compressLevel
    max_message_bytes: int = 4 * MIB  # maxMessageSize
    auto_batch: bool = False  # autoBatch
    batch_hold_ms: int = 10  # batchMaxDelayMs
    batch_bytes: int = 32 * 1024  # batchMaxBytes
    batch_total_bytes: int = 32 * MIB  # totalBatchMaxBytes
    template_topic: str = AUTO_CREATE_TOPIC  # createTopicKey
    new_topic_queues: int = 4  # defaultTopicQueueNums

    def __post_init__(self) -> None:
        """Check the ranges."""
        ClientSettings.__post_init__(self)
        _check_range(self, "send_timeout_ms", 1, 1 << 31)
        if self.attempt_timeout_ms is not None:
            _check_range(self, "attempt_timeout_ms", 1, 1 << 31)
        _check_range(self, "retries", 0, 1 << 31)
        _check_range(self, "retries_nowait", 0, 1 << 31)
        _check_range(self, "compress_from_bytes", 1, 1 << 31)
        _check_range(self, "compression_level", 0, 9)
        _check_range(self, "max_message_bytes", 1, 1 << 31)
        _check_range(self, "batch_hold_ms", 1, 30_000)
        _check_range(self, "batch_bytes", 1, 2 * MIB)
        _check_range(self, "batch_total_bytes", 1, 1 << 40)
        _check_range(self, "new_topic_queues", 1, 1 << 16)
        _check_compression(self.compression)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionProducerSettings(ProducerSettings):
    """Settings of a ``TransactionProducer`` (Java's ``TransactionMQProducer``)."""

    checks_at_once: int = 1  # checkThreadPoolMinSize and checkThreadPoolMaxSize
    max_waiting_checks: int = 2000  # checkRequestHoldMax
    listener_threads: int = 20  # for a listener of plain functions; Java's runs in the sender's thread
    close_timeout_ms: int = 10_000  # how long closing waits for a listener that is running

    def __post_init__(self) -> None:
        """Check the ranges."""
        ProducerSettings.__post_init__(self)
        _check_range(self, "checks_at_once", 1, 1000)
        _check_range(self, "max_waiting_checks", 1, 1 << 31)
        _check_range(self, "listener_threads", 1, 1000)
        _check_range(self, "close_timeout_ms", 0, 1 << 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerSettings(ClientSettings):
    """Settings of a ``PushConsumer`` (Java's ``DefaultMQPushConsumer``)."""

    consume_from: ConsumeFrom = ConsumeFrom.LAST  # consumeFromWhere
    consume_from_at_ms: int | None = None  # consumeTimestamp; half an hour before the start unless set
    strategy: AllocateMessageQueueStrategy = field(default_factory=AllocateMessageQueueAveragely)
    concurrency: int = 20  # consumeThreadMin and consumeThreadMax
    batch_messages: int = 1  # consumeMessageBatchMaxSize
    pull_messages: int = 32  # pullBatchSize
    pull_bytes: int = 256 * 1024  # pullBatchSizeInBytes
    limits: FlowLimits = DEFAULT_LIMITS
    max_topic_messages: int | None = None  # pullThresholdForTopic; divided among the owned queues
    max_topic_bytes: int | None = None  # pullThresholdSizeForTopic
    max_retries: int = -1  # maxReconsumeTimes; -1 = 16, or without end for an orderly consumer
    consume_timeout_ms: int = 15 * 60_000  # consumeTimeout
    is_orderly: bool = False  # a MessageListenerOrderly instead of a MessageListenerConcurrently
    commits_itself: bool = True  # autoCommit of its context
    pause_ms: int = 1_000  # suspendCurrentQueueTimeMillis
    is_broadcast: bool = False  # messageModel BROADCASTING
    by_pop: bool = False  # what setMessageRequestMode makes of Java's; brokers hand messages out, no queues are shared
    invisible_ms: int = 60_000  # popInvisibleTime; for how long, by POP
    pop_messages: int = 32  # popBatchNums
    max_in_hand: int = 96  # popThresholdForQueue; of one topic from one broker
    offset_directory: str | None = None  # rocketmq.client.localOffsetStoreDir; ~/.rocketmq_offsets
    posts_subscription: bool = False  # postSubscriptionWhenPull
    rebalance_interval_ms: int = 20_000
    commit_interval_ms: int = 5_000  # persistConsumerOffsetInterval
    close_timeout_ms: int = 10_000  # how long closing waits for listeners that are running

    def __post_init__(self) -> None:
        """Check the ranges (``checkConfig`` of Java's consumer)."""
        ClientSettings.__post_init__(self)
        _check_range(self, "concurrency", 1, 1000)
        _check_range(self, "batch_messages", 1, 1024)
        _check_range(self, "pull_messages", 1, 1024)
        _check_range(self, "pull_bytes", 1, 1 << 31)
        _check_range(self, "max_retries", -1, 1 << 31)
        _check_range(self, "rebalance_interval_ms", 1, 1 << 31)
        _check_range(self, "commit_interval_ms", 1, 1 << 31)
        _check_range(self, "close_timeout_ms", 0, 1 << 31)
        _check_range(self, "consume_timeout_ms", 1, 1 << 31)
        _check_range(self, "pause_ms", 10, 30_000)
        _check_range(self, "invisible_ms", 5_000, 300_000)
        _check_range(self, "pop_messages", 1, 32)
        _check_range(self, "max_in_hand", 1, 1 << 16)
        if self.by_pop and (self.is_orderly or self.is_broadcast):
            raise ConfigError("by POP messages come neither in order nor to all members", key="by_pop")
        if self.max_topic_messages is not None:
            _check_range(self, "max_topic_messages", 1, 6_553_500)
        if self.max_topic_bytes is not None:
            _check_range(self, "max_topic_bytes", 1, 102_400 * MIB)
        _check_limits(self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerSettings(ClientSettings):
    """Settings of a ``PullConsumer`` (Java's ``DefaultLitePullConsumer``)."""

    consume_from: ConsumeFrom = ConsumeFrom.LAST  # consumeFromWhere
    consume_from_at_ms: int | None = None  # consumeTimestamp
    strategy: AllocateMessageQueueStrategy = field(default_factory=AllocateMessageQueueAveragely)
    commits_itself: bool = True  # autoCommit
    commit_interval_ms: int = 5_000  # autoCommitIntervalMillis
    poll_timeout_ms: int = 5_000  # pollTimeoutMillis
    pull_messages: int = 10  # pullBatchSize
    pull_bytes: int = (1 << 31) - 1
    limits: FlowLimits = DEFAULT_LIMITS
    max_buffered_messages: int = 10_000  # pullThresholdForAll
    rebalance_interval_ms: int = 20_000

    def __post_init__(self) -> None:
        """Check the ranges."""
        ClientSettings.__post_init__(self)
        _check_range(self, "commit_interval_ms", 1000, 1 << 31)
        _check_range(self, "poll_timeout_ms", 0, 1 << 31)
        _check_range(self, "pull_messages", 1, 1024)
        _check_range(self, "pull_bytes", 1, (1 << 31) - 1)
        _check_range(self, "max_buffered_messages", 1, 1 << 31)
        _check_range(self, "rebalance_interval_ms", 1, 1 << 31)
        _check_limits(self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleConsumerSettings(ClientSettings):
    """Settings of a ``SimpleConsumer`` (that of RocketMQ 5's clients)."""

    consume_from: ConsumeFrom = ConsumeFrom.LAST  # of a new group: FIRST, or from the newest message of old queues on
    max_messages: int = 32  # for one ``receive``
    invisible_ms: int = 60_000  # invisibleDuration
    wait_ms: int = 15_000  # awaitDuration

    def __post_init__(self) -> None:
        """Check the ranges."""
        ClientSettings.__post_init__(self)
        _check_range(self, "max_messages", 1, 32)
        _check_range(self, "invisible_ms", 1, 12 * 3_600_000)
        _check_range(self, "wait_ms", 0, 600_000)


ConsumerSettings = PushConsumerSettings | PullConsumerSettings


def choose_nameserver(nameserver: str | None) -> str:
    """Return the name servers to use: those given, else those of the environment.

    Raises:
        ConfigError: there is none.
        TypeError: what was given is not text.
    """
    chosen = nameserver if nameserver is not None else os.environ.get(NAMESERVER_VARIABLE, "")
    if not isinstance(chosen, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"nameserver is {type(chosen).__name__}, it must be text such as 'host:9876;other:9876'")
    if not chosen.strip():
        raise ConfigError(f"no name server: pass nameserver= or set {NAMESERVER_VARIABLE}", key="nameserver")
    return chosen


def client_id_of(host: str, settings: ClientSettings) -> str:
    """Return an id for a new client (Java's ``buildMQClientId``)."""
    instance = settings.instance_name or f"{os.getpid()}#{time.perf_counter_ns()}"
    return "@".join(filter(None, (host, instance, settings.unit_name)))


def check_own_settings(settings: ClientSettings) -> None:
    """Refuse hooks of producers and consumers where a session, or an admin, has settings for itself.

    Raises:
        ConfigError: one of the hooks would never be called.
    """
    if type(settings) is not ClientSettings:
        return  # those of the producer or consumer whose session it is
    for hook in settings.hooks:
        if not isinstance(hook, RpcHook):
            raise ConfigError(f"{hook!r} belongs into the settings of a producer or consumer", key="hooks")


def check_shared_settings(settings: ClientSettings, shared: ClientSettings) -> None:
    """Refuse settings of a session that a producer or consumer has on its own while it shares one.

    Raises:
        ConfigError: one is neither the default nor what the session has.
    """
    for setting in fields(ClientSettings):
        if setting.name != "hooks" and getattr(settings, setting.name) not in (
            setting.default,
            getattr(shared, setting.name),
        ):
            raise ConfigError(f"{setting.name} is a setting of the session, which is shared", key=setting.name)
    if hooks_of(RpcHook, settings.hooks):
        raise ConfigError("hooks of requests are a setting of the session, which is shared", key="hooks")


def choose_settings(settings: Chosen | None, kind: type[Chosen]) -> Chosen:
    """Return the settings that were given, or the defaults of their kind.

    Raises:
        TypeError: they are of another kind.
    """
    if settings is None:
        return kind()
    if not isinstance(settings, kind):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"settings are {type(settings).__name__}, they must be {kind.__name__}")
    return settings


def check_group(group: str) -> str:
    """Return a group name that can be used (Java's ``Validators.checkGroup`` and the two names it reserves).

    Raises:
        ConfigError: the name is not allowed.
        TypeError: it is not text.
    """
    if not isinstance(group, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"group is {type(group).__name__}, it must be text")
    remark = client_group_remark(group)
    if remark is None and group in RESERVED_GROUPS:
        remark = f"the group {group} is reserved, choose a name of your own"
    if remark is not None:
        raise ConfigError(remark, key="group")
    return group


def check_topic(topic: str) -> None:
    """Refuse a topic name that no server accepts (Java's ``Validators.checkTopic``).

    Raises:
        TypeError: it is not text.
        ValueError: the name is blank, too long or has characters that are not allowed.
    """
    if not isinstance(topic, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"topic is {type(topic).__name__}, it must be text")
    if (remark := client_topic_remark(topic)) is not None:
        raise ValueError(remark)


def check_queue_offset(queue_offset: object) -> None:
    """Refuse what cannot be the offset of a message in a queue.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is negative.
    """
    if not isinstance(queue_offset, int):
        raise TypeError(f"the offset is {type(queue_offset).__name__}, it must be int")
    if queue_offset < 0:
        raise ValueError(f"the offset is {queue_offset}, must not be negative")


class _Settings(Protocol):
    """Any of the classes above."""


def _check_range(settings: _Settings, name: str, least: int, most: int) -> None:
    value: object = getattr(settings, name)
    if not isinstance(value, int):
        raise ConfigError(f"{name} is {value!r}, it must be a whole number", key=name)
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value}, allowed are {least} to {most}", key=name)


def _check_namespace(name: str) -> None:
    if client_topic_remark(name) is not None or "%" in name:
        raise ConfigError(f"{name!r} cannot be a namespace: letters, digits, -, _ and | alone", key="namespace")


def _check_compression(kind: CompressionKind) -> None:
    if not isinstance(kind, CompressionKind):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise ConfigError(f"compression is {kind!r}, allowed are the members of CompressionKind", key="compression")
    check_available(kind)


def _check_limits(limits: FlowLimits) -> None:
    for name, value, most in zip(limits._fields, limits, (65_535, 1024 * MIB, 65_535), strict=True):
        if not 1 <= value <= most:
            raise ConfigError(f"limits.{name} is {value}, allowed are 1 to {most}", key=f"limits.{name}")
