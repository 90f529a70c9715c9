"""Options of the sink: where messages go, and how.

nameserver, accessKey, tls, …  the cluster (``cluster_access``); group is the producer group, timeoutMs limits one send
topic                          the topic of all rows, whatever their column says
idempotenceProperty            property that gets a row's key, which is the same when the row is written again
                               (IDEMPOTENCE_KEY); empty: none
idempotenceColumns             make the key of the values of these columns, so that it does not depend on the order of
                               rows; source: of where the source read the row
runId                          first part of the keys of a batch write; a new one each time. Who gives the one of a
                               write that failed gets the keys of that write. A stream's is the id of its query
inFlight                       requests under way at once in each task
batchMessages                  messages of one topic that travel in one request, at most; 1: each in its own
deliveryTimeoutMs              for how long a message is tried before the task fails
rateLimit, rateLimitTasks      messages a second of the whole write, at most, and the tasks that write at once: each
                               of them gets an even share
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...client.producer.bulk_sender import BulkLimits
from ...client.session.settings import ProducerSettings, check_group, check_topic
from ...common.errors import ConfigError
from ...common.message import Message
from ..options import cluster_access as access
from ..options.cluster_access import Access, parse_access
from ..options.option_values import OptionValues

ROLE: Final = "the rocketmq sink"
GROUP: Final = "rocketlet-spark-sink"
IDEMPOTENCE_PROPERTY: Final = "IDEMPOTENCE_KEY"
KEY_COLUMNS: Final = "idempotenceColumns"
# Broker and place in its log; the messages of an inner batch have one place, and queue offsets of their own.
SOURCE_PLACE: Final = ("offsetMsgId", "queueOffset")
_NOT_OURS: Final = frozenset({"retries", "retryIntervalMs"})  # deliveryTimeoutMs says how long messages are tried
SINK_OPTIONS: Final = (
    *(name for name in access.ACCESS_OPTIONS if name not in _NOT_OURS),
    "topic",
    "idempotenceProperty",
    "idempotenceColumns",
    "runId",
    "inFlight",
    "batchMessages",
    "deliveryTimeoutMs",
    "rateLimit",
    "rateLimitTasks",
)
_PATHS: Final = ("path", "paths")
# Spark gives these to every streaming write.
_STREAM_NAMES: Final = ("checkpointLocation", "queryName")


@dataclass(frozen=True)
class SinkOptions:
    """What a writing was asked for; travels to the tasks."""

    access: Access
    group: str
    topic: str | None
    idempotence_property: str | None
    idempotence_columns: tuple[str, ...]
    run_id: str
    limits: BulkLimits
    rate: float | None

    @property
    def producer_settings(self) -> ProducerSettings:
        """The settings of each task's producer."""
        return ProducerSettings(
            credentials=self.access.credentials,
            tls=self.access.tls,
            send_timeout_ms=self.access.timeout_ms,
            tries_another_broker_when_not_stored_ok=True,
        )


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool = False) -> SinkOptions:
    """Return the options.

    Raises:
        ConfigError: An unknown name, a value that cannot be used, or no name server.
    """
    _refuse_paths(options)
    given = OptionValues(options, (*SINK_OPTIONS, *(_STREAM_NAMES if is_stream else ())), ROLE)
    if is_stream and "runId" in given:
        raise ConfigError("runId does not fit: a stream's keys begin with the id of its query", key="runId")
    if not given.text(access.NAMESERVER):
        raise ConfigError('nameserver is not given: .option("nameserver", "HOST:9876")', key=access.NAMESERVER)
    return SinkOptions(
        parse_access(given),
        check_group(given.text(access.GROUP) or GROUP),
        _parse_topic(given),
        _parse_property(given),
        _parse_key_columns(given),
        given.text("runId") or uuid.uuid4().hex,
        _parse_limits(given),
        _parse_rate(given),
    )


def _refuse_paths(options: Mapping[str, str]) -> None:
    for name in options:
        if name.lower() in _PATHS:
            raise ConfigError("the rocketmq sink writes to a cluster: give nameserver, and save() no path", key=name)


def _parse_topic(given: OptionValues) -> str | None:
    topic = given.text("topic")
    if topic is not None:
        try:
            check_topic(topic)
        except ValueError as error:
            raise ConfigError(f"topic {topic!r} cannot be used: {error}", key="topic") from None
    return topic


def _parse_property(given: OptionValues) -> str | None:
    name = given.text("idempotenceProperty", IDEMPOTENCE_PROPERTY)
    if not name:
        return None
    try:
        Message("T", b"x", properties={name: "key"}).to_properties()
    except ValueError as error:
        raise ConfigError(f"idempotenceProperty {name!r} cannot be used: {error}", key="idempotenceProperty") from None
    return name


def _parse_key_columns(given: OptionValues) -> tuple[str, ...]:
    text = given.text(KEY_COLUMNS)
    if text is None:
        return ()
    if not given.text("idempotenceProperty", IDEMPOTENCE_PROPERTY):
        raise ConfigError(f"{KEY_COLUMNS} is given, but idempotenceProperty names no property", key=KEY_COLUMNS)
    if "runId" in given:
        raise ConfigError(f"runId and {KEY_COLUMNS} contradict each other; give one of them", key="runId")
    names = (
        SOURCE_PLACE if text.lower() == "source" else tuple(part.strip() for part in text.split(",") if part.strip())
    )
    if not names:
        raise ConfigError(f"{KEY_COLUMNS} names no column", key=KEY_COLUMNS)
    return names


def _parse_limits(given: OptionValues) -> BulkLimits:
    standard = BulkLimits()
    return BulkLimits(
        in_flight=given.count("inFlight", standard.in_flight) or standard.in_flight,
        batch_messages=given.count("batchMessages", standard.batch_messages) or standard.batch_messages,
        patience_ms=given.count("deliveryTimeoutMs", standard.patience_ms) or standard.patience_ms,
    )


def _parse_rate(given: OptionValues) -> float | None:
    """Return the messages a second of each task."""
    rate, tasks = given.count("rateLimit"), given.count("rateLimitTasks")
    if rate is None or tasks is None:
        if rate is not None:
            text = "rateLimit needs rateLimitTasks: the number of tasks that write at once, among which it is shared"
            raise ConfigError(text, key="rateLimitTasks")
        if tasks is not None:
            raise ConfigError("rateLimitTasks is given, but no rateLimit", key="rateLimitTasks")
        return None
    return rate / tasks
