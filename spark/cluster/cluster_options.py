"""Options of a reading of a running cluster, beside those of ``cluster_access``, and the queues that it reads.

Names and meanings are those of Spark's Kafka source.

subscribe                   topics, separated by commas
subscribePattern            a regular expression that whole topic names match; system, retry and dead-letter topics
                            only with includeSystemTopics
assign                      queues: {"Orders": {"broker-a": [0, 1]}}, or {"Orders": [0, 1]} of every broker
startingOffsets             earliest (default of a batch), latest, or offsets by queue (``offset_bounds``)
endingOffsets               latest (default), or offsets by queue
startingTimestamp           begin in each queue with the first message that was stored then or later
endingTimestamp             end before the first message that was stored then or later
startingOffsetsByTimestamp  the same by queue; endingOffsetsByTimestamp
startingOffsetsByTimestampStrategy
                            of a queue without a message since then: error (default) or latest
minPartitions               at least so many tasks
maxRecordsPerPartition      no task gets more offsets than this
failOnDataLoss              true (default): offsets that are not there any more fail the reading; false: warn
tags                        only messages with one of these tags, separated by commas; brokers filter
verifyBodyCrc               false: do not verify the checksums of bodies
pushFilters                 take Spark's filters; before Spark 5 only where it is asked for (``filter_pushdown``)
pullsAtOnce                 how many pulls one task has under way
columns                     only these columns (``read_modes``)
reportPath                  a directory for the report that proves the reading complete; storageOptions as for stores
messageDelayLevel           the brokers' delay levels, where they are not the default; for column ``dueTimestamp``
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from ...common.errors import ConfigError
from ...common.message import MessageQueue
from ...export.columns.system_columns import DEFAULT_DELAYS_MS
from ...export.plan.filesystems import OPTIONS_KEY, Folder, Storage
from ...export.plan.selection import Selection, parse_instant
from ...store.files.store_config import DEFAULT_DELAY_LEVELS, DELAY_KEY, parse_delay_levels
from ..options.cluster_access import ACCESS_OPTIONS, GROUP, Access, parse_access
from ..options.filter_pushdown import PUSH_OPTION, parse_pushing
from ..options.option_values import OptionValues
from .offset_bounds import EARLIEST, LATEST, DataLoss, OffsetBound, parse_places

if TYPE_CHECKING:  # it imports the client, which who reads stores does without
    from .cluster import Cluster

# Broker (None: each) and queue id, by topic.
QueuesByTopic = Mapping[str, frozenset[tuple[str | None, int]]]

QUEUE_OPTIONS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class QueueChoice:
    """Which topics and queues are read; ``queues`` holds broker (None: every one) and queue id by topic."""

    option: str
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    queues: QueuesByTopic = field(default_factory=dict[str, frozenset[tuple[str | None, int]]])
    includes_system: bool = False


def find_queues(cluster: "Cluster", choice: QueueChoice, *, needs_any: bool = True) -> dict[MessageQueue, str]:
    """Return the queues that are read, with the addresses of their brokers.

    Raises:
        ConfigError: A topic or queue is not there; without ``needs_any``, a pattern may match no topic.
        RemotingError, ResponseError: A name server cannot be asked.
    """
    if choice.pattern is None:
        queues = cluster.queues(choice.topics)
        return _pick_queues(choice.queues, queues) if choice.queues else queues
    pattern = re.compile(choice.pattern)
    topics = [name for name in cluster.topics(includes_system=choice.includes_system) if pattern.fullmatch(name)]
    queues = cluster.queues(topics, skips_missing=True)
    if needs_any and not queues:
        raise ConfigError(f"subscribePattern {choice.pattern!r} matches no topic that can be read", key=choice.option)
    return queues


def find_present(cluster: "Cluster", choice: QueueChoice) -> dict[MessageQueue, str]:
    """Return the queues that are read as far as they are there; raises ``RemotingError`` and ``ResponseError``."""
    if choice.pattern is not None:
        return find_queues(cluster, choice, needs_any=False)
    queues = cluster.queues(choice.topics, skips_missing=True)
    return {queue: address for queue, address in queues.items() if _is_chosen(queue, choice)}


def _is_chosen(queue: MessageQueue, choice: QueueChoice) -> bool:
    places = choice.queues.get(queue.topic, frozenset())
    return not choice.queues or not places.isdisjoint({(queue.broker_name, queue.queue_id), (None, queue.queue_id)})


def _pick_queues(wanted: QueuesByTopic, queues: Mapping[MessageQueue, str]) -> dict[MessageQueue, str]:
    found: dict[MessageQueue, str] = {}
    for topic, places in sorted(wanted.items()):
        for broker, queue_id in places:
            fitting = [q for q in queues if q.topic == topic and q.queue_id == queue_id and broker in (None, q[1])]
            if not fitting:
                place = f"queue {queue_id} of {topic}" + (f" on {broker}" if broker else "")
                known = sorted({f"{q.queue_id} on {q.broker_name}" for q in queues if q.topic == topic})
                raise ConfigError(f"assign names {place}, but there are {', '.join(known)}", key="assign")
            found |= {queue: queues[queue] for queue in fitting}
    return dict(sorted(found.items()))


def parse_choice(given: OptionValues) -> QueueChoice:
    """Return what the options name.

    Raises:
        ConfigError: Nothing, too much, or in another form.
    """
    chosen = [name for name in QUEUE_OPTIONS if name in given]
    if not chosen:
        raise ConfigError(
            f"nothing says what to read from the cluster; give one of {', '.join(QUEUE_OPTIONS)}", key="subscribe"
        )
    for other in chosen[1:]:
        given.refuse_both(chosen[0], other)
    includes_system = given.flag("includeSystemTopics", default=False)
    if chosen[0] == "subscribe":
        topics = given.names("subscribe")
        if not topics:
            raise ConfigError("subscribe names no topic", key="subscribe")
        return QueueChoice("subscribe", topics, includes_system=includes_system)
    if chosen[0] == "subscribePattern":
        return QueueChoice("subscribePattern", pattern=_parse_pattern(given), includes_system=includes_system)
    queues = _parse_assignment(given.json("assign"))
    return QueueChoice("assign", frozenset(queues), queues=queues, includes_system=includes_system)


def _parse_pattern(given: OptionValues) -> str:
    pattern = given.text("subscribePattern") or ""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"subscribePattern {pattern!r} is no regular expression: {error}", key="subscribePattern"
        ) from None
    return pattern


def _parse_assignment(table: Any) -> dict[str, frozenset[tuple[str | None, int]]]:
    if not isinstance(table, dict) or not table:
        raise _refused_assignment(table)
    found: dict[str, frozenset[tuple[str | None, int]]] = {}
    for topic, value in cast("dict[str, Any]", table).items():
        brokers = cast("dict[str | None, Any]", value if isinstance(value, dict) else {None: value})
        found[topic] = frozenset((broker, queue) for broker, ids in brokers.items() for queue in _queue_ids(ids))
        if not found[topic]:
            raise ConfigError(f"assign names no queue of {topic}", key="assign")
    return found


def _queue_ids(ids: Any) -> list[int]:
    found: list[Any] = cast("list[Any]", ids) if isinstance(ids, list) else [None]
    if any(type(each) is not int or each < 0 for each in found):
        raise _refused_assignment(ids)
    return found


def _refused_assignment(value: Any) -> ConfigError:
    form = '{"topic": [0, 1]} or {"topic": {"broker": [0, 1]}}'
    return ConfigError(f"assign is not of the form {form}: {value!r}", key="assign")


TOOLS_GROUP: Final = "TOOLS_CONSUMER"
PULLS_AT_ONCE: Final = 16
BATCH_MESSAGES: Final = 65_536
BATCH_BYTES: Final = 16 << 20
REPORT_PATH: Final = "reportPath"
STRATEGY: Final = "startingOffsetsByTimestampStrategy"
START_NAMES: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
END_NAMES: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
CLUSTER_OPTIONS: Final = (
    *ACCESS_OPTIONS,
    *QUEUE_OPTIONS,
    *START_NAMES,
    STRATEGY,
    *END_NAMES,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeSystemTopics",
    "tags",
    "keys",
    "verifyBodyCrc",
    "pullsAtOnce",
    PUSH_OPTION,
    "columns",
    DELAY_KEY,
    REPORT_PATH,
    OPTIONS_KEY,
)


@dataclass(frozen=True)
class ClusterOptions:
    """What a reading of a cluster was asked for; travels to the tasks."""

    access: Access
    choice: QueueChoice
    starting: OffsetBound
    ending: OffsetBound
    min_partitions: int | None = None
    max_records: int | None = None
    data_loss: DataLoss = field(default_factory=DataLoss)
    group: str = TOOLS_GROUP
    selection: Selection = field(default_factory=lambda: Selection(includes_system=True))
    checks_crc: bool = True
    pulls_at_once: int = PULLS_AT_ONCE
    pushes_filters: bool = False
    batch_messages: int = BATCH_MESSAGES
    batch_bytes: int = BATCH_BYTES
    delays_ms: tuple[int, ...] = DEFAULT_DELAYS_MS
    report: Folder | None = None


def parse_cluster_options(given: OptionValues, *, default_start: int = EARLIEST) -> ClusterOptions:
    """Return the options; a stream begins at ``LATEST`` by default, a batch at ``EARLIEST``.

    Raises:
        ConfigError: A value that cannot be used, or options that contradict each other.
    """
    starting = _parse_bound(given, START_NAMES, default_start)
    ending = _parse_bound(given, END_NAMES, LATEST)
    if starting.queue_offset == LATEST != default_start:
        raise ConfigError("startingOffsets latest leaves nothing to read in a batch", key="startingOffsets")
    if starting.at_ms is not None and ending.at_ms is not None and starting.at_ms >= ending.at_ms:
        raise ConfigError(
            f"startingTimestamp {starting.at_ms} is not before endingTimestamp {ending.at_ms}", key="endingTimestamp"
        )
    storage = Storage(given.text(OPTIONS_KEY, "{}") or "{}")
    return ClusterOptions(
        access=parse_access(given),
        choice=parse_choice(given),
        starting=starting,
        ending=ending,
        min_partitions=given.count("minPartitions"),
        max_records=given.count("maxRecordsPerPartition"),
        data_loss=DataLoss(given.flag("failOnDataLoss", default=True)),
        group=given.text(GROUP) or TOOLS_GROUP,
        selection=Selection(tags=given.names("tags"), keys=given.names("keys"), includes_system=True),
        checks_crc=given.flag("verifyBodyCrc", default=True),
        pulls_at_once=given.count("pullsAtOnce") or PULLS_AT_ONCE,
        pushes_filters=parse_pushing(given),
        delays_ms=parse_delay_levels(given.text(DELAY_KEY, DEFAULT_DELAY_LEVELS) or ""),
        report=Folder(given.text(REPORT_PATH) or "", storage) if REPORT_PATH in given else None,
    )


def _parse_bound(given: OptionValues, names: tuple[str, str, str], default: int) -> OffsetBound:
    at, by_time, by_offset = names
    for one, other in ((at, by_time), (at, by_offset), (by_time, by_offset)):
        given.refuse_both(one, other)
    is_end = names is END_NAMES
    takes_latest = is_end or given.one_of(STRATEGY, ("error", "latest"), "error") == "latest"
    if at in given:
        return OffsetBound(at, at_ms=given.instant(at), is_end=is_end, takes_latest=takes_latest)
    if by_time in given:
        instants = parse_places(by_time, given.json(by_time), _parse_instant)
        return OffsetBound(by_time, instants=instants, is_end=is_end, takes_latest=takes_latest)
    return _parse_offsets(given, by_offset, default, is_end=is_end)


def _parse_offsets(given: OptionValues, option: str, default: int, *, is_end: bool) -> OffsetBound:
    text = given.text(option)
    if text is None:
        return OffsetBound(option, default, is_end=is_end)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        if is_end and text.lower() == "earliest":
            raise ConfigError(f"{option} earliest leaves nothing to read", key=option)
        return OffsetBound(option, words[text.lower()], is_end=is_end)
    if not text.startswith("{"):
        raise ConfigError(f"{option} is {text!r}, neither earliest, latest nor JSON offsets by queue", key=option)
    return OffsetBound(option, offsets=parse_places(option, given.json(option), _parse_offset), is_end=is_end)


def _parse_offset(value: Any, option: str) -> int:
    if type(value) is not int or value < EARLIEST:
        raise ConfigError(f"{option} holds {value!r}, which is no offset", key=option)
    return value


def _parse_instant(value: Any, option: str) -> int:
    if type(value) not in (int, str):
        raise ConfigError(f"{option} holds {value!r}, neither epoch milliseconds nor an ISO 8601 time", key=option)
    return parse_instant(str(value), option)
