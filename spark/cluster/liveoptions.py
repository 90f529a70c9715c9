"""Options of a reading of a running cluster, beside those of ``access``; names and meanings as in Spark's Kafka source.

subscribe                   topics, separated by commas
subscribePattern            a regular expression that whole topic names match; system, retry and dead-letter topics
                            only with includeSystemTopics
assign                      queues: {"Orders": {"broker-a": [0, 1]}}, or {"Orders": [0, 1]} of every broker
startingOffsets             earliest (default of a batch), latest, or offsets by queue (``liveoffsets``)
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
pushFilters                 take Spark's filters; before Spark 5 only where it is asked for (``pushing``)
pullsAtOnce                 how many pulls one task has under way
columns                     only these columns (``modes``)
reportPath                  a directory for the report that proves the reading complete; storageOptions as for stores
messageDelayLevel           the brokers' delay levels, where they are not the default; for column ``dueTimestamp``
"""

from dataclasses import dataclass, field
from typing import Any, Final

from ...common.errors import ConfigError
from ...export.columns.systemcolumns import DEFAULT_DELAYS_MS
from ...export.plan.instant import parse_instant
from ...export.plan.places import OPTIONS_KEY, Storage
from ...export.plan.selection import Selection
from ...export.report.folder import Folder
from ...store.files.store_config import DEFAULT_DELAY_LEVELS, DELAY_KEY, parse_delay_levels
from ..options.access import GROUP, Access, parse_access
from ..options.access import NAMES as ACCESS_NAMES
from ..options.losses import Losses
from ..options.optionvalues import Given
from ..options.pushing import PUSH_OPTION, parse_pushing
from .choice import NAMES as CHOICE_NAMES
from .choice import Choice, parse_choice
from .liveoffsets import EARLIEST, LATEST, Bound, parse_places

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
PULLS_AT_ONCE: Final = 16
BATCH_MESSAGES: Final = 65_536
BATCH_BYTES: Final = 16 << 20
REPORT_PATH: Final = "reportPath"
STRATEGY: Final = "startingOffsetsByTimestampStrategy"
START_NAMES: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
END_NAMES: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
NAMES: Final = (
    *ACCESS_NAMES,
    *CHOICE_NAMES,
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
class LiveOptions:
    """What a reading of a cluster was asked for; travels to the tasks."""

    access: Access
    choice: Choice
    starting: Bound
    ending: Bound
    min_partitions: int | None = None
    max_records: int | None = None
    losses: Losses = field(default_factory=Losses)
    group: str = TOOLS_GROUP
    selection: Selection = field(default_factory=lambda: Selection(includes_system=True))
    checks_crc: bool = True
    pulls_at_once: int = PULLS_AT_ONCE
    pushes_filters: bool = False
    batch_messages: int = BATCH_MESSAGES
    batch_bytes: int = BATCH_BYTES
    delays_ms: tuple[int, ...] = DEFAULT_DELAYS_MS
    report: Folder | None = None


def parse_live(given: Given, *, default_start: int = EARLIEST) -> LiveOptions:
    """Return the options; a stream begins at ``LATEST`` by default, a batch at ``EARLIEST``.

    Raises:
        ConfigError: A value that cannot be used, or options that contradict each other.
    """
    starting = _parse_bound(given, START_NAMES, default_start)
    ending = _parse_bound(given, END_NAMES, LATEST)
    if starting.offset == LATEST != default_start:
        raise ConfigError("startingOffsets latest leaves nothing to read in a batch", key="startingOffsets")
    if starting.at_ms is not None and ending.at_ms is not None and starting.at_ms >= ending.at_ms:
        raise ConfigError(
            f"startingTimestamp {starting.at_ms} is not before endingTimestamp {ending.at_ms}", key="endingTimestamp"
        )
    storage = Storage(given.text(OPTIONS_KEY, "{}") or "{}")
    return LiveOptions(
        access=parse_access(given),
        choice=parse_choice(given),
        starting=starting,
        ending=ending,
        min_partitions=given.count("minPartitions"),
        max_records=given.count("maxRecordsPerPartition"),
        losses=Losses(given.flag("failOnDataLoss", default=True)),
        group=given.text(GROUP) or TOOLS_GROUP,
        selection=Selection(tags=given.names("tags"), keys=given.names("keys"), includes_system=True),
        checks_crc=given.flag("verifyBodyCrc", default=True),
        pulls_at_once=given.count("pullsAtOnce") or PULLS_AT_ONCE,
        pushes_filters=parse_pushing(given),
        delays_ms=parse_delay_levels(given.text(DELAY_KEY, DEFAULT_DELAY_LEVELS) or ""),
        report=Folder(given.text(REPORT_PATH) or "", storage) if REPORT_PATH in given else None,
    )


def _parse_bound(given: Given, names: tuple[str, str, str], default: int) -> Bound:
    at, by_time, by_offset = names
    for one, other in ((at, by_time), (at, by_offset), (by_time, by_offset)):
        given.refuse_both(one, other)
    is_end = names is END_NAMES
    takes_latest = is_end or given.one_of(STRATEGY, ("error", "latest"), "error") == "latest"
    if at in given:
        return Bound(at, at_ms=given.instant(at), is_end=is_end, takes_latest=takes_latest)
    if by_time in given:
        instants = parse_places(by_time, given.json(by_time), _parse_instant)
        return Bound(by_time, instants=instants, is_end=is_end, takes_latest=takes_latest)
    return _parse_offsets(given, by_offset, default, is_end=is_end)


def _parse_offsets(given: Given, option: str, default: int, *, is_end: bool) -> Bound:
    text = given.text(option)
    if text is None:
        return Bound(option, default, is_end=is_end)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        if is_end and text.lower() == "earliest":
            raise ConfigError(f"{option} earliest leaves nothing to read", key=option)
        return Bound(option, words[text.lower()], is_end=is_end)
    if not text.startswith("{"):
        raise ConfigError(f"{option} is {text!r}, neither earliest, latest nor JSON offsets by queue", key=option)
    return Bound(option, offsets=parse_places(option, given.json(option), _parse_offset), is_end=is_end)


def _parse_offset(value: Any, option: str) -> int:
    if type(value) is not int or value < EARLIEST:
        raise ConfigError(f"{option} holds {value!r}, which is no offset", key=option)
    return value


def _parse_instant(value: Any, option: str) -> int:
    if type(value) not in (int, str):
        raise ConfigError(f"{option} holds {value!r}, neither epoch milliseconds nor an ISO 8601 time", key=option)
    return parse_instant(str(value), option)
