"""Options of a reading of stores.

path | paths            stores: load("A"), load(["A", "B"]), or "A,B" where no directory has that name; patterns and
                        URLs as in ``export.filesystems``; in paths, a JSON list, an item "LOG,LOG" is one log that lies
                        in several directories
storageOptions          a JSON object: the arguments of the file system of URLs
topics, tags, keys      only messages with one of these topics, tags, keys; separated by commas
startingTimestamp       only messages stored at this time or later; epoch milliseconds or ISO 8601 (UTC)
endingTimestamp         only messages stored before this time
includeSystemTopics     true: system, retry and dead-letter topics too (``export.selection``)
verifyBodyCrc           whether to verify the checksums of bodies (default: where bodies are read)
onDamage                fail (default): damage fails the job; skip: go on behind it; prefix: read what is before it
splitBytes              so much of a log file at most for one task (default 128m)
useQueues               false: walk the log even where consume queues and index files tell what is wanted
pushFilters             take Spark's filters; before Spark 5 only where it is asked for (``filter_pushdown``)
reportPath              a directory for the report that proves the reading complete
columns                 only these columns (``read_modes``)
messageDelayLevel       the broker's delay levels, where they are not the default; for column ``dueTimestamp``
mappedFileSizeCommitLog, … (the size keys of Java's ``MessageStoreConfig``) as the store was written with; the
                        sizes of files are otherwise found from the files
"""

from dataclasses import dataclass, field
from typing import Any, Final, cast

from ...common.errors import ConfigError
from ...export.columns.system_columns import DEFAULT_DELAYS_MS
from ...export.plan.filesystems import OPTIONS_KEY, Storage, split_places
from ...export.plan.read_plan import SPLIT_BYTES, PlanOptions
from ...export.plan.selection import Selection
from ...store.files.store_config import (
    DEFAULT_DELAY_LEVELS,
    DELAY_KEY,
    ENTRIES_KEY,
    SEGMENT_KEY,
    SLOTS_KEY,
    parse_delay_levels,
)
from .filter_pushdown import PUSH_OPTION, parse_pushing
from .option_values import OptionValues

SIZE_KEYS: Final = (
    SEGMENT_KEY,
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "mapperFileSizeBatchConsumeQueue",
    "mappedFileSizeTimerLog",
    SLOTS_KEY,
    ENTRIES_KEY,
)
STORE_OPTIONS: Final = (
    "path",
    "paths",
    OPTIONS_KEY,
    "topics",
    "tags",
    "keys",
    "startingTimestamp",
    "endingTimestamp",
    "includeSystemTopics",
    "verifyBodyCrc",
    "onDamage",
    "splitBytes",
    "useQueues",
    PUSH_OPTION,
    "reportPath",
    "columns",
    DELAY_KEY,
    *SIZE_KEYS,
)
FAIL, SKIP, PREFIX = DAMAGE_WORDS = ("fail", "skip", "prefix")


@dataclass(frozen=True)
class StoreOptions:
    """What a reading was asked for; ``verifies_crc`` is ``None`` where it depends on the columns."""

    stores: tuple[str, ...]
    selection: Selection = field(default_factory=Selection)
    planning: PlanOptions = field(default_factory=PlanOptions)
    on_damage: str = FAIL
    verifies_crc: bool | None = None
    uses_queues: bool = True
    pushes_filters: bool = False
    index_sizes: tuple[int, int] | None = None
    report_path: str | None = None
    delays_ms: tuple[int, ...] = DEFAULT_DELAYS_MS


def parse_store_options(given: OptionValues) -> StoreOptions:
    """Return the options.

    Raises:
        ConfigError: A value that cannot be used, or no store.
    """
    on_damage = given.one_of("onDamage", DAMAGE_WORDS, FAIL)
    sizes = {name: given.size(name, 1) for name in SIZE_KEYS if name in given}
    planning = PlanOptions(
        segment_bytes=sizes.get(SEGMENT_KEY),
        split_bytes=given.size("splitBytes", SPLIT_BYTES),
        skips_damage=on_damage == SKIP,
        storage=Storage(given.text(OPTIONS_KEY, "{}") or "{}"),
    )
    given.json(OPTIONS_KEY)
    has_index_sizes = SLOTS_KEY in sizes and ENTRIES_KEY in sizes
    return StoreOptions(
        stores=_parse_stores(given, planning.storage),
        selection=_parse_selection(given),
        planning=planning,
        on_damage=on_damage,
        verifies_crc=given.flag("verifyBodyCrc", default=True) if "verifyBodyCrc" in given else None,
        uses_queues=given.flag("useQueues", default=True),
        pushes_filters=parse_pushing(given),
        index_sizes=(sizes[SLOTS_KEY], sizes[ENTRIES_KEY]) if has_index_sizes else None,
        report_path=given.text("reportPath"),
        delays_ms=parse_delay_levels(given.text(DELAY_KEY, DEFAULT_DELAY_LEVELS) or ""),
    )


def _parse_selection(given: OptionValues) -> Selection:
    starting, ending = given.instant("startingTimestamp"), given.instant("endingTimestamp")
    if starting is not None and ending is not None and starting >= ending:
        raise ConfigError(f"startingTimestamp {starting} is not before endingTimestamp {ending}", key="endingTimestamp")
    return Selection(
        topics=given.names("topics"),
        tags=given.names("tags"),
        keys=given.names("keys"),
        from_ms=starting,
        until_ms=ending,
        includes_system=given.flag("includeSystemTopics", default=False),
    )


def _parse_stores(given: OptionValues, storage: Storage) -> tuple[str, ...]:
    listed: Any = given.json("paths") or []
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in cast("list[Any]", listed)):
        raise ConfigError("paths is no JSON list of stores", key="paths")
    paths = cast("list[str]", listed)
    path = given.text("path") or ""
    paths += split_places(path, storage)
    stores = tuple(filter(None, (path.strip() for path in paths)))
    if not stores:
        raise ConfigError('no store is named: load("STORE") or load(["STORE", …])', key="path")
    return stores
