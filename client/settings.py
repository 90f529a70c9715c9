"""What can be set at producers and consumers, with Java's defaults.

Names are ours; the Java property is named beside each. A value outside Java's range is a ``ConfigError`` with the name
of the setting as its key.
"""

import os
from dataclasses import dataclass, field
from typing import Protocol

from ..common.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from ..common.errors import ConfigError
from ..common.names import AUTO_CREATE_TOPIC, DEFAULT_CONSUMER_GROUP, DEFAULT_PRODUCER_GROUP, client_group_remark
from .process_queue import FlowLimits
from .results import ConsumeFrom

MIB = 1024 * 1024
DEFAULT_LIMITS = FlowLimits()
NAMESERVER_VARIABLE = "NAMESRV_ADDR"
RESERVED_GROUPS = frozenset({DEFAULT_PRODUCER_GROUP, DEFAULT_CONSUMER_GROUP})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of a session, which producers and consumers have as well (Java's ``ClientConfig``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """Settings of a ``Producer`` (Java's ``DefaultMQProducer``)."""

    send_timeout_ms: int = 3000  # sendMsgTimeout, for the whole call with its retries
    retries: int = 2  # retryTimesWhenSendFailed
    tries_another_broker_when_not_stored_ok: bool = False  # retryAnotherBrokerWhenNotStoreOK
    compress_from_bytes: int = 4096  # compressMsgBodyOverHowmuch
    compression_level: int = 5
    max_message_bytes: int = 4 * MIB  # maxMessageSize
    template_topic: str = AUTO_CREATE_TOPIC  # createTopicKey
    new_topic_queues: int = 4  # defaultTopicQueueNums

    def __post_init__(self) -> None:
        """Check the ranges."""
        _check_range(self, "send_timeout_ms", 1, 1 << 31)
        _check_range(self, "retries", 0, 1 << 31)
        _check_range(self, "compress_from_bytes", 1, 1 << 31)
        _check_range(self, "compression_level", 0, 9)
        _check_range(self, "max_message_bytes", 1, 1 << 31)
        _check_range(self, "new_topic_queues", 1, 1 << 16)


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
    max_retries: int = -1  # maxReconsumeTimes; -1 = 16
    posts_subscription: bool = False  # postSubscriptionWhenPull
    rebalance_interval_ms: int = 20_000
    commit_interval_ms: int = 5_000  # persistConsumerOffsetInterval
    close_timeout_ms: int = 10_000  # how long closing waits for listeners that are running

    def __post_init__(self) -> None:
        """Check the ranges (``checkConfig`` of Java's consumer)."""
        _check_range(self, "concurrency", 1, 1000)
        _check_range(self, "batch_messages", 1, 1024)
        _check_range(self, "pull_messages", 1, 1024)
        _check_range(self, "pull_bytes", 1, 1 << 31)
        _check_range(self, "max_retries", -1, 1 << 31)
        _check_range(self, "rebalance_interval_ms", 1, 1 << 31)
        _check_range(self, "commit_interval_ms", 1, 1 << 31)
        _check_range(self, "close_timeout_ms", 0, 1 << 31)
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
        _check_range(self, "commit_interval_ms", 1000, 1 << 31)
        _check_range(self, "poll_timeout_ms", 0, 1 << 31)
        _check_range(self, "pull_messages", 1, 1024)
        _check_range(self, "pull_bytes", 1, (1 << 31) - 1)
        _check_range(self, "max_buffered_messages", 1, 1 << 31)
        _check_range(self, "rebalance_interval_ms", 1, 1 << 31)
        _check_limits(self.limits)


ConsumerSettings = PushConsumerSettings | PullConsumerSettings


def choose_nameserver(nameserver: str | None) -> str:
    """Return the name servers to use: those given, else those of the environment."""
    chosen = nameserver if nameserver is not None else os.environ.get(NAMESERVER_VARIABLE, "")
    if not chosen.strip():
        raise ConfigError(f"no name server: pass nameserver= or set {NAMESERVER_VARIABLE}", key="nameserver")
    return chosen


def check_group(group: str) -> str:
    """Return a group name that can be used (Java's ``Validators.checkGroup`` and the two names it reserves).

    Raises:
        ConfigError: the name is not allowed.
    """
    remark = client_group_remark(group)
    if remark is None and group in RESERVED_GROUPS:
        remark = f"the group {group} is reserved, choose a name of your own"
    if remark is not None:
        raise ConfigError(remark, key="group")
    return group


class _Settings(Protocol):
    """Any of the classes above."""


def _check_range(settings: _Settings, name: str, least: int, most: int) -> None:
    value: int = getattr(settings, name)
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value}, allowed are {least} to {most}", key=name)


def _check_limits(limits: FlowLimits) -> None:
    for name, value, most in zip(limits._fields, limits, (65_535, 1024 * MIB, 65_535), strict=True):
        if not 1 <= value <= most:
            raise ConfigError(f"limits.{name} is {value}, allowed are 1 to {most}", key=f"limits.{name}")
